//! A small kernel under random load: four CPUs that switch between three spaces, fault, reclaim, write(2) and tick.
//!
//! A read of page p of the file returns content of page p, and never older content than that at the beginning of the
//! read.

extern crate std;

use super::host::{Effort, at_once, explore};
use super::machine;
use super::world::{FILE, LAZY, World, on};
use crate::alloc::{Allocator, Watermark};
use crate::frame::{Mobility, Owner};
use crate::knobs::FlushPolicy;
use crate::lock::Lock;
use crate::machine::Machine;
use crate::stat::Stat;
use crate::testing::block;
use crate::tlb::{EmptiedPages, UnmapBatch};
use crate::units::*;
use shuttle::rand::{Rng, thread_rng};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::vec::Vec;

const CPUS: u16 = 4;
const SPACES: u32 = 3;
const PAGES: u64 = machine::PAGES as u64;
const STEPS: usize = 12;

struct Kernel {
    world: World,
    alloc: Allocator,
    /// For each page of the file: its folio's lock, and the folio.
    folios: Vec<Lock<Option<Pfn>>>,
    /// The last version of each page that a write(2) has returned for.
    written: Vec<AtomicU64>,
    /// Whether tags are lost on the way to the free lists.
    loses_tags: bool,
}

fn content(page: Vpn, version: u64) -> u64 {
    (page.0 + 1) << 32 | version
}

impl Kernel {
    fn new(policy: u64, loses_tags: bool) -> Kernel {
        let world = World::new(CPUS as usize, SPACES, 8);
        world.set_policy(policy);
        let alloc = Allocator::new(&world.mmu).expect("the layout must be valid");
        Kernel {
            world,
            alloc,
            folios: (0..PAGES).map(|_| Lock::new(None)).collect(),
            written: (0..PAGES).map(|_| AtomicU64::new(0)).collect(),
            loses_tags,
        }
    }

    /// The page's folio, locked, read in if necessary; `None` if all free frames are on other CPUs' lists.
    fn folio(&self, page: Vpn, folio: &mut Option<Pfn>) -> Option<Pfn> {
        if folio.is_none() {
            let request = block(Order::ZERO, Mobility::Movable);
            let pfn = self.alloc.take(&self.world.mmu, &request, Watermark::Min).ok()?.into_pfn();
            self.world.mmu.frames[pfn].set_owner(Owner::File(FILE), PageIndex(page.0));
            let version = self.written[page.0 as usize].load(SeqCst);
            self.world.mmu.machine.fill(pfn, content(page, version));
            *folio = Some(pfn);
        }
        *folio
    }

    /// A program reads; a fault maps the page and ends.
    fn read(&self, space: SpaceId, page: Vpn) {
        let oldest = self.written[page.0 as usize].load(SeqCst);
        match self.world.mmu.machine.load(page) {
            Some(read) => {
                let right = read >= content(page, oldest) && read < content(Vpn(page.0 + 1), 0);
                assert!(right, "{page} of {space} reads {read:#x} after version {oldest} was written");
            }
            None => {
                let mut folio = self.folios[page.0 as usize].lock();
                if let Some(pfn) = self.folio(page, &mut folio) {
                    self.world.map(space, page, pfn);
                }
            }
        }
    }

    fn write(&self, page: Vpn) {
        let mut folio = self.folios[page.0 as usize].lock();
        let Some(pfn) = self.folio(page, &mut folio) else { return };
        let settled = self.world.mmu.tlb.settle_file(self.world.mmu.host(), FILE);
        let version = self.written[page.0 as usize].load(SeqCst) + 1;
        self.world.mmu.machine.fill(pfn, content(page, version));
        self.written[page.0 as usize].store(version, SeqCst);
        assert_eq!(settled.file(), FILE);
    }

    /// Reclaim takes some pages as one batch.
    fn reclaim(&self, pages: impl Iterator<Item = Vpn>) {
        let (base, tlb) = (&self.world.mmu, &self.world.mmu.tlb);
        let mut batch = UnmapBatch::new(base.host());
        let mut freed = Vec::new();
        for page in pages {
            let mut folio = self.folios[page.0 as usize].lock();
            let Some(pfn) = folio.take() else { continue };
            for space in (0..SPACES).map(SpaceId) {
                let _tables = self.world.lock_tables(space);
                if self.world.mmu.machine.clear(space, page).is_some() {
                    let _ = batch.note_cleared(base.host(), tlb, &self.world.cleared(space, page, pfn));
                }
            }
            freed.push(pfn);
        }
        self.free(batch, freed);
    }

    /// The same, noting all pages of a space at once if the policy allows that.
    fn reclaim_together(&self, pages: impl Iterator<Item = Vpn>) {
        let (base, tlb) = (&self.world.mmu, &self.world.mmu.tlb);
        let mut batch = UnmapBatch::new(base.host());
        if !batch.joins() {
            return self.reclaim(pages);
        }
        let mut held: Vec<_> = pages.map(|page| (page, self.folios[page.0 as usize].lock())).collect();
        let taken: Vec<_> =
            held.iter_mut().filter_map(|(page, folio)| Some((*page, folio.take()?))).collect();
        for space in (0..SPACES).map(SpaceId) {
            let _tables = self.world.lock_tables(space);
            let cleared = |&&(page, _): &&(Vpn, Pfn)| self.world.mmu.machine.clear(space, page).is_some();
            let mut emptied = EmptiedPages::new(FILE);
            for &(_, pfn) in taken.iter().filter(cleared) {
                emptied.push((space, Pfn::NONE), pfn, [false; 2]);
            }
            if !emptied.is_empty() {
                let _ = batch.note_cleared_pages(base.host(), tlb, &mut emptied);
                // In models entries hold no references.
                emptied.release(|_| ());
            }
        }
        drop(held);
        self.free(batch, taken.into_iter().map(|(_, pfn)| pfn));
    }

    /// The last step for pages that reclaim has unmapped.
    fn free(&self, mut batch: UnmapBatch, pages: impl IntoIterator<Item = Pfn>) {
        batch.settle(self.world.mmu.host(), &self.world.mmu.tlb);
        for pfn in pages {
            let frame = &self.world.mmu.frames[pfn];
            frame.set_owner(Owner::None, PageIndex(0));
            if self.loses_tags {
                frame.set_debt(0);
            }
            assert!(frame.put(1));
            self.alloc.free(&self.world.mmu, &[pfn]);
        }
    }

    /// The program of one CPU.
    fn run(&self) {
        let mut random = thread_rng();
        let mut runs = None;
        for _ in 0..STEPS {
            let page = Vpn(random.gen_range(0..PAGES));
            match (random.gen_range(0..12), runs) {
                (0..6, Some(space)) => self.read(space, page),
                (0..8, _) => {
                    let space = SpaceId(random.gen_range(0..SPACES));
                    self.world.switch(space);
                    runs = Some(space);
                }
                (8, _) => {
                    self.world.enter_lazy();
                    runs = None;
                }
                (9, _) => self.write(page),
                (10, _) if random.gen_bool(0.5) => self.reclaim((page.0..PAGES).map(Vpn)),
                (10, _) => self.reclaim_together((page.0..PAGES).map(Vpn)),
                _ => {
                    self.world.tick();
                    self.alloc.drain_cpu(&self.world.mmu, self.world.mmu.machine.cpu());
                }
            }
        }
    }
}

/// Run a storm under one policy. Returns the number of blocks taken that owed.
fn storm(name: &str, policy: u64, loses_tags: bool) -> u64 {
    let taken = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&taken);
    let effort = Effort { preemptions: None, runs: 5_000 };
    explore(&std::format!("{name} under policy {policy}"), effort, move || {
        let kernel = Arc::new(Kernel::new(policy, loses_tags));
        at_once((0..CPUS).map(|cpu| on(&kernel, cpu, Kernel::run)).collect());
        let mmu = &kernel.world.mmu;
        kernel.alloc.validate(mmu).expect("the free lists");
        kernel.world.check_debts();
        counted.fetch_add(mmu.stats.read(Stat::TlbPendingTaken) as u64, SeqCst);
    });
    taken.load(SeqCst)
}

#[test]
fn a_storm() {
    for policy in 0..FlushPolicy::COUNT {
        let taken = storm("a storm", policy, false);
        assert_eq!(
            taken > 0,
            [LAZY, FlushPolicy::Latr.value()].contains(&policy),
            "{taken} blocks that owed were taken"
        );
    }
}

#[test]
#[should_panic(expected = "was written")]
fn a_storm_in_which_tags_get_lost_is_found() {
    storm("found: a storm in which tags get lost", LAZY, true);
}
