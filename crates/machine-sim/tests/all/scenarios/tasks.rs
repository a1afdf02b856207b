//! Tasks and CPUs: idle CPUs, CPUs that run other processes, spaces that end, concurrent payers, and exhausted memory.

use super::scene::*;
use machine_sim::Outcome;
use mm::stat::Stat;
use program::{Map, Os, Prot, Role, Signal};

/// Roles of processes.
const CHILD: Role = 100;

/// More tasks than CPUs, of several processes, so that CPUs switch between them.
fn another_process_on_the_cpu(scene: &Scene, os: &mut dyn Os, role: Role) -> Result<(), Signal> {
    if role >= CHILD {
        os.mmap(anonymous(Prot::RW)).unwrap();
        scene.arrive();
        while !scene.is_done() {
            store_all(os, AT);
            os.compute(20_000);
        }
        return Ok(());
    }
    if role > 0 {
        return scene.read_on(os, AT, PAGES);
    }
    scene.beside(os, CHILD..CHILD + 3, 4, &mut |os, fd, _| {
        os.pwrite(fd, 0, LEN).unwrap();
        os.compute(WHILE);
        os.fsync(fd).unwrap();
        scene.press_hard(os);
    })
}

#[test]
fn scenario_15_a_cpu_runs_another_process() {
    must_reclaim(runs_under_all_policies(another_process_on_the_cpu));
}

/// Idle CPUs get no flush requests, and must catch up when they run again.
fn idle_cpus_come_back(scene: &Scene, os: &mut dyn Os, role: Role) -> Result<(), Signal> {
    if role > 0 {
        scene.arrive();
        while !scene.is_done() {
            load_all(os, AT);
            os.sleep(30_000);
        }
        return Ok(());
    }
    scene.beside(os, 0..0, 4, &mut |os, fd, round| match round % 3 {
        0 => assert_eq!(os.pwrite(fd, 0, LEN), Ok(LEN)),
        1 => assert_eq!(os.mmap(read_only(fd)), Ok(AT)),
        _ => os.fsync(fd).unwrap(),
    })
}

#[test]
fn scenario_16_idle_cpus_catch_up() {
    reclaims_under_all_policies(idle_cpus_come_back);
}

/// Processes begin and end on CPUs that others have just left; the numbers of their spaces are reused.
fn spaces_end(scene: &Scene, os: &mut dyn Os, role: Role) -> Result<(), Signal> {
    let short_lives = CHILD + 10;
    if role == CHILD {
        scene.serve(os, &mut |os| {
            let tasks: Vec<_> = (0..3).map(|i| os.fork(short_lives + i).unwrap()).collect();
            tasks.into_iter().for_each(|task| os.join(task));
        });
        return Ok(());
    }
    if role >= short_lives {
        let fd = open(os, "text", LEN);
        os.mmap(read_only(fd)).unwrap();
        load_all(os, AT);
        os.mmap(anonymous(Prot::RW)).unwrap();
        store_all(os, AT);
        return Ok(());
    }
    if role > 0 {
        return scene.read_on(os, AT, PAGES);
    }
    scene.beside(os, CHILD..CHILD + 1, 2, &mut |os, fd, _| {
        scene.ask(os);
        os.pwrite(fd, 0, LEN).unwrap();
        os.fsync(fd).unwrap();
        scene.press_hard(os);
    })
}

#[test]
fn scenario_26_spaces_end_and_their_numbers_are_reused() {
    defers_under_lazy_policies(spaces_end);
    assert_live(spaces_end);
}

/// Several processes allocate at once, so several may have to pay for the same pages.
fn many_payers(scene: &Scene, os: &mut dyn Os, role: Role) -> Result<(), Signal> {
    if role >= CHILD {
        let at = os.mmap(Map::anonymous(1 << 20)).unwrap();
        scene.arrive();
        while !scene.is_done() {
            store_pages(os, at, 256);
            os.madvise(at, 1 << 20, program::Advice::DontNeed).unwrap();
            os.compute(1000);
        }
        return Ok(());
    }
    if role > 0 {
        return scene.read_on(os, AT, PAGES);
    }
    scene.beside(os, CHILD..CHILD + 2, 3, &mut |_, _, _| {})
}

#[test]
fn scenario_18_several_processes_allocate_at_once() {
    must_reclaim(runs_under_all_policies(many_payers));
}

/// Four times the usual pressure without other events: pages are added during a payment, and epochs are reused.
fn long_pressure(scene: &Scene, os: &mut dyn Os, role: Role) -> Result<(), Signal> {
    scene.among_readers_of(os, role, read_only, &mut |os, fd, round| {
        scene.press_hard(os);
        if round % 2 == 1 {
            os.pwrite(fd, 0, LEN).unwrap();
        }
    })
}

#[test]
fn scenario_19_pages_are_added_while_others_are_paid_for() {
    defers_under_lazy_policies(long_pressure);
}

/// Nearly all memory is pages of a file that several CPUs read: all free pages owe a flush.
fn nothing_but_owed_pages(scene: &Scene, os: &mut dyn Os, role: Role) -> Result<(), Signal> {
    const LARGE: u64 = 6 << 20;
    if role > 0 {
        return scene.read_on(os, AT, LARGE / PAGE);
    }
    let fd = open(os, "large", LARGE);
    os.mmap(Map { len: LARGE, ..read_only(fd) }).unwrap();
    let tasks = threads(os, 3);
    scene.wait_for(os, 3);
    for _ in 0..2 {
        scene.press(os);
        let at = os.mmap(Map::anonymous(1 << 20)).unwrap();
        store_pages(os, at, 256);
        os.munmap(at, 1 << 20).unwrap();
    }
    join_all(scene, os, tasks);
    Ok(())
}

#[test]
fn scenario_29_all_free_pages_owe_a_flush() {
    must_reclaim(runs_under_all_policies(nothing_but_owed_pages));
}

/// More is written than memory and swap can hold: the OOM killer runs, and the other processes continue.
fn out_of_memory(scene: &Scene, os: &mut dyn Os, role: Role) -> Result<(), Signal> {
    if role == CHILD {
        let at = os.mmap(Map::anonymous(96 << 20)).unwrap();
        return (0..(96 << 20) / PAGE).try_for_each(|page| os.store(at + page * PAGE));
    }
    if role > 0 {
        return scene.read_on(os, AT, PAGES);
    }
    let fd = open(os, "text", LEN);
    os.mmap(read_only(fd)).unwrap();
    let tasks = threads(os, 2);
    scene.wait_for(os, 2);
    let child = os.fork(CHILD).unwrap();
    os.join(child);
    os.pwrite(fd, 0, LEN).unwrap();
    os.compute(WHILE);
    join_all(scene, os, tasks);
    Ok(())
}

#[test]
fn scenario_29b_out_of_memory() {
    let killed = |outcome: &Outcome| outcome.stat(Stat::OomKill) > 0 && !outcome.signals.is_empty();
    assert!(runs_under_all_policies(out_of_memory).iter().all(killed));
}
