//! Cache lines that several CPUs write.
//!
//! A line is with the CPU that wrote it last. Another CPU that writes it fetches it first, which takes as long as a
//! message from that CPU.
//!
//! - Frames' records are many, and each is written seldom: a word says which CPU wrote it last, in the order in which
//!   the simulator runs CPUs. A CPU whose turn it is writes a record several times at the price of once, although
//!   another CPU may write it in the same 20 us.
//! - A range's lock, or a space's set of CPUs, is written at each fault or switch. From the moment that a second CPU
//!   writes such a line its writes are kept in the order of time, as the holds of a lock: each takes as long as the
//!   line is on its way, and who comes meanwhile waits. A CPU that has run ahead of a write between two of its own
//!   pays for it afterwards.
//!
//! Reads are not charged: what is only read stays in the caches of all its readers.

use super::Waiting;
use super::holds::{Arrival, Held, Holder, Holds};
use super::kind::LineKind;
use crate::cpu::add;
use crate::profile::Kind;
use crate::spec::Hardware;
use mm::lock::LockClass;
use mm::machine::SharedLine;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// What fetching a cache line costs: from the same node, and from another.
const DISTANCES: [Hardware; 2] = [Hardware::LineSocket, Hardware::LineRemote];

/// Lines besides frames' that are kept: one that comes to the place of another makes it forgotten.
const KEPT: usize = 1 << 10;

/// Whether a CPU that has a lock of the class changes heads of lists in another line than the lock's. In Linux 6.12
/// `zone->lock` is not in a line of `free_area`, and `lruvec->lru_lock` is in the line behind the first four heads of
/// `lists`. The other locks are in the line of what they protect, or what each hold changes has no head.
fn has_lists(class: LockClass) -> bool {
    matches!(class, LockClass::Zone | LockClass::Lru)
}

/// Lines of one kind that came from other CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LineOutcome {
    /// What they hold.
    pub kind: &'static str,
    /// How often one came.
    pub fetched: u64,
    /// Picoseconds that it took.
    pub took: u64,
    /// The longest.
    pub longest: u64,
}

#[derive(Default)]
struct Counts {
    /// How often one came, by its distance.
    fetched: [Cell<u64>; 2],
    /// Waiting for lines that were on their way.
    waited: Cell<u64>,
    longest: Cell<u64>,
}

/// A line that is written often.
#[derive(Default)]
struct Hot {
    line: Option<(LineKind, u32)>,
    /// The CPU that wrote it last, and when, as long as it is the only one.
    by: u16,
    at: u64,
    /// The writes of several CPUs.
    writes: Option<Box<Holds>>,
}

/// The lines of a run.
pub(super) struct Lines {
    /// Picoseconds to fetch a line from another CPU of the same node, and of another one.
    pub(super) costs: [u64; 2],
    /// The CPU that wrote each frame's record last, + 1; 0: none.
    pub(super) frames: Rc<[Cell<u16>]>,
    hot: RefCell<Vec<Hot>>,
    counts: [Counts; LineKind::ALL.len()],
}

impl Lines {
    pub(super) fn new(costs: impl Fn(Hardware) -> u64, frames: usize) -> Lines {
        Lines {
            costs: DISTANCES.map(costs),
            frames: vec![0u16; frames].into_iter().map(Cell::new).collect(),
            hot: RefCell::new(std::iter::repeat_with(Hot::default).take(KEPT).collect()),
            counts: Default::default(),
        }
    }

    /// What happened, by kind.
    pub(super) fn outcomes(&self) -> impl Iterator<Item = LineOutcome> + '_ {
        LineKind::ALL.iter().zip(&self.counts).map(|(kind, counts)| {
            let fetched = counts.fetched.each_ref().map(Cell::get);
            let farthest = (0..2).rfind(|&distance| fetched[distance] > 0);
            LineOutcome {
                kind: kind.name(),
                fetched: fetched[0] + fetched[1],
                took: fetched[0] * self.costs[0] + fetched[1] * self.costs[1] + counts.waited.get(),
                longest: farthest.map_or(0, |distance| self.costs[distance]).max(counts.longest.get()),
            }
        })
    }
}

impl Waiting {
    /// The CPU that wrote each frame's record last, + 1; 0: none. The machine looks here first, and calls
    /// [`Waiting::write_frame`] only for another CPU than that.
    pub(crate) fn frame_writers(&self) -> Rc<[Cell<u16>]> {
        self.lines.frames.clone()
    }

    /// The current CPU writes to a line.
    #[inline]
    pub(crate) fn write(&self, line: SharedLine) {
        match line {
            SharedLine::Frame(pfn) => self.write_frame(&self.lines.frames[pfn.index()]),
            SharedLine::Frames(first, count) => {
                self.lines.frames[first.index()..][..count as usize]
                    .iter()
                    .for_each(|writer| self.write_frame(writer));
            }
            SharedLine::Vma(vma) => self.write_hot(LineKind::Vma, vma.0),
            SharedLine::CpuMask(space) => self.write_hot(LineKind::CpuMask, space.0),
            SharedLine::GroupUsage(group) => self.write_hot(LineKind::GroupUsage, u32::from(group.0)),
        }
    }

    /// The current CPU writes to a frame's record, which the CPU that is noted wrote last.
    #[inline(always)]
    pub(crate) fn write_frame(&self, writer: &Cell<u16>) {
        if self.muted.get() {
            return;
        }
        let me = (self.current.get() as u16).wrapping_add(1);
        let before = writer.replace(me);
        if before != 0 && before != me {
            self.fetch(LineKind::Frame, before - 1);
        }
    }

    /// The line of a lock of a class comes from the CPU that had the lock before, and with it the heads of lists. No
    /// other CPU can have the lock meanwhile.
    #[inline]
    pub(super) fn fetch_lock(&self, class: LockClass, from: u16) {
        self.fetch(LineKind::Lock, from);
        if has_lists(class) {
            self.fetch(LineKind::Lists, from);
        }
    }

    /// The current CPU fetches a line from another one. Returns the time that it takes.
    #[inline(always)]
    fn fetch(&self, kind: LineKind, from: u16) -> u64 {
        let cpu = &self.cpus[self.current.get()];
        let distance = usize::from(self.cpus[usize::from(from)].node != cpu.node);
        let picos = self.lines.costs[distance];
        cpu.spend_kernel(self.class.get(), picos);
        add(&self.lines.counts[kind as usize].fetched[distance], 1);
        if let Some(profile) = &self.profile {
            profile.note(Kind::Line(kind, DISTANCES[distance]), 1, picos);
        }
        picos
    }

    /// The current CPU writes to a line that is written often.
    #[inline(never)]
    fn write_hot(&self, kind: LineKind, id: u32) {
        if self.muted.get() {
            return;
        }
        let (me, now) = (self.current.get() as u16, self.cpus[self.current.get()].clock.get());
        let place = (id.wrapping_mul(LineKind::ALL.len() as u32) + kind as u32) as usize % KEPT;
        let hot = &mut self.lines.hot.borrow_mut()[place];
        if hot.line != Some((kind, id)) {
            *hot = Hot { line: Some((kind, id)), by: me, at: now, writes: None };
        } else if hot.writes.is_none() && hot.by == me {
            hot.at = now;
        } else {
            let (by, at) = (hot.by, hot.at);
            let writes = hot.writes.get_or_insert_with(|| {
                let mut writes = Box::<Holds>::default();
                writes.add(self.held((at, at), by), 0, |_, _| {});
                writes
            });
            self.write_shared(kind, writes, (me, now));
        }
    }

    fn held(&self, (start, end): (u64, u64), cpu: u16) -> Held {
        let place = self.profile.as_ref().map_or(self.class.get() as u32, |profile| profile.place());
        Held { start, end, by: Holder::new(cpu.into(), self.class.get()), place }
    }

    /// The same if other CPUs write to it, too.
    fn write_shared(&self, kind: LineKind, writes: &mut Holds, (me, now): (u16, u64)) {
        let Arrival { at, before, .. } = writes.wait(now, me, false);
        let took = before.filter(|&before| before != me).map_or(0, |from| self.fetch(kind, from));
        self.delay(kind, &self.held((now, now), me), at - now);
        let robbed = writes.robbed(at, me);
        writes.add(self.held((at, at + took), me), self.horizon.get(), |victim, wait| {
            self.delay(kind, victim, wait);
        });
        if let Some(victim) = robbed {
            let distance =
                usize::from(self.cpus[usize::from(victim.by.cpu())].node != self.cpus[usize::from(me)].node);
            add(&self.lines.counts[kind as usize].fetched[distance], 1);
            self.spend_at(&victim, Kind::Line(kind, DISTANCES[distance]), self.lines.costs[distance]);
        }
    }

    /// A CPU waits for a line that is on its way.
    fn delay(&self, kind: LineKind, victim: &Held, wait: u64) {
        if wait > 0 {
            let counts = &self.lines.counts[kind as usize];
            add(&counts.waited, wait);
            counts.longest.set(counts.longest.get().max(wait));
            // Where the line comes from is not kept: it is told of as one of the same node.
            self.spend_at(victim, Kind::Line(kind, DISTANCES[0]), wait);
        }
    }

    fn spend_at(&self, victim: &Held, kind: Kind, picos: u64) {
        self.cpus[usize::from(victim.by.cpu())].spend_kernel(victim.by.class(), picos);
        if let Some(profile) = &self.profile {
            profile.note_at(victim.place, kind, picos);
        }
    }
}
