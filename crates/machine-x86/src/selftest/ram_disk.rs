//! A disk in the kernel's own memory, for tests of reclaim on machines without disks.

use crate::arch::lock::IrqLock;
use crate::arch::paging;
use crate::devices::{self, Driver};
use crate::machine;
use crate::report::DISKS;
use crate::sched::{self, Key};
use alloc::collections::VecDeque;
use alloc::vec;
use mm::machine::Io;
use mm::units::PAGE_SIZE;

/// The key on which its task waits for requests.
const REQUESTS: Key = Key::Other(101, 0);

static QUEUE: IrqLock<VecDeque<Io>> = IrqLock::new(VecDeque::new());

/// Start a disk of `pages` pages, which serves all device numbers.
pub fn start(pages: u32) {
    let mut blocks = vec![0; pages as usize * PAGE_SIZE as usize];
    devices::set_driver(Driver { submit, interrupt: || {} });
    sched::spawn("ram disk", None, move || {
        while !sched::stopping() {
            let mark = sched::mark(REQUESTS);
            let request = QUEUE.lock().pop_front();
            match request {
                Some(io) => transfer(&mut blocks, &io),
                None => _ = sched::wait(REQUESTS, mark, None),
            }
        }
    });
}

fn submit(io: Io) {
    QUEUE.lock().push_back(io);
    sched::wake(REQUESTS);
}

fn transfer(blocks: &mut [u8], io: &Io) {
    let at = (io.block * PAGE_SIZE) as usize;
    let bytes = &mut blocks[at..at + io.pages as usize * PAGE_SIZE as usize];
    let frame = paging::direct(io.frame.0 as u64 * PAGE_SIZE);
    DISKS.count(io);
    // SAFETY: until `io_done` the frames belong to the device, which writes them, or reads them while
    // programs may read and write them, like any device. They do not overlap the heap, which has the blocks.
    unsafe {
        match io.write {
            true => bytes.as_mut_ptr().copy_from_nonoverlapping(frame, bytes.len()),
            false => bytes.as_ptr().copy_to_nonoverlapping(frame, bytes.len()),
        }
    }
    machine::mm().io_done(io);
}
