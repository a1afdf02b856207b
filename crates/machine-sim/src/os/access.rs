//! One access: translation, fault, and the oracle's judgement.

use super::SimOs;
use crate::optimum::How;
use crate::oracle::Went;
use crate::tlb::Cached;
use crate::walk::Walk;
use kernel::ADDRESS_BITS;
use mm::api::FaultError;
use mm::frame::{FrameFlags, Owner};
use mm::hot::PageName;
use mm::machine::Machine;
use mm::units::{Pfn, Vpn};
use program::{Access, AccessKind, Program, Signal};

/// Faults that one access may take. More means that the memory manager makes no progress.
const RETRIES: u32 = 1000;
/// Cache lines of a page.
const LINES: u64 = 64;

impl<P: Program> SimOs<'_, P> {
    #[inline(never)]
    pub(super) fn access_slow(&mut self, access: Access) -> Result<(), Signal> {
        let addr = access.addr;
        self.accesses += access.count as u64;
        if addr >> ADDRESS_BITS != 0 {
            return Err(Signal::Segv { addr });
        }
        let kind = access.mode;
        let vpn = Vpn::of(addr);
        for _ in 0..RETRIES {
            let cpu = self.machine.here();
            match self.machine.translate(cpu, vpn, kind) {
                Ok((cached, missed)) => {
                    if missed {
                        let lines = (access.count as u64).clamp(1, LINES);
                        cpu.spend(self.machine.memory_time(cpu, cached.pfn(), lines));
                        if self.machine.placement.is_some() {
                            self.note_placed(cached.pfn(), lines);
                        }
                    }
                    cpu.spend(self.access_cost * access.count as u64);
                    if self.watched {
                        self.watch(vpn, kind, cached);
                    }
                    return match cpu.clock.get() < self.machine.limit.get() {
                        true => Ok(()),
                        false => self.breathe(),
                    };
                }
                Err(Walk::Broken(pfn)) => {
                    let text = format!(
                        "the walk for page {vpn} of {} met frame {pfn}, which is no table",
                        self.space
                    );
                    self.fail(text);
                }
                Err(_) => self.fault(vpn, kind, addr)?,
            }
        }
        self.fail(format!(
            "page {vpn} of {} still faults after {RETRIES} faults ({kind:?}); {}",
            self.space,
            self.mapped(vpn)
        ));
    }

    /// The task goes back to its program, perhaps after a tick.
    pub(super) fn task_work(&self) {
        if self.world.ticks.get() && !self.dead() {
            self.enter();
            let ran = self.machine.ran();
            self.world.mm().task_work(self.space, self.task.scan(), ran);
            self.leave();
        }
    }

    /// The task goes back to its program, from wherever it was: let others run first if it is their turn.
    pub(super) fn go_back(&self) {
        if self.machine.yield_if_due() {
            self.task_work();
        }
    }

    /// Memory was read, of whichever page is in the frame.
    #[cold]
    fn note_placed(&self, pfn: Pfn, lines: u64) {
        let frames = &self.world.mm().mmu().frames;
        let head = frames.head(pfn);
        if let Some(name) = PageName::of(&frames[head]) {
            let page = name.and_page(pfn.0 - head.0);
            self.machine.placed(self.machine.here(), page, pfn, lines);
        }
    }

    fn fault(&mut self, vpn: Vpn, kind: AccessKind, addr: u64) -> Result<(), Signal> {
        let (since, newest) = (self.moment(), self.world.newest());
        self.enter();
        let served = self.world.mm().fault(self.space, vpn, kind);
        self.leave();
        if self.machine.preempt.is_some() && kind == AccessKind::Store {
            // What a private copy was made of may have been stored to since.
            self.oracle(|oracle| oracle.populated(self.space.0, vpn.0, 1, newest));
        }
        self.after_operation();
        let Err(error) = served else {
            return if self.dead() { Err(Signal::Kill) } else { Ok(()) };
        };
        let beyond = match error {
            FaultError::Killed => {
                self.world.kernel.killed(&self.task);
                return Err(Signal::Kill);
            }
            FaultError::Segv => false,
            FaultError::Bus => true,
        };
        if let Some(Err(text)) =
            self.oracle(|oracle| oracle.refused((self.space.0, vpn.0), kind, beyond, since))
        {
            self.fail(format!("oracle: task {}, {kind:?} at {addr:#x}: {text}", self.task.number()));
        }
        Err(if beyond { Signal::Bus { addr } } else { Signal::Segv { addr } })
    }

    pub(super) fn enter(&self) {
        self.world.inside.set(self.world.inside.get() + 1);
    }

    pub(super) fn leave(&self) {
        self.world.inside.set(self.world.inside.get() - 1);
        self.machine.unplug();
    }

    /// What the page table says of a page, for people.
    fn mapped(&self, vpn: Vpn) -> String {
        match self.machine.look_up(self.world.mm().root(self.space), vpn) {
            None => "its table maps nothing".into(),
            Some((pfn, writable)) => {
                let frame = &self.world.mm().mmu().frames[pfn];
                let rights = if writable { "for writing" } else { "for reading" };
                format!(
                    "its table maps {pfn} {rights}: {:?}, {:?}, {} references, {} mappings",
                    frame.owner(),
                    frame.flags(),
                    frame.refs(),
                    frame.mapcount()
                )
            }
        }
    }

    /// Show who wants to see it an access that went through `cached`.
    fn watch(&self, vpn: Vpn, kind: AccessKind, cached: Cached) {
        if let Some(optimum) = &self.machine.optimum {
            optimum.borrow_mut().used(cached.pfn(), How::Mapped);
        }
        self.check(vpn, kind, cached);
    }

    /// Ask the oracle about an access that went through `cached`.
    fn check(&self, vpn: Vpn, kind: AccessKind, cached: Cached) {
        let Some(content) = &self.machine.content else { return };
        let got = content.borrow().frame(cached.pfn());
        self.note_stale(vpn, cached);
        let mut verdict =
            self.oracle(|oracle| oracle.access(self.space.0, vpn.0, kind, got)).unwrap_or(Ok(()));
        if kind == AccessKind::Store && verdict.is_ok() {
            verdict = self.check_store(vpn, cached);
            let stamp = content.borrow_mut().fresh();
            content.borrow_mut().set(cached.pfn(), stamp);
            self.oracle(|oracle| oracle.store(self.space.0, vpn.0, stamp, || self.went(cached.pfn())));
        }
        if let Err(text) = verdict {
            let now = self.machine.now();
            self.fail(format!(
                "oracle: cpu {}, task {}, {}, {kind:?} of page {vpn} ({:#x}): {text}; through a TLB entry for frame \
                 {} of age {} us; the frame has {:?}, {:?}",
                self.machine.current.get(),
                self.task.number(),
                self.space,
                vpn.addr(),
                cached.pfn(),
                cached.age(now) / 1000,
                self.world.mm().mmu().frames[cached.pfn()].owner(),
                self.world.mm().mmu().frames[cached.pfn()].flags(),
            ));
        }
    }

    /// Where a store to a frame goes, as the oracle names it.
    fn went(&self, pfn: Pfn) -> Went {
        let frames = &self.world.mm().mmu().frames;
        let head = &frames[frames.head(pfn)];
        let Owner::File(id) = head.owner() else {
            let swapped = head.owner() == Owner::None && head.has(FrameFlags::SWAPCACHE);
            return if swapped { Went::ToFileMapped } else { Went::Elsewhere };
        };
        // The oracle waits for the answer: nobody else may ask it meanwhile.
        match self.machine.stoppable(false, || self.world.kernel.file_number(id)) {
            Some(file) => Went::ToFile(file.into(), frames.index_of(pfn).0),
            None => Went::ToFileMapped,
        }
    }

    /// Count an access through a translation that the page table no longer has. It may be right all the same.
    fn note_stale(&self, vpn: Vpn, cached: Cached) {
        let now = self.machine.look_up(self.world.mm().root(self.space), vpn);
        if now.is_none_or(|(pfn, _)| pfn != cached.pfn()) {
            self.oracle(|oracle| oracle.report.stale += 1);
        }
    }

    /// A store may only go to the frame that the page table maps for writing at this moment, or did a moment ago, and
    /// somebody who is stopped is about to flush it.
    fn check_store(&self, vpn: Vpn, cached: Cached) -> Result<(), String> {
        match self.machine.look_up(self.world.mm().root(self.space), vpn) {
            Some((pfn, true)) if pfn == cached.pfn() => Ok(()),
            _ if self.world.stopped_inside() => Ok(()),
            found => {
                if let Some(oracle) = &self.world.oracle {
                    oracle.borrow_mut().report.violations += 1;
                }
                match found {
                    Some((pfn, true)) => {
                        Err(format!("a store went to another frame than the page table's {pfn}"))
                    }
                    Some(_) => Err("a store went through although the page table forbids it".into()),
                    None => Err("a store went through although the page table maps nothing".into()),
                }
            }
        }
    }
}
