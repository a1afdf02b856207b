//! Only `Tlb::settle_file` makes the proof that a file is settled.
use pagefold_mm::tlb::FileSettled;
use pagefold_mm::units::*;

pub fn make(file: FileId) -> FileSettled {
    FileSettled(file)
}

pub fn copy(proof: &FileSettled) -> FileSettled {
    proof.clone()
}

fn main() {}
