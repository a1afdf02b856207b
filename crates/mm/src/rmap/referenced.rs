//! Whether folios were used, as the entries that map them tell.

use super::look::look_around;
use super::walk::{Mapping, Visit, walk};
use super::{Rmap, SpanFlags};
use crate::frame::FolioRun;
use crate::lru::mglru::LookAround;
use crate::machine::{Machine, Scope, Work};
use crate::memory::Memory;
use crate::table::{Bits, LockedTables};
use crate::units::*;

/// What the entries of a folio say about its use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Referenced {
    /// Ranges through which it was used since the last look; -1: could not be found out now.
    pub vmas: i32,
    /// One of them was program text.
    pub exec: bool,
    /// A range has it locked in memory.
    pub locked: bool,
}

impl Rmap {
    /// Count the ranges that have used each folio of a run, clearing the young bits of all its entries. `group`: only
    /// ranges of this group or below it count (and are cleared).
    ///
    /// No flush: a CPU that still holds the translation will not set the bit again for a while, which is an error on
    /// the cheap side (x86 does the same).
    ///
    /// `look`: also look around used entries, for what else of the folio's vector was used.
    pub fn referenced<M: Machine, const N: usize>(
        &self,
        memory: &Memory<M>,
        run: FolioRun<'_>,
        group: Option<GroupId>,
        look: Option<&mut LookAround>,
    ) -> [Referenced; N] {
        let _scope = memory.scope(Scope::FolioReferenced);
        let mut looking = Looking {
            memory,
            group,
            look,
            run,
            found: [Referenced::default(); N],
            left: [0; N],
            last: (VmaId(0), usize::MAX),
        };
        let mapped = run.filter(|at, pfn| {
            looking.left[at] = memory.frames[pfn].mapcount();
            looking.left[at] > 0
        });
        if mapped.is_empty() {
            return looking.found;
        }
        let Some(list) = self.spans(memory.frames[run.folio(0)].owner()) else { return looking.found };
        match list.try_lock() {
            Some(spans) => walk(memory, mapped, &spans, &mut looking),
            None => mapped.iter().for_each(|(at, _)| looking.found[at].vmas = -1),
        }
        looking.found
    }
}

/// The look at the use of a run.
struct Looking<'a, M, const N: usize> {
    memory: &'a Memory<M>,
    group: Option<GroupId>,
    look: Option<&'a mut LookAround>,
    run: FolioRun<'a>,
    found: [Referenced; N],
    /// Entries of each folio that have not been seen yet.
    left: [u32; N],
    /// The range, and the number of the folio, that was counted last.
    last: (VmaId, usize),
}

impl<M: Machine, const N: usize> Visit<M> for Looking<'_, M, N> {
    #[inline]
    fn entries(&mut self, tables: &mut LockedTables<'_, M>, mapping: &Mapping<'_>) -> bool {
        let &Mapping { span, at, ref entries } = mapping;
        let (found, left) = (&mut self.found[at], &mut self.left[at]);
        *left = left.saturating_sub(entries.count);
        if span.flags.contains(SpanFlags::LOCKED) {
            found.locked = true;
            return true;
        }
        if entries.entry.has(Bits::YOUNG)
            && !span.flags.contains(SpanFlags::NO_RECENCY)
            && self.group.is_none_or(|group| self.memory.lru.groups.is_below(span.group, group))
        {
            tables.clear_young(entries);
            self.memory.charge(Work::EntryClear, u64::from(entries.count));
            if self.last != (span.vma, at) {
                self.last = (span.vma, at);
                found.vmas += 1;
                found.exec |= span.flags.contains(SpanFlags::EXEC);
            }
            if let Some(look) = self.look.as_deref_mut().filter(|_| !entries.is_large()) {
                let target = &self.memory.frames[self.run.folio(at)];
                look_around(self.memory, tables, span, entries.page, target, look);
            }
        }
        *left == 0
    }
}
