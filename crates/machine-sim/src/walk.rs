//! The page walker of a simulated CPU.

use crate::cpu::Cpu;
use crate::machine::SimMachine;
use crate::spec::Hardware;
use crate::tlb::Cached;
use mm::api::AccessKind;
use mm::primitive::Ordering::Relaxed;
use mm::table::{Bits, Entry};
use mm::units::{PAGEBLOCK_ORDER, Pfn, Vpn};

/// The result of a walk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Walk {
    /// A translation that permits the access; the TLB holds it now.
    Found(Cached),
    /// A page fault: no translation, or one that forbids the access.
    Fault,
    /// An entry points to a frame that is no page table.
    Broken(Pfn),
}

#[inline(always)]
fn usable(cached: Cached, kind: AccessKind) -> bool {
    match kind {
        AccessKind::Load => true,
        AccessKind::Store => cached.storable(),
        AccessKind::Fetch => cached.executable(),
    }
}

impl SimMachine {
    /// Find a translation that permits the access. `true`: it was not in the first-level TLB.
    #[inline]
    pub(crate) fn translate(&self, cpu: &Cpu, vpn: Vpn, kind: AccessKind) -> Result<(Cached, bool), Walk> {
        let fetch = kind == AccessKind::Fetch;
        let mut found = if fetch { cpu.tlb.instruction(vpn) } else { cpu.tlb.data(vpn) };
        let missed = found.is_none();
        if missed {
            let misses = if fetch { &cpu.counts.itlb_misses } else { &cpu.counts.dtlb_misses };
            misses.set(misses.get() + 1);
            found = cpu.tlb.second(vpn, fetch);
            if found.is_some() {
                cpu.spend(self.spec.costs().hardware(Hardware::L2TlbHit));
            }
        }
        match found {
            Some(cached) if usable(cached, kind) => return Ok((cached, missed)),
            // It does not permit the access: the CPU drops it and walks the tables.
            Some(_) => cpu.tlb.drop_page(vpn),
            None => {}
        }
        match self.walk(cpu, vpn, kind) {
            Walk::Found(cached) => Ok((cached, missed)),
            other => Err(other),
        }
    }

    /// Walk the loaded page tables for an access, set young and dirty as hardware does, and fill the TLB.
    pub(crate) fn walk(&self, cpu: &Cpu, vpn: Vpn, kind: AccessKind) -> Walk {
        cpu.counts.walks.set(cpu.counts.walks.get() + 1);
        let (mut level, mut table) = (3, cpu.root.get());
        for (known, shift) in [(1, 0), (2, 1), (3, 2)] {
            if let Some(pfn) = cpu.tlb.walk_get(known, vpn) {
                (level, table) = (shift, pfn);
                break;
            }
        }
        loop {
            let index = (vpn.0 >> (9 * level)) as usize & 511;
            let Some(page) = self.tables.get(table) else {
                // A table that was zeroed and never accessed has no slot: it is empty, as the machine's own root is for
                // programs. A frame with other content is no table.
                let zero = !table.is_some()
                    || self
                        .observers
                        .content
                        .as_ref()
                        .is_none_or(|content| content.borrow().frame(table) == 0);
                return if zero { Walk::Fault } else { Walk::Broken(table) };
            };
            let near = cpu.tlb.touch_line(table, index);
            cpu.counts.walk_steps.set(cpu.counts.walk_steps.get() + 1);
            let step = if near { Hardware::WalkStepHit } else { Hardware::WalkStepMemory };
            cpu.spend(self.spec.costs().hardware(step));
            let entry = Entry::from_raw(page[index].load(Relaxed));
            if !entry.is_present() {
                return Walk::Fault;
            }
            let large = level == 1 && entry.has(Bits::LARGE);
            if level == 0 || large {
                let Some(used) = self.use_entry(entry, kind) else { return Walk::Fault };
                if used != entry {
                    page[index].store(used.raw(), Relaxed);
                }
                return Walk::Found(self.cache(cpu, vpn, used, large, kind));
            }
            if self.spec.cpu().hw_nonleaf_young && !entry.has(Bits::YOUNG) {
                page[index].store(entry.with(Bits::YOUNG).raw(), Relaxed);
            }
            table = entry.pfn();
            cpu.tlb.walk_put(level, vpn, table);
            level -= 1;
        }
    }

    /// What a leaf entry becomes by an access; `None`: the access faults.
    fn use_entry(&self, entry: Entry, kind: AccessKind) -> Option<Entry> {
        let allowed = entry.has(Bits::USER)
            && match kind {
                AccessKind::Load => true,
                AccessKind::Store => entry.has(Bits::WRITE),
                AccessKind::Fetch => !entry.has(Bits::NO_EXEC),
            };
        if !allowed || (!self.spec.cpu().hw_young && !entry.has(Bits::YOUNG)) {
            return None;
        }
        let dirty = if kind == AccessKind::Store { Bits::DIRTY } else { Bits::empty() };
        Some(entry.with(Bits::YOUNG | dirty))
    }

    fn cache(&self, cpu: &Cpu, vpn: Vpn, entry: Entry, large: bool, kind: AccessKind) -> Cached {
        let bits = |pfn| {
            let (write, dirty) = (entry.has(Bits::WRITE), entry.has(Bits::DIRTY));
            Cached::new(pfn, write, dirty, !entry.has(Bits::NO_EXEC), cpu.clock.get() / 1000)
        };
        cpu.tlb.fill(vpn, bits(entry.pfn()), large, kind == AccessKind::Fetch);
        match large {
            true => bits(entry.pfn().add((vpn.0 & ((1 << PAGEBLOCK_ORDER.0) - 1)) as u32)),
            false => bits(entry.pfn()),
        }
    }

    /// The table that the entry of `level` (1 = directory, 2, 3) for `vpn` points to, without setting young bits.
    pub(crate) fn table_below(&self, root: Pfn, level: usize, vpn: Vpn) -> Option<Pfn> {
        (level..=3).rev().try_fold(root, |table, level| {
            let raw = self.tables.get(table)?[(vpn.0 >> (9 * level)) as usize & 511].load(Relaxed);
            let entry = Entry::from_raw(raw);
            let leads_to_table = entry.is_present() && !entry.has(Bits::LARGE);
            leads_to_table.then(|| entry.pfn())
        })
    }

    /// The frame that the tables under `root` map at `vpn`, and whether it is writable, without setting young bits.
    pub(crate) fn look_up(&self, root: Pfn, vpn: Vpn) -> Option<(Pfn, bool)> {
        self.look_up_entry(root, vpn).map(|(pfn, entry)| (pfn, entry.has(Bits::WRITE)))
    }

    /// The same with the whole entry.
    pub(crate) fn look_up_entry(&self, root: Pfn, vpn: Vpn) -> Option<(Pfn, Entry)> {
        let (mut level, mut table) = (3, root);
        loop {
            let raw = self.tables.get(table)?[(vpn.0 >> (9 * level)) as usize & 511].load(Relaxed);
            let entry = Entry::from_raw(raw);
            if !entry.is_present() {
                return None;
            }
            let large = level == 1 && entry.has(Bits::LARGE);
            if level == 0 || large {
                let offset = if large { vpn.0 as u32 & ((1 << PAGEBLOCK_ORDER.0) - 1) } else { 0 };
                return Some((entry.pfn().add(offset), entry));
            }
            table = entry.pfn();
            level -= 1;
        }
    }
}
