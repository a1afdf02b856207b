//! Whether folios were used, from the young bits of the entries that map them.

use super::look::look_around;
use super::walk::{MappedPage, Mapping, Visit, walk};
use super::{Rmap, Span, SpanFlags};
use crate::frame::FolioRun;
use crate::lru::mglru::LookAround;
use crate::machine::{Machine, Scope, Work};
use crate::memory::Memory;
use crate::table::{Bits, Entry, LockedTables, TableWindow};
use crate::units::*;

/// The use of a folio, from its entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Referenced {
    /// Number of ranges through which it was used since the last look; -1: unknown, because a lock was held.
    pub vmas: i32,
    /// One of these ranges is program text.
    pub exec: bool,
    /// A range locks it in memory.
    pub locked: bool,
}

impl Rmap {
    /// Count the ranges that have used each folio of a run, and clear the young bits of its entries. With `group`, only
    /// ranges of this group and of groups below it count (and are cleared). With `look`, also look around used entries
    /// for other used folios of the vector.
    ///
    /// There is no flush: a CPU that still holds the translation does not set the bit again for a while, so that a used
    /// folio may look unused. This is cheaper than a flush (x86 does the same).
    pub(crate) fn referenced<M: Machine, const N: usize>(
        &self,
        memory: &Memory<M>,
        run: FolioRun<'_, N>,
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
        match list.try_share() {
            Some(spans) => walk(memory, mapped, &spans, &mut looking),
            None => mapped.iter().for_each(|(at, _)| looking.found[at].vmas = -1),
        }
        looking.found
    }
}

/// The visitor that looks at the use of a run.
struct Looking<'a, M, const N: usize> {
    memory: &'a Memory<M>,
    group: Option<GroupId>,
    look: Option<&'a mut LookAround>,
    run: FolioRun<'a, N>,
    found: [Referenced; N],
    /// Number of entries of each folio that the walk has not visited yet.
    left: [u32; N],
    /// The range that was counted last, and for which folio of the run.
    last: (VmaId, usize),
}

impl<M: Machine, const N: usize> Visit<M> for Looking<'_, M, N> {
    #[inline]
    fn entries(&mut self, tables: &mut LockedTables<'_, M>, mapping: &Mapping<'_>) -> bool {
        let &Mapping { span, at, ref entries } = mapping;
        let used = self.is_used(span, entries.entry);
        if used {
            tables.clear_young(entries);
            self.memory.charge(Work::EntryClear, u64::from(entries.count));
            if !entries.is_large() {
                self.look_around(tables, span, at, entries.page);
            }
        }
        let counts = used && self.last != (span.vma, at);
        if counts {
            self.last = (span.vma, at);
        }
        self.count(span, at, entries.count, counts)
    }

    #[inline]
    fn page(&mut self, window: &mut TableWindow<'_, '_, M>, place: usize, page: MappedPage<'_>) -> bool {
        let MappedPage { span, at, entry } = page;
        let used = self.is_used(span, entry);
        if used {
            window.clear_young(place);
            self.memory.charge(Work::EntryClear, 1);
            let page = window.page(place);
            self.look_around(window.tables(), span, at, page);
        }
        self.count(span, at, 1, used)
    }
}

impl<M: Machine, const N: usize> Looking<'_, M, N> {
    /// Whether the entry was used and this counts.
    #[inline(always)]
    fn is_used(&self, span: &Span, entry: Entry) -> bool {
        entry.has(Bits::YOUNG)
            && !span.flags.intersects(SpanFlags::LOCKED | SpanFlags::NO_RECENCY)
            && self.group.is_none_or(|group| self.memory.lru.groups.is_below(span.group, group))
    }

    /// Look around an entry whose young bit was cleared.
    #[inline(always)]
    fn look_around(&mut self, tables: &mut LockedTables<'_, M>, span: &Span, at: usize, page: Vpn) {
        if let Some(look) = self.look.as_deref_mut() {
            let target = &self.memory.frames[self.run.folio(at)];
            look_around(self.memory, tables, span, page, target, look);
        }
    }

    /// Count visited entries, and a range if it `counts` as one that used the folio. Returns whether no more entries of
    /// the folio are needed.
    #[inline(always)]
    fn count(&mut self, span: &Span, at: usize, entries: u32, counts: bool) -> bool {
        let (found, left) = (&mut self.found[at], &mut self.left[at]);
        *left = left.saturating_sub(entries);
        found.locked |= span.flags.contains(SpanFlags::LOCKED);
        if counts {
            found.vmas += 1;
            found.exec |= span.flags.contains(SpanFlags::EXEC);
        }
        found.locked || *left == 0
    }
}
