//! Waking, waiting and order.

use super::*;
use mm::units::{NodeId, Pfn};

/// A turn of one of two CPUs.
const TURN: u64 = QUANTUM / 2;
const FRAME: WaitKey = WaitKey::Frame(Pfn(7));

fn run(sched: &mut Sched, cpu: usize) -> TaskId {
    sched.pick(cpu).unwrap().task
}

#[test]
fn the_cpu_with_the_earliest_clock_runs_a_quantum_past_the_next() {
    let mut sched = Sched::new(vec![0, 0]);
    sched.spawn(0, 0, None);
    sched.spawn(0, 0, None);
    assert_eq!(sched.next(), Next::Cpu(0));
    assert_eq!(sched.pick(0).unwrap().limit, QUANTUM);
    sched.clocks[0].set(QUANTUM);
    assert_eq!(sched.next(), Next::Cpu(1));
    assert_eq!(sched.pick(1).unwrap().limit, 2 * QUANTUM);
    sched.at(5, Event::Deadline(0, 9));
    assert_eq!(sched.pick(1).unwrap().limit, 5);
    sched.clocks[1].set(5);
    assert_eq!(sched.next(), Next::Event(5, Event::Deadline(0, 9)));
}

#[test]
fn cpus_in_turn_share_one_time() {
    let mut sched = Sched::new(vec![0, 0]);
    sched.run_in_turn(1.0);
    sched.spawn(0, 0, None);
    assert_eq!((sched.next(), sched.pick(0).unwrap().limit), (Next::Cpu(0), u64::MAX), "it is alone");
    let start = 3 * QUANTUM;
    sched.clocks[0].set(start);
    sched.spawn(30, 1, None);
    // It was ready at 30, but the other CPU worked.
    assert_eq!((sched.next(), sched.pick(1).unwrap().limit), (Next::Cpu(1), start + TURN));
    assert_eq!(sched.clocks[1].get(), start);
    sched.clocks[1].set(start + TURN);
    // Half of the time to the timer.
    let (first, second) = (start + TURN + TURN / 2, start + TURN + TURN / 4);
    assert_eq!((sched.next(), sched.pick(0).unwrap().limit), (Next::Cpu(0), first));
    sched.clocks[0].set(second);
    sched.at(second - 5, Event::Deadline(0, 9));
    assert_eq!(sched.next(), Next::Event(second - 5, Event::Deadline(0, 9)), "it was due in that turn");
    assert_eq!(sched.next(), Next::Cpu(0), "its turn is not over");
    sched.clocks[0].set(first);
    assert_eq!(sched.next(), Next::Cpu(1));
    assert_eq!(sched.clocks[1].get(), first);
}

/// The CPU that has the next turn, which takes all of it.
fn turn(sched: &mut Sched) -> usize {
    let Next::Cpu(cpu) = sched.next() else { panic!("they never sleep") };
    let clock = sched.clocks[cpu].clone();
    clock.set(sched.pick(cpu).unwrap().limit.min(clock.get() + QUANTUM));
    cpu
}

#[test]
fn a_cpu_that_waits_for_others_lets_each_have_a_turn() {
    let mut sched = Sched::new(vec![0, 0, 0]);
    (0..3).for_each(|_| assert!(sched.spawn(0, 0, None) < 3));
    sched.give_up_turn(0);
    assert_eq!(turn(&mut sched), 0, "CPUs that work beside each other answer at once");
    let mut sched = Sched::new(vec![0, 0, 0]);
    sched.run_in_turn(1.0);
    (0..3).for_each(|_| assert!(sched.spawn(0, 0, None) < 3));
    let wait = |sched: &mut Sched| {
        let Next::Cpu(cpu) = sched.next() else { panic!("they never sleep") };
        sched.pick(cpu);
        sched.give_up_turn(cpu);
        cpu
    };
    let turns: [usize; 6] = std::array::from_fn(|_| wait(&mut sched));
    assert_eq!(turns, [0, 1, 2, 0, 1, 2], "those that wait for each other answer each other");
    assert_eq!(wait(&mut sched), 0);
    let turns: [usize; 5] = std::array::from_fn(|_| turn(&mut sched));
    assert_eq!(turns, [1, 2, 0, 1, 2]);
    assert_eq!(wait(&mut sched), 0);
    (1..3).for_each(|cpu| sched.end(cpu));
    assert_eq!(turn(&mut sched), 0, "no other CPU wants a turn");
}

/// Two CPUs run in turn. `kernel` works for `takes` at a time, in the kernel, and waits for the other in between. The
/// other is in user mode. Returns how much time it has for each of those, in microseconds.
fn time_beside_waits(kernel: usize, takes: f64) -> f64 {
    const TIMES: u32 = 3000;
    let mut sched = Sched::new(vec![0, 0]);
    sched.run_in_turn(1.0);
    (0..2).for_each(|_| assert!(sched.spawn(0, 0, None) < 2));
    let (mut done, mut beside) = (0, 0);
    while done < TIMES {
        let Next::Cpu(cpu) = sched.next() else { panic!("they never sleep") };
        let (clock, limit) = (sched.clocks[cpu].clone(), sched.pick(cpu).unwrap().limit);
        if cpu == kernel {
            clock.set(clock.get() + (takes * 1e6) as u64);
            sched.give_up_turn(cpu);
            done += 1;
        } else {
            beside += limit - clock.get();
            clock.set(limit);
        }
    }
    beside as f64 / f64::from(TIMES) / 1e6
}

/// The figures are those of a loop over QEMU's rule, in which CPUs stop anywhere. Traced in Linux: kswapd writes a page
/// to a disk in 7.5 microseconds, and one each 20 if another CPU works; to zram in 46, and one each 95 to 125.
#[test]
fn a_kernel_that_stops_late_has_no_more_time_than_others() {
    let expected = [(7.5, [12.5; 2]), (9.0, [11.0; 2]), (30.0, [30.0; 2]), (46.0, [54.0; 2])];
    for (kernel, (takes, beside)) in [0, 1].into_iter().flat_map(|kernel| expected.map(|case| (kernel, case)))
    {
        let found = time_beside_waits(kernel, takes);
        assert!((found - beside[kernel]).abs() < 0.1, "CPU {kernel} works for {takes}: {found}");
    }
}

/// A task that sleeps at the end of a long piece of work, and soon goes on: the other CPU first has its time.
#[test]
fn a_cpu_that_slept_waits_for_what_others_are_owed() {
    let mut sched = Sched::new(vec![0, 0]);
    sched.run_in_turn(1.0);
    (0..2).for_each(|_| assert!(sched.spawn(0, 0, None) < 2));
    assert_eq!(sched.next(), Next::Cpu(0));
    sched.pick(0);
    sched.clocks[0].set(5 * TURN);
    sched.block(0, Key::Mm(FRAME), Some(6 * TURN));
    assert_eq!((sched.next(), sched.pick(1).unwrap().limit), (Next::Cpu(1), 6 * TURN), "it is alone");
    sched.clocks[1].set(6 * TURN);
    let Next::Event(now, Event::Deadline(task, wait)) = sched.next() else { panic!("it wakes") };
    sched.deadline(now, task, wait);
    assert_eq!((sched.next(), sched.pick(1).unwrap().limit), (Next::Cpu(1), 9 * TURN));
}

#[test]
fn devices_take_an_emulators_time_of_which_more_passes_while_a_cpu_works() {
    let io = Event::Io(0, 1);
    let mut sched = Sched::new(vec![0, 0]);
    sched.run_in_turn(4.0);
    sched.at_devices_time(400, io);
    assert_eq!(sched.next(), Next::Event(400, io), "all CPUs are idle");
    // A CPU works from 400 on.
    sched.spawn(400, 0, None);
    sched.at_devices_time(sched.devices_time(400) + 400, io);
    assert_eq!((sched.next(), sched.pick(0).unwrap().limit), (Next::Cpu(0), 500));
    sched.clocks[0].set(460);
    assert_eq!((sched.next(), sched.devices_time(460)), (Next::Cpu(0), 640));
    // It sleeps with 160 left, and another event comes first.
    sched.block(0, Key::Mm(FRAME), None);
    sched.at(520, Event::Deadline(0, 9));
    assert_eq!(sched.next(), Next::Event(520, Event::Deadline(0, 9)));
    assert_eq!(sched.next(), Next::Event(620, io));
    assert_eq!(sched.next(), Next::Nothing);
    // One that came while a CPU worked past it, came at its time.
    sched.wake(620, Key::Mm(FRAME));
    sched.at_devices_time(sched.devices_time(620) + 40, io);
    assert_eq!((sched.next(), sched.pick(0).unwrap().limit), (Next::Cpu(0), 630));
    sched.clocks[0].set(700);
    assert_eq!(sched.next(), Next::Event(630, io));
}

#[test]
fn a_wake_up_between_ticket_and_wait_prevents_sleep() {
    let mut sched = Sched::new(vec![0]);
    let ticket = Ticket { key: FRAME, mark: sched.mark(Key::Mm(FRAME)) };
    assert!(!sched.is_stale(ticket));
    sched.wake(0, Key::Mm(WaitKey::Frame(Pfn(8))));
    assert!(!sched.is_stale(ticket), "another frame's wake-up is not ours");
    sched.wake(0, Key::Mm(FRAME));
    assert!(sched.is_stale(ticket));
}

#[test]
fn a_wake_up_voids_the_deadline() {
    let mut sched = Sched::new(vec![0]);
    let task = sched.spawn(0, 0, None);
    run(&mut sched, 0);
    sched.block(0, Key::Mm(FRAME), Some(100));
    sched.wake(50, Key::Mm(FRAME));
    assert_eq!(
        (run(&mut sched, 0), sched.was_woken(task), sched.clocks[0].get(), sched.idle[0]),
        (task, true, 50, 50)
    );
    sched.block(0, Key::Mm(FRAME), None);
    assert_eq!(sched.next(), Next::Event(100, Event::Deadline(task, 1)));
    sched.deadline(100, task, 1);
    assert_eq!(sched.blocked_on(task), Some(Key::Mm(FRAME)));
    assert_eq!(sched.next(), Next::Nothing);
}

#[test]
fn a_deadline_ends_a_wait_without_a_wake_up() {
    let mut sched = Sched::new(vec![0]);
    let task = sched.spawn(0, 0, None);
    run(&mut sched, 0);
    sched.block(0, Key::Mm(WaitKey::Kswapd(NodeId(0))), Some(70));
    sched.deadline(70, task, 1);
    assert_eq!((run(&mut sched, 0), sched.was_woken(task), sched.clocks[0].get()), (task, false, 70));
}

/// Slices of one CPU are 0.75 ms, and end at ticks.
#[test]
fn tasks_of_one_cpu_take_turns_at_ticks() {
    let mut sched = Sched::new(vec![0]);
    let (a, b) = (sched.spawn(0, 0, None), sched.spawn(0, 0, None));
    assert_eq!(run(&mut sched, 0), a);
    assert_eq!(sched.limit(0), TICK);
    sched.clocks[0].set(TICK - 1);
    assert_eq!(run(&mut sched, 0), a);
    for task in [b, a, b] {
        sched.clocks[0].set(sched.limit(0));
        assert_eq!(run(&mut sched, 0), task);
    }
    sched.block(0, Key::Mm(FRAME), None);
    assert_eq!((run(&mut sched, 0), sched.limit(0)), (a, u64::MAX));
}

/// A task that sleeps with time left is owed that, and runs at once when it is woken. One that has run ahead of the
/// others waits for them, even if it sleeps for a moment.
#[test]
fn a_woken_task_preempts_if_it_is_owed_time() {
    const SOON: u64 = 100;
    let mut sched = Sched::new(vec![0]);
    let (a, b) = (sched.spawn(0, 0, None), sched.spawn(0, 0, None));
    assert_eq!(run(&mut sched, 0), a);
    sched.clocks[0].set(TICK);
    assert_eq!(run(&mut sched, 0), b);
    sched.clocks[0].set(TICK + SOON);
    sched.block(0, Key::Mm(FRAME), None);
    assert_eq!(run(&mut sched, 0), a);
    sched.clocks[0].set(3 * TICK);
    sched.wake(3 * TICK, Key::Mm(FRAME));
    assert_eq!((sched.limit(0), run(&mut sched, 0)), (3 * TICK, b), "it is owed time");
    // More than it was owed.
    sched.clocks[0].set(4 * TICK + TICK / 2);
    sched.block(0, Key::Mm(FRAME), None);
    assert_eq!(run(&mut sched, 0), a);
    let now = 4 * TICK + TICK / 2 + SOON;
    sched.clocks[0].set(now);
    sched.wake(now, Key::Mm(FRAME));
    for (limit, next) in [(5 * TICK, a), (6 * TICK, b)] {
        assert_eq!(sched.limit(0), limit);
        sched.clocks[0].set(limit);
        assert_eq!(run(&mut sched, 0), next);
    }
}

#[test]
fn idle_cpus_take_waiting_tasks() {
    let mut sched = Sched::new(vec![0, 0]);
    let tasks: Vec<_> = (0..4).map(|_| sched.spawn(0, 0, None)).collect();
    run(&mut sched, 0);
    run(&mut sched, 1);
    for _ in 0..2 {
        sched.end(1);
        sched.pick(1);
    }
    assert!(sched.is_idle(1) && sched.ended(tasks[1]) && sched.ended(tasks[3]));
    assert!(!sched.becomes_idle(1));
    assert_eq!(run(&mut sched, 1), tasks[2]);
    sched.end(1);
    assert!(sched.becomes_idle(1));
}

#[test]
fn more_tasks_than_cpus_share_the_time_evenly() {
    // Three tasks that never sleep, on two CPUs.
    let mut sched = Sched::new(vec![0, 0]);
    (0..3).for_each(|_| assert!(sched.spawn(0, 0, None) < 3));
    let (mut ran, end) = ([0u64; 3], 60 * BALANCE);
    while sched.clocks.iter().any(|clock| clock.get() < end) {
        let Next::Cpu(cpu) = sched.next() else { panic!("they never sleep") };
        let picked = sched.pick(cpu).unwrap();
        let clock = sched.clocks[cpu].clone();
        let step = QUANTUM.min(picked.limit.saturating_sub(clock.get())).max(1);
        clock.set(clock.get() + step);
        ran[picked.task as usize] += step;
    }
    let (least, most) = (*ran.iter().min().unwrap(), *ran.iter().max().unwrap());
    assert!(least * 10 > most * 7, "{ran:?}");
}
