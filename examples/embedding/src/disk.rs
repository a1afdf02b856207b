//! The disk: a thread that does transfers one after the other, and tells of each end.

use crate::kernel;
use crate::task;
use mm::machine::Io;
use mm::primitive::Ordering::*;
use mm::units::{DeviceId, TABLE_ENTRIES};
use std::collections::HashMap;
use std::sync::mpsc::{Receiver, Sender, channel};

type Block = [u64; TABLE_ENTRIES];

/// The way to the disk.
pub struct Disk(Sender<Io>);

impl Disk {
    /// A disk, and its other end, which [`run`] is to be called with.
    pub fn new() -> (Disk, Receiver<Io>) {
        let (sender, receiver) = channel();
        (Disk(sender), receiver)
    }

    /// Begin a transfer.
    pub fn submit(&self, io: Io) {
        self.0.send(io).expect("the disk's thread never ends");
    }
}

/// Be the disk. Blocks that nobody has written hold zeroes.
pub fn run(requests: &Receiver<Io>) {
    let mut blocks: HashMap<(DeviceId, u64), Box<Block>> = HashMap::new();
    for io in requests {
        for i in 0..io.pages {
            let frame = kernel::machine().frame(io.frame.add(i));
            let block = blocks
                .entry((io.device, io.block + u64::from(i)))
                .or_insert_with(|| Box::new([0; TABLE_ENTRIES]));
            for (word, kept) in frame.iter().zip(block.iter_mut()) {
                if io.write {
                    *kept = word.load(Acquire);
                } else {
                    word.store(*kept, Release);
                }
            }
        }
        tell(&io);
    }
}

/// The end of a transfer is told by a kernel task, which needs a CPU: an interrupt handler may have stopped a task that
/// holds a lock which `io_done` takes.
fn tell(io: &Io) {
    task::get_cpu();
    if !kernel::WATCH.claims(io) {
        kernel::mm().io_done(io);
    }
    task::put_cpu();
}
