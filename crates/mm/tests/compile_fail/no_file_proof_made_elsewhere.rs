//! Only `Tlb::settle_file` makes the proof that a file is settled.
use mm::tlb::FileSettled;
use mm::units::*;

pub fn make(file: FileId) -> FileSettled {
    FileSettled(file)
}

pub fn copy(proof: &FileSettled) -> FileSettled {
    proof.clone()
}

fn main() {}
