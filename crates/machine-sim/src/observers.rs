//! All that watches a machine and changes nothing: one place that whatever happens to the machine goes through.
//!
//! Each observer is there only in runs that ask for it. The machine reports each kind of happening by one call, and the
//! call passes it to the observers that it concerns. Without observers, a run pays one test for each event.

use crate::bound::Bound;
use crate::config::RunConfig;
use crate::content::{Content, Stamp};
use crate::cpu::Cpu;
use crate::histogram::Histogram;
use crate::memory::{is_fast, slow_read_penalty};
use crate::moves::Moves;
use crate::optimum::{How, Optimum};
use crate::packing::Packing;
use crate::placement::{Placement, Read};
use crate::profile::{Kind, Profiler};
use crate::promises::Promises;
use crate::sched::TaskId;
use crate::spec::MachineSpec;
use crate::timeline::{Happening, Moment, Teller};
use mm::event::{Concern, Event};
use mm::hot::PageName;
use mm::machine::{Compressor, CpuSet, Io, ObjectPlace, Scope, ZoneSight};
use mm::units::{PAGE_SIZE, Pfn, SpaceId, Vpn};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Where in a machine, and when, something happens.
pub(crate) struct Context<'m> {
    pub(crate) cpus: &'m [Cpu],
    /// The current CPU, and the task that runs on it.
    pub(crate) cpu: usize,
    pub(crate) task: TaskId,
    /// Whether an interrupt has stopped that task.
    pub(crate) in_interrupt: bool,
}

impl Context<'_> {
    fn clock(&self) -> u64 {
        self.cpus[self.cpu].clock.get()
    }

    fn moment(&self) -> Moment {
        let task = (!self.in_interrupt).then_some(self.task);
        Moment { picos: self.clock(), cpu: self.cpu as u32, task }
    }
}

/// Tell an observer, if the run has it, of something.
#[inline(always)]
fn tell<T>(observer: &Option<RefCell<T>>, what: impl FnOnce(&mut T)) {
    #[cold]
    #[inline(never)]
    fn told<T>(observer: &RefCell<T>, what: impl FnOnce(&mut T)) {
        what(&mut observer.borrow_mut());
    }
    if let Some(observer) = observer {
        told(observer, what);
    }
}

/// The observers of a run.
pub(crate) struct Observers {
    /// What every page holds, for the oracle.
    pub(crate) content: Option<RefCell<Content>>,
    /// What compressors make of every page.
    pub(crate) packing: Option<RefCell<Packing>>,
    /// For which pages a flush is still to come, for the oracle.
    pub(crate) promises: Option<RefCell<Promises>>,
    /// What any safe policy would need.
    pub(crate) bound: Option<RefCell<Bound>>,
    /// How few refaults there could have been.
    pub(crate) optimum: Option<RefCell<Optimum>>,
    /// Compares compactions with the fewest pages that must be moved.
    pub(crate) moves: Option<RefCell<Moves>>,
    /// Compares placement in tiers with the best possible one.
    pub(crate) placement: Option<RefCell<Placement>>,
    /// Told of everything.
    pub(crate) timeline: Option<RefCell<Teller>>,
    /// Keeps a tree of where CPU time went.
    pub(crate) profile: Option<Rc<Profiler>>,
    /// Nanoseconds that allocations waited for the flush that their frame owed.
    pub(crate) takeoff: RefCell<Histogram>,
    /// Nanoseconds from an unmap to the flush that paid its debt.
    pub(crate) stale_age: RefCell<Histogram>,
    /// Nanoseconds of the program's own operations, as it reports them.
    pub(crate) operations: RefCell<Histogram>,
    /// KiB a second, as the program's tasks report it, added up.
    pub(crate) throughput: Cell<u64>,
    /// The first TLB entry that outlived the flush of its page-table entry, in words.
    stale_entry: RefCell<Option<String>>,
    /// Whether some observer wants events.
    listens: bool,
    /// Whether some observer wants to know of reads of memory, and of what tasks do.
    watches_reads: bool,
    watches_tasks: bool,
    /// Whether the timeline wants to know of accesses.
    draws_uses: bool,
    /// Whether the current CPU flushes because another asked it to.
    answering: Cell<bool>,
}

impl Observers {
    /// The observers that `config` asks for, of a machine of `spec`; an error if one of them cannot watch that machine.
    /// `contents`: what compressors make of pages is known.
    pub(crate) fn new(spec: &MachineSpec, config: &RunConfig, contents: bool) -> Result<Observers, String> {
        let (frames, memory) = (spec.end_pfn(), spec.memory() / PAGE_SIZE);
        let placement = config.placement.then(|| Placement::of(spec)).transpose()?;
        Ok(Observers {
            content: config.verify.then(|| RefCell::new(Content::new(frames))),
            packing: contents.then(|| RefCell::new(Packing::new(frames, config.seed, spec.packed()))),
            promises: config.verify.then(RefCell::default),
            bound: config.bound.then(|| RefCell::new(Bound::new(spec.cpus()))),
            optimum: config.optimum.then(|| RefCell::new(Optimum::new(frames, memory))),
            moves: config.moves.then(RefCell::default),
            placement: placement.map(RefCell::new),
            timeline: config.timeline.clone().map(|timeline| RefCell::new(Teller::new(timeline))),
            profile: (config.profile || config.task_time).then(|| {
                let devices = spec.devices().iter().map(|device| device.name.clone());
                Rc::new(Profiler::new(devices.collect(), config.task_time.then_some(config.phase)))
            }),
            watches_reads: config.placement || config.task_time,
            watches_tasks: config.task_time,
            draws_uses: config
                .timeline
                .as_ref()
                .is_some_and(|timeline| timeline.0.lock().expect("a timeline does not panic").watches_uses()),
            takeoff: RefCell::default(),
            stale_age: RefCell::default(),
            operations: RefCell::default(),
            throughput: Cell::new(0),
            stale_entry: RefCell::default(),
            listens: config.verify
                || config.bound
                || config.optimum
                || config.placement
                || config.moves
                || config.timeline.is_some(),
            answering: Cell::new(false),
        })
    }

    /// Whether some observer wants events; without one, events that are expensive to build need not be built.
    #[inline]
    pub(crate) fn listens(&self) -> bool {
        self.listens
    }

    /// Whether some observer wants to know of every access of programs.
    pub(crate) fn watches_accesses(&self) -> bool {
        self.content.is_some() || self.optimum.is_some() || self.packing.is_some() || self.draws_uses
    }

    /// Whether some observer wants to know of reads of memory by programs.
    #[inline(always)]
    pub(crate) fn watches_reads(&self) -> bool {
        self.watches_reads
    }

    /// The profile, if it has the time of the program's tasks.
    #[inline(always)]
    pub(crate) fn tasks(&self) -> Option<&Profiler> {
        if self.watches_tasks { self.profile.as_deref() } else { None }
    }

    /// Whether some observer wants to know in which scopes tasks are.
    pub(crate) fn watches_scopes(&self) -> bool {
        self.profile.is_some() || self.moves.is_some() || self.timeline.is_some()
    }

    /// What some observer has found wrong since the last call.
    pub(crate) fn take_failure(&self) -> Option<String> {
        let missing = self.bound.as_ref().and_then(|bound| bound.borrow_mut().take_missing());
        missing.or_else(|| self.stale_entry.take().map(|reason| format!("oracle: {reason}")))
    }

    // --- the memory manager ---

    /// The memory manager reports an event.
    #[inline]
    pub(crate) fn event<'m>(&self, event: Event, args: [u64; 4], context: impl FnOnce() -> Context<'m>) {
        if let (Event::TlbPaid, [kind, took, age, _]) = (event, args) {
            self.stale_age.borrow_mut().record(age);
            if kind == 2 {
                self.takeoff.borrow_mut().record(took);
            }
        }
        if self.listens {
            self.pass_on(event, args, &context());
        }
    }

    #[cold]
    #[inline(never)]
    fn pass_on(&self, event: Event, args: [u64; 4], context: &Context<'_>) {
        if event == Event::TlbHazard && self.content.is_some() {
            self.check_emptied(args, context.cpus);
        }
        let holds = |cpu: usize, vpn| context.cpus[cpu].tlb.holds(vpn);
        tell(&self.promises, |promises| promises.event(event, args));
        tell(&self.bound, |bound| bound.event(context.cpu, event, args, holds));
        tell(&self.optimum, |optimum| optimum.event(event, args));
        tell(&self.placement, |placement| placement.event(event, args));
        tell(&self.timeline, |timeline| timeline.tell(context.moment(), Happening::Event(event, args)));
        if event == Event::MmPageAlloc {
            tell(&self.moves, |moves| moves.latency.allocated(context.task, args[1], context.clock()));
        }
    }

    /// If the memory manager reports that page-table entries were cleared and flushed, no CPU that runs their space may
    /// hold one of them: entries of another size may follow, and CPUs must not have translations of both.
    fn check_emptied(&self, hazard: [u64; 4], cpus: &[Cpu]) {
        let Some(Concern::Emptied { space, first, count }) = Concern::of_args(hazard) else { return };
        let end = Vpn(first.0 + count);
        for (number, cpu) in cpus.iter().enumerate().filter(|(_, cpu)| cpu.loaded.get() == Some(space)) {
            cpu.tlb.for_each(&mut |start, pages, cached| {
                if start < end && first.0 < start.0 + pages {
                    self.stale_entry.borrow_mut().get_or_insert_with(|| {
                        format!(
                            "cpu {number}, {space}: stale TLB entry of {pages} pages from page {start} ({:#x}) on for frame {}: its \
                             page-table entry was taken away and flushed, and others follow",
                            start.addr(),
                            cached.pfn(),
                        )
                    });
                }
            });
        }
    }

    /// Tell the timeline of something.
    #[inline]
    pub(crate) fn happens<'m>(&self, context: impl FnOnce() -> Context<'m>, what: Happening<'_>) {
        tell(&self.timeline, |timeline| timeline.tell(context().moment(), what));
    }

    /// From now on there is one reason more (`true`), or less, to draw nothing of what happens. It begins with one.
    pub(crate) fn mute(&self, mute: bool) {
        tell(&self.timeline, |timeline| timeline.mute(mute));
    }

    /// A task enters a scope.
    pub(crate) fn enter(&self, scope: Scope, context: &Context<'_>) {
        tell(&self.timeline, |timeline| timeline.tell(context.moment(), Happening::Enters(scope)));
        tell(&self.moves, |moves| moves.latency.enter(scope, context.task, context.clock()));
    }

    /// A task leaves a scope.
    pub(crate) fn leave(&self, scope: Scope, context: &Context<'_>) {
        tell(&self.timeline, |timeline| timeline.tell(context.moment(), Happening::Leaves(scope)));
        tell(&self.moves, |moves| moves.latency.leave(scope, context.task));
    }

    /// A task shows a zone, before or after it compacts it.
    pub(crate) fn see_zone(&self, task: TaskId, sight: &ZoneSight<'_>) {
        tell(&self.moves, |moves| moves.see(task, sight));
    }

    // --- frames and devices ---

    /// Frames are filled with zeroes.
    pub(crate) fn zeroed(&self, pfn: Pfn, pages: u32) {
        tell(&self.content, |content| content.zero(pfn, pages));
        tell(&self.packing, |packing| packing.zero(pfn, pages));
    }

    /// Frames are copied.
    pub(crate) fn copied(&self, spec: &MachineSpec, to: Pfn, from: Pfn, pages: u32) {
        tell(&self.content, |content| content.copy(to, from, pages));
        tell(&self.packing, |packing| packing.copy(to, from, pages));
        tell(&self.optimum, |optimum| optimum.copied(to, from, pages));
        tell(&self.placement, |placement| {
            placement.copied(to, from, pages, [to, from].map(|pfn| is_fast(spec, pfn)))
        });
    }

    /// A transfer is submitted.
    pub(crate) fn submitted<'m>(&self, io: &Io, context: impl FnOnce() -> Context<'m>) {
        tell(&self.timeline, |timeline| timeline.submitted(context().clock(), io));
        tell(&self.content, |content| content.begin(io));
        tell(&self.packing, |packing| packing.begin(io));
        tell(&self.optimum, |optimum| optimum.transfer(io));
    }

    /// Transfers have ended at `now`. `done`: they have not failed.
    pub(crate) fn transferred<'io>(&self, now: u64, parts: impl Iterator<Item = &'io Io>, done: bool) {
        if self.content.is_none() && self.packing.is_none() && self.timeline.is_none() {
            return;
        }
        parts.for_each(|io| {
            tell(&self.timeline, |timeline| timeline.transferred(now, io, done));
            tell(&self.content, |content| content.finish(io, done));
            tell(&self.packing, |packing| packing.finish(io, done));
        });
    }

    // --- compressed memory ---

    /// Whether frames hold zeroes only, if that is known.
    pub(crate) fn is_zero_filled(&self, first: Pfn, pages: u32) -> bool {
        self.packing.as_ref().is_some_and(|packing| packing.borrow().is_zero(first, pages))
    }

    /// A word that stands for the content of a page that repeats one: the oracle's stamp.
    pub(crate) fn same_filled(&self, page: Pfn) -> Option<u64> {
        self.packing.as_ref().filter(|packing| packing.borrow().is_same(page)).map(|_| self.stamp(page))
    }

    /// The oracle's stamp of a page; 0 without the oracle.
    fn stamp(&self, page: Pfn) -> Stamp {
        self.content.as_ref().map_or(0, |content| content.borrow().frame(page))
    }

    fn set_stamp(&self, page: Pfn, stamp: Stamp) {
        tell(&self.content, |content| content.set(page, stamp));
    }

    /// A page is filled with such a word.
    pub(crate) fn filled(&self, page: Pfn, word: u64) {
        self.set_stamp(page, word);
        tell(&self.packing, |packing| packing.fill(page));
    }

    /// The bytes that a compressor makes of a page.
    pub(crate) fn compressed(&self, page: Pfn, by: Compressor) -> u32 {
        self.known().borrow().compressed(page, by)
    }

    /// A page is stored in an object.
    pub(crate) fn packed(&self, page: Pfn, object: ObjectPlace) {
        self.known().borrow_mut().pack(page, object, self.stamp(page));
    }

    /// A page is filled from an object.
    pub(crate) fn unpacked(&self, object: ObjectPlace, page: Pfn) {
        let stamp = self.known().borrow_mut().unpack(object, page);
        self.set_stamp(page, stamp);
    }

    /// An object is moved.
    pub(crate) fn moved_object(&self, from: ObjectPlace, to: ObjectPlace) {
        self.known().borrow_mut().move_object(from, to);
    }

    fn known(&self) -> &RefCell<Packing> {
        self.packing.as_ref().expect("pages are compressed only where their contents are known")
    }

    // --- CPUs ---

    /// A CPU has loaded a space; `None`: it runs a kernel task, or nothing.
    pub(crate) fn runs(&self, cpu: usize, space: Option<SpaceId>) {
        tell(&self.bound, |bound| bound.runs(cpu, space));
    }

    /// A CPU drops translations.
    pub(crate) fn flushed(&self, cpu: usize) {
        if !self.answering.get() {
            tell(&self.bound, |bound| bound.flushes(cpu));
        }
    }

    /// A CPU asks others to flush.
    pub(crate) fn round<'m>(&self, targets: &CpuSet, context: impl FnOnce() -> Context<'m>) {
        tell(&self.timeline, |timeline| timeline.asks(context().moment(), targets));
        tell(&self.bound, |bound| bound.round(targets));
    }

    /// Flushes in `work` were asked for by another CPU.
    pub(crate) fn answer(&self, work: impl FnOnce()) {
        let before = self.answering.replace(true);
        work();
        self.answering.set(before);
    }

    /// An interrupt asks the current CPU to flush.
    pub(crate) fn receives<'m>(&self, context: impl FnOnce() -> Context<'m>) {
        tell(&self.timeline, |timeline| timeline.receives(context().moment()));
    }

    /// The current CPU spent time that no kind of work counts.
    pub(crate) fn spent(&self, kind: Kind, count: u64, picos: u64) {
        if let Some(profile) = &self.profile {
            profile.note(kind, count, picos);
        }
    }

    /// The current task did not run for `picos`.
    pub(crate) fn was_away(&self, picos: u64) {
        if let Some(profile) = &self.profile {
            profile.was_away(picos);
        }
    }

    // --- programs ---

    /// A program accesses a page of its space `count` times.
    pub(crate) fn accessed<'m>(
        &self,
        space: SpaceId,
        page: Vpn,
        count: u32,
        context: impl FnOnce() -> Context<'m>,
    ) {
        if self.draws_uses {
            self.happens(context, Happening::Uses { space: space.0, page: page.0, count });
        }
    }

    /// A program uses the page in a frame.
    pub(crate) fn used(&self, pfn: Pfn, how: How) {
        tell(&self.optimum, |optimum| optimum.used(pfn, how));
    }

    /// A program, on a CPU of `node`, reads lines of the page `page` from memory.
    pub(crate) fn read(&self, spec: &MachineSpec, node: u8, page: PageName, frame: Pfn, lines: u64) {
        tell(&self.placement, |placement| {
            let (fast, longer) = (is_fast(spec, frame), slow_read_penalty(spec, node.into(), lines));
            placement.read(Read { page: page.number(), frame, fast, lines, longer });
        });
    }

    /// A program does not need blocks of a device any more.
    pub(crate) fn forgot(&self, device: u8, first: u64, count: u64) {
        tell(&self.optimum, |optimum| optimum.forget(device, first, count));
    }
}
