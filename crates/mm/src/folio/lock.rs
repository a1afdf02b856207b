//! Folio locks, and waiting for locks and write-back.

use crate::frame::FrameFlags;
use crate::machine::{Machine, Scope, Stall, Ticket, WaitKey};
use crate::memory::Memory;
use crate::units::*;

impl<M: Machine> Memory<M> {
    /// Lock a folio unless it is locked. Returns whether it did.
    #[inline]
    pub fn try_lock_folio(&self, pfn: Pfn) -> bool {
        self.frames[pfn].test_and_set(FrameFlags::LOCKED)
    }

    /// Lock a folio, sleeping while another task holds the lock. The caller holds a reference.
    pub(crate) fn lock_folio(&self, pfn: Pfn) {
        while !self.try_lock_folio(pfn) {
            self.wait_while(pfn, FrameFlags::LOCKED);
        }
    }

    /// Unlock a folio.
    #[inline]
    pub fn unlock_folio(&self, pfn: Pfn) {
        let frame = &self.frames[pfn];
        debug_assert!(frame.has(FrameFlags::LOCKED), "folio {pfn} must be locked");
        frame.clear(FrameFlags::LOCKED);
        // A separate load, because a clear that does not return the old value is one instruction. A waiter sets the
        // flag before it checks the lock for the last time, so either it sees the lock open or this load sees the
        // flag.
        if frame.has(FrameFlags::WAITERS) {
            self.wake_folio(pfn);
        }
    }

    /// Sleep until the folio is unlocked. The caller holds a reference.
    pub(crate) fn wait_unlocked(&self, pfn: Pfn) {
        self.wait_while(pfn, FrameFlags::LOCKED);
    }

    /// Get a ticket for the unlock of a folio. The folio must be locked, and can be neither unlocked nor freed during
    /// the call.
    pub(crate) fn unlock_ticket(&self, pfn: Pfn) -> Ticket {
        let ticket = self.machine.ticket(WaitKey::Frame(pfn));
        let before = self.frames[pfn].set(FrameFlags::WAITERS);
        assert!(
            before.contains(FrameFlags::LOCKED),
            "folio {pfn} must be locked, or no task would wake its waiters"
        );
        ticket
    }

    /// Sleep until the folio is not being written. The caller holds a reference.
    pub(crate) fn wait_writeback(&self, pfn: Pfn) {
        self.wait_while(pfn, FrameFlags::WRITEBACK);
    }

    /// Wake all tasks that wait for the folio's lock or write-back.
    pub(crate) fn wake_folio(&self, pfn: Pfn) {
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
            let read = flag == FrameFlags::LOCKED && !frame.has(FrameFlags::UPTODATE);
            let _refault = read.then(|| self.refault_stall(pfn));
            let _stall = self.stall(Stall::Io);
            self.machine.wait(ticket, None);
        }
    }
}
