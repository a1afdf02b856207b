//! The allocator as a whole, on small machines.

use super::*;
use crate::frame::Owner;
use crate::knobs::{FlushPolicy, Knob, Knobs};
use crate::machine::WaitKey;
use crate::testing::{TestMachine, range};
use crate::tlb::{Cleared, UnmapBatch};
use proptest::prelude::*;
use std_alloc::collections::BTreeMap;
use std_alloc::vec::Vec;

mod dense;
mod exact;
mod held;
mod owed;

type TestBase = Mmu<TestMachine>;

fn world(machine: TestMachine) -> (TestBase, Allocator) {
    let mmu = Mmu::new(machine, Knobs::default());
    let allocator = Allocator::new(&mmu).unwrap();
    (mmu, allocator)
}

fn request(order: u8) -> AllocRequest {
    AllocRequest {
        order: Order(order),
        mobility: Mobility::Movable,
        node: NodeId(0),
        highest: ZoneKind::Movable,
        reserve: Reserve::None,
        this_node_only: false,
        among: Nodes::ALL,
        atomic: false,
        mixes: true,
    }
}

fn take(mmu: &TestBase, allocator: &Allocator, request: &AllocRequest) -> Option<Pfn> {
    let pfn = allocator.take(mmu, request, Watermark::Min).ok()?.into_pfn();
    let frame = &mmu.frames[pfn];
    let shape = if request.order.0 == 0 { FrameFlags::empty() } else { FrameFlags::HEAD };
    assert_eq!((frame.flags(), frame.refs(), frame.mapcount()), (shape, 1, 0));
    assert_eq!((frame.order(), frame.owner(), frame.private()), (request.order, Owner::None, 0));
    let zone = allocator.zone(frame.zone());
    for i in 0..request.order.frames() {
        assert!((zone.start()..zone.end()).contains(&pfn.add(i)));
        assert_eq!(mmu.frames.head(pfn.add(i)), pfn);
        assert_eq!((mmu.frames[pfn.add(i)].node(), mmu.frames[pfn.add(i)].zone()), (zone.node(), zone.id()));
    }
    Some(pfn)
}

fn free(mmu: &TestBase, allocator: &Allocator, pfn: Pfn) {
    assert!(mmu.frames[pfn].put(1));
    allocator.free(mmu, &[pfn]);
}

/// All memory is free, in the largest possible blocks.
fn assert_whole(mmu: &TestBase, allocator: &Allocator) {
    allocator.drain_all(mmu);
    allocator.validate(mmu).unwrap();
    for (zone, info) in allocator.zones().iter().zip(allocator.buddyinfo()) {
        let rest = zone.managed() % 1024;
        let whole: Vec<u64> = (0..10).map(|bit| rest >> bit & 1).chain([zone.managed() / 1024]).collect();
        assert_eq!(info.blocks.as_slice(), whole);
    }
}

/// Every sequence of up to six takes and frees on sixteen frames, directly on the buddy lists.
#[test]
fn a_tiny_zone_survives_every_short_history() {
    fn play(history: &[u32]) -> usize {
        let (base, allocator) = world(TestMachine::simple(1, 16));
        let zone = &allocator.zones()[0];
        let mut live: Vec<(Pfn, Order)> = Vec::new();
        for &step in history {
            let mut area = LockedZone::lock(&base, zone);
            if step < 4 {
                let order = Order(step as u8);
                let room = area.lists().free() >= order.frames() as u64;
                match area.take(order, Mobility::Movable, Mixing::Allowed, Debts::Allowed) {
                    Some(block) => {
                        let pfn = block.settle(&base, zone).pfn();
                        let apart = |&(other, its): &(Pfn, Order)| {
                            pfn.0 + order.frames() <= other.0 || other.0 + its.frames() <= pfn.0
                        };
                        assert!(live.iter().all(apart), "{pfn} must not be handed out twice");
                        live.push((pfn, order));
                    }
                    None => assert!(!room || order.0 > 0, "free memory must be found"),
                }
            } else {
                let (pfn, order) = live.remove(step as usize - 4);
                area.put(pfn, order);
            }
            drop(area);
            allocator.validate(&base).unwrap();
        }
        let choices = 4 + live.len();
        for (pfn, order) in live {
            LockedZone::lock(&base, zone).put(pfn, order);
        }
        assert_whole(&base, &allocator);
        choices
    }
    fn extend(history: &mut Vec<u32>) {
        let choices = play(history);
        if history.len() < 6 {
            for step in 0..choices as u32 {
                history.push(step);
                extend(history);
                history.pop();
            }
        }
    }
    extend(&mut Vec::new());
}

#[derive(Clone, Debug)]
enum Step {
    Take(u16, AllocRequest),
    Free { cpu: u16, which: usize, owned: bool },
    Drain { how: u8, which: u8 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let order = prop_oneof![6 => Just(0u8), 3 => 1u8..5, 2 => 5u8..11];
    let place = (0usize..3, 0u8..2).prop_map(|(mobility, node)| (Mobility::ALL[mobility], NodeId(node)));
    let wanted = (order, place, any::<bool>(), any::<bool>());
    let request = wanted.prop_map(|(order, (mobility, node), reserve, this_node_only)| {
        let highest = if mobility == Mobility::Movable { ZoneKind::Movable } else { ZoneKind::Normal };
        let reserve = if reserve { Reserve::All } else { Reserve::None };
        AllocRequest { mobility, node, highest, reserve, this_node_only, ..request(order) }
    });
    let take = (0u16..3, request).prop_map(|(cpu, request)| Step::Take(cpu, request));
    let free = (0u16..3, any::<usize>(), any::<bool>());
    let free = free.prop_map(|(cpu, which, owned)| Step::Free { cpu, which, owned });
    let drain = (0u8..3, 0u8..3).prop_map(|(how, which)| Step::Drain { how, which });
    prop::collection::vec(prop_oneof![8 => take, 6 => free, 1 => drain], 1..120)
}

fn three_zones() -> TestMachine {
    let memory = [
        range(0, ZoneKind::Dma32, 0, 2048),
        range(0, ZoneKind::Normal, 2048, 2048 + 300),
        range(1, ZoneKind::Movable, 5120, 1024 + 77),
    ];
    TestMachine::new(&[0, 0, 1], &memory)
}

proptest! {
    #![proptest_config(crate::testing::cases(64))]

    /// Whatever is taken, freed and drained on any CPU: no frame has two owners, everything stays consistent, and all
    /// memory merges again.
    #[test]
    fn any_history_keeps_every_frame_once(steps in steps()) {
        let (base, allocator) = world(three_zones());
        let mut live: BTreeMap<Pfn, Order> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Take(cpu, request) => {
                    base.machine.run_on(cpu);
                    if let Some(pfn) = take(&base, &allocator, &request) {
                        let end = pfn.add(request.order.frames());
                        if let Some((&before, its)) = live.range(..end).next_back() {
                            prop_assert!(before.add(its.frames()) <= pfn, "{} must not be handed out twice", pfn);
                        }
                        prop_assert!(!request.this_node_only || base.frames[pfn].node() == request.node);
                        live.insert(pfn, request.order);
                        if request.mobility == Mobility::Movable {
                            base.frames[pfn].set_owner(Owner::Anon(AnonId(1)), PageIndex(0));
                        }
                    }
                }
                Step::Free { cpu, which, owned } if !live.is_empty() => {
                    base.machine.run_on(cpu);
                    let pfn = *live.keys().nth(which % live.len()).unwrap();
                    live.remove(&pfn);
                    if owned {
                        base.frames[pfn].set(FrameFlags::UPTODATE | FrameFlags::DIRTY);
                        base.frames[pfn].set_group(GroupId(3));
                    }
                    free(&base, &allocator, pfn);
                }
                Step::Free { .. } => {}
                Step::Drain { how: 0, .. } => allocator.drain_all(&base),
                Step::Drain { how: 1, which } => allocator.drain_cpu(&base, CpuId(which as u16)),
                Step::Drain { which, .. } => allocator.drain_zone(&base, ZoneId(which)),
            }
            allocator.validate(&base).map_err(TestCaseError::fail)?;
            let used: u64 = live.values().map(|order| order.frames() as u64).sum();
            let known: u64 = allocator.zones().iter().map(|z| z.free_pages() + allocator.pcp_pages(z.id())).sum();
            let managed: u64 = allocator.zones().iter().map(Zone::managed).sum();
            prop_assert_eq!(used + known, managed);
        }
        for pfn in live.into_keys() {
            free(&base, &allocator, pfn);
        }
        assert_whole(&base, &allocator);
    }
}

#[test]
fn only_the_heads_of_the_largest_blocks_are_written_at_start() {
    let (base, allocator) = world(TestMachine::new(&[1], &[range(1, ZoneKind::Normal, 4096, 4096)]));
    assert_eq!(base.frames[Pfn(4096)].node(), NodeId(1));
    assert!((4097..5120).all(|pfn| base.frames[Pfn(pfn)].node() == NodeId(0)));
    assert!((0..4096).all(|pfn| base.frames[Pfn(pfn)].has(FrameFlags::RESERVED)));
    assert_whole(&base, &allocator);
}

#[test]
fn an_allocation_uses_the_drain_of_another_cpu_that_is_not_over_yet() {
    let (base, allocator) = world(TestMachine::simple(2, 2048));
    let kept_at = |now| {
        let pfn = take(&base, &allocator, &request(0)).unwrap();
        free(&base, &allocator, pfn);
        base.machine.set_clock(now);
        allocator.drain_after_reclaim(&base);
        allocator.pcp_pages(ZoneId(0)) > 0
    };
    // The second CPU runs after the first one, but its clock is behind.
    assert_eq!([1000, 999, 1000].map(kept_at), [false, true, false]);
}

#[test]
fn memory_that_cannot_be_managed_is_refused() {
    let error = |memory: &[_]| {
        let mmu = Mmu::new(TestMachine::new(&[0], memory), Knobs::default());
        Allocator::new(&mmu).err()
    };
    let (odd, empty) = (range(0, ZoneKind::Normal, 512, 1024), range(0, ZoneKind::Normal, 0, 0));
    let (low, high) = (range(0, ZoneKind::Normal, 0, 2048), range(0, ZoneKind::Normal, 1024, 1024));
    assert_eq!(error(&[]), Some(LayoutError::Empty));
    assert_eq!(error(&[odd]), Some(LayoutError::Shape(odd)));
    assert_eq!(error(&[empty]), Some(LayoutError::Shape(empty)));
    assert_eq!(error(&[low, high]), Some(LayoutError::Order(high)));
    assert_eq!(error(&[low]), None);
}

/// CPU 1 runs a space and holds translations of pages that reclaim has unmapped. Returns a tag for a frame.
fn owe(mmu: &TestBase, space: SpaceId) -> u32 {
    mmu.machine.run_on(1);
    mmu.tlb.switch(mmu.host(), space, Pfn(1));
    mmu.machine.run_on(0);
    mmu.knobs.set(Knob::TlbUnmap, FlushPolicy::Lazy.value()).unwrap();
    let mut batch = UnmapBatch::new(mmu.host());
    let cleared = Cleared::page(space, Vpn(9), Pfn(0));
    let before = mmu.frames[Pfn(0)].debt();
    let _ = batch.note_cleared(mmu.host(), &mmu.tlb, &cleared);
    let tag = mmu.frames[Pfn(0)].debt();
    mmu.frames[Pfn(0)].set_debt(before);
    batch.settle(mmu.host(), &mmu.tlb);
    assert_ne!(tag, 0);
    tag
}

fn shootdowns(mmu: &TestBase) -> usize {
    mmu.machine.shootdowns.lock().drain(..).count()
}

/// A folio's debt survives merges and splits at any order, and a folio that owes is handed out only after a payment.
#[test]
fn debts_survive_merges_and_splits() {
    for order in 0..=10 {
        let (base, allocator) = world(TestMachine::simple(2, 2048));
        let space = base.tlb.create();
        let pfn = take(&base, &allocator, &request(order)).unwrap();
        allocator.drain_all(&base);
        let first = owe(&base, space);
        base.frames[pfn].set_debt(first);
        free(&base, &allocator, pfn);
        allocator.validate(&base).unwrap();
        allocator.drain_all(&base);
        assert_eq!(shootdowns(&base), 0);
        allocator.validate(&base).unwrap();
        // Its whole largest block owes now; the other block owes nothing.
        let block = pfn.align_down(MAX_ORDER);
        let area = || LockedZone::lock(&base, &allocator.zones()[0]);
        assert_eq!(area().lists().owing(), 1024, "order {order}: merged");
        let mut parts = Vec::new();
        while let Some(part) = area().take(Order(order), Mobility::Movable, Mixing::Allowed, Debts::Allowed) {
            let owes = part.pfn().align_down(MAX_ORDER) == block;
            assert_eq!(part.generation().0, if owes { first as u64 } else { 0 }, "order {order}: split");
            parts.push(part);
        }
        for part in parts {
            let owed = part.generation() != Generation::NONE && shootdowns(&base) == 0;
            let before = base.tlb.paid_up_to(ZoneId(0));
            let clean = part.settle(&base, &allocator.zones()[0]);
            assert_eq!(shootdowns(&base), usize::from(owed && before == Generation::NONE), "order {order}");
            area().put(clean.pfn(), Order(order));
        }
        assert_whole(&base, &allocator);
        assert_eq!(area().lists().owing(), 0);
    }
}

/// When two debts merge, the newer one wins: paying the older does not clear the block.
#[test]
fn the_newer_of_two_debts_wins() {
    let (base, allocator) = world(TestMachine::simple(2, 2048));
    let space = base.tlb.create();
    let pages: Vec<Pfn> = (0..2).map(|_| take(&base, &allocator, &request(4)).unwrap()).collect();
    assert_eq!(pages[0].buddy(Order(4)), pages[1]);
    base.frames[pages[0]].set_debt(owe(&base, space));
    free(&base, &allocator, pages[0]);
    base.tlb.settle_zone(base.host(), ZoneId(0), Generation(u64::MAX), pages[0], Order(4));
    base.frames[pages[1]].set_debt(owe(&base, space));
    free(&base, &allocator, pages[1]);
    assert_eq!(shootdowns(&base), 1);
    let again = take(&base, &allocator, &request(5));
    allocator.validate(&base).unwrap();
    // The first sufficient block that owes nothing is another.
    assert_ne!(again.unwrap().align_down(MAX_ORDER), pages[0].align_down(MAX_ORDER));
    assert_eq!(shootdowns(&base), 0);
    while take(&base, &allocator, &request(5)).is_some() {}
    assert_eq!(shootdowns(&base), 1);
}

/// A request that cannot send interrupts gets pages that owe nothing, or none.
#[test]
fn an_atomic_request_never_pays() {
    let (base, allocator) = world(TestMachine::simple(2, 1024));
    let space = base.tlb.create();
    let pages: Vec<Pfn> = core::iter::from_fn(|| take(&base, &allocator, &request(0))).collect();
    let tag = owe(&base, space);
    for &pfn in &pages[..pages.len() / 2] {
        base.frames[pfn].set_debt(tag);
        free(&base, &allocator, pfn);
    }
    let atomic = AllocRequest { atomic: true, reserve: Reserve::Atomic, ..request(0) };
    // The pages below the mark owe nothing; after them only pending ones are left.
    while take(&base, &allocator, &atomic).is_some() {}
    let pending = LockedZone::lock(&base, &allocator.zones()[0]).lists().owing();
    assert_eq!((pending, shootdowns(&base)), (allocator.zones()[0].free_pages(), 0));
    // After another payment all of them are acceptable.
    assert!(take(&base, &allocator, &request(0)).is_some());
    assert_eq!(shootdowns(&base), 1);
    allocator.drain_all(&base);
    assert!(take(&base, &allocator, &atomic).is_some());
}

/// Pending pages are taken in the order in which they were freed, so that one payment serves all of them.
#[test]
fn one_payment_serves_all_pending_pages() {
    let (base, allocator) = world(TestMachine::simple(2, 4096));
    let space = base.tlb.create();
    let pages: Vec<Pfn> = core::iter::from_fn(|| take(&base, &allocator, &request(0))).collect();
    let mut rounds = 0;
    for chunk in pages.chunks(32) {
        for &pfn in chunk {
            base.frames[pfn].set_debt(owe(&base, space));
            free(&base, &allocator, pfn);
        }
    }
    allocator.drain_all(&base);
    while take(&base, &allocator, &request(0)).is_some() {
        rounds += shootdowns(&base);
    }
    assert_eq!(rounds, 1);
}

/// A page that owes stays with the CPU that freed it. It is taken without the zone's lock once its debt is paid, before
/// that only if nothing else is left, with a payment, and never by a request that cannot send interrupts.
#[test]
fn a_page_that_owes_waits_on_the_cpus_list() {
    let (base, allocator) = world(TestMachine::simple(2, 1024));
    let space = base.tlb.create();
    let all = AllocRequest { reserve: Reserve::All, ..request(0) };
    let pages: Vec<Pfn> = core::iter::from_fn(|| take(&base, &allocator, &all)).collect();
    let free_owing = |pfn: Pfn| {
        base.frames[pfn].set_debt(owe(&base, space));
        free(&base, &allocator, pfn);
        allocator.validate(&base).unwrap();
        assert_eq!((allocator.zones()[0].free_pages(), allocator.pcp_pages(ZoneId(0))), (0, 1));
    };
    free_owing(pages[7]);
    assert_eq!(take(&base, &allocator, &AllocRequest { atomic: true, ..all }), None);
    assert_eq!((take(&base, &allocator, &all), shootdowns(&base)), (Some(pages[7]), 1));
    free_owing(pages[7]);
    base.tlb.settle_zone(base.host(), ZoneId(0), Generation(u64::MAX), pages[7], Order::ZERO);
    assert_eq!(shootdowns(&base), 1);
    assert_eq!(take(&base, &allocator, &AllocRequest { atomic: true, ..all }), Some(pages[7]));
    assert_eq!(shootdowns(&base), 0);
}

#[test]
fn a_folio_on_a_cpus_list_stays_formed() {
    let (base, allocator) = world(TestMachine::simple(1, 65536));
    let big = take(&base, &allocator, &request(9)).unwrap();
    free(&base, &allocator, big);
    assert_eq!(base.frames[big].flags(), FrameFlags::PCP | FrameFlags::HEAD);
    assert_eq!(base.frames.head(big.add(511)), big);
    assert_eq!(take(&base, &allocator, &request(9)), Some(big));
    free(&base, &allocator, big);
    assert_whole(&base, &allocator);
    assert_eq!(base.frames.head(big.add(511)), big.add(511));
}

#[test]
fn split_gives_one_reference_to_each_part() {
    let (base, allocator) = world(TestMachine::simple(1, 4096));
    let head = take(&base, &allocator, &request(4)).unwrap();
    base.frames[head].set(FrameFlags::UPTODATE);
    base.frames[head].set_owner(Owner::File(FileId(3)), PageIndex(32));
    base.frames[head].set_group(GroupId(2));
    base.frames[head].set_debt(9);
    allocator.split(&base, head, Order(2));
    for part in (0..16).step_by(4).map(|i| head.add(i)) {
        let frame = &base.frames[part];
        assert_eq!((frame.order(), frame.refs(), frame.group()), (Order(2), 1, GroupId(2)));
        assert_eq!(frame.flags(), FrameFlags::UPTODATE | FrameFlags::HEAD);
        assert_eq!(
            (frame.owner(), frame.page_index().0),
            (Owner::File(FileId(3)), 32 + (part.0 - head.0) as u64)
        );
        assert_eq!(base.frames.head(part.add(3)), part);
        assert_eq!(frame.debt(), 9);
        frame.set_debt(0);
        free(&base, &allocator, part);
    }
    assert_whole(&base, &allocator);
}

#[test]
#[should_panic(expected = "must be unused when it is freed: 1 references")]
fn freeing_a_referenced_folio_panics() {
    let (base, allocator) = world(TestMachine::simple(1, 4096));
    let pfn = take(&base, &allocator, &request(0)).unwrap();
    allocator.free(&base, &[pfn]);
}

#[test]
#[should_panic(expected = "must be unused when it is freed")]
fn freeing_twice_panics() {
    let (base, allocator) = world(TestMachine::simple(1, 4096));
    let pfn = take(&base, &allocator, &request(0)).unwrap();
    free(&base, &allocator, pfn);
    allocator.free(&base, &[pfn]);
}

#[test]
fn each_watermark_stops_takes() {
    let (base, allocator) = world(TestMachine::simple(1, 65536));
    let zone = &allocator.zones()[0];
    let [min, low] = [Watermark::Min, Watermark::Low].map(|mark| zone.mark(mark));
    // With blocks that no CPU's list holds: down to the low mark, then to min, then through the reserve.
    let take_all =
        |reserve, mark| while allocator.take(&base, &AllocRequest { reserve, ..request(4) }, mark).is_ok() {};
    take_all(Reserve::None, Watermark::Low);
    assert!(zone.free_pages() <= low + 16 + 15 && zone.free_pages() + 16 > low);
    assert!(!allocator.balanced(&base.knobs, NodeId(0), Order(0), ZoneKind::Normal));
    take_all(Reserve::None, Watermark::Min);
    assert!(zone.free_pages() <= min + 31 && zone.free_pages() + 16 > min);
    take_all(Reserve::High, Watermark::Min);
    assert!(zone.free_pages() <= min / 2 + 31 && zone.free_pages() + 16 > min / 2);
    take_all(Reserve::Atomic, Watermark::Min);
    assert!(zone.free_pages() <= min * 3 / 8 + 31 && zone.free_pages() + 16 > min * 3 / 8);
    take_all(Reserve::All, Watermark::Min);
    assert_eq!(zone.free_pages(), 0);
    allocator.validate(&base).unwrap();
}

#[test]
fn a_failed_take_at_low_wakes_kswapd_once() {
    let (base, allocator) = world(TestMachine::simple(1, 16384));
    let key = WaitKey::Kswapd(NodeId(0));
    allocator.set_kswapd_waits(NodeId(0), true);
    let mut held = Vec::new();
    while let Ok(fresh) = allocator.take(&base, &request(0), Watermark::Low) {
        held.push(fresh.into_pfn());
    }
    assert_eq!(base.machine.wakes(key), 1);
    let recorded = |order| Some(KswapdRequest { order: Order(order), highest: ZoneKind::Movable });
    assert_eq!(allocator.kswapd_request(NodeId(0)), recorded(0));
    let needs = allocator.take(&base, &request(0), Watermark::Low).unwrap_err();
    assert_eq!(
        needs,
        NeedsReclaim {
            order: Order(0),
            node: NodeId(0),
            highest: ZoneKind::Movable,
            among: Nodes::ALL,
            apart: false
        }
    );
    assert_eq!(base.machine.wakes(key), 1);
    // While it works, the largest order is recorded.
    assert!(allocator.take(&base, &request(5), Watermark::Low).is_err());
    assert!(allocator.take(&base, &request(2), Watermark::Low).is_err());
    assert_eq!((base.machine.wakes(key), allocator.take_kswapd_request(NodeId(0))), (1, recorded(5)));
    assert_eq!(allocator.kswapd_request(NodeId(0)), None);
    allocator.set_kswapd_waits(NodeId(0), true);
    assert!(allocator.take(&base, &request(0), Watermark::Low).is_err());
    assert_eq!(base.machine.wakes(key), 2);
    allocator.set_kswapd_waits(NodeId(0), true);
    allocator.set_hopeless(NodeId(0), true);
    assert!(allocator.take(&base, &request(0), Watermark::Low).is_err());
    assert_eq!(base.machine.wakes(key), 2);
    // At min, some memory is left.
    assert!(take(&base, &allocator, &request(0)).is_some());
}

#[test]
fn requests_go_to_the_nearest_node_that_has_memory() {
    let zones = [0, 1, 2].map(|node| range(node, ZoneKind::Normal, node as u32 * 8192, 8192));
    let (base, allocator) = world(TestMachine::new(&[0, 1, 2], &zones));
    base.machine.run_on(2);
    let order = |node| allocator.zonelist(NodeId(node), ZoneKind::Normal).to_vec();
    assert_eq!(order(0), [0, 1, 2].map(ZoneId));
    assert_eq!(order(1), [1, 2, 0].map(ZoneId));
    let normal = AllocRequest { highest: ZoneKind::Normal, ..request(10) };
    let on_two = AllocRequest { node: NodeId(2), this_node_only: true, ..normal };
    while allocator.take(&base, &on_two, Watermark::Min).is_ok() {}
    let read = |stat| base.stats.read(stat);
    let (hits, local) = (read(Stat::NumaHit), read(Stat::NumaLocal));
    assert!(hits > 0 && hits == local && read(Stat::NumaMiss) == 0);
    let pfn = take(&base, &allocator, &AllocRequest { node: NodeId(2), ..normal }).unwrap();
    assert_eq!(base.frames[pfn].node(), NodeId(1));
    assert_eq!([Stat::NumaMiss, Stat::NumaForeign, Stat::NumaOther].map(read), [1, 1, 1]);
    assert_eq!(read(Stat::PgallocNormal), (hits + 1) * 1024);
}

#[test]
fn lower_zones_keep_a_reserve_from_requests_that_could_use_higher_ones() {
    let (base, allocator) = world(three_zones());
    let [dma32, normal, movable] = [0, 1, 2].map(|id| allocator.zone(ZoneId(id)));
    assert_eq!(dma32.lowmem_reserve(ZoneKind::Dma32), 0);
    assert_eq!(dma32.lowmem_reserve(ZoneKind::Normal), 2348 / 256);
    assert_eq!(normal.lowmem_reserve(ZoneKind::Movable), 0);
    assert_eq!(movable.mark(Watermark::Min), 32);
    base.knobs.set(Knob::LowmemReserveRatio, 4).unwrap();
    base.knobs.set(Knob::MinFreeKbytes, 400).unwrap();
    allocator.set_watermarks(&base);
    assert_eq!(dma32.lowmem_reserve(ZoneKind::Movable), 2348 / 4);
    assert_eq!(dma32.mark(Watermark::Min) + normal.mark(Watermark::Min), 99);
    let (free, min) = (dma32.free_pages(), dma32.mark(Watermark::Min));
    assert!(free > min && dma32.watermark_ok(Order(0), Watermark::Min, ZoneKind::Dma32, Reserve::None));
    assert_eq!(allocator.zonelist(NodeId(0), ZoneKind::Movable), [1, 0, 2].map(ZoneId));
    // Plenty is more than the high mark and more than the reserve.
    let high = dma32.mark(Watermark::High);
    while dma32.free_pages() > high + dma32.lowmem_reserve(ZoneKind::Movable) {
        assert!(allocator.take(&base, &request(0), Watermark::Min).is_ok());
    }
    assert!(dma32.above_high(ZoneKind::Dma32) && !dma32.above_high(ZoneKind::Movable));
    // Both are kept: the mark, and the reserve for requests that cannot go higher.
    let kept = min + dma32.lowmem_reserve(ZoneKind::Movable);
    while allocator.take(&base, &request(0), Watermark::Min).is_ok() {}
    assert!(dma32.free_pages() == kept && dma32.free_pages() > min, "{} of {kept}", dma32.free_pages());
    let low_only = AllocRequest { highest: ZoneKind::Dma32, ..request(0) };
    while allocator.take(&base, &low_only, Watermark::Min).is_ok() {}
    assert_eq!(dma32.free_pages(), min);
    allocator.validate(&base).unwrap();
}

/// An unmovable request on a machine with movable blocks only claims a whole page block, and the next such request
/// finds it.
#[test]
fn other_groups_give_whole_page_blocks_first() {
    let (base, allocator) = world(TestMachine::simple(1, 8192));
    let unmovable = AllocRequest { mobility: Mobility::Unmovable, highest: ZoneKind::Normal, ..request(0) };
    let zone = &allocator.zones()[0];
    let first = take(&base, &allocator, &unmovable).unwrap();
    assert_eq!(zone.mobility_of(first), Mobility::Unmovable);
    assert_eq!(zone.blocks_by_mobility(), [2, 14, 0]);
    assert_eq!((base.machine.events(Event::MmPageAllocExtfrag), zone.boost()), (1, 0));
    let second = take(&base, &allocator, &unmovable).unwrap();
    assert_eq!(second.align_down(MAX_ORDER), first.align_down(MAX_ORDER));
    assert_eq!(base.machine.events(Event::MmPageAllocExtfrag), 1);
    let info = allocator.pagetypeinfo();
    assert_eq!(info[Mobility::Movable as usize].blocks[10], 7);
}

/// If only a part of a movable page block is free, mixing boosts the watermarks and wakes kswapd.
#[test]
fn mixing_groups_boosts_the_watermarks() {
    let (base, allocator) = world(TestMachine::simple(1, 8192));
    let zone = &allocator.zones()[0];
    allocator.set_kswapd_waits(NodeId(0), true);
    let everything = AllocRequest { reserve: Reserve::All, ..request(5) };
    let mut held: Vec<Pfn> = core::iter::from_fn(|| take(&base, &allocator, &everything)).collect();
    for &pfn in &held {
        base.frames[pfn].set_owner(Owner::Anon(AnonId(1)), PageIndex(0));
    }
    free(&base, &allocator, held.pop().unwrap());
    let high = zone.mark(Watermark::High);
    let unmovable = AllocRequest { mobility: Mobility::Unmovable, highest: ZoneKind::Normal, ..everything };
    let stolen = take(&base, &allocator, &AllocRequest { order: Order(0), ..unmovable }).unwrap();
    // Less than half of the page block is free: it stays movable, and both groups are mixed in it.
    assert_eq!(zone.mobility_of(stolen), Mobility::Movable);
    assert_eq!((zone.boost(), zone.mark(Watermark::High)), (512, high + 512));
    assert_eq!(base.machine.wakes(WaitKey::Kswapd(NodeId(0))), 1);
    allocator.subtract_boost(zone.id(), 600);
    assert_eq!((zone.boost(), zone.mark(Watermark::High)), (0, high));
    free(&base, &allocator, stolen);
    held.drain(..).for_each(|pfn| free(&base, &allocator, pfn));
    assert_whole(&base, &allocator);
}

/// Under `vm.defrag_mode`, requests and kswapd do not count free memory in another group's page blocks until nothing
/// else helps.
#[test]
fn defrag_mode_keeps_groups_apart() {
    let (base, allocator) = world(TestMachine::simple(1, 8192));
    let everything = AllocRequest { reserve: Reserve::All, ..request(5) };
    let held: Vec<Pfn> = core::iter::from_fn(|| take(&base, &allocator, &everything)).collect();
    held.iter().step_by(2).for_each(|&pfn| free(&base, &allocator, pfn));
    let balanced = || allocator.balanced(&base.knobs, NodeId(0), Order(5), ZoneKind::Normal);
    assert!(balanced());
    base.knobs.set(Knob::DefragMode, 1).unwrap();
    assert!(!balanced());
    let mixes = AllocRequest { mobility: Mobility::Unmovable, highest: ZoneKind::Normal, ..request(0) };
    let apart = AllocRequest { mixes: false, ..mixes };
    assert!(allocator.take(&base, &apart, Watermark::Low).is_err());
    let wanted = allocator.take_kswapd_request(NodeId(0)).unwrap();
    assert_eq!(wanted.order, PAGEBLOCK_ORDER, "kswapd must make a block that can change its group");
    assert!(
        take(&base, &allocator, &AllocRequest { mixes: false, ..request(0) }).is_some(),
        "its own group has memory"
    );
    assert!(take(&base, &allocator, &mixes).is_some());
    base.knobs.set(Knob::DefragMode, 0).unwrap();
    assert!(take(&base, &allocator, &apart).is_some());
    allocator.validate(&base).unwrap();
}

#[test]
fn init_on_alloc_clears_what_is_handed_out() {
    let (base, allocator) = world(TestMachine::simple(1, 8192));
    let cleared = || base.machine.work(Work::ZeroPage);
    take(&base, &allocator, &request(0)).unwrap();
    assert_eq!(cleared(), 0);
    base.knobs.set(Knob::InitOnAlloc, 1).unwrap();
    take(&base, &allocator, &request(0)).unwrap();
    take(&base, &allocator, &request(2)).unwrap();
    assert_eq!(cleared(), 5);
}

#[test]
fn ordinary_memory_spreads_into_dma32_before_it_mixes_groups() {
    let (base, allocator) = world(three_zones());
    let node_0 = AllocRequest { highest: ZoneKind::Normal, this_node_only: true, ..request(9) };
    // Break up every page block of the Normal zone.
    let normal: Vec<Pfn> = core::iter::from_fn(|| take(&base, &allocator, &node_0))
        .take_while(|&pfn| base.frames[pfn].zone() == ZoneId(1))
        .collect();
    assert!(!normal.is_empty());
    let unmovable = AllocRequest { mobility: Mobility::Unmovable, ..node_0 };
    let pfn = take(&base, &allocator, &AllocRequest { order: Order(0), ..unmovable }).unwrap();
    assert_eq!(base.frames[pfn].zone(), ZoneId(0));
}

#[test]
fn lists_grow_with_demand_and_shrink_under_reclaim() {
    let (base, allocator) = world(TestMachine::simple(1, 1 << 18));
    let zone = &allocator.zones()[0];
    let held: Vec<Pfn> = (0..20_000).map(|_| take(&base, &allocator, &request(0)).unwrap()).collect();
    let refills = base.machine.work(Work::AllocBuddy);
    assert!((20_000..23_000).contains(&refills));
    allocator.free(&base, &{
        held.iter().for_each(|&pfn| assert!(base.frames[pfn].put(1)));
        held
    });
    let grown = allocator.pcp_pages(zone.id());
    assert!(grown > zone.pcp_sizes().high_min as u64);
    allocator.set_reclaim_active(NodeId(0), ZoneKind::Normal, true);
    let pages: Vec<Pfn> = (0..300).map(|_| take(&base, &allocator, &request(0)).unwrap()).collect();
    pages.iter().for_each(|&pfn| free(&base, &allocator, pfn));
    // Although as many were freed as were taken.
    assert!(allocator.pcp_pages(zone.id()) < grown - 300);
    assert_eq!(base.stats.read(Stat::Pgfree), 20_300);
    assert_whole(&base, &allocator);
}
