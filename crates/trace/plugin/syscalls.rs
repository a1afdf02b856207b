//! System calls as events.
//!
//! A call is noted when it begins (its arguments, the file offset) and recorded after it has returned, if it
//! succeeded. The kernel's own accesses to buffers of plain reads and writes are recorded as accesses of the thread;
//! its accesses to buffers of vectored calls and to structures of other calls are not.

use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::calls::{self, Call, forks};
use crate::event::{Event, FileId, PAGE_SIZE};
use crate::files;
use crate::order;
use crate::raw::kind;
use crate::shared::{self, EPOCH, NEWS};
use crate::thread::{Pending, Thread};
use abi::{AccessKind, Buffer, Map, MapSource, Prot, Remap};

/// Begin a call.
pub fn enter(thread: &mut Thread, call: Call, args: [u64; 6]) {
    thread.drain();
    if let Some(pages) = calls::takes_away(call, &args) {
        thread.look(Some(pages));
    }
    if let (Call::Mprotect, [addr, len, prot, ..]) = (call, args)
        && !Prot::from_bits(prot).contains(Prot::WRITE)
    {
        thread.protects((addr / PAGE_SIZE, addr.saturating_add(len).div_ceil(PAGE_SIZE)));
    }
    let mut pending = Pending { call, args, epoch: 0, offset: None, since: Instant::now(), order: None };
    pending.order = order::enter(thread, call, &args);
    let forks = match call {
        Call::Clone => forks(&args),
        call => call == Call::Fork,
    };
    if call.changes_space(&args) {
        shared::acquire();
        pending.epoch = EPOCH.fetch_add(1, Ordering::AcqRel) + 1;
        NEWS.fetch_add(1, Ordering::AcqRel);
        // Other threads' changes since then come before this one; a replay keeps that order without an event.
        thread.seen = pending.epoch;
        // A child has only what this thread knows.
        thread.know_places();
        if forks {
            shared::forks();
        }
    }
    let fd = args[0] as i32;
    match call {
        Call::Read | Call::ReadVector => pending.offset = known(fd, false).and_then(|_| files::offset(fd)),
        Call::Write | Call::WriteVector => pending.offset = known(fd, false).and_then(|_| write_offset(fd)),
        Call::SendFile => {
            pending.offset = known(args[1] as i32, false).and_then(|_| files::offset(args[1] as i32))
        }
        Call::Close => {
            if let Some(file) = shared::with(false, |shared| shared.files.cached(fd)) {
                pending.offset = Some(u64::from(file.0));
            }
        }
        _ => {}
    }
    thread.rest();
    thread.pending = Some(pending);
}

/// The offset of the next `write`: the end of the file in append mode, else the descriptor's offset.
fn write_offset(fd: i32) -> Option<u64> {
    let flags = std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).ok()?;
    let flags = flags.lines().find_map(|line| line.strip_prefix("flags:"))?;
    let append = u64::from_str_radix(flags.trim(), 8).ok()? & 0o2000 != 0;
    if append { files::size(fd) } else { files::offset(fd) }
}

fn known(fd: i32, held: bool) -> Option<FileId> {
    shared::with(held, |shared| shared.files.lookup(fd))
}

/// End a call that has returned.
pub fn leave(thread: &mut Thread, result: i64) {
    let Some(pending) = thread.pending.take() else { return };
    let held = pending.epoch != 0;
    let failed = (-4095..0).contains(&result);
    if !held && !matches!(pending.call, Call::Sleep | Call::Clone) {
        // The call may have waited for a thread that has unmapped memory since. A replay of that thread waits until
        // this one reaches the place where it saw the change, so that place must be before the one where this thread
        // waits. (A thread that was started may have made changes, too, but no thread can wait for them before it is
        // started.)
        thread.follow();
    }
    if let Some(begun) = &pending.order {
        order::leave(thread, begun, &pending.args, result);
    }
    if !failed {
        told(thread, &pending, result as u64);
    } else if matches!(pending.call, Call::Exec | Call::ExecAt) {
        thread.chunk(kind::EXEC_FAILED, |_| ());
    }
    if failed && held {
        thread.event(&Event::Skip { epoch: pending.epoch });
    }
    if held {
        shared::release();
    }
}

fn told(thread: &mut Thread, pending: &Pending, result: u64) {
    let args = pending.args;
    match pending.call {
        Call::Plain(number) => plain(thread, pending, number, result),
        Call::Mmap | Call::Mprotect | Call::Mremap | Call::Brk => space(thread, pending, result),
        // Only MS_SYNC makes the kernel do something.
        Call::Msync if args[2] & 4 == 0 => {}
        Call::Msync => thread.event(&Event::call(abi::Call::Msync(args[0], args[1]))),
        Call::Clone | Call::Fork | Call::Wait | Call::WaitId => task(thread, pending, result),
        Call::Sleep => {
            let nanos = u64::try_from(pending.since.elapsed().as_nanos()).unwrap_or(u64::MAX);
            thread.event(&Event::Idle { nanos });
        }
        Call::Exec
        | Call::ExecAt
        | Call::Exit
        | Call::ExitGroup
        | Call::Futex
        | Call::Connect
        | Call::SocketPair => {}
        _ => file(thread, pending, result),
    }
}

fn space(thread: &mut Thread, pending: &Pending, result: u64) {
    let (epoch, [a, b, c, d, _, _]) = (pending.epoch, pending.args);
    let event = match pending.call {
        Call::Mmap => mmap(pending, result),
        Call::Mprotect => Event::change(epoch, abi::Call::Mprotect(a, b, Prot::from_bits(c))),
        Call::Mremap if b == 0 || d & 4 != 0 => Event::Skip { epoch },
        Call::Mremap => {
            let remap = Remap { addr: a, old_len: b, new_len: c, may_move: result != a, fixed: None };
            Event::Call { epoch, call: abi::Call::Mremap(remap), value: result }
        }
        _ => match heap(epoch, result) {
            Some(event) => event,
            None => return,
        },
    };
    thread.changed(epoch != 0, &event);
}

fn mmap(pending: &Pending, addr: u64) -> Event {
    let [asked, len, prot, flags, fd, offset] = pending.args;
    let (shared_map, fixed, anonymous) = (flags & 3 != 2, flags & 0x10 != 0, flags & 0x20 != 0);
    let file = if anonymous { None } else { known(fd as i32, true) };
    let source = match file {
        Some(file) => MapSource::File { fd: file.0, offset, shared: shared_map },
        None if shared_map => MapSource::AnonymousShared,
        None => MapSource::Anonymous,
    };
    let map = Map {
        addr: fixed.then_some(asked),
        len,
        prot: Prot::from_bits(prot),
        source,
        populate: flags & 0x8000 != 0,
        locked: flags & 0x2000 != 0,
    };
    Event::mapped(pending.epoch, addr, map)
}

/// `brk` returns the current end of the heap; a call that only asks for it has no epoch.
fn heap(epoch: u64, now: u64) -> Option<Event> {
    let up = |addr: u64| addr.div_ceil(PAGE_SIZE) * PAGE_SIZE;
    let before = shared::with(epoch != 0, |shared| std::mem::replace(&mut shared.heap, now));
    if epoch == 0 {
        return None;
    }
    let (from, to) = (up(if before == 0 { now } else { before }), up(now));
    Some(if to > from {
        Event::mapped(epoch, from, Map::anonymous(to - from))
    } else if to < from {
        Event::change(epoch, abi::Call::Munmap(to, from - to))
    } else {
        Event::Skip { epoch }
    })
}

/// Record a call unchanged, but with the trace's number of its file.
fn plain(thread: &mut Thread, pending: &Pending, number: u64, value: u64) {
    let Some(mut call) = calls::plain(number, &pending.args) else { return };
    let epoch = pending.epoch;
    if let Some(fd) = call.fd_mut() {
        match known(*fd as i32, epoch != 0) {
            Some(file) => *fd = file.0,
            None if epoch != 0 => return thread.event(&Event::Skip { epoch }),
            None => return,
        }
    }
    let event = Event::Call { epoch, call, value };
    match epoch {
        0 => thread.event(&event),
        _ => thread.changed(true, &event),
    }
}

fn task(thread: &mut Thread, pending: &Pending, result: u64) {
    let result = match pending.call {
        // SAFETY: the call has just succeeded, so the kernel wrote a `siginfo` there; its fourth word is the child's
        // id.
        Call::WaitId if pending.args[2] != 0 => u64::from(unsafe { *(pending.args[2] as *const u32).add(3) }),
        Call::WaitId => 0,
        _ => result,
    };
    let id = result as u32;
    let event = match pending.call {
        Call::Wait | Call::WaitId if result == 0 => return,
        Call::Wait | Call::WaitId => Event::call(abi::Call::Join(id)),
        Call::Clone if !forks(&pending.args) => Event::call(abi::Call::Spawn(id)),
        _ => Event::change(pending.epoch, abi::Call::Fork(id)),
    };
    thread.event(&event);
    if pending.epoch != 0 {
        // Only if this is written is the child part of the recording, whatever happens to this process.
        thread.flush();
    }
}

fn file(thread: &mut Thread, pending: &Pending, result: u64) {
    let (args, epoch) = (pending.args, pending.epoch);
    let [fd, buffer, _, at, ..] = args;
    match pending.call {
        Call::Receive | Call::Read | Call::Pread => thread.copied(buffer, result, AccessKind::Store),
        Call::Send | Call::Write | Call::Pwrite => thread.copied(buffer, result, AccessKind::Load),
        _ => {}
    }
    match pending.call {
        Call::Read | Call::ReadVector => read(thread, fd, pending.offset, result),
        Call::Pread | Call::PreadVector => read(thread, fd, Some(at), result),
        Call::Write | Call::WriteVector => write(thread, fd, pending.offset, result),
        Call::Pwrite | Call::PwriteVector => write(thread, fd, Some(at), result),
        Call::SendFile => read(thread, args[1], pending.offset, result),
        Call::CopyFileRange => copy_range(thread, args, result),
        Call::Open => open(thread, result),
        Call::Accept => shared::with(false, |shared| shared.files.forget(result, result)),
        Call::Close => {
            shared::with(false, |shared| shared.files.forget(fd, fd));
            if let Some(file) = pending.offset {
                thread.event(&Event::call(abi::Call::Close(file as u32)));
            }
        }
        Call::CloseRange => shared::with(false, |shared| shared.files.forget(fd, buffer)),
        Call::DupTo => shared::with(false, |shared| shared.files.forget(result, result)),
        // A growing `fallocate` has given the file a new size; otherwise the size is not recorded again.
        Call::Fallocate if args[1] == 0 => truncate(thread, epoch, fd, files::size(fd as i32)),
        Call::Fallocate => thread.event(&Event::Skip { epoch }),
        _ => {}
    }
}

fn truncate(thread: &mut Thread, epoch: u64, fd: u64, size: Option<u64>) {
    thread.event(&match (known(fd as i32, true), size) {
        (Some(file), Some(size)) => Event::change(epoch, abi::Call::Ftruncate(file.0, size)),
        _ => Event::Skip { epoch },
    });
}

fn read(thread: &mut Thread, fd: u64, offset: Option<u64>, len: u64) {
    for (file, offset, len) in kept(fd, offset, len) {
        thread.event(&Event::call(abi::Call::Pread(file.0, Buffer::anywhere(len), offset)));
    }
}

fn write(thread: &mut Thread, fd: u64, offset: Option<u64>, len: u64) {
    for (file, offset, len) in kept(fd, offset, len) {
        thread.event(&Event::call(abi::Call::Pwrite(file.0, Buffer::anywhere(len), offset)));
    }
}

/// The parts of a transfer that are recorded: file, offset and length.
fn kept(fd: u64, offset: Option<u64>, len: u64) -> Vec<(FileId, u64, u64)> {
    let (Some(offset), Some(file), true) = (offset, known(fd as i32, false), len > 0) else {
        return Vec::new();
    };
    let number = shared::with(false, |shared| shared.files.number(file.0));
    let parts = shared::rule().of_file(number, offset, len);
    parts.into_iter().map(|(offset, len)| (file, offset, len)).collect()
}

/// Both offsets have moved past the copied bytes, unless the call was given offsets of its own, whose values are in
/// the program's memory: then the end of the copied range is not known, and nothing is recorded.
fn copy_range(thread: &mut Thread, args: [u64; 6], len: u64) {
    let [from, from_at, to, to_at, ..] = args;
    if from_at == 0 && to_at == 0 {
        read(thread, from, files::offset(from as i32).map(|end| end.saturating_sub(len)), len);
        write(thread, to, files::offset(to as i32).map(|end| end.saturating_sub(len)), len);
    }
}

/// A file that is opened again and is empty now was truncated or created again.
fn open(thread: &mut Thread, fd: u64) {
    let met = shared::with(false, |shared| {
        shared.files.forget(fd, fd);
        let before = shared.files.count();
        shared.files.lookup(fd as i32).map(|file| (file, (file.0 as usize) < before))
    });
    if let Some((file, again)) = met {
        thread.event(&Event::opened(file));
        if again && files::size(fd as i32) == Some(0) {
            thread.event(&Event::call(abi::Call::Ftruncate(file.0, 0)));
        }
    }
}
