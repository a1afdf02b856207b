//! What a frame owes cannot be taken off its record, be it in use or free.
use mm::frame::Frame;

pub fn wipe(frame: &Frame) {
    frame.set_debt(0);
    frame.set_private(0);
    frame.wipe(mm::frame::FrameFlags::empty());
}

fn main() {}
