//! Machines that each violate the contract in one way: the simulated machine with one method changed.

use super::harness::Below;
use machine_sim::SimMachine;
use mm::machine::*;
use mm::units::*;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

/// How a machine is broken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Broken {
    CpuAlwaysFirst,
    NodeOfNowhere,
    DistanceOneWay,
    MemoryOutOfOrder,
    ClockGoesBack,
    AlwaysStopping,
    ZeroesOnePage,
    ZeroesOneTooMany,
    CopiesOnePage,
    CopiesTheOtherWay,
    ZeroKeepsContent,
    ClaimsNoYoung,
    ClaimsYoung,
    ClaimsYoungTables,
    NothingFlushed,
    PagesNotFlushed,
    LastPageNotFlushed,
    CurrentNotFlushed,
    AllNotFlushed,
    AllIsCurrent,
    KeepsAlways,
    OneNumberForAll,
    OwnRootNotLoaded,
    RemoteSkipped,
    RemoteTwice,
    RemoteOnCaller,
    LocalSkipped,
    LocalTwice,
    BusyCpusSkipped,
    RemoteFlushesNothing,
    BroadcastHereOnly,
    WakeForgotten,
    WakesOne,
    WakesNeighbours,
    TicketTooOld,
    TicketAtWait,
    DeadlineTooEarly,
    DeadlineSaysWoken,
    ReschedDoesNothing,
    WritesElsewhere,
    OnePageOnly,
    OnePageTooMany,
    EndsToldTwice,
    OneBufferForAll,
    MovesZeroes,
    UnpacksNothing,
    FillsZeroes,
}

use Broken::*;

/// The simulated machine, broken once it is armed: the memory manager starts on a sound machine.
pub struct BrokenMachine {
    sim: SimMachine,
    how: Broken,
    armed: Cell<bool>,
    memory: Vec<MemoryRange>,
    /// Calls of a method that fails now and then.
    asked: Cell<u64>,
    answering: Cell<bool>,
    /// Keys for which one more task may be woken.
    tokens: RefCell<BTreeSet<WaitKey>>,
    /// Transfers that were changed: as they are done, and as they were submitted.
    changed: RefCell<Vec<(Io, Io)>>,
    /// The page that was compressed last.
    compressed: Cell<Pfn>,
}

impl BrokenMachine {
    pub fn new(sim: SimMachine, how: Broken) -> BrokenMachine {
        let mut memory = sim.memory().to_vec();
        memory.reverse();
        BrokenMachine {
            sim,
            how,
            armed: Cell::new(false),
            memory,
            asked: Cell::new(0),
            answering: Cell::new(false),
            tokens: RefCell::default(),
            changed: RefCell::default(),
            compressed: Cell::new(Pfn::NONE),
        }
    }

    fn is(&self, how: Broken) -> bool {
        self.armed.get() && self.how == how
    }

    fn every(&self, n: u64) -> bool {
        self.asked.set(self.asked.get() + 1);
        self.asked.get().is_multiple_of(n)
    }
}

impl AsRef<SimMachine> for BrokenMachine {
    fn as_ref(&self) -> &SimMachine {
        &self.sim
    }
}

impl Below for BrokenMachine {
    fn begin(&self) {
        self.armed.set(true);
    }

    fn ended(&self, io: &Io, tell: &dyn Fn(&Io)) {
        let mut changed = self.changed.borrow_mut();
        let at = changed.iter().position(|(done, _)| done == io);
        let asked = at.map_or(*io, |at| changed.remove(at).1);
        drop(changed);
        tell(&asked);
        if self.is(EndsToldTwice) {
            tell(&asked);
        }
    }
}

impl Machine for BrokenMachine {
    fn cpus(&self) -> usize {
        self.sim.cpus()
    }

    fn node_of(&self, cpu: CpuId) -> NodeId {
        if self.is(NodeOfNowhere) && cpu.0 == 1 { NodeId(7) } else { self.sim.node_of(cpu) }
    }

    fn memory(&self) -> &[MemoryRange] {
        if self.is(MemoryOutOfOrder) { &self.memory } else { self.sim.memory() }
    }

    fn distance(&self, from: NodeId, to: NodeId) -> u32 {
        self.sim.distance(from, to) + u32::from(self.is(DistanceOneWay) && from < to)
    }

    fn cpu(&self) -> CpuId {
        if self.is(CpuAlwaysFirst) { CpuId(0) } else { self.sim.cpu() }
    }

    fn now(&self) -> Nanos {
        let back = self.is(ClockGoesBack) && self.every(5);
        self.sim.now().saturating_sub(if back { 2_000 } else { 0 })
    }

    fn table(&self, pfn: Pfn) -> &TablePage {
        self.sim.table(pfn)
    }

    fn zero(&self, pfn: Pfn, pages: u32) {
        match () {
            () if self.is(ZeroesOnePage) => self.sim.zero(pfn, 1),
            () if self.is(ZeroesOneTooMany) => self.sim.zero(pfn, pages + 1),
            () if self.is(ZeroKeepsContent) && pages == 1 => {}
            () => self.sim.zero(pfn, pages),
        }
    }

    fn copy(&self, to: Pfn, from: Pfn, pages: u32) {
        match () {
            () if self.is(CopiesOnePage) => self.sim.copy(to, from, 1),
            () if self.is(CopiesTheOtherWay) => self.sim.copy(from, to, pages),
            () => self.sim.copy(to, from, pages),
        }
    }

    fn has_hw_pte_young(&self) -> bool {
        (self.sim.has_hw_pte_young() && !self.is(ClaimsNoYoung)) || self.is(ClaimsYoung)
    }

    fn has_hw_nonleaf_young(&self) -> bool {
        self.sim.has_hw_nonleaf_young() || self.is(ClaimsYoungTables)
    }

    fn asids(&self) -> usize {
        self.sim.asids()
    }

    fn load_root(&self, root: Pfn, asid: Asid, keep: bool) {
        if self.is(OwnRootNotLoaded) && !root.is_some() {
            return;
        }
        let asid = if self.is(OneNumberForAll) { Asid(0) } else { asid };
        self.sim.load_root(root, asid, keep || self.is(KeepsAlways));
    }

    fn flush(&self, what: Flush) {
        let what = match what {
            _ if self.is(NothingFlushed) => return,
            Flush::Pages { .. } if self.is(PagesNotFlushed) => return,
            Flush::Pages { start, count, stride } if self.is(LastPageNotFlushed) => {
                Flush::Pages { start, count: count - 1, stride }
            }
            Flush::Current if self.is(CurrentNotFlushed) => return,
            Flush::All if self.is(AllNotFlushed) => return,
            Flush::All if self.is(AllIsCurrent) => Flush::Current,
            _ if self.is(RemoteFlushesNothing) && self.answering.get() => return,
            what => what,
        };
        self.sim.flush(what);
    }

    fn shootdown(&self, targets: &CpuSet, remote: &RemoteCall<'_>, local: &mut dyn FnMut()) {
        let mut targets = *targets;
        if self.is(RemoteSkipped) || (self.is(BusyCpusSkipped) && self.every(9)) {
            targets = targets.iter().last().map_or(targets, |last| {
                targets.remove(last);
                targets
            });
        }
        if self.is(RemoteOnCaller) {
            targets.iter().for_each(remote);
            return local();
        }
        let answer = |cpu| {
            self.answering.set(true);
            remote(cpu);
            if self.is(RemoteTwice) {
                remote(cpu);
            }
            self.answering.set(false);
        };
        self.sim.shootdown(&targets, &answer, &mut || {
            if !self.is(LocalSkipped) {
                local();
            }
            if self.is(LocalTwice) {
                local();
            }
        });
    }

    fn has_broadcast_flush(&self) -> bool {
        self.is(BroadcastHereOnly)
    }

    fn flush_everywhere(&self, _what: Broadcast) {
        self.sim.flush(Flush::All);
    }

    fn submit(&self, io: Io) {
        let mut done = io;
        match self.how {
            WritesElsewhere if io.write => done.block += 1 << 20,
            OnePageOnly => done.pages = 1,
            OnePageTooMany if io.pages > 1 => done.pages += 1,
            _ => {}
        }
        if self.armed.get() && done != io {
            self.changed.borrow_mut().push((done, io));
            return self.sim.submit(done);
        }
        self.sim.submit(io);
    }

    fn is_zero_filled(&self, first: Pfn, pages: u32) -> bool {
        self.sim.is_zero_filled(first, pages)
    }

    fn same_filled(&self, page: Pfn) -> Option<u64> {
        self.sim.same_filled(page)
    }

    fn fill(&self, page: Pfn, word: u64) {
        if self.is(FillsZeroes) { self.sim.zero(page, 1) } else { self.sim.fill(page, word) }
    }

    fn compress(&self, page: Pfn, by: Compressor) -> u32 {
        self.compressed.set(page);
        self.sim.compress(page, by)
    }

    fn pack(&self, page: Pfn, object: ObjectPlace) {
        let page = if self.is(OneBufferForAll) { self.compressed.get() } else { page };
        self.sim.pack(page, object);
    }

    fn unpack(&self, object: ObjectPlace, page: Pfn, by: Compressor) {
        if !self.is(UnpacksNothing) {
            self.sim.unpack(object, page, by);
        }
    }

    fn move_object(&self, from: ObjectPlace, to: ObjectPlace) {
        if self.is(MovesZeroes) { self.sim.pack(to.frame, to) } else { self.sim.move_object(from, to) }
    }

    fn ticket(&self, key: WaitKey) -> Ticket {
        let ticket = self.sim.ticket(key);
        Ticket { mark: ticket.mark.wrapping_sub(u64::from(self.is(TicketTooOld))), ..ticket }
    }

    fn wait(&self, ticket: Ticket, deadline: Option<Nanos>) -> bool {
        let mut ticket = ticket;
        if self.is(TicketAtWait) {
            ticket = self.sim.ticket(ticket.key);
        }
        let early = |deadline: Nanos| self.sim.now() + deadline.saturating_sub(self.sim.now()) / 2;
        let deadline = if self.is(DeadlineTooEarly) { deadline.map(early) } else { deadline };
        loop {
            let woken = self.sim.wait(ticket, deadline);
            let counts = self.is(WakesOne) && woken && !self.sim.stopping();
            if counts && !self.tokens.borrow_mut().remove(&ticket.key) {
                ticket = self.sim.ticket(ticket.key);
                continue;
            }
            return woken || self.is(DeadlineSaysWoken);
        }
    }

    fn wake(&self, key: WaitKey) {
        if self.is(WakeForgotten) && self.every(10) {
            return;
        }
        self.tokens.borrow_mut().insert(key);
        self.sim.wake(key);
        if let (true, WaitKey::Frame(pfn)) = (self.is(WakesNeighbours), key) {
            self.sim.wake(WaitKey::Frame(Pfn(pfn.0 ^ 64)));
        }
    }

    fn resched(&self) {
        if !self.is(ReschedDoesNothing) {
            self.sim.resched();
        }
    }

    fn stopping(&self) -> bool {
        self.sim.stopping() || self.is(AlwaysStopping)
    }

    fn charge(&self, work: Work, count: u64) {
        self.sim.charge(work, count);
    }
}
