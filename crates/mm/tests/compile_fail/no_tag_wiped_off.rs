//! The debt in the record of a frame cannot be removed, whether the frame is in use or free.
use pagefold_mm::frame::Frame;

pub fn wipe(frame: &Frame) {
    frame.set_debt(0);
    frame.clear_private();
    frame.wipe(pagefold_mm::frame::FrameFlags::empty());
}

fn main() {}
