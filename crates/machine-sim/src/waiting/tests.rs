use super::*;
use crate::spec::MachineSpec;
use mm::machine::SharedLine;
use mm::units::{Pfn, SpaceId, VmaId};

/// A machine of `cpus` CPUs with clocks at 0, and a lock of it.
fn machine(cpus: usize) -> (Waiting, LockHold) {
    let spec = MachineSpec::preset("small").unwrap();
    let cpus = (0..cpus).map(|cpu| Cpu::new(Rc::default(), cpu as u8 / 2, spec.tlb())).collect();
    let hold = LockHold {
        class: LockClass::Zone,
        until: Cell::new(0),
        began: Cell::new(0),
        by: Cell::new(UNHELD),
        history: Cell::new(ALONE),
    };
    (with_lines(Waiting::new(cpus, 16, spec.costs(), None), [0, 0]), hold)
}

fn with_lines(mut waiting: Waiting, costs: [u64; 2]) -> Waiting {
    waiting.lines.costs = costs;
    waiting
}

/// `cpu` comes to the lock at `at` and holds it for `takes`. Returns when it has released it.
fn visit((waiting, hold): &(Waiting, LockHold), cpu: usize, at: u64, takes: u64) -> u64 {
    visit_as((waiting, hold), cpu, (at, takes), HoldMode::Alone)
}

fn visit_as(
    (waiting, hold): (&Waiting, &LockHold),
    cpu: usize,
    (at, takes): (u64, u64),
    mode: HoldMode,
) -> u64 {
    waiting.go_on(cpu, Class::System);
    let clock = &waiting.cpus[cpu].clock;
    assert!(clock.get() <= at, "CPU {cpu} is at {} already", clock.get());
    clock.set(at);
    let since = waiting.acquire(hold, mode, false);
    clock.set(clock.get() + takes);
    waiting.release(hold, mode, since);
    clock.get()
}

fn tally(waiting: &Waiting) -> (u64, u64, u64, u64) {
    let LockTally { taken, contended, waited, longest, .. } = waiting.outcome(LockClass::Zone).tally;
    (taken, contended, waited, longest)
}

#[test]
fn a_cpu_waits_until_the_hold_in_which_it_comes_has_ended() {
    let machine = machine(2);
    assert_eq!(visit(&machine, 0, 100, 50), 150);
    assert_eq!(visit(&machine, 1, 120, 10), 160);
    assert_eq!(tally(&machine.0), (2, 1, 30, 30));
    // It comes when the lock is free.
    assert_eq!(visit(&machine, 0, 160, 5), 165);
    assert_eq!(tally(&machine.0), (3, 1, 30, 30));
    let kernel = |cpu: usize| machine.0.cpus[cpu].kernel[Class::System as usize].get();
    assert_eq!((kernel(0), kernel(1)), (0, 30), "waiting is time of the kernel");
}

#[test]
fn three_cpus_get_the_lock_in_the_order_in_which_they_came() {
    let machine = machine(3);
    assert_eq!(visit(&machine, 0, 0, 100), 100);
    assert_eq!(visit(&machine, 1, 10, 100), 200);
    assert_eq!(visit(&machine, 2, 20, 100), 300);
    // Back behind all of them.
    assert_eq!(visit(&machine, 0, 250, 100), 400);
    assert_eq!(tally(&machine.0), (4, 3, 90 + 180 + 50, 180));
}

#[test]
fn who_ran_ahead_of_an_earlier_hold_waits_afterwards() {
    let machine = machine(2);
    assert_eq!(visit(&machine, 0, 100, 50), 150);
    // CPU 1 is behind. It came first and has the lock until 130, so CPU 0 has come in vain at 100. That one's hold has
    // no history yet: CPU 1 begins it.
    assert_eq!(machine.1.history.get(), ALONE);
    assert_eq!(visit(&machine, 1, 80, 50), 130);
    assert_eq!(machine.0.cpus[0].clock.get(), 180);
    // Its hold lasts from 130 to 180 now.
    assert_eq!(visit(&machine, 1, 140, 5), 185);
    assert_eq!(tally(&machine.0), (3, 2, 30 + 40, 40));
}

#[test]
fn who_comes_in_a_hold_that_has_moved_along_waits() {
    let machine = machine(4);
    assert_eq!(visit(&machine, 1, 0, 10), 10);
    assert_eq!(visit(&machine, 0, 100, 50), 150);
    assert_eq!(visit(&machine, 0, 200, 10), 210);
    // CPU 0 should have waited for 20 at 100. Its second hold has moved to 220, which delays nobody.
    assert_eq!(visit(&machine, 2, 90, 30), 120);
    assert_eq!(machine.0.cpus[0].clock.get(), 230);
    assert_eq!(tally(&machine.0), (4, 1, 20, 20));
    assert_eq!(visit(&machine, 3, 222, 5), 235);
    assert_eq!(tally(&machine.0), (5, 2, 20 + 8, 20));
}

#[test]
fn who_comes_before_a_hold_that_has_moved_along_does_not_wait() {
    let machine = machine(3);
    assert_eq!(visit(&machine, 1, 0, 10), 10);
    assert_eq!(visit(&machine, 0, 100, 50), 150);
    assert_eq!(visit(&machine, 0, 200, 10), 210);
    assert_eq!(visit(&machine, 1, 212, 3), 215);
    assert_eq!(visit(&machine, 2, 90, 30), 120);
    let clock = |cpu: usize| machine.0.cpus[cpu].clock.get();
    assert_eq!((clock(0), clock(1)), (230, 215));
    assert_eq!(tally(&machine.0), (5, 1, 20, 20));
}

#[test]
fn a_wait_inside_of_a_hold_makes_the_hold_longer() {
    let (waiting, outer) = machine(3);
    let inner = LockHold { class: LockClass::Lru, ..machine(1).1 };
    visit_as((&waiting, &inner), 0, (100, 100), HoldMode::Alone);
    waiting.go_on(1, Class::System);
    waiting.cpus[1].clock.set(90);
    let since = waiting.acquire(&outer, HoldMode::Alone, false);
    visit_as((&waiting, &inner), 1, (110, 20), HoldMode::Alone);
    waiting.release(&outer, HoldMode::Alone, since);
    assert_eq!(waiting.cpus[1].clock.get(), 220);
    assert_eq!(visit_as((&waiting, &outer), 2, (95, 1), HoldMode::Alone), 221);
}

#[test]
fn readers_do_not_wait_for_each_other_and_sleepers_take_no_time_of_their_cpu() {
    let (waiting, hold) = machine(3);
    assert_eq!(visit_as((&waiting, &hold), 0, (0, 100), HoldMode::Shared), 100);
    assert_eq!(visit_as((&waiting, &hold), 1, (10, 20), HoldMode::Shared), 30);
    assert_eq!(visit_as((&waiting, &hold), 1, (40, 20), HoldMode::Alone), 120);
    waiting.go_on(2, Class::System);
    waiting.cpus[2].clock.set(105);
    assert_eq!(waiting.acquire(&hold, HoldMode::Shared, true), 120);
    assert_eq!(waiting.cpus[2].clock.get(), 105);
}

#[test]
fn the_line_of_a_lock_comes_from_the_cpu_that_had_it() {
    let (waiting, hold) = machine(3);
    let machine = (with_lines(waiting, [20, 100]), LockHold { class: LockClass::Mmap, ..hold });
    assert_eq!(visit(&machine, 0, 100, 10), 110);
    assert_eq!(visit(&machine, 0, 200, 10), 210, "it is here");
    assert_eq!(visit(&machine, 1, 300, 10), 330, "of the same node");
    assert_eq!(visit(&machine, 2, 400, 10), 510, "of another node");
    // A CPU that waits fetches the line when it is free, and others wait for that, too.
    assert_eq!(visit(&machine, 1, 450, 10), 620);
    assert_eq!(visit(&machine, 0, 460, 10), 650);
    // CPU 0 had it last at that time, although CPU 2 has had it later.
    assert_eq!(visit(&machine, 2, 2000, 10), 2110);
    assert_eq!(visit(&machine, 0, 1000, 10), 1010);
}

#[test]
fn the_heads_of_lists_come_after_the_line_of_their_lock() {
    let (waiting, hold) = machine(3);
    let machine = (with_lines(waiting, [20, 100]), hold);
    assert_eq!(visit(&machine, 0, 100, 10), 110);
    assert_eq!(visit(&machine, 1, 200, 10), 200 + 2 * 20 + 10);
    assert_eq!(visit(&machine, 2, 300, 10), 300 + 2 * 100 + 10);
    assert_eq!(
        (fetched(&machine.0, LineKind::Lock), fetched(&machine.0, LineKind::Lists)),
        ((2, 120), (2, 120))
    );
}

/// `cpu` writes to a line at `at`. Returns when it has done so.
fn write(waiting: &Waiting, cpu: usize, at: u64, line: SharedLine) -> u64 {
    waiting.go_on(cpu, Class::System);
    let clock = &waiting.cpus[cpu].clock;
    assert!(clock.get() <= at, "CPU {cpu} is at {} already", clock.get());
    clock.set(at);
    waiting.write(line);
    clock.get()
}

/// How often a line of the kind came from another CPU, and for how long.
fn fetched(waiting: &Waiting, kind: LineKind) -> (u64, u64) {
    let line = waiting.lines().into_iter().find(|line| line.kind == kind.name()).unwrap();
    (line.fetched, line.took)
}

#[test]
fn a_frames_record_comes_from_the_cpu_that_wrote_it_last() {
    let waiting = with_lines(machine(3).0, [20, 100]);
    let (line, other) = (SharedLine::Frame(Pfn(3)), SharedLine::Frame(Pfn(4)));
    assert_eq!(write(&waiting, 0, 100, line), 100, "nobody had it");
    assert_eq!(write(&waiting, 0, 200, line), 200, "one CPU alone pays nothing");
    assert_eq!(write(&waiting, 1, 300, line), 320, "of the same node");
    assert_eq!(write(&waiting, 0, 400, line), 420, "and back");
    assert_eq!(write(&waiting, 2, 500, line), 600, "of another node");
    assert_eq!(write(&waiting, 2, 600, other), 600, "another record");
    assert_eq!(fetched(&waiting, LineKind::Frame), (3, 140));
    let kernel = |cpu: usize| waiting.cpus[cpu].kernel[Class::System as usize].get();
    assert_eq!((kernel(0), kernel(1), kernel(2)), (20, 20, 100), "it is time of the kernel");
}

#[test]
fn a_line_that_is_written_often_is_waited_for() {
    let waiting = with_lines(machine(4).0, [20, 100]);
    let line = SharedLine::Vma(VmaId(7));
    assert_eq!(write(&waiting, 0, 100, line), 100);
    assert_eq!(write(&waiting, 0, 200, line), 200);
    assert_eq!(write(&waiting, 1, 300, line), 320);
    // While it is on its way to CPU 1 no other CPU gets it.
    assert_eq!(write(&waiting, 0, 310, line), 340);
    assert_eq!(write(&waiting, 2, 330, line), 440, "10 of waiting, 100 for the line");
    assert_eq!(write(&waiting, 2, 450, SharedLine::Vma(VmaId(8))), 450, "another range");
    assert_eq!(fetched(&waiting, LineKind::Vma), (3, 20 + 30 + 110));
    assert_eq!(fetched(&waiting, LineKind::CpuMask), (0, 0));
}

#[test]
fn who_has_run_ahead_of_a_write_pays_for_it_afterwards() {
    let waiting = with_lines(machine(2).0, [20, 100]);
    let line = SharedLine::CpuMask(SpaceId(0));
    assert_eq!(write(&waiting, 1, 10, line), 10);
    for (at, done) in [(100, 120), (200, 200), (300, 300)] {
        assert_eq!(write(&waiting, 0, at, line), done);
    }
    // CPU 1 comes between two writes of CPU 0, which has not had the line at 200 then.
    assert_eq!(write(&waiting, 1, 150, line), 170);
    assert_eq!(waiting.cpus[0].clock.get(), 320);
    // Nor at 300; but once it has, it has it.
    assert_eq!(write(&waiting, 1, 250, line), 270);
    assert_eq!(waiting.cpus[0].clock.get(), 340);
    assert_eq!(write(&waiting, 1, 280, line), 280);
    assert_eq!(waiting.cpus[0].clock.get(), 340);
}

#[test]
fn lines_stay_where_they_are_while_time_does_not_count() {
    let waiting = with_lines(machine(2).0, [20, 100]);
    let lines = [SharedLine::Frame(Pfn(3)), SharedLine::Vma(VmaId(7))];
    assert_eq!(lines.map(|line| write(&waiting, 0, 100, line)), [100, 100]);
    waiting.mute(true);
    assert_eq!(lines.map(|line| write(&waiting, 1, 200, line)), [200, 200]);
    waiting.mute(false);
    assert_eq!(lines.map(|line| write(&waiting, 0, 300, line)), [300, 300]);
}

#[test]
fn nothing_is_kept_while_time_does_not_count() {
    let (waiting, hold) = machine(2);
    let clock = &waiting.cpus[0].clock;
    // A hold that begins while time does not count has no beginning, whenever it ends.
    for muted in [true, false] {
        waiting.mute(true);
        let since = waiting.acquire(&hold, HoldMode::Alone, false);
        assert_eq!(since, Since::MAX);
        clock.set(clock.get() + 50);
        waiting.mute(muted);
        waiting.release(&hold, HoldMode::Alone, since);
        assert_eq!(waiting.outcome(LockClass::Zone).tally, LockTally::default());
        assert_eq!((hold.by.get(), hold.until.get()), (UNHELD, 0));
    }
    let since = waiting.acquire(&hold, HoldMode::Alone, false);
    clock.set(clock.get() + 50);
    waiting.release(&hold, HoldMode::Alone, since);
    assert_eq!(
        waiting.outcome(LockClass::Zone).tally,
        LockTally { taken: 1, held: 50, ..LockTally::default() }
    );
    // Another CPU that comes within that hold finds the lock free while time does not count.
    waiting.go_on(1, Class::System);
    waiting.cpus[1].clock.set(120);
    assert!(!waiting.is_free(&hold, HoldMode::Alone));
    waiting.mute(true);
    assert!(waiting.is_free(&hold, HoldMode::Alone));
    // A hold that ends while time does not count leaves nothing.
    waiting.mute(false);
    let since = waiting.acquire(&hold, HoldMode::Alone, false);
    waiting.mute(true);
    waiting.cpus[1].clock.set(500);
    waiting.release(&hold, HoldMode::Alone, since);
    assert_eq!(hold.until.get(), 150);
}
