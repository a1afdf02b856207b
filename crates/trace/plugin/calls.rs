//! The system calls that matter, by number.
//!
//! A call that is recorded unchanged is not listed here: the crate `abi` knows its number and its registers. Listed
//! are the calls that need more than that, and those that are recorded as another call.

use crate::event::{PAGE_SHIFT, PAGE_SIZE};

/// A system call that changes memory, uses files, or starts or ends tasks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    /// The call of [`abi::Call`] that has this number on x86-64.
    Plain(u64),
    Read,
    Write,
    Pread,
    Pwrite,
    ReadVector,
    WriteVector,
    PreadVector,
    PwriteVector,
    Receive,
    Send,
    ReceiveMessage,
    SendMessage,
    Connect,
    Accept,
    SocketPair,
    Futex,
    SendFile,
    CopyFileRange,
    Open,
    Close,
    CloseRange,
    DupTo,
    Mmap,
    Mprotect,
    Mremap,
    Brk,
    Msync,
    Fallocate,
    Clone,
    Fork,
    Exec,
    ExecAt,
    Wait,
    WaitId,
    Sleep,
    Exit,
    ExitGroup,
}

/// mlock2 locks like mlock; fdatasync and sync_file_range write like fsync.
const MLOCK: u64 = 149;
const FSYNC: u64 = 74;

/// The call that `number` is on x86-64.
pub fn x86_64(number: i64) -> Option<Call> {
    Some(match number {
        0 => Call::Read,
        1 => Call::Write,
        2 | 85 | 257 | 437 => Call::Open,
        3 => Call::Close,
        9 => Call::Mmap,
        10 => Call::Mprotect,
        12 => Call::Brk,
        17 => Call::Pread,
        18 => Call::Pwrite,
        19 => Call::ReadVector,
        20 => Call::WriteVector,
        25 => Call::Mremap,
        26 => Call::Msync,
        33 | 292 => Call::DupTo,
        35 | 230 => Call::Sleep,
        40 => Call::SendFile,
        42 => Call::Connect,
        43 | 288 => Call::Accept,
        44 => Call::Send,
        45 => Call::Receive,
        46 => Call::SendMessage,
        47 => Call::ReceiveMessage,
        53 => Call::SocketPair,
        56 => Call::Clone,
        57 | 58 => Call::Fork,
        59 => Call::Exec,
        60 => Call::Exit,
        61 => Call::Wait,
        75 | 277 => Call::Plain(FSYNC),
        325 => Call::Plain(MLOCK),
        202 => Call::Futex,
        231 => Call::ExitGroup,
        247 => Call::WaitId,
        285 => Call::Fallocate,
        295 | 327 => Call::PreadVector,
        296 | 328 => Call::PwriteVector,
        322 => Call::ExecAt,
        326 => Call::CopyFileRange,
        436 => Call::CloseRange,
        _ => {
            return u64::try_from(number).ok().filter(|&number| abi::Call::is_linux(number)).map(Call::Plain);
        }
    })
}

/// The call that `number` is on aarch64 and the other architectures with the common table.
pub fn common(number: i64) -> Option<Call> {
    Some(match number {
        24 => Call::DupTo,
        47 => Call::Fallocate,
        56 | 437 => Call::Open,
        57 => Call::Close,
        63 => Call::Read,
        64 => Call::Write,
        65 => Call::ReadVector,
        66 => Call::WriteVector,
        67 => Call::Pread,
        68 => Call::Pwrite,
        69 | 286 => Call::PreadVector,
        70 | 287 => Call::PwriteVector,
        71 => Call::SendFile,
        83 | 84 => Call::Plain(FSYNC),
        93 => Call::Exit,
        94 => Call::ExitGroup,
        95 => Call::WaitId,
        98 => Call::Futex,
        101 | 115 => Call::Sleep,
        199 => Call::SocketPair,
        202 | 242 => Call::Accept,
        203 => Call::Connect,
        206 => Call::Send,
        207 => Call::Receive,
        211 => Call::SendMessage,
        212 => Call::ReceiveMessage,
        214 => Call::Brk,
        216 => Call::Mremap,
        220 => Call::Clone,
        221 => Call::Exec,
        222 => Call::Mmap,
        226 => Call::Mprotect,
        227 => Call::Msync,
        284 => Call::Plain(MLOCK),
        260 => Call::Wait,
        281 => Call::ExecAt,
        285 => Call::CopyFileRange,
        436 => Call::CloseRange,
        _ => return u64::try_from(number).ok().and_then(abi::call::of_common).map(Call::Plain),
    })
}

impl Call {
    /// Whether the call changes the address space, so that it gets an epoch (`clone` only if it forks).
    pub fn changes_space(self, args: &[u64; 6]) -> bool {
        match self {
            Call::Mmap | Call::Mprotect | Call::Mremap | Call::Fallocate => true,
            Call::Plain(number) => plain(number, args).is_some_and(|call| call.changes_space()),
            Call::Brk => args[0] != 0,
            Call::Fork => true,
            Call::Clone => forks(args),
            _ => false,
        }
    }
}

/// The pages whose content the call takes away, or moves, if it succeeds.
pub fn takes_away(call: Call, args: &[u64; 6]) -> Option<(u64, u64)> {
    const FIXED: u64 = 0x10;
    let (addr, len) = match call {
        Call::Mmap if args[3] & FIXED != 0 => (args[0], args[1]),
        Call::Mremap => (args[0], args[1]),
        Call::Plain(number) => match plain(number, args)? {
            abi::Call::Munmap(addr, len) => (addr, len),
            abi::Call::Madvise(addr, len, abi::Advice::DontNeed | abi::Advice::Free) => (addr, len),
            _ => return None,
        },
        _ => return None,
    };
    Some((addr >> PAGE_SHIFT, addr.saturating_add(len).div_ceil(PAGE_SIZE)))
}

/// The call in these registers, if they are valid for it. The upper half of a descriptor's register is ignored.
pub fn plain(number: u64, args: &[u64; 6]) -> Option<abi::Call<'static>> {
    let mut narrow = *args;
    narrow[0] &= u64::from(u32::MAX);
    abi::Call::of_linux(number, *args).or_else(|| abi::Call::of_linux(number, narrow))
}

/// Whether `clone` with these arguments starts a process. QEMU turns `vfork` into `fork`.
pub fn forks(args: &[u64; 6]) -> bool {
    const VM: u64 = 0x100;
    const VFORK: u64 = 0x4000;
    args[0] & VM == 0 || args[0] & VFORK != 0
}
