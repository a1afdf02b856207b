//! What a frame owes cannot be taken off its record, be it in use or free.
use mm::frame::Frame;

pub fn wipe(frame: &Frame) {
    frame.set_debt(0);
    frame.clear_private();
    frame.wipe(mm::frame::FrameFlags::empty());
}

fn main() {}
