//! Splitting a folio that is in use.

use super::Allocator;
use crate::frame::FrameFlags;
use crate::machine::Machine;
use crate::mmu::Mmu;
use crate::units::*;

impl Allocator {
    /// Split a folio into folios of a smaller order. No frame is freed.
    ///
    /// The caller holds the only reference, and no entry maps the folio. Afterwards it holds one reference to each
    /// part. The parts inherit flags, owner, group and debt tag; the index of a part is the head's plus its distance
    /// from the head.
    ///
    /// # Panics
    /// If `head` is not a folio's head, if `to` is not smaller than its order, or if it is on a list, in the swap
    /// cache, mapped or referenced by another user.
    #[expect(clippy::disallowed_methods, reason = "each part inherits the folio's debt")]
    pub fn split<M: Machine>(&self, mmu: &Mmu<M>, head: Pfn, to: Order) {
        let (frames, frame) = (&mmu.frames, &mmu.frames[head]);
        let order = frame.order();
        assert!(
            frame.has(FrameFlags::HEAD) && to < order,
            "{head} must be a head of an order above {to} to be split; it has {order}"
        );
        assert!(frame.refs() == 1 && frame.mapcount() == 0, "{head} must be unshared to be split");
        let tied = FrameFlags::LRU | FrameFlags::SWAPCACHE | FrameFlags::WRITEBACK | FrameFlags::TABLE;
        assert!(!frame.has_any(tied), "{head} must not be split with {:?}", frame.flags());
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
