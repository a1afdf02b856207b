//! Ring 3: how a program lives on the booted machine.
//!
//! A program is written against [`program::Os`]. Here that trait is carried over the border between ring 3 and ring 0:
//! [`abi::call`] says how a call travels in registers, [`os`] makes the calls and touches memory by real instructions,
//! [`check`] judges what loads bring, and [`life`] leads a task from its first instruction to its last call. All of it
//! runs in ring 3 out of the *user arena*, memory that the memory manager knows nothing of, and reaches the machine
//! only through the trait [`Ring`]; so it is tested on the host.

mod buffer;
pub mod check;
pub mod choice;
pub mod life;
pub mod os;
pub mod scenarios;
pub mod world;

pub use life::Home;
pub use os::UserOs;
pub use world::World;

use program::Signal;

/// What ring 3 can do on its machine besides computing.
///
/// Addresses given to the touching methods are the program's own: any value whatever. A touch that the kernel cannot
/// serve returns the signal instead of ending the task.
pub trait Ring {
    /// Enter ring 0: number and arguments as [`abi::Call`] has them; the answer as
    /// [`abi::call::decode_answer`] takes it.
    fn call(&self, number: u64, args: [u64; 6]) -> [u64; 2];

    /// Load the 8-byte word at `addr`, which is aligned.
    fn load(&self, addr: u64) -> Result<u64, Signal>;

    /// Store a word at `addr`, which is aligned.
    fn store(&self, addr: u64, word: u64) -> Result<(), Signal>;

    /// What an instruction fetch at `addr` does to memory management. A machine that must not run what programs' pages
    /// hold takes it as a load.
    fn fetch(&self, addr: u64) -> Result<(), Signal> {
        self.load(addr & !7).map(drop)
    }

    /// Execute about that many instructions that touch no memory.
    fn compute(&self, instructions: u64);
}
