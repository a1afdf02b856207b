use super::domain::PERIOD;
use super::*;

const SECOND: u64 = 1_000_000_000_000;
const ROOT: GroupId = GroupId(0);

impl Pressure {
    /// Picoseconds of memory some and full, and of devices some and full.
    fn totals(&self, now: u64, group: GroupId) -> [u64; 4] {
        self.stalls(now, group.0.into()).unwrap_or_default().map(|stalls| stalls.total)
    }

    fn sleep(&mut self, now: u64, task: TaskId) {
        self.leave(now, task, State::Blocked(super::super::Key::Barrier(0)));
    }
}

/// Two tasks on one CPU, of which the first runs.
fn two() -> Pressure {
    let mut pressure = Pressure::of(1);
    pressure.begin(0, 0);
    pressure.begin(0, 0);
    pressure.run(0, 0, 0);
    pressure
}

#[test]
fn a_stalled_task_beside_one_that_runs_is_some_and_two_are_full() {
    let mut pressure = two();
    pressure.stall(0, 0, Stall::Memory, true);
    pressure.sleep(0, 0);
    pressure.run(0, 0, 1);
    assert_eq!(pressure.totals(SECOND, ROOT), [SECOND, 0, 0, 0]);
    pressure.stall(SECOND, 0, Stall::Memory, true);
    pressure.sleep(SECOND, 1);
    let half = SECOND * 3 / 2;
    assert_eq!(pressure.totals(half, ROOT), [half, SECOND / 2, 0, 0], "both are stalled");
    pressure.wake(half, 0, 0);
    pressure.run(half, 0, 0);
    pressure.stall(half, 0, Stall::Memory, false);
    assert_eq!(pressure.totals(2 * SECOND, ROOT), [2 * SECOND, SECOND / 2, 0, 0], "one works again");
}

#[test]
fn a_task_that_reclaims_on_the_cpu_keeps_others_from_working() {
    let mut pressure = two();
    pressure.stall(0, 0, Stall::Memory, true);
    assert_eq!(pressure.totals(SECOND, ROOT), [SECOND, SECOND, 0, 0], "the other only waits for the CPU");
    pressure.leave(SECOND, 0, State::Ready);
    pressure.run(SECOND, 0, 1);
    assert_eq!(pressure.totals(2 * SECOND, ROOT), [2 * SECOND, SECOND, 0, 0], "the other runs");
}

#[test]
fn a_wait_for_a_device_is_io_and_is_memory_only_for_a_page_that_was_there() {
    let mut pressure = two();
    pressure.stall(0, 0, Stall::Io, true);
    assert_eq!(pressure.totals(SECOND, ROOT), [0; 4], "it waits only when it sleeps");
    pressure.sleep(SECOND, 0);
    pressure.run(SECOND, 0, 1);
    assert_eq!(pressure.totals(2 * SECOND, ROOT), [0, 0, SECOND, 0]);
    pressure.stall(2 * SECOND, 0, Stall::Memory, true);
    pressure.stall(2 * SECOND, 0, Stall::Io, true);
    pressure.sleep(2 * SECOND, 1);
    // Beyond the first period, which ends after 2.004 s.
    assert_eq!(pressure.totals(3 * SECOND, ROOT), [SECOND, SECOND, 2 * SECOND, SECOND]);
}

#[test]
fn stalls_nest_and_end_with_their_task() {
    let mut pressure = two();
    for begins in [true, true, false] {
        pressure.stall(0, 0, Stall::Memory, begins);
    }
    assert_eq!(pressure.totals(SECOND, ROOT)[0], SECOND, "one stall is left");
    pressure.end(SECOND, 0);
    assert_eq!(pressure.totals(2 * SECOND, ROOT)[0], SECOND);
}

#[test]
fn cpus_weigh_as_much_as_they_had_tasks() {
    let mut pressure = Pressure::of(3);
    for cpu in 0..2 {
        pressure.begin(0, cpu);
        pressure.run(0, cpu, cpu as TaskId);
    }
    pressure.stall(0, 0, Stall::Memory, true);
    // The first is stalled all of its half second, the second works for a second and a half, the third is idle.
    pressure.end(SECOND / 2, 0);
    pressure.end(SECOND * 3 / 2, 1);
    // Half a second, of a CPU that has a quarter of the time in which CPUs had tasks.
    let expected = SECOND / 8;
    assert_eq!(pressure.totals(SECOND * 3 / 2, ROOT), [expected, expected, 0, 0]);
}

#[test]
fn a_task_takes_its_stall_to_another_cpu() {
    let mut pressure = two();
    pressure.running = vec![Some(0), None];
    pressure.domains = vec![Some(Domain::new(2, 0))];
    pressure.tasks.truncate(1);
    pressure.tell_domains(0, 0, |task| (Activity::default(), task.activity()));
    pressure.stall(0, 0, Stall::Memory, true);
    pressure.leave(SECOND, 0, State::Ready);
    pressure.move_to(SECOND, 0, 1);
    let machine = pressure.domains[0].as_ref().unwrap();
    assert!(!machine.tasks_on(0) && machine.tasks_on(1));
}

#[test]
fn a_group_has_the_pressure_of_its_tasks_and_of_those_below() {
    let (above, below, space) = (GroupId(1), GroupId(2), SpaceId(7));
    let mut pressure = two();
    pressure.belong(0, 0, space);
    pressure.enter(0, space, &[below, above]);
    pressure.stall(0, 0, Stall::Memory, true);
    pressure.sleep(0, 0);
    pressure.run(0, 0, 1);
    // The other task works, but in no group.
    assert_eq!(pressure.totals(SECOND, ROOT), [SECOND, 0, 0, 0]);
    for group in [above, below] {
        assert_eq!(pressure.totals(SECOND, group), [SECOND, SECOND, 0, 0], "{group:?}");
    }
    // A new task of the space begins in its groups; the space leaves the lower one with both.
    pressure.begin(SECOND, 0);
    pressure.belong(SECOND, 2, space);
    assert_eq!(pressure.totals(2 * SECOND, below), [2 * SECOND, SECOND, 0, 0]);
    pressure.enter(2 * SECOND, space, &[above]);
    assert_eq!(pressure.totals(3 * SECOND, below), [2 * SECOND, SECOND, 0, 0]);
    assert_eq!(pressure.totals(3 * SECOND, above), [3 * SECOND, SECOND, 0, 0]);
    assert_eq!(pressure.totals(SECOND, GroupId(9)), [0; 4], "a group without tasks has none");
}

#[test]
fn averages_are_those_of_linux() {
    let mut pressure = Pressure::of(1);
    pressure.begin(0, 0);
    pressure.run(0, 0, 0);
    pressure.stall(0, 0, Stall::Memory, true);
    // 100 % of a period: (0 * 1677 + 100 * 2048 * 371 + 2047) / 2048 = 37,100 of 2048ths, and so on.
    let averages = |pressure: &Pressure, now| pressure.stalls(now, 0).unwrap()[0].averages;
    assert_eq!(averages(&pressure, PERIOD), [1811, 327, 68]);
    pressure.end(PERIOD, 0);
    assert_eq!(averages(&pressure, 2 * PERIOD)[0], 1483, "37,100 * 1677 / 2048 = 30,379 of 2048ths");
    assert_eq!(averages(&pressure, 2000 * PERIOD), [0; 3]);
}

#[test]
fn looking_changes_nothing_and_what_the_timeline_sees_never_gets_less() {
    let mut pressure = Pressure::of(2);
    for cpu in 0..2 {
        pressure.begin(0, cpu);
        pressure.run(0, cpu, cpu as TaskId);
    }
    pressure.stall(0, 0, Stall::Memory, true);
    let mut seen = Vec::new();
    for tenth in 1..=10 {
        let machine = pressure.domains[0].as_ref().unwrap();
        seen.push(machine.some(&mut pressure.shown, tenth * SECOND / 10)[0]);
        if tenth == 5 {
            pressure.end(SECOND / 2, 0);
        }
    }
    assert!(seen.is_sorted() && seen[4] == SECOND / 4 && seen[9] == SECOND / 4, "{seen:?}");
    assert_eq!(pressure.totals(SECOND, ROOT)[0], SECOND / 6);
}
