//! The MMU of one CPU, in software: what a real CPU does by itself.

use mm::api::AccessKind;
use mm::machine::{Asid, Flush, TablePage};
use mm::primitive::Ordering::{AcqRel, Acquire};
use mm::table::{Bits, Entry};
use mm::units::{Pfn, Vpn};
use std::collections::HashMap;

/// The loaded root, and the translations of entries that were walked to. It never drops one unless told to.
pub struct Mmu {
    root: Pfn,
    asid: Asid,
    cached: HashMap<(Asid, Vpn), Entry>,
}

impl Default for Mmu {
    fn default() -> Mmu {
        Mmu { root: Pfn::NONE, asid: Asid(0), cached: HashMap::new() }
    }
}

/// Whether a cached entry allows the access. A first store must go to the table, to mark the entry dirty.
fn allows(entry: Entry, access: AccessKind) -> bool {
    entry.has(Bits::USER)
        && match access {
            AccessKind::Load => true,
            AccessKind::Store => entry.has(Bits::WRITE | Bits::DIRTY),
            AccessKind::Fetch => !entry.has(Bits::NO_EXEC),
        }
}

impl Mmu {
    /// The frame that an access reaches, or `None` for a fault.
    pub fn translate(&mut self, frames: &[TablePage], page: Vpn, access: AccessKind) -> Option<Pfn> {
        let key = (self.asid, page);
        if let Some(&entry) = self.cached.get(&key)
            && allows(entry, access)
        {
            return Some(entry.pfn());
        }
        // Not allowed: as on a fault, the MMU walks the tables again, and caches nothing if they do not allow
        // the access either.
        self.cached.remove(&key);
        let entry = self.walk(frames, page, access)?;
        self.cached.insert(key, entry);
        Some(entry.pfn())
    }

    fn walk(&self, frames: &[TablePage], page: Vpn, access: AccessKind) -> Option<Entry> {
        let mut table = self.root;
        for level in (0..4).rev() {
            // The machine's own root maps nothing.
            let slot = &frames.get(table.index())?[(page.0 >> (9 * level)) as usize % 512];
            let used = loop {
                let entry = Entry::from_raw(slot.load(Acquire));
                let mut used = entry.with(Bits::YOUNG);
                if level == 0 && access == AccessKind::Store && entry.has(Bits::WRITE) {
                    used = used.with(Bits::DIRTY);
                }
                if !entry.is_present() || (level == 0 && !allows(used, access)) {
                    return None;
                }
                // One atomic step, as in hardware: an entry that is cleared at the same time must not come
                // back.
                if slot.compare_exchange(entry.raw(), used.raw(), AcqRel, Acquire).is_ok() {
                    break used;
                }
            };
            if level == 0 {
                return Some(used);
            }
            table = used.pfn();
        }
        None
    }

    /// `Machine::load_root`.
    pub fn load_root(&mut self, root: Pfn, asid: Asid, keep: bool) {
        (self.root, self.asid) = (root, asid);
        if !keep {
            self.cached.retain(|&(number, _), _| number != asid);
        }
    }

    /// `Machine::flush`.
    pub fn flush(&mut self, what: Flush) {
        let loaded = self.asid;
        self.cached.retain(|&(asid, page), _| match what {
            Flush::All => false,
            Flush::Current => asid != loaded,
            Flush::Pages { start, count, stride } => {
                let pages = u64::from(count) << stride.0;
                asid != loaded || !(start.0..start.0 + pages).contains(&page.0)
            }
        });
    }
}
