//! The machine without a memory manager: walks, shootdowns, injected faults.

use super::*;
use crate::config::FlushFault;
use crate::sched::Next;
use crate::walk::Walk;
use mm::api::AccessKind::{Fetch, Load, Store};
use mm::primitive::Ordering::Relaxed;
use mm::table::{Bits, Entry};
use mm::units::Vpn;

/// A page-table entry.
fn raw(pfn: Pfn, bits: Bits) -> u64 {
    (pfn.0 as u64) << 12 | bits.bits()
}

fn machine(name: &str, fault: Option<FlushFault>) -> SimMachine {
    let spec = MachineSpec::preset(name).unwrap().with_memory(64 << 20).unwrap();
    SimMachine::new(
        spec.clone(),
        &RunConfig { verify: true, flush_fault: fault, ..RunConfig::new(spec) },
        false,
    )
    .unwrap()
}

/// Tables at frames 1 to 4 that map page 5 to frame 99.
fn map(machine: &SimMachine, bits: Bits) {
    for (level, table) in [(3, 1), (2, 2), (1, 3)] {
        let index = (5u64 >> (9 * level)) as usize & 511;
        machine.table(Pfn(table))[index]
            .store(raw(Pfn(table + 1), Bits::PRESENT | Bits::WRITE | Bits::USER), Relaxed);
    }
    machine.table(Pfn(4))[5].store(raw(Pfn(99), bits | Bits::PRESENT | Bits::USER), Relaxed);
    machine.load_root(Pfn(1), Asid(0), false);
}

fn entry(machine: &SimMachine) -> Entry {
    Entry::from_raw(machine.table(Pfn(4))[5].load(Relaxed))
}

#[test]
fn a_walk_sets_young_and_dirty_and_respects_protection() {
    let machine = machine("small", None);
    map(&machine, Bits::WRITE | Bits::NO_EXEC);
    let cpu = machine.this_cpu();
    let Walk::Found(cached) = machine.walk(cpu, Vpn(5), Load) else { panic!() };
    assert_eq!((cached.pfn(), cached.writable(), cached.storable()), (Pfn(99), true, false));
    assert!(entry(&machine).has(Bits::YOUNG) && !entry(&machine).has(Bits::DIRTY));
    assert_eq!(machine.walk(cpu, Vpn(5), Fetch), Walk::Fault);
    // As before every walk, the TLB drops a translation that does not permit the access.
    cpu.tlb.drop_page(Vpn(5));
    let Walk::Found(cached) = machine.walk(cpu, Vpn(5), Store) else { panic!() };
    assert!(cached.storable() && entry(&machine).has(Bits::DIRTY));
    assert_eq!((cpu.counts.walks.get(), cpu.counts.walk_steps.get()), (3, 4 + 1 + 1));
    assert_eq!(machine.walk(cpu, Vpn(6), Load), Walk::Fault);
    assert_eq!(machine.look_up(Pfn(1), Vpn(5)), Some((Pfn(99), true)));
}

#[test]
fn without_hardware_young_bits_an_old_entry_faults() {
    let mut spec = MachineSpec::preset("small").unwrap();
    spec.set_hw_young(false, false);
    let machine = SimMachine::new(spec.clone(), &RunConfig::new(spec), false).unwrap();
    map(&machine, Bits::WRITE);
    assert_eq!(machine.walk(machine.this_cpu(), Vpn(5), Load), Walk::Fault);
    map(&machine, Bits::WRITE | Bits::YOUNG);
    assert!(matches!(machine.walk(machine.this_cpu(), Vpn(5), Load), Walk::Found(_)));
}

#[test]
fn a_walk_through_a_frame_that_is_no_table_is_reported() {
    let machine = machine("small", None);
    map(&machine, Bits::WRITE);
    assert!(matches!(machine.walk(machine.this_cpu(), Vpn(5), Load), Walk::Found(_)));
    machine.zero(Pfn(4), 1);
    assert_eq!(
        machine.walk(machine.this_cpu(), Vpn(6), Load),
        Walk::Fault,
        "a frame of zeroes may be a table"
    );
    machine.observers.content.as_ref().unwrap().borrow_mut().set(Pfn(4), 5);
    machine.this_cpu().tlb.drop_page(Vpn(5));
    assert_eq!(machine.walk(machine.this_cpu(), Vpn(5), Load), Walk::Broken(Pfn(4)));
}

#[test]
fn a_shootdown_costs_the_sender_a_wait_and_each_target_its_handler() {
    let machine = machine("laptop", None);
    let mut targets = CpuSet::EMPTY;
    (1..4).for_each(|cpu| targets.insert(CpuId(cpu)));
    let seen = RefCell::new(Vec::new());
    machine.shootdown(
        &targets,
        &|cpu| {
            seen.borrow_mut().push((cpu, machine.cpu()));
            machine.flush(Flush::Current);
        },
        &mut || seen.borrow_mut().push((CpuId(0), machine.cpu())),
    );
    let expected: Vec<_> = [1, 2, 3, 0].map(|cpu| (CpuId(cpu), CpuId(cpu))).into();
    assert_eq!(seen.into_inner(), expected);
    let costs = machine.spec.costs();
    let hardware = |item| costs.hardware(item);
    let handler = hardware(Hardware::IpiReceive) + hardware(Hardware::FullFlush);
    let sent = hardware(Hardware::IpiSend) + 3 * hardware(Hardware::IpiTarget);
    let deliver = hardware(Hardware::IpiDeliver);
    assert_eq!(machine.cpus[0].clock.get(), sent + deliver + handler + hardware(Hardware::IpiAck));
    assert_eq!(machine.cpus[2].clock.get(), sent + deliver + handler);
    assert_eq!(machine.cpus[2].kernel[Class::Interrupt as usize].get(), handler);
    assert_eq!(machine.cpus[0].counts.ipis_sent.get(), 3);
}

#[test]
fn a_shootdown_in_a_run_in_turn_gives_busy_targets_a_turn_each() {
    let spec = MachineSpec::preset("laptop").unwrap().with_memory(64 << 20).unwrap();
    for (in_turn, next) in [(false, 0), (true, 1)] {
        let machine =
            SimMachine::new(spec.clone(), &RunConfig { in_turn, ..RunConfig::new(spec.clone()) }, false)
                .unwrap();
        (0..2).for_each(|_| assert!(machine.sched.borrow_mut().spawn(0, 0, None) < 2));
        let flush = |target| {
            let mut targets = CpuSet::EMPTY;
            targets.insert(CpuId(target));
            // By their clocks alone, CPU 0 is next.
            machine.cpus[1].clock.set(machine.cpus[0].clock.get() + 1_000_000_000);
            machine.shootdown(&targets, &|_| machine.flush(Flush::Current), &mut || {});
            machine.sched.borrow_mut().next()
        };
        assert_eq!(flush(2), Next::Cpu(0), "an idle target answers at once");
        assert_eq!(flush(1), Next::Cpu(next));
    }
}

#[test]
fn the_nth_flush_can_be_dropped_or_come_late() {
    for delay in [None, Some(1000)] {
        let machine = machine("small", Some(FlushFault { nth: 2, remote: None, delay }));
        let cpu = machine.this_cpu();
        map(&machine, Bits::WRITE);
        assert!(matches!(machine.walk(cpu, Vpn(5), Load), Walk::Found(_)));
        machine.flush(Flush::Current);
        assert!(cpu.tlb.data(Vpn(5)).is_some(), "loading the root is flush 1, this is flush 2");
        machine.flush_faults.run_late((0, cpu));
        assert!(cpu.tlb.data(Vpn(5)).is_some());
        cpu.spend(1_000_000);
        machine.flush_faults.run_late((0, cpu));
        assert_eq!(cpu.tlb.data(Vpn(5)).is_some(), delay.is_none());
        machine.flush(Flush::Current);
        assert!(cpu.tlb.data(Vpn(5)).is_none());
    }
}

#[test]
fn transfers_move_content_at_their_end() {
    let machine = machine("small", None);
    let content = machine.observers.content.as_ref().unwrap();
    content.borrow_mut().set(Pfn(9), 77);
    let write = Io {
        device: mm::units::DeviceId(0),
        write: true,
        block: 3,
        frame: Pfn(9),
        pages: 1,
        continues: false,
    };
    machine.submit(write);
    content.borrow_mut().set(Pfn(9), 78);
    assert_eq!(content.borrow().block(0, 3), 0);
    content.borrow_mut().finish(&write, true);
    assert_eq!(content.borrow().block(0, 3), 77);
    content.borrow_mut().finish(&Io { write: false, frame: Pfn(10), ..write }, true);
    assert_eq!(content.borrow().frame(Pfn(10)), 77);
}

#[test]
fn a_request_does_not_wait_for_one_that_a_cpu_ahead_sends_later() {
    let machine = machine("laptop", None);
    let send = |cpu: usize, at: u64, write: bool, blocks: std::ops::Range<u64>| {
        machine.current.set(cpu);
        machine.this_cpu().spend(at);
        for block in blocks {
            machine.submit(Io {
                device: mm::units::DeviceId(0),
                write,
                block: 2 * block,
                frame: Pfn(9),
                pages: 1,
                continues: false,
            });
        }
        machine.unplug();
    };
    // CPU 0 is 300 us ahead, and a device that transfers a page in 1.6 us has its writes before the other's read.
    send(0, 300_000_000, true, 0..32);
    send(1, 0, false, 100..101);
    let mut ends = Vec::new();
    loop {
        let next = machine.sched.borrow_mut().next();
        let Next::Event(time, event) = next else { break };
        machine.handle(time, event, |io, _| ends.push((io.write, time / 1_000_000)));
    }
    assert_eq!(ends.len(), 33);
    let (write, micros) = ends[0];
    assert!(!write && (60..75).contains(&micros), "a read of 67 us that is sent at once: {ends:?}");
    assert!(ends[1].1 >= 315, "{ends:?}");
}
