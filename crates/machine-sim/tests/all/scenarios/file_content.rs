//! The content of a file changes while CPUs hold translations of pages that reclaim has unmapped.

use super::scene::*;
use program::{FileAdvice, Os, Prot, Role, Signal};

/// Roles of processes that change the file.
const WRITER: Role = 100;

/// Three threads read the file, and another process does the deed to it on request.
fn readers_and_a_writer(scene: &Scene, os: &mut dyn Os, role: Role) -> Result<(), Signal> {
    if role > 0 {
        return scene.read_on(os, AT, PAGES);
    }
    scene.beside(os, WRITER..WRITER + 1, 3, &mut |os, fd, _| {
        scene.ask(os);
        os.compute(WHILE);
        // Reclaim skips dirty pages of files.
        os.fsync(fd).unwrap();
        scene.press_hard(os);
    })
}

fn write_by_another_process(scene: &Scene, os: &mut dyn Os, role: Role) -> Result<(), Signal> {
    if role == WRITER {
        let fd = open(os, "text", LEN);
        scene.serve(os, &mut |os| assert_eq!(os.pwrite(fd, 0, LEN), Ok(LEN)));
        return Ok(());
    }
    readers_and_a_writer(scene, os, role)
}

#[test]
fn scenario_02_reclaim_then_write_by_another_process() {
    defers_under_lazy_policies(write_by_another_process);
    assert_live(write_by_another_process);
}

/// Bytes in the middle of a page: the page is read again first, into another frame.
fn write_a_part(scene: &Scene, os: &mut dyn Os, role: Role) -> Result<(), Signal> {
    scene.among_readers_of(os, role, read_only, &mut |os, fd, _| {
        for page in 0..PAGES {
            os.pwrite(fd, page * PAGE + 100, 200).unwrap();
        }
    })
}

#[test]
fn scenario_02b_reclaim_then_write_of_a_part() {
    defers_under_lazy_policies(write_a_part);
}

fn store_by_a_third_process(scene: &Scene, os: &mut dyn Os, role: Role) -> Result<(), Signal> {
    if role == WRITER {
        let fd = open(os, "text", LEN);
        scene.serve(os, &mut |os| {
            os.mmap(view(fd, Prot::RW, true)).unwrap();
            store_all(os, AT);
            os.munmap(AT, LEN).unwrap();
        });
        return Ok(());
    }
    readers_and_a_writer(scene, os, role)
}

#[test]
fn scenario_03_reclaim_then_store_through_a_shared_mapping_of_another_process() {
    defers_under_lazy_policies(store_by_a_third_process);
}

/// The writer maps the file before the pages are reclaimed, so only its fault shows that content will change.
fn store_through_an_old_mapping(scene: &Scene, os: &mut dyn Os, role: Role) -> Result<(), Signal> {
    if role == WRITER {
        let fd = open(os, "text", LEN);
        os.mmap(view(fd, Prot::RW, true)).unwrap();
        scene.serve(os, &mut |os| store_all(os, AT));
        return Ok(());
    }
    readers_and_a_writer(scene, os, role)
}

#[test]
fn scenario_03b_reclaim_then_store_through_an_older_shared_mapping() {
    defers_under_lazy_policies(store_through_an_old_mapping);
    assert_live(store_through_an_old_mapping);
}

/// The file is truncated to nothing and extended again: it reads as zeroes, or SIGBUS in between.
fn truncate_and_extend(scene: &Scene, os: &mut dyn Os, role: Role) -> Result<(), Signal> {
    scene.among_readers_of(os, role, read_only, &mut |os, fd, round| {
        os.ftruncate(fd, if round % 2 == 0 { 0 } else { LEN / 2 }).unwrap();
        os.compute(WHILE);
        os.ftruncate(fd, LEN).unwrap();
        os.compute(WHILE);
        os.pwrite(fd, 0, LEN).unwrap();
    })
}

#[test]
fn scenario_21_reclaim_then_truncate_and_extend() {
    defers_under_lazy_policies(truncate_and_extend);
}

/// The page is dropped from the cache, unless reclaim has done so, and then written: it comes back in another frame.
fn invalidate_and_write(scene: &Scene, os: &mut dyn Os, role: Role) -> Result<(), Signal> {
    scene.among_readers_of(os, role, read_only, &mut |os, fd, _| {
        os.fadvise(fd, 0, LEN, FileAdvice::DontNeed).unwrap();
        os.pwrite(fd, 0, LEN).unwrap();
        os.fsync(fd).unwrap();
        os.fadvise(fd, 0, LEN, FileAdvice::DontNeed).unwrap();
    })
}

#[test]
fn scenario_21b_reclaim_then_invalidate_and_write() {
    defers_under_lazy_policies(invalidate_and_write);
    assert_live(invalidate_and_write);
}

/// Private mappings follow the file until they are stored to.
fn write_behind_a_private_mapping(scene: &Scene, os: &mut dyn Os, role: Role) -> Result<(), Signal> {
    scene.among_readers_of(os, role, |fd| view(fd, Prot::RW, false), &mut |os, fd, round| {
        os.pwrite(fd, 0, LEN).unwrap();
        os.compute(WHILE);
        let _ = os.store(AT + round as u64 * PAGE);
    })
}

#[test]
fn scenario_22_reclaim_then_write_under_a_private_mapping() {
    defers_under_lazy_policies(write_behind_a_private_mapping);
}

/// Dirty shared pages are cleaned, and clean ones reclaimed: settling those must not count as a flush for these.
fn clean_beside_dirty(scene: &Scene, os: &mut dyn Os, role: Role) -> Result<(), Signal> {
    if role == WRITER {
        // Other pages, which are always dirty again when their write-back ends.
        let fd = open(os, "dirty", LEN);
        os.mmap(view(fd, Prot::RW, true)).unwrap();
        scene.arrive();
        while !scene.is_done() {
            store_all(os, AT);
            os.fsync(fd).unwrap();
        }
        return Ok(());
    }
    if role > 0 {
        return scene.read_on(os, AT, PAGES);
    }
    let fd = open(os, "text", LEN);
    os.mmap(read_only(fd)).unwrap();
    let mut tasks = threads(os, 2);
    tasks.push(os.fork(WRITER).unwrap());
    scene.wait_for(os, 3);
    scene.rounds(os, &mut |os, _| {
        os.pwrite(fd, 0, LEN).unwrap();
        os.fsync(fd).unwrap();
    });
    join_all(scene, os, tasks);
    Ok(())
}

#[test]
fn scenario_14_pages_are_cleaned_while_others_are_reclaimed() {
    defers_under_lazy_policies(clean_beside_dirty);
}
