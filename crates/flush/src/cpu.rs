//! One CPU: the space that it has loaded, and what it has cached under each address-space number.

use crate::debt::Generation;
use crate::host::Asid;
use base::primitive::{
    Ordering::*,
    modelled::{AtomicBool, AtomicU32, AtomicU64},
};
use base::units::*;
use std_alloc::boxed::Box;

const NO_SPACE: u32 = u32::MAX;
/// A space is being loaded: programs may run soon, with a generation that has been read already.
const ARRIVING: u32 = u32::MAX - 1;

/// The content of one address-space number.
#[derive(Default)]
struct AsidSlot {
    /// The space's unique id; 0: nothing.
    context: AtomicU64,
    /// The generation that this CPU has caught up with.
    generation: AtomicU64,
}

/// Written only by its own CPU; others read `space` and `lazy`.
pub struct CpuTlb {
    space: AtomicU32,
    lazy: AtomicBool,
    /// Index of the slot that is loaded.
    loaded: AtomicU32,
    slots: Box<[AsidSlot]>,
    /// The slot to reuse next.
    next: AtomicU32,
    /// Debts up to this generation are paid on this CPU; and the time of its last catching up.
    done: AtomicU64,
    done_at: AtomicU64,
}

impl CpuTlb {
    /// It has no space loaded.
    pub fn new(asids: usize) -> CpuTlb {
        CpuTlb {
            space: AtomicU32::new(NO_SPACE),
            lazy: AtomicBool::new(false),
            loaded: AtomicU32::new(0),
            slots: (0..asids.max(1)).map(|_| AsidSlot::default()).collect(),
            next: AtomicU32::new(0),
            done: AtomicU64::new(0),
            done_at: AtomicU64::new(0),
        }
    }

    /// The CPU has caught up with all debts up to this generation.
    #[inline]
    pub fn done(&self) -> Generation {
        Generation(self.done.load(Acquire))
    }

    /// The time of that, by its own clock.
    pub fn done_at(&self) -> Nanos {
        self.done_at.load(Relaxed)
    }

    /// The CPU has caught up with its space; `drawn` was the newest generation when it began.
    pub fn set_done(&self, drawn: Generation, now: Nanos) {
        self.done.fetch_max(drawn.0, AcqRel);
        self.done_at.store(now, Relaxed);
    }

    /// Whether a program's access could use a cached translation before the CPU compares generations.
    #[inline]
    pub fn runs_user_code(&self) -> bool {
        !self.lazy.load(SeqCst) && self.space.load(SeqCst) != NO_SPACE
    }

    /// The space that is loaded.
    pub fn space(&self) -> Option<SpaceId> {
        let raw = self.space.load(Acquire);
        (raw < ARRIVING).then_some(SpaceId(raw))
    }

    /// Whether a space is loaded.
    pub fn runs(&self, space: SpaceId) -> bool {
        self.space.load(Acquire) == space.0
    }

    /// Whether it runs a kernel task on borrowed tables. A CPU that skips it for that reason has raised the space's
    /// generation before: either it reads that this CPU is back, or this CPU reads the new generation when it comes
    /// back.
    pub fn is_lazy(&self) -> bool {
        self.lazy.load(SeqCst)
    }

    /// It runs a kernel task on borrowed tables from now on, or does not.
    pub fn set_lazy(&self, lazy: bool) {
        self.lazy.store(lazy, SeqCst);
    }

    fn slot(&self) -> &AsidSlot {
        &self.slots[self.loaded.load(Relaxed) as usize]
    }

    /// The generation of the loaded space that it has caught up with.
    pub fn generation(&self) -> u64 {
        self.slot().generation.load(Acquire)
    }

    /// It has caught up with this generation.
    pub fn set_generation(&self, generation: u64) {
        self.slot().generation.store(generation, Release);
    }

    /// It has no space loaded any more.
    pub fn unload(&self) {
        self.space.store(NO_SPACE, SeqCst);
        self.lazy.store(false, SeqCst);
    }

    /// Begin to load a space, before the space's generation is read. From now on this CPU must be asked, because it
    /// compares no more generations; a request waits until its interrupts are on again.
    pub fn begin_load(&self) {
        self.space.store(ARRIVING, SeqCst);
        self.lazy.store(false, SeqCst);
    }

    /// Choose a slot for a space. Returns its number, and whether its cached translations are still valid.
    pub fn load(&self, space: SpaceId, context: u64, newest: u64) -> (Asid, bool) {
        let known = self.slots.iter().position(|slot| slot.context.load(Relaxed) == context);
        let index = known.unwrap_or_else(|| {
            let next = self.next.load(Relaxed) as usize % self.slots.len();
            self.next.store(next as u32 + 1, Relaxed);
            next
        });
        let slot = &self.slots[index];
        // With a single number (no hardware support) no translation survives a load.
        let keep = known.is_some() && self.slots.len() > 1 && slot.generation.load(Relaxed) == newest;
        slot.context.store(context, Relaxed);
        slot.generation.store(newest, Release);
        self.loaded.store(index as u32, Relaxed);
        self.space.store(space.0, SeqCst);
        self.lazy.store(false, SeqCst);
        (Asid(index as u16), keep)
    }

    /// Add what decides the CPU's next steps, beside `done`, to a model's state. `missed`: how many generations of a
    /// space, by its unique id, follow one.
    #[cfg(feature = "inside")]
    pub(crate) fn state(&self, state: &mut std_alloc::vec::Vec<u64>, missed: impl Fn(u64, u64) -> u64) {
        let small = [&self.space, &self.loaded, &self.next].map(|field| u64::from(field.load(Relaxed)));
        state.extend(small);
        state.push(self.lazy.load(Relaxed).into());
        for slot in &self.slots {
            let (id, generation) = (slot.context.load(Relaxed), slot.generation.load(Relaxed));
            state.extend([id, missed(id, generation)]);
        }
    }
}
