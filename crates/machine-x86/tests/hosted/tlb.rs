//! TLBs that keep all they are not told to drop.

use mm::api::AccessKind;
use mm::machine::{Asid, Flush, TablePage};
use mm::table::{Bits, Entry};
use mm::units::{CpuId, Pfn, Vpn};
use std::collections::HashMap;
use std::sync::atomic::Ordering::*;

#[derive(Default)]
struct Tlb {
    root: Option<Pfn>,
    asid: Asid,
    held: HashMap<(Asid, Vpn), Entry>,
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
            tlb.held.retain(|&(of, _), _| of != asid);
        }
    }

    pub fn flush(&mut self, cpu: CpuId, what: Flush) {
        let tlb = &mut self.0[cpu.index()];
        match what {
            Flush::All => tlb.held.clear(),
            Flush::Current => tlb.held.retain(|&(asid, _), _| asid != tlb.asid),
            Flush::Pages { start, count, stride } => {
                let end = start.0 + ((count as u64) << stride.0);
                tlb.held.retain(|&(asid, page), _| asid != tlb.asid || !(start.0..end).contains(&page.0));
            }
        }
    }

    /// The frame that the CPU reaches; `None`: a page fault, and no translation of the page is held any more.
    pub fn translate(
        &mut self,
        cpu: CpuId,
        page: Vpn,
        access: AccessKind,
        tables: &[TablePage],
    ) -> Option<Pfn> {
        let tlb = &mut self.0[cpu.index()];
        let key = (tlb.asid, page);
        let fits = |entry: &Entry| access != AccessKind::Store || entry.has(Bits::WRITE | Bits::DIRTY);
        if let Some(entry) = tlb.held.get(&key).filter(|entry| fits(entry)) {
            return Some(entry.pfn());
        }
        tlb.held.remove(&key);
        let mut table = tlb.root.expect("a program's space is loaded");
        for level in (0..4).rev() {
            let slot = &tables[table.index()][(page.0 >> (9 * level)) as usize & 511];
            let entry = Entry::from_raw(slot.load(SeqCst));
            if !entry.is_present() {
                return None;
            }
            assert!(!entry.has(Bits::LARGE), "no large pages here");
            if level > 0 {
                table = entry.pfn();
                continue;
            }
            if !entry.has(Bits::USER) || (access == AccessKind::Store && !entry.has(Bits::WRITE)) {
                return None;
            }
            let dirty = if access == AccessKind::Store { Bits::DIRTY } else { Bits::empty() };
            let used = entry.with(Bits::YOUNG | dirty);
            slot.store(used.raw(), SeqCst);
            tlb.held.insert(key, used);
            return Some(used.pfn());
        }
        None
    }
}
