//! The system calls that matter, by number.

/// A system call that changes memory, uses files or starts and ends tasks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
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
    Munmap,
    Mprotect,
    Mremap,
    Brk,
    Madvise,
    Mlock,
    Munlock,
    Msync,
    Fsync,
    Ftruncate,
    Fallocate,
    Fadvise,
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

/// The call that `number` is on x86-64.
pub fn x86_64(number: i64) -> Option<Call> {
    Some(match number {
        0 => Call::Read,
        1 => Call::Write,
        2 | 85 | 257 | 437 => Call::Open,
        3 => Call::Close,
        9 => Call::Mmap,
        10 => Call::Mprotect,
        11 => Call::Munmap,
        12 => Call::Brk,
        17 => Call::Pread,
        18 => Call::Pwrite,
        19 => Call::ReadVector,
        20 => Call::WriteVector,
        25 => Call::Mremap,
        26 => Call::Msync,
        28 => Call::Madvise,
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
        74 | 75 | 277 => Call::Fsync,
        77 => Call::Ftruncate,
        149 | 325 => Call::Mlock,
        150 => Call::Munlock,
        202 => Call::Futex,
        221 => Call::Fadvise,
        231 => Call::ExitGroup,
        247 => Call::WaitId,
        285 => Call::Fallocate,
        295 | 327 => Call::PreadVector,
        296 | 328 => Call::PwriteVector,
        322 => Call::ExecAt,
        326 => Call::CopyFileRange,
        436 => Call::CloseRange,
        _ => return None,
    })
}

/// The call that `number` is on aarch64 and the other architectures with the common table.
pub fn common(number: i64) -> Option<Call> {
    Some(match number {
        24 => Call::DupTo,
        46 => Call::Ftruncate,
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
        82..=84 => Call::Fsync,
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
        215 => Call::Munmap,
        216 => Call::Mremap,
        220 => Call::Clone,
        221 => Call::Exec,
        222 => Call::Mmap,
        223 => Call::Fadvise,
        226 => Call::Mprotect,
        227 => Call::Msync,
        228 | 284 => Call::Mlock,
        229 => Call::Munlock,
        233 => Call::Madvise,
        260 => Call::Wait,
        281 => Call::ExecAt,
        285 => Call::CopyFileRange,
        436 => Call::CloseRange,
        _ => return None,
    })
}

impl Call {
    /// Does the call change the address space, so that it gets an epoch? (`clone` only if it forks.)
    pub fn changes_space(self, args: &[u64; 6]) -> bool {
        match self {
            Call::Mmap | Call::Munmap | Call::Mprotect | Call::Mremap | Call::Ftruncate | Call::Fallocate => {
                true
            }
            Call::Brk => args[0] != 0,
            Call::Fork => true,
            Call::Clone => forks(args),
            _ => false,
        }
    }
}

/// Does `clone` with these arguments start a process? QEMU makes `vfork` a `fork`.
pub fn forks(args: &[u64; 6]) -> bool {
    const VM: u64 = 0x100;
    const VFORK: u64 = 0x4000;
    args[0] & VM == 0 || args[0] & VFORK != 0
}
