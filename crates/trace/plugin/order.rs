//! What orders tasks: calls that wait for others, and calls that others wait for.
//!
//! Each such call gets a mark where it begins and, after its return, a place where it may have waited. Which call
//! waited for which is found out after the recording (`crates/trace/src/record/order.rs`), from what is recorded here:
//! what each call did, to what, and when, by a clock that all processes share.

use std::ffi::c_int;

use crate::calls::{Call, forks};
use crate::files::Channel;
use crate::maps;
use crate::raw::{Deed, Step};
use crate::shared;
use crate::system::{self, now};
use crate::thread::Thread;

/// A call that began.
pub struct Begun {
    call: u64,
    begin: u64,
    what: What,
}

enum What {
    Futex { operation: u64, key: (bool, u64) },
    Put(Channel),
    Take(Channel),
    Connect { address: u64, socket: u64 },
    Accept,
    SocketPair,
    Start { addr: u64 },
    Told,
}

/// Futex operations (<linux/futex.h>), without their flags.
mod futex {
    pub const WAIT: u64 = 0;
    pub const WAKE: u64 = 1;
    pub const REQUEUE: u64 = 3;
    pub const CMP_REQUEUE: u64 = 4;
    pub const WAKE_OP: u64 = 5;
    pub const LOCK_PI: u64 = 6;
    pub const UNLOCK_PI: u64 = 7;
    pub const WAIT_BITSET: u64 = 9;
    pub const WAKE_BITSET: u64 = 10;
    pub const WAIT_REQUEUE_PI: u64 = 11;
    pub const CMP_REQUEUE_PI: u64 = 12;
    pub const LOCK_PI2: u64 = 13;
    pub const PRIVATE: u64 = 128;
    pub const OPERATION: u64 = 127;
}

const EAGAIN: i64 = -11;
const EINPROGRESS: i64 = -115;
const MSG_PEEK: u64 = 2;

unsafe extern "C" {
    fn getsockname(fd: c_int, address: *mut u8, len: *mut u32) -> c_int;
    fn getpeername(fd: c_int, address: *mut u8, len: *mut u32) -> c_int;
}

fn channel(fd: u64) -> Channel {
    shared::with(false, |shared| shared.files.channel(fd as i32))
}

/// Begin a call. Returns `None` if no task waits in it or for it.
pub fn enter(thread: &mut Thread, call: Call, args: &[u64; 6]) -> Option<Begun> {
    let what = match call {
        Call::Futex => {
            Some(What::Futex { operation: args[1] & futex::OPERATION, key: futex_key(args[0], args[1]) })
        }
        Call::Read | Call::ReadVector | Call::ReceiveMessage => take(args[0], 0),
        Call::Receive => take(args[0], args[3]),
        Call::Write | Call::WriteVector | Call::Send | Call::SendMessage | Call::SendFile => put(args[0]),
        Call::Connect => connect(args),
        Call::Accept => Some(What::Accept),
        Call::SocketPair => Some(What::SocketPair),
        Call::Clone if !forks(args) => start(args).map(|addr| What::Start { addr }),
        Call::Close if channel(args[0]) != Channel::None => Some(What::Told),
        Call::Exit | Call::ExitGroup => Some(What::Told),
        _ => None,
    }?;
    let begun = Begun { call: thread.mark(), begin: now(), what };
    match call {
        Call::Close => {
            if let Channel::Pipe(key) | Channel::Socket(key) = channel(args[0]) {
                tell(thread, &begun, Deed::Close, (true, key), 0, begun.begin);
            }
        }
        Call::Exit => {
            let tid = thread.tid;
            tell(thread, &begun, Deed::End, (false, tid), 0, 0);
            shared::with_threads(|threads| threads.ends(tid));
        }
        Call::ExitGroup => tell(thread, &begun, Deed::EndProcess, (false, 0), 0, 0),
        _ => {}
    }
    Some(begun)
}

fn take(fd: u64, flags: u64) -> Option<What> {
    let channel = channel(fd);
    (channel != Channel::None && flags & MSG_PEEK == 0).then_some(What::Take(channel))
}

fn put(fd: u64) -> Option<What> {
    let channel = channel(fd);
    (channel != Channel::None).then_some(What::Put(channel))
}

/// The address that the kernel clears when the thread started by this `clone` ends.
fn start(args: &[u64; 6]) -> Option<u64> {
    const CHILD_CLEARTID: u64 = 0x20_0000;
    let at = if crate::X86.load(std::sync::atomic::Ordering::Relaxed) { args[3] } else { args[4] };
    (args[0] & CHILD_CLEARTID != 0).then_some(at)
}

/// The key of a futex: in this process's memory, or in memory that processes share.
fn futex_key(addr: u64, operation: u64) -> (bool, u64) {
    if operation & futex::PRIVATE != 0 {
        return (false, addr);
    }
    maps::shared_at(addr).map_or((false, addr), |(file, offset)| (true, mix(file, offset)))
}

/// One number from two, the same in every process.
fn mix(a: u64, b: u64) -> u64 {
    (a ^ b.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Record what a returned call did.
pub fn leave(thread: &mut Thread, begun: &Begun, args: &[u64; 6], result: i64) {
    let failed = (-4095..0).contains(&result);
    let bytes = result.max(0) as u64;
    match begun.what {
        What::Futex { operation, key } => futex_done(thread, begun, operation, key, args, result),
        _ if failed && !(result == EINPROGRESS && matches!(begun.what, What::Connect { .. })) => {}
        What::Put(Channel::Pipe(key)) => told(thread, begun, Deed::Put, (true, key), bytes),
        What::Put(Channel::Socket(key)) => told(thread, begun, Deed::Send, (true, key), bytes),
        What::Put(Channel::Count(key)) => told(thread, begun, Deed::WakeOne, (true, mix(1, key)), 1),
        What::Take(Channel::Pipe(key) | Channel::Socket(key)) => {
            told(thread, begun, Deed::Take, (true, key), bytes)
        }
        What::Take(Channel::Count(key)) => told(thread, begun, Deed::Wait, (true, mix(1, key)), 0),
        What::Connect { address, socket } => {
            let own = address_of(getsockname, args[0]).and_then(|own| own.port);
            let key = own.map_or(address, |own| mix(address, own));
            told(thread, begun, Deed::Connect, (true, key), socket);
        }
        What::Accept => accepted(thread, begun, args[0], bytes),
        What::SocketPair => {
            // SAFETY: the call has just succeeded, so the kernel wrote two descriptors there.
            let [one, other] = unsafe { *(args[3] as *const [i32; 2]) };
            let both = shared::with(false, |shared| {
                shared.files.forget(one as u64, one as u64);
                shared.files.forget(other as u64, other as u64);
                (shared.files.channel(one), shared.files.channel(other))
            });
            if let (Channel::Socket(one), Channel::Socket(other)) = both {
                told(thread, begun, Deed::Pair, (true, one), other);
            }
        }
        What::Start { addr } => {
            shared::with_threads(|threads| threads.started(bytes, addr));
            told(thread, begun, Deed::Start, (false, addr), bytes);
        }
        What::Put(Channel::None) | What::Take(Channel::None) | What::Told => {}
    }
}

fn futex_done(
    thread: &mut Thread,
    begun: &Begun,
    operation: u64,
    key: (bool, u64),
    args: &[u64; 6],
    result: i64,
) {
    let woken = result.max(0) as u64;
    let wakes = |count: u64| if count as i32 > 1 { Deed::WakeAll } else { Deed::WakeOne };
    let second = || futex_key(args[4], args[1]);
    match operation {
        futex::WAIT | futex::WAIT_BITSET | futex::LOCK_PI | futex::LOCK_PI2
            if result == 0 || result == EAGAIN =>
        {
            told(thread, begun, Deed::Wait, key, 0);
        }
        futex::WAIT_REQUEUE_PI if result == 0 => told(thread, begun, Deed::Wait, second(), 0),
        _ if result < 0 => {}
        futex::WAKE | futex::WAKE_BITSET => told(thread, begun, wakes(args[2]), key, woken),
        futex::UNLOCK_PI => told(thread, begun, Deed::WakeOne, key, 1),
        futex::WAKE_OP => {
            told(thread, begun, wakes(args[2]), key, woken);
            told(thread, begun, wakes(args[3]), second(), woken);
        }
        futex::REQUEUE | futex::CMP_REQUEUE | futex::CMP_REQUEUE_PI => {
            told(thread, begun, wakes(args[2]), key, woken);
            told(thread, begun, Deed::Requeue, key, second().1);
        }
        _ => {}
    }
}

/// Record that `listening` accepted a connection as the descriptor `fd`.
fn accepted(thread: &mut Thread, begun: &Begun, listening: u64, fd: u64) {
    let channel = shared::with(false, |shared| {
        shared.files.forget(fd, fd);
        shared.files.channel(fd as i32)
    });
    let (Channel::Socket(socket), Some(own)) = (channel, address_of(getsockname, listening)) else { return };
    let peer = address_of(getpeername, fd).and_then(|peer| peer.port);
    let key = peer.map_or(own.key, |peer| mix(own.key, peer));
    told(thread, begun, Deed::Accept, (true, key), socket);
}

/// Record that the process becomes another program, which closes its descriptor of this channel.
pub fn closed_by_exec(thread: &mut Thread, channel: Channel) {
    if let Channel::Pipe(key) | Channel::Socket(key) = channel {
        let begun = Begun { call: thread.mark(), begin: now(), what: What::Told };
        tell(thread, &begun, Deed::Close, (true, key), 0, begun.begin);
    }
}

/// The part of a socket's address that matters here.
struct Address {
    /// The same for all tasks that mean this address, by whatever name of this machine.
    key: u64,
    /// Its port, if it has one.
    port: Option<u64>,
}

fn address_of(ask: unsafe extern "C" fn(c_int, *mut u8, *mut u32) -> c_int, fd: u64) -> Option<Address> {
    let (mut bytes, mut len) = ([0u8; 128], 128u32);
    // SAFETY: `bytes` has room for `len` bytes.
    let result = unsafe { ask(fd as c_int, bytes.as_mut_ptr(), &mut len) };
    (result == 0).then(|| parse(&bytes[..(len as usize).min(128)])).flatten()
}

fn parse(bytes: &[u8]) -> Option<Address> {
    const UNIX: u16 = 1;
    const INET: u16 = 2;
    const INET6: u16 = 10;
    match u16::from_ne_bytes([*bytes.first()?, *bytes.get(1)?]) {
        UNIX => {
            let name = bytes[2..].strip_suffix(b"\0").unwrap_or(&bytes[2..]);
            let key = name.iter().fold(UNIX.into(), |key, &byte| mix(key, byte.into()));
            Some(Address { key, port: None })
        }
        INET | INET6 => {
            let port = u64::from(u16::from_be_bytes([*bytes.get(2)?, *bytes.get(3)?]));
            Some(Address { key: mix(INET.into(), port), port: Some(port) })
        }
        _ => None,
    }
}

fn connect(args: &[u64; 6]) -> Option<What> {
    let Channel::Socket(socket) = channel(args[0]) else { return None };
    let len = (args[2] as usize).min(128);
    if args[1] == 0 || len < 4 {
        return None;
    }
    let mut bytes = [0u8; 128];
    system::read_exact(args[1], &mut bytes[..len])?;
    let address = parse(&bytes[..len])?;
    Some(What::Connect { address: address.key, socket })
}

/// Record that the thread came to the address that the end of `tid` has cleared.
pub fn joined(thread: &mut Thread, tid: u64) {
    let begun = Begun { call: thread.mark(), begin: now(), what: What::Told };
    told(thread, &begun, Deed::Join, (false, tid), 0);
}

/// Record that the call has ended and may have waited.
fn told(thread: &mut Thread, begun: &Begun, deed: Deed, key: (bool, u64), more: u64) {
    tell(thread, begun, deed, key, more, now());
    thread.after(begun.call);
}

fn tell(thread: &mut Thread, begun: &Begun, deed: Deed, (common, key): (bool, u64), more: u64, end: u64) {
    let step = Step { call: begun.call, deed, common, key, more, begin: begun.begin, end };
    thread.step(&step);
}
