//! The content of a file changes while CPUs hold translations of pages that reclaim has unmapped.

use super::scene::*;
use program::{FileAdvice, Os, Prot, Role, Signal};
use std::cell::Cell;

/// Roles of processes that change the file.
const WRITER: Role = 100;

/// Map the file for reading, let three threads read it, and do `deed` to it after every burst of pressure.
fn readers_and(
    scene: &Scene,
    os: &mut dyn Os,
    role: Role,
    deed: &mut dyn FnMut(&mut dyn Os, u32, u32),
) -> Result<(), Signal> {
    let fd = Cell::new(0);
    let mut prepare = |os: &mut dyn Os| {
        fd.set(open(os, "text", LEN));
        os.mmap(view(fd.get(), Prot::READ, true)).unwrap();
    };
    scene.among_readers(os, role, &mut prepare, &mut |os, round| deed(os, fd.get(), round))
}

/// The same, but another process does the deed on request.
fn readers_and_a_writer(scene: &Scene, os: &mut dyn Os, role: Role) -> Result<(), Signal> {
    if role > 0 {
        return scene.read_on(os, AT, PAGES);
    }
    let writer = os.fork(WRITER).unwrap();
    let fd = open(os, "text", LEN);
    os.mmap(view(fd, Prot::READ, true)).unwrap();
    let mut tasks = threads(os, 3);
    tasks.push(writer);
    scene.wait_for(os, 4);
    scene.rounds(os, &mut |os, _| {
        scene.ask(os);
        os.compute(WHILE);
        // Reclaim skips dirty pages of files.
        os.fsync(fd).unwrap();
        scene.press_hard(os);
    });
    join_all(scene, os, tasks);
    Ok(())
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
    readers_and(scene, os, role, &mut |os, fd, _| {
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
    readers_and(scene, os, role, &mut |os, fd, round| {
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
    readers_and(scene, os, role, &mut |os, fd, _| {
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
    if role > 0 {
        return scene.read_on(os, AT, PAGES);
    }
    let fd = open(os, "text", LEN);
    os.mmap(view(fd, Prot::RW, false)).unwrap();
    let readers = threads(os, 3);
    scene.wait_for(os, 3);
    scene.rounds(os, &mut |os, round| {
        os.pwrite(fd, 0, LEN).unwrap();
        os.compute(WHILE);
        let _ = os.store(AT + round as u64 * PAGE);
    });
    join_all(scene, os, readers);
    Ok(())
}

#[test]
fn scenario_22_reclaim_then_write_under_a_private_mapping() {
    defers_under_lazy_policies(write_behind_a_private_mapping);
}

/// Dirty shared pages are cleaned, and clean ones reclaimed: settling the former must not count as a flush for the latter.
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
    os.mmap(view(fd, Prot::READ, true)).unwrap();
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
