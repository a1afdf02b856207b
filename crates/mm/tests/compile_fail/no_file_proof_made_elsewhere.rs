//! That a file is settled is only known from `Tlb::settle_file`.
use mm::tlb::FileSettled;
use mm::units::*;

pub fn make(file: FileId) -> FileSettled {
    FileSettled(file)
}

pub fn copy(proof: &FileSettled) -> FileSettled {
    proof.clone()
}

fn main() {}
