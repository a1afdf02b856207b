//! System calls in registers, from programs in a ring of their own.

use crate::host::Rings;
use crate::{Kernel, Task};
use abi::call::{Exit, Tell, encode_answer};
use abi::{Buffer, Call, Errno};
use alloc::string::String;
use mm::units::Pfn;

/// Longest text of a report, in bytes.
const LONGEST_TEXT: u64 = 4096;

/// What follows a system call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum After {
    /// Return to ring 3 with this result.
    Return([u64; 2]),
    /// The task has ended and left its space. It never runs again.
    Ended,
    /// The task has panicked with this message: the run has failed.
    Panicked(String),
}

/// Take the first bytes off a buffer. Returns their address.
fn advance(left: &mut Buffer, bytes: u32) -> u64 {
    let (addr, bytes) = (left.addr, u64::from(bytes));
    assert!(
        bytes <= left.len,
        "a transfer of {bytes} bytes must fit into the {} bytes that are left of the buffer",
        left.len
    );
    *left = Buffer { addr: addr + bytes, len: left.len - bytes };
    addr
}

impl<H: Rings> Kernel<H> {
    /// Carry out the system call that `task` makes.
    pub fn trap(&self, task: &Task, number: u64, args: [u64; 6]) -> After {
        let answer = match Call::decode(number, args, &self.host().user_arena()) {
            Ok(Call::Exit(exit)) => {
                self.exit(task, &exit);
                return After::Ended;
            }
            Ok(Call::Tell(Tell::Panic, text)) if !self.is_dying(task) => {
                return After::Panicked(self.text(text, LONGEST_TEXT).unwrap_or_default());
            }
            // A program may panic because its calls fail. If its process is to end anyway, that is no error.
            Ok(Call::Tell(Tell::Panic, _)) => {
                self.exit(task, &Exit::default());
                return After::Ended;
            }
            Ok(Call::Tell(what, text)) => self.text(text, LONGEST_TEXT).map(|text| {
                self.host().tell(what, &text);
                0
            }),
            Ok(call) => {
                let answer = self.transfer(task, call);
                // Notice here whether the process is to end.
                self.is_dying(task);
                answer
            }
            Err(errno) => Err(errno),
        };
        After::Return(encode_answer(answer))
    }

    /// Carry out a call. Its bytes, if it has any, are in ring 3.
    fn transfer(&self, task: &Task, call: Call<'_>) -> Result<u64, Errno> {
        match call {
            Call::Pread(fd, buffer, offset) => {
                // Pages come in order. A frame does not tell its position: it may just have been truncated off its
                // file.
                let mut left = buffer;
                let mut copy = |pfn: Pfn, at: u32, bytes: u32| {
                    self.host().copy_to_user(advance(&mut left, bytes), pfn, at, bytes);
                };
                self.read(task, fd, offset, buffer.len, &mut copy)
            }
            Call::Pwrite(fd, buffer, offset) => {
                let mut left = buffer;
                let mut copy = |pfn: Pfn, at: u32, bytes: u32| {
                    self.host().copy_from_user(pfn, at, advance(&mut left, bytes), bytes);
                };
                self.write(task, fd, offset, buffer.len, &mut copy)
            }
            _ => self.call(task, call),
        }
    }
}
