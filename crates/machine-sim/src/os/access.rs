//! One access: translation, fault, and the oracle's verdict.

use super::SimOs;
use crate::optimum::How;
use crate::oracle::StoreTarget;
use crate::profile::{About, Part};
use crate::tlb::Cached;
use crate::walk::Walk;
use kernel::ADDRESS_BITS;
use mm::api::FaultError;
use mm::frame::{FrameFlags, Owner};
use mm::hot::PageName;
use mm::machine::Machine;
use mm::space::VmaView;
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
        let (mut count, mut faults) = (access.count, 0);
        while faults < RETRIES {
            let cpu = self.machine.this_cpu();
            let before = cpu.clock.get();
            match self.machine.translate(cpu, vpn, kind) {
                Ok((cached, missed)) => {
                    if missed {
                        let translation = cpu.clock.get() - before;
                        let lines = (count as u64).clamp(1, LINES);
                        let took = self.machine.memory_time(cpu, cached.pfn(), lines);
                        cpu.spend(took);
                        if self.machine.observers.watches_reads() {
                            self.note_read(vpn, cached.pfn(), lines, [translation, took]);
                        }
                    }
                    if self.machine.in_turn {
                        let part = self.in_one_go(count);
                        if part < count {
                            self.work_part(part, (vpn, kind, cached))?;
                            // Others have run, and the page may be gone.
                            (count, faults) = (count - part, 0);
                            continue;
                        }
                    }
                    cpu.spend(self.access_cost * count as u64);
                    if self.watched {
                        self.watch(vpn, kind, cached, count);
                    }
                    return match cpu.clock.get() < self.machine.limit.get() {
                        true => Ok(()),
                        false => self.reschedule(),
                    };
                }
                Err(Walk::Broken(pfn)) => {
                    let text = format!(
                        "the walk for page {vpn} of {} met frame {pfn}, which is no table",
                        self.space
                    );
                    self.fail(text);
                }
                Err(_) => {
                    self.fault(vpn, kind, addr)?;
                    faults += 1;
                }
            }
        }
        self.fail(format!(
            "page {vpn} of {} still faults after {RETRIES} faults ({kind:?}); {}",
            self.space,
            self.describe_mapping(vpn)
        ));
    }

    /// How many of `accesses` to a page the CPU makes in one go.
    fn in_one_go(&self, accesses: u32) -> u32 {
        let picos = self.access_cost * accesses as u64;
        match self.machine.in_one_go(picos) {
            part if part < picos => part.div_ceil(self.access_cost) as u32,
            _ => accesses,
        }
    }

    /// Make the first `part` of more accesses, and give way.
    #[cold]
    fn work_part(&mut self, part: u32, (vpn, kind, cached): (Vpn, AccessKind, Cached)) -> Result<(), Signal> {
        let cpu = self.machine.this_cpu();
        cpu.spend(self.access_cost * part as u64);
        if self.watched {
            self.watch(vpn, kind, cached, part);
        }
        match cpu.clock.get() < self.machine.limit.get() {
            true => Ok(()),
            false => self.reschedule(),
        }
    }

    /// The work that a task does on its return to user mode, perhaps after a tick.
    pub(super) fn task_work(&self) {
        if self.sim.ticks.get() && !self.is_dead() {
            self.enter();
            let ran = self.machine.ran();
            self.sim.mm().task_work(self.space, self.task.scan(), ran);
            self.leave();
        }
    }

    /// The task returns to user mode; other tasks run first if it is their turn.
    pub(super) fn return_to_user(&self) {
        if self.machine.yield_if_due() {
            self.task_work();
        }
    }

    /// Tell the observers that the program read memory of the page that is in this frame.
    #[cold]
    fn note_read(&self, vpn: Vpn, pfn: Pfn, lines: u64, [translation, took]: [u64; 2]) {
        if let Some(profile) = self.machine.observers.tasks() {
            let parts = [(Part::Translation, 1, translation), (Part::Memory, lines, took)];
            profile.note_parts_on(self.mapping(vpn), &parts);
        }
        if self.machine.observers.placement.is_none() {
            return;
        }
        let frames = &self.sim.mm().mmu().frames;
        let head = frames.head(pfn);
        if let Some(name) = PageName::of(&frames[head]) {
            let page = name.and_page(pfn.0 - head.0);
            let (spec, node) = (self.machine.spec(), self.machine.this_cpu().node);
            self.machine.observers.read(spec, node, page, pfn, lines);
        }
    }

    fn fault(&mut self, vpn: Vpn, kind: AccessKind, addr: u64) -> Result<(), Signal> {
        let (since, newest) = (self.moment(), self.sim.newest());
        self.enter();
        let served = self.about(|| self.mapping(vpn), || self.sim.mm().fault(self.space, vpn, kind));
        self.leave();
        if self.machine.preempt.is_some() && kind == AccessKind::Store {
            // The page that a private copy was made of may have been written to since.
            self.oracle(|oracle| oracle.populated(self.space.0, vpn.0, 1, newest));
        }
        self.after_operation();
        let Err(error) = served else {
            return if self.is_dead() { Err(Signal::Kill) } else { Ok(()) };
        };
        let beyond = match error {
            FaultError::Killed => {
                self.sim.kernel.killed(&self.task);
                return Err(Signal::Kill);
            }
            FaultError::Segv => false,
            FaultError::Bus => true,
            FaultError::Io => {
                self.check_failure(false);
                return Err(Signal::Bus { addr });
            }
        };
        if let Some(Err(text)) =
            self.oracle(|oracle| oracle.refused((self.space.0, vpn.0), kind, beyond, since))
        {
            self.fail(format!("oracle: task {}, {kind:?} at {addr:#x}: {text}", self.task.number()));
        }
        Err(if beyond { Signal::Bus { addr } } else { Signal::Segv { addr } })
    }

    /// What is mapped at a page.
    fn mapping(&self, vpn: Vpn) -> About {
        match self.machine.unaccounted(|| self.sim.mm().mapping(self.space, vpn)) {
            Some(VmaView { file: Some((file, _)), .. }) => About::File(file),
            Some(VmaView { start, pages, .. }) => About::Memory { start: start.0, end: start.0 + pages },
            None => About::Nothing,
        }
    }

    /// Do `work` of the kernel for a file or a mapping; the profile of tasks has it there.
    pub(super) fn about<T>(&self, what: impl FnOnce() -> About, work: impl FnOnce() -> T) -> T {
        let frame = self.machine.observers.tasks().map(|profile| profile.frame_of(what()));
        if let Some(frame) = frame {
            self.machine.profiled(|profile| profile.enter_frame(frame));
        }
        let result = work();
        if let Some(frame) = frame {
            self.machine.profiled(|profile| profile.leave_frame(frame));
        }
        result
    }

    pub(super) fn enter(&self) {
        self.tell_profile();
        self.sim.inside.set(self.sim.inside.get() + 1);
    }

    pub(super) fn leave(&self) {
        self.sim.inside.set(self.sim.inside.get() - 1);
        self.machine.unplug();
    }

    /// What the page table has for a page, for messages.
    fn describe_mapping(&self, vpn: Vpn) -> String {
        match self.machine.look_up(self.sim.mm().root(self.space), vpn) {
            None => "its table maps nothing".into(),
            Some((pfn, writable)) => {
                let frame = &self.sim.mm().mmu().frames[pfn];
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

    /// Tell the observers of `count` accesses that used the translation `cached`.
    fn watch(&self, vpn: Vpn, kind: AccessKind, cached: Cached, count: u32) {
        self.machine.observers.accessed(self.space, vpn, count, || self.machine.context());
        self.machine.observers.used(cached.pfn(), How::Mapped);
        let stores = self.machine.observers.packing.as_ref().filter(|_| kind == AccessKind::Store);
        let zeroes =
            stores.is_some_and(|packing| packing.borrow_mut().store((self.space.0, vpn.0), cached.pfn()));
        self.check(vpn, kind, cached, zeroes);
    }

    /// Ask the oracle about an access that used the translation `cached`. `zeroes`: it stored zeroes to a page of
    /// zeroes.
    fn check(&self, vpn: Vpn, kind: AccessKind, cached: Cached, zeroes: bool) {
        let Some(content) = &self.machine.observers.content else { return };
        let got = content.borrow().frame(cached.pfn());
        self.note_stale(vpn, cached);
        let mut verdict =
            self.oracle(|oracle| oracle.access(self.space.0, vpn.0, kind, got)).unwrap_or(Ok(()));
        if kind == AccessKind::Store && verdict.is_ok() {
            verdict = self.check_store(vpn, cached);
            let stamp = if zeroes { 0 } else { content.borrow_mut().fresh() };
            content.borrow_mut().set(cached.pfn(), stamp);
            self.oracle(|oracle| {
                oracle.store(self.space.0, vpn.0, stamp, || self.store_target(cached.pfn()))
            });
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
                self.sim.mm().mmu().frames[cached.pfn()].owner(),
                self.sim.mm().mmu().frames[cached.pfn()].flags(),
            ));
        }
    }

    /// What a store to a frame changes, in the oracle's terms.
    pub(super) fn store_target(&self, pfn: Pfn) -> StoreTarget {
        let frames = &self.sim.mm().mmu().frames;
        let head = &frames[frames.head(pfn)];
        let Owner::File(id) = head.owner() else {
            let swapped = head.owner() == Owner::None && head.has(FrameFlags::SWAPCACHE);
            return if swapped { StoreTarget::MappedFile } else { StoreTarget::Elsewhere };
        };
        // The oracle waits for the answer: no other task may ask it now.
        match self.machine.stoppable(false, || self.sim.kernel.file_number(id)) {
            Some(file) => StoreTarget::File(file.into(), frames.index_of(pfn).0),
            None => StoreTarget::MappedFile,
        }
    }

    /// Count an access through a translation that the page table no longer has. It may still be right.
    fn note_stale(&self, vpn: Vpn, cached: Cached) {
        let now = self.machine.look_up(self.sim.mm().root(self.space), vpn);
        if now.is_none_or(|(pfn, _)| pfn != cached.pfn()) {
            self.oracle(|oracle| oracle.report.stale += 1);
        }
    }

    /// A store may go only to the frame that the page table maps writable at this moment, or mapped a moment ago if a
    /// stopped CPU, or a task that has let this one run within a batch of unmapped pages, is about to flush that.
    fn check_store(&self, vpn: Vpn, cached: Cached) -> Result<(), String> {
        match self.machine.look_up(self.sim.mm().root(self.space), vpn) {
            Some((pfn, true)) if pfn == cached.pfn() => Ok(()),
            _ if self.sim.stopped_inside() || self.sim.will_flush(self.space, cached.pfn()) => Ok(()),
            found => {
                if let Some(oracle) = &self.sim.oracle {
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
