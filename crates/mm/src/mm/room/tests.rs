//! Free memory is found, wherever it is, before the OOM killer acts.

use super::*;
use crate::api::Backing;
use crate::mm::{AccessKind, Config};
use crate::stat::Stat;
use crate::testing::{TestMachine, request};
use std_alloc::format;

const AT: Vpn = Vpn(512 * 40);

#[test]
fn pages_on_other_cpus_lists_prevent_an_oom_kill() {
    let mm = Mm::new(TestMachine::simple(2, 4096), Config::default()).unwrap();
    let [one, other] = [4096, 40].map(|pages| {
        let space = mm.create_space(GroupId(0)).unwrap();
        mm.mmap(space, &request(AT, pages, Backing::Anonymous)).unwrap();
        space
    });
    let store = |space, page| mm.fault(space, Vpn(AT.0 + page), AccessKind::Store);
    mm.machine().run_on(1);
    (0..40).for_each(|page| store(other, page).map(drop).unwrap());
    let hoarded = || mm.core.alloc.pcp_pages(ZoneId(0));
    // CPU 1 has as much as its lists hold before they are drained.
    mm.munmap(other, AT, 40).unwrap();
    let before = hoarded();
    mm.machine().run_on(0);
    let tables = || mm.mmu().stats.read(Stat::NrPageTablePages) as u64;
    let (mut stored, mut used) = (0, 0);
    while store(one, stored).is_ok() && mm.oom_reports().is_empty() {
        stored += 1;
        used = stored + tables();
    }
    let reason = &mm.oom_reports()[0].reason;
    let wanted = format!("a page fault of space {} wanted order 0 on node 0, zone Movable or below", one.0);
    assert!(reason.starts_with(&wanted), "{reason}");
    assert!(reason.contains("free: node 0 Normal ") && reason.contains(" of 4096 pages"), "{reason}");
    let zone = &mm.core.alloc.zones()[0];
    let unused = zone.managed() - used - zone.bare_mark(Watermark::Min);
    assert!(before > 20 && unused < 3, "{before} pages were on lists, {unused} were left");
}
