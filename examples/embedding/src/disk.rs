//! The disk: a thread that does transfers one after the other, and reports the end of each.

use crate::kernel;
use crate::task;
use mm::machine::Io;
use mm::primitive::Ordering::*;
use mm::units::{DeviceId, TABLE_ENTRIES};
use std::collections::HashMap;
use std::sync::mpsc::{Receiver, Sender, channel};

type Block = [u64; TABLE_ENTRIES];

/// The sending end of the disk's queue.
pub struct Disk(Sender<Io>);

impl Disk {
    /// A disk, and the receiving end of its queue, for [`run`].
    pub fn new() -> (Disk, Receiver<Io>) {
        let (sender, receiver) = channel();
        (Disk(sender), receiver)
    }

    /// Queue a transfer.
    pub fn submit(&self, io: Io) {
        self.0.send(io).expect("the disk's thread must not end");
    }
}

/// The disk's thread. Blocks that were never written hold zeroes.
pub fn run(requests: &Receiver<Io>) {
    let mut blocks: HashMap<(DeviceId, u64), Box<Block>> = HashMap::new();
    for io in requests {
        for i in 0..io.pages {
            let frame = kernel::machine().frame(io.frame.add(i));
            let block = blocks
                .entry((io.device, io.block + u64::from(i)))
                .or_insert_with(|| Box::new([0; TABLE_ENTRIES]));
            for (word, stored) in frame.iter().zip(block.iter_mut()) {
                if io.write {
                    *stored = word.load(Acquire);
                } else {
                    word.store(*stored, Release);
                }
            }
        }
        complete(&io);
    }
}

/// A kernel task with a CPU of its own reports the end of a transfer. An interrupt handler could not: it may
/// have interrupted a task that holds a lock that `io_done` takes.
fn complete(io: &Io) {
    task::get_cpu();
    if !kernel::WATCH.claims(io) {
        kernel::mm().io_done(io);
    }
    task::put_cpu();
}
