//! Promotion by a daemon: moves hot pages to faster tiers, in rounds.
//!
//! Linux promotes in the fault that reports a use. Here this is one mode of several (`tier.policy`, `tier.migration`);
//! all others request that a page be moved ([`Hot::ask`](crate::hot::Hot::ask)), and this daemon moves it. In a round
//! it has young bits examined, or takes the machine's samples, and decides by the loads of the tiers which pages go up
//! and which go down (`tier.balance`).
//!
//! *Transactional* (`tier.migration`): a page stays mapped while it is copied, and its entry is cleared only
//! afterwards. If the page was written during the copy, as the entry's dirty bit shows, the copy is dropped and the
//! page stays where it is ([`migrate::folios_in_use`]). So no program waits for a copy, and a page that is written all
//! the time is never moved. Source: Nomad (Xiang et al., OSDI 2024). Its shadows (the old frame of a page is kept, and
//! reused if the page is demoted unwritten) are not here: they need memory that belongs to a page of another frame.

use crate::alloc::{Fresh, Watermark};
use crate::frame::List;
use crate::hot::balance::{ALL, ReadShare, Shift};
use crate::hot::{Asked, HotAccess, HotLimits, PageName};
use crate::knobs::{Knob, TierMigration, TierPolicy};
use crate::machine::{Machine, Reads, Scope, WaitKey, Work, ZoneKind};
use crate::migrate::{self, MigrateReason, Mode, Target};
use crate::mm_core::MmCore;
use crate::reclaim::{self, AddressSpaces, ReclaimState, Slower};
use crate::stat::Stat;
use crate::units::*;

/// Folios moved together.
const BATCH: u32 = 32;

/// Processing samples takes at most this percentage of the daemon's CPU time; beyond that the sample period grows, up
/// to `SELDOM` times the knob's. (MEMTIS: a limit of 3 %, by the same means.)
const SAMPLING_PERCENT: u64 = 3;
const SELDOM: u64 = 256;

/// Takes frames of a faster node, above its high watermark: promotion must not cause reclaim.
struct Faster(NodeId);

impl<M: Machine> Target<M> for Faster {
    fn take(&mut self, core: &MmCore<M>, _from: Pfn, order: Order) -> Option<Fresh> {
        migrate::frame_on(core, self.0, order, Watermark::High)
    }

    fn give_back(&mut self, core: &MmCore<M>, unused: Fresh) {
        core.put(unused.into_pfn());
    }
}

/// Promote until the machine stops.
pub fn daemon<M: Machine>(core: &MmCore<M>, state: &ReclaimState, spaces: &dyn AddressSpaces) {
    let policy = core.knobs.tier_policy();
    let mut rate = Rate::new(core, policy == TierPolicy::Sampled);
    let (mut next, mut shift) = (0, Shift::Up(ReadShare::MAX));
    while !core.machine.stopping() {
        let ticket = core.machine.ticket(WaitKey::Kpromoted);
        let now = core.machine.now();
        let due = policy == TierPolicy::Hint || now >= next;
        if due {
            let period = core.knobs.get(Knob::TierPeriodMs) * MILLISECOND;
            next = now + period;
            rate.adjust(core, period);
            shift = begin_round(core);
            core.hot.policy(&core.knobs).round(fast_pages(core), &core.knobs);
        }
        match policy {
            TierPolicy::Generations if due => reclaim::look_at_slow_tiers(core, state, spaces),
            TierPolicy::Sampled => {
                let begun = core.machine.now();
                look_at_samples(core, shift);
                rate.spent += core.machine.now().saturating_sub(begun);
            }
            _ => {}
        }
        if due {
            move_asked(core, shift);
        }
        // A policy that is told of uses by faults is woken by them.
        core.machine.wait(ticket, (policy != TierPolicy::Hint).then_some(next));
    }
}

/// The sample period: the knob's, or longer where processing samples would take too much time.
struct Rate {
    /// One of `every` reads is sampled; 0: none.
    every: u64,
    /// Nanoseconds spent processing samples in this round.
    spent: Nanos,
}

impl Rate {
    fn new<M: Machine>(core: &MmCore<M>, samples: bool) -> Rate {
        let every = if samples { core.knobs.get(Knob::TierSamplePeriod) } else { 0 };
        if samples {
            core.machine.sample(every);
        }
        Rate { every, spent: 0 }
    }

    /// Adjust the period after a round of `round` nanoseconds.
    fn adjust<M: Machine>(&mut self, core: &MmCore<M>, round: Nanos) {
        let (least, spent) = (core.knobs.get(Knob::TierSamplePeriod), core::mem::take(&mut self.spent));
        let most = round * SAMPLING_PERCENT / 100;
        let every = match () {
            () if self.every == 0 => return,
            () if spent > most => (self.every * 2).min(least * SELDOM),
            () if spent < most / 4 => (self.every / 2).max(least),
            () => self.every,
        };
        if every != self.every {
            self.every = every;
            core.machine.sample(every);
        }
    }
}

/// Nodes of the top tiers, or of the others.
fn nodes<M: Machine>(core: &MmCore<M>, top: bool) -> impl Iterator<Item = NodeId> + '_ {
    let nodes = (0..core.tiers.nodes() as u8).map(NodeId);
    nodes.filter(move |&node| core.tiers.has_memory(node) && core.tiers.is_top(node) == top)
}

fn fast_pages<M: Machine>(core: &MmCore<M>) -> u64 {
    let zones = nodes(core, true).flat_map(|node| core.alloc.zones_of(node, ZoneKind::Movable));
    zones.map(|zone| zone.managed()).sum()
}

/// Begin a round, and decide how much to move up or down.
fn begin_round<M: Machine>(core: &MmCore<M>) -> Shift {
    let everything_up = Shift::Up(ReadShare::MAX);
    if core.knobs.get(Knob::TierBalance) == 0 {
        return everything_up;
    }
    let reads = |top| {
        nodes(core, top).try_fold(Reads::default(), |sum, node| Some(sum.and(core.machine.reads_of(node)?)))
    };
    match (reads(true), reads(false)) {
        (Some(top), Some(below)) => core.hot.balance.round(top, below),
        _ => everything_up,
    }
}

/// Report each sampled page to the policy, and queue hot pages that are in the wrong tier.
fn look_at_samples<M: Machine>(core: &MmCore<M>, shift: Shift) {
    let _scope = core.scope(Scope::Kpromoted);
    let (policy, limits) = (core.hot.policy(&core.knobs), HotLimits::of(&core.knobs));
    let now_ms = core.machine.now() / MILLISECOND;
    let mut taken = 0;
    let lost = core.machine.take_samples(&mut |page| {
        taken += 1;
        let head = core.frames.head(page);
        let frame = &core.frames[head];
        let Some(name) = PageName::of(frame) else { return };
        let (node, pages) = (frame.node(), u64::from(frame.pages()));
        let top = core.tiers.is_top(node);
        let to = if top { core.tiers.demotion_target(node) } else { Some(core.tiers.nearest_top(node)) };
        let Some(to) = to else { return };
        let used = HotAccess { page: head, name: Some(name), pages, to, ample: false, now_ms, limits };
        let verdict = policy.used(&used);
        if verdict.candidate && !top {
            core.count(Stat::PgpromoteCandidate, pages as i64);
        }
        let wanted = match shift {
            Shift::Up(_) => !top,
            Shift::Down(_) => top,
            Shift::None => false,
        };
        if verdict.promote && wanted {
            core.hot.ask(Asked { page: head, name, to });
        }
    });
    // The cost of finding a page by its address.
    core.charge(Work::TableLevel, 4 * taken);
    core.count(Stat::TierSamples, taken as i64);
    core.count(Stat::TierSamplesLost, lost as i64);
}

/// Move the queued folios, up to the share of reads that `shift` allows.
fn move_asked<M: Machine>(core: &MmCore<M>, shift: Shift) {
    let _scope = core.scope(Scope::Kpromoted);
    let (mut left, up) = match shift {
        Shift::Up(share) => (share, true),
        Shift::Down(share) => (share, false),
        Shift::None => return drop(core.hot.take_asked()),
    };
    let policy = core.hot.policy(&core.knobs);
    let mut batch = PromoteBatch { to: NodeId(0), up, count: 0, folios: List::new() };
    for asked in core.hot.take_asked() {
        let Some(frame) = core.frames.get(asked.page) else { continue };
        let (from, share) = (frame.node(), policy.share(asked.name).min(ALL));
        let stays =
            PageName::of(frame) != Some(asked.name) || from == asked.to || core.tiers.is_top(from) == up;
        if stays || share > left || migrate::isolate(core, asked.page).is_err() {
            continue;
        }
        left -= share;
        if batch.to != asked.to || batch.count == BATCH {
            batch.go(core);
            batch.to = asked.to;
        }
        batch.folios.push_head(&core.frames, asked.page);
        batch.count += 1;
    }
    batch.go(core);
}

/// Isolated folios for one node.
struct PromoteBatch {
    to: NodeId,
    up: bool,
    count: u32,
    folios: List,
}

impl PromoteBatch {
    fn go<M: Machine>(&mut self, core: &MmCore<M>) {
        let (to, folios) = (self.to, core::mem::take(&mut self.folios));
        if core::mem::take(&mut self.count) == 0 {
            return;
        }
        if !self.up {
            let from = core.frames[folios.tail().expect("a batch with a count has folios")].node();
            let mut target = Slower { first: to, from };
            let done = migrate::folios(core, folios, &mut target, Mode::Async, MigrateReason::Demotion);
            return core.count(Stat::TierBalanced, done.moved as i64);
        }
        let in_use = core.knobs.tier_migration() == TierMigration::Transactional;
        let moves = if in_use { migrate::folios_in_use } else { move_exclusively };
        let done = moves(core, folios, &mut Faster(to));
        core.count(Stat::PgpromoteSuccess, done.moved as i64);
        if done.no_room {
            core.alloc.wake_kswapd_of(core, to, Order::ZERO);
        }
    }
}

fn move_exclusively<M: Machine>(core: &MmCore<M>, folios: List, target: &mut dyn Target<M>) -> migrate::Done {
    migrate::folios(core, folios, target, Mode::Async, MigrateReason::Promotion)
}
