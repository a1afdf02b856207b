//! Splitting a folio that is in use.

use super::Allocator;
use crate::frame::FrameFlags;
use crate::machine::Machine;
use crate::mmu::Mmu;
use crate::units::*;

impl Allocator {
    /// Split a folio into folios of a smaller order. Nothing is freed.
    ///
    /// The caller holds the only reference, and no entry maps the folio. Afterwards it holds one reference to each
    /// part. The parts inherit flags, owner, group and debt tag; a part's place in the owner is the head's plus its
    /// distance from the head.
    ///
    /// # Panics
    /// If `head` is not a folio's head, `to` is not smaller than its order, it is on a list, in the swap cache, mapped
    /// or referred to by anybody else.
    #[expect(clippy::disallowed_methods, reason = "each part owes what the folio owed")]
    pub fn split<M: Machine>(&self, mmu: &Mmu<M>, head: Pfn, to: Order) {
        let (frames, frame) = (&mmu.frames, &mmu.frames[head]);
        let order = frame.order();
        assert!(frame.has(FrameFlags::HEAD) && to < order, "cannot split {head} of {order} to {to}");
        assert!(frame.refs() == 1 && frame.mapcount() == 0, "{head} is shared and cannot be split");
        let tied = FrameFlags::LRU | FrameFlags::SWAPCACHE | FrameFlags::WRITEBACK | FrameFlags::TABLE;
        assert!(!frame.has_any(tied), "cannot split {head} with {:?}", frame.flags());
        frames.unmake_folio(head);
        let (flags, owner, index, group) = (frame.flags(), frame.owner(), frame.page_index(), frame.group());
        for offset in (0..order.frames()).step_by(to.frames() as usize) {
            let part = &frames[head.add(offset)];
            part.assign(flags);
            part.set_owner(owner, PageIndex(index.0.wrapping_add(offset as u64)));
            part.set_group(group);
            part.set_debt(frame.debt());
            part.set_mobility(frame.mobility());
            if offset > 0 {
                part.unfreeze(1);
            }
            frames.make_folio(head.add(offset), to);
        }
    }
}
