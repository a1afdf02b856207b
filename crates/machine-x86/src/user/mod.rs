//! Ring 3: how a program runs on the booted machine.
//!
//! A program is written against [`program::Os`]. Here that trait crosses the border between ring 3 and ring
//! 0: [`abi::call`] defines how a call uses registers, [`os`] makes the calls and accesses memory by real
//! instructions, [`check`] checks what loads return, and [`life`] runs a task from its first instruction to
//! its last call. All of it runs in ring 3 in the *user arena*, memory outside the memory manager, and uses
//! the machine only through the trait [`Ring`]; so it is tested on the host.

mod buffer;
pub mod check;
pub mod choice;
pub mod life;
pub mod os;
pub mod scenarios;

pub use life::LaunchInfo;
pub use os::UserOs;

use program::Signal;

/// The settings of a run that its tasks know.
#[derive(Clone, Copy)]
pub struct Settings {
    /// Whether memory is checked.
    pub check: bool,
    /// The run's seed.
    pub seed: u64,
    /// CPUs of the machine.
    pub cpus: u32,
    /// Bytes of memory of the memory manager.
    pub memory: u64,
}

/// What ring 3 can do on its machine besides computing.
///
/// Addresses given to `load`, `store` and `fetch` are the program's and may have any value. If the kernel
/// cannot handle a fault of such an access, it returns the signal instead of ending the task.
pub trait Ring {
    /// Make a system call: number and arguments as encoded by [`abi::Call`]; the answer as decoded by
    /// [`abi::call::decode_answer`].
    fn call(&self, number: u64, args: [u64; 6]) -> [u64; 2];

    /// Load the 8-byte word at the aligned address `addr`.
    fn load(&self, addr: u64) -> Result<u64, Signal>;

    /// Store a word at the aligned address `addr`.
    fn store(&self, addr: u64, word: u64) -> Result<(), Signal>;

    /// Do what an instruction fetch at `addr` means for memory management. A machine that must not execute
    /// the content of programs' pages does a load.
    fn fetch(&self, addr: u64) -> Result<(), Signal> {
        self.load(addr & !7).map(drop)
    }

    /// Execute about `instructions` instructions that touch no memory.
    fn compute(&self, instructions: u64);
}
