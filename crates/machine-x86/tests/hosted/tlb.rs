//! TLBs that drop a translation only when told to.

use mm::api::AccessKind;
use mm::machine::{Asid, Flush, TablePage};
use mm::table::{Bits, Entry};
use mm::units::{CpuId, PAGEBLOCK_ORDER, Pfn, Vpn};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::Ordering::*;

#[derive(Default)]
struct Tlb {
    root: Option<Pfn>,
    asid: Asid,
    small: HashMap<(Asid, Vpn), Entry>,
    /// Translations of 2 MiB, by their first page.
    large: HashMap<(Asid, Vpn), Entry>,
}

/// Pages of a large translation.
const LARGE: u64 = 1 << PAGEBLOCK_ORDER.0;

impl Tlb {
    /// Drop the translations of either size for which `drop` is true.
    fn retain_not(&mut self, drop: impl Fn(Asid, Range<u64>) -> bool) {
        self.small.retain(|&(asid, page), _| !drop(asid, page.0..page.0 + 1));
        self.large.retain(|&(asid, page), _| !drop(asid, page.0..page.0 + LARGE));
    }
}

/// The TLBs of all CPUs.
pub struct Tlbs(Vec<Tlb>);

impl Tlbs {
    pub fn new(cpus: usize) -> Tlbs {
        Tlbs((0..cpus).map(|_| Tlb::default()).collect())
    }

    pub fn load_root(&mut self, cpu: CpuId, root: Pfn, asid: Asid, keep: bool) {
        let tlb = &mut self.0[cpu.index()];
        tlb.root = root.is_some().then_some(root);
        tlb.asid = asid;
        if !keep {
            tlb.retain_not(|of, _| of == asid);
        }
    }

    pub fn flush(&mut self, cpu: CpuId, what: Flush) {
        let tlb = &mut self.0[cpu.index()];
        let current = tlb.asid;
        match what {
            Flush::All => tlb.retain_not(|_, _| true),
            Flush::Current => tlb.retain_not(|asid, _| asid == current),
            Flush::Pages { start, count, stride } => {
                let end = start.0 + ((count as u64) << stride.0);
                tlb.retain_not(|asid, pages| asid == current && pages.start < end && start.0 < pages.end);
            }
        }
    }

    /// The frame that the CPU reaches; `None` for a page fault, which drops the page's translation.
    pub fn translate(
        &mut self,
        cpu: CpuId,
        page: Vpn,
        access: AccessKind,
        tables: &[TablePage],
    ) -> Option<Pfn> {
        let tlb = &mut self.0[cpu.index()];
        let inside = (page.0 % LARGE) as u32;
        let (key, large) = ((tlb.asid, page), (tlb.asid, Vpn(page.0 - u64::from(inside))));
        let fits = |entry: &Entry| access != AccessKind::Store || entry.has(Bits::WRITE | Bits::DIRTY);
        if let Some(entry) = tlb.small.get(&key).filter(|entry| fits(entry)) {
            return Some(entry.pfn());
        }
        if let Some(entry) = tlb.large.get(&large).filter(|entry| fits(entry)) {
            return Some(entry.pfn().add(inside));
        }
        tlb.small.remove(&key);
        tlb.large.remove(&large);
        let mut table = tlb.root.expect("a space must be loaded");
        for level in (0..4).rev() {
            let slot = &tables[table.index()][(page.0 >> (9 * level)) as usize & 511];
            let entry = Entry::from_raw(slot.load(SeqCst));
            if !entry.is_present() {
                return None;
            }
            let is_large = level == 1 && entry.has(Bits::LARGE);
            if level > 0 && !is_large {
                table = entry.pfn();
                continue;
            }
            if !entry.has(Bits::USER) || (access == AccessKind::Store && !entry.has(Bits::WRITE)) {
                return None;
            }
            let dirty = if access == AccessKind::Store { Bits::DIRTY } else { Bits::empty() };
            let used = entry.with(Bits::YOUNG | dirty);
            slot.store(used.raw(), SeqCst);
            let pfn = if is_large { used.pfn().add(inside) } else { used.pfn() };
            let (key, small) = if is_large { (large, &mut tlb.large) } else { (key, &mut tlb.small) };
            small.insert(key, used);
            return Some(pfn);
        }
        None
    }
}
