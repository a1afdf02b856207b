//! Locks of folios, and waiting for what is done to them.

use crate::frame::FrameFlags;
use crate::machine::{Machine, Scope, Ticket, WaitKey};
use crate::memory::Memory;
use crate::units::*;

impl<M: Machine> Memory<M> {
    /// Lock a folio if nobody has.
    #[inline]
    pub fn try_lock_folio(&self, pfn: Pfn) -> bool {
        self.frames[pfn].test_and_set(FrameFlags::LOCKED)
    }

    /// Lock a folio, sleeping while somebody else has. The caller holds a reference.
    pub fn lock_folio(&self, pfn: Pfn) {
        while !self.try_lock_folio(pfn) {
            self.wait_while(pfn, FrameFlags::LOCKED);
        }
    }

    /// Unlock a folio.
    #[inline]
    pub fn unlock_folio(&self, pfn: Pfn) {
        let frame = &self.frames[pfn];
        debug_assert!(frame.has(FrameFlags::LOCKED), "{pfn} is not locked");
        frame.clear(FrameFlags::LOCKED);
        // Looked at by itself, as a clear that is not asked what stood before is one step of hardware's. Who waits says
        // so before the last look at the lock, so either that saw it open or this sees who waits.
        if frame.has(FrameFlags::WAITERS) {
            self.wake_folio(pfn);
        }
    }

    /// Sleep until nobody has the folio locked. The caller holds a reference.
    pub fn wait_unlocked(&self, pfn: Pfn) {
        self.wait_while(pfn, FrameFlags::LOCKED);
    }

    /// A ticket for the moment at which a folio is unlocked that is locked now, and cannot be unlocked meanwhile, nor
    /// freed before.
    pub fn unlock_ticket(&self, pfn: Pfn) -> Ticket {
        let ticket = self.machine.ticket(WaitKey::Frame(pfn));
        let before = self.frames[pfn].set(FrameFlags::WAITERS);
        assert!(before.contains(FrameFlags::LOCKED), "nobody would wake who waits for {pfn}");
        ticket
    }

    /// Sleep until the folio is not being written. The caller holds a reference.
    pub fn wait_writeback(&self, pfn: Pfn) {
        self.wait_while(pfn, FrameFlags::WRITEBACK);
    }

    /// Wake all who wait on the folio's lock or write-back.
    pub fn wake_folio(&self, pfn: Pfn) {
        self.frames[pfn].clear(FrameFlags::WAITERS);
        self.machine.wake(WaitKey::Frame(pfn));
    }

    fn wait_while(&self, pfn: Pfn, flag: FrameFlags) {
        let frame = &self.frames[pfn];
        while frame.has(flag) {
            let ticket = self.machine.ticket(WaitKey::Frame(pfn));
            frame.set(FrameFlags::WAITERS);
            if !frame.has(flag) {
                return;
            }
            let _scope = self.scope(Scope::FolioWaitBit);
            self.machine.wait(ticket, None);
        }
    }
}
