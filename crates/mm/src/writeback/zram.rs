//! What user space does for zram devices: marks pages that were not used for long as idle, compresses pages again, and
//! writes pages to the backing device.
//!
//! Linux has files for these (`idle`, `recompress`, `writeback`) and leaves it to a program when to use them. A daemon
//! stands for that program. It works through all devices in turn, each as often as its description says.
//!
//! Source: `idle_store`, `recompress_store` and `writeback_store` in drivers/block/zram/zram_drv.c of Linux 6.12.

use crate::frame::FrameFlags;
use crate::lru::ROOT;
use crate::machine::{Io, Machine, Scope, WaitKey, Work};
use crate::memory::{AllowedReadAhead, Gfp};
use crate::mm_core::MmCore;
use crate::stat::Stat;
use crate::units::*;
use crate::zram::Zram;
use std_alloc::vec::Vec;

/// Pages after which other tasks may run.
const BATCH: u32 = 64;

/// Look after the devices that want it, until the machine stops.
pub(crate) fn zram_upkeep<M: Machine>(core: &MmCore<M>) {
    let mut due: Vec<Option<Nanos>> =
        core.zrams.iter().map(|zram| Some(core.machine.now() + zram.as_ref()?.upkeep()?.every)).collect();
    while !core.machine.stopping() {
        let Some(next) = due.iter().flatten().copied().min() else { return };
        let ticket = core.machine.ticket(WaitKey::Timer);
        if next > core.machine.now() {
            core.machine.wait(ticket, Some(next));
            continue;
        }
        for (zram, due) in core.zrams.iter().zip(&mut due) {
            let (Some(zram), Some(at)) = (zram, due.as_mut()) else { continue };
            if *at <= core.machine.now() {
                look_after(core, zram);
                *at = core.machine.now() + zram.upkeep().map_or(0, |upkeep| upkeep.every);
            }
        }
    }
}

fn look_after<M: Machine>(core: &MmCore<M>, zram: &Zram) {
    let _scope = core.scope(Scope::ZramUpkeep);
    let Some(upkeep) = zram.upkeep() else { return };
    zram.mark_idle(core.machine.now(), upkeep.idle_age);
    let gfp = Gfp { read_ahead: AllowedReadAhead::Nothing, ..Gfp::user(ROOT) };
    let Ok(page) = core.new_folio(Order::ZERO, gfp) else { return };
    for at in 0..zram.pages() {
        if at % BATCH == 0 {
            core.machine.resched();
            if core.machine.stopping() {
                break;
            }
        }
        zram.recompress(&core.zs(), page, at);
    }
    write_back(core, zram, page);
    core.put(page);
}

/// Write the chosen pages to the backing device, one after the other.
fn write_back<M: Machine>(core: &MmCore<M>, zram: &Zram, page: Pfn) {
    let mut spare = None;
    for at in 0..zram.pages() {
        if core.machine.stopping() || !zram.may_write_back() {
            break;
        }
        let Some((block, io)) = spare.or_else(|| zram.take_block()) else { break };
        spare = Some((block, io));
        if !zram.begin_write_back(&core.zs(), page, at) {
            continue;
        }
        let written = write(core, page, io);
        if zram.end_write_back(&core.zs(), at, block, written) {
            spare = None;
        }
    }
    if let Some((block, _)) = spare {
        zram.free_block(block);
    }
}

/// Write the page, which no other task knows, and wait. Returns whether the device could.
fn write<M: Machine>(core: &MmCore<M>, page: Pfn, (device, block): (DeviceId, u64)) -> bool {
    let frame = &core.frames[page];
    frame.set(FrameFlags::LOCKED);
    frame.clear(FrameFlags::UPTODATE);
    core.count(Stat::PgpgOut, (PAGE_SIZE / 1024) as i64);
    core.charge(Work::IoSubmit, 1);
    core.machine.submit(Io { device, write: true, block, frame: page, pages: 1, continues: false });
    core.wait_unlocked(page);
    frame.has(FrameFlags::UPTODATE)
}
