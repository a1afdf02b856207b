//! An address gets another meaning or protection, while CPUs hold translations of the page that reclaim unmapped.

use super::scene::*;
use program::{Advice, Map, Os, Prot, Remap, Role, Signal};

fn private(fd: u32) -> Map {
    view(fd, Prot::READ, false)
}

fn map_another_file(scene: &Scene, os: &mut dyn Os, role: Role) -> Result<(), Signal> {
    scene.among_readers_of(os, role, read_only, &mut |os, text, round| {
        scene.press_hard(os);
        let other = open(os, "other", LEN);
        os.mmap(view(if round % 2 == 0 { other } else { text }, Prot::READ, true)).unwrap();
        load_all(os, AT);
        os.close(other).unwrap();
    })
}

#[test]
fn scenario_01_reclaim_then_map_another_file_over_it() {
    defers_under_lazy_policies(map_another_file);
    assert_live(map_another_file);
}

fn map_memory(scene: &Scene, os: &mut dyn Os, role: Role) -> Result<(), Signal> {
    scene.among_readers_of(os, role, read_only, &mut |os, fd, _| {
        os.mmap(anonymous(Prot::RW)).unwrap();
        store_all(os, AT);
        os.compute(WHILE);
        os.mmap(read_only(fd)).unwrap();
    })
}

#[test]
fn scenario_01b_reclaim_then_map_memory_over_it() {
    defers_under_lazy_policies(map_memory);
}

/// Nothing is mapped any more, so munmap itself has nothing to flush: what reclaim owes must be paid.
fn unmap(scene: &Scene, os: &mut dyn Os, role: Role) -> Result<(), Signal> {
    scene.among_readers_of(os, role, read_only, &mut |os, fd, _| {
        os.munmap(AT, LEN).unwrap();
        os.compute(WHILE);
        os.mmap(read_only(fd)).unwrap();
    })
}

#[test]
fn scenario_04_reclaim_then_unmap() {
    defers_under_lazy_policies(unmap);
    assert_live(unmap);
}

fn move_away_and_back(scene: &Scene, os: &mut dyn Os, role: Role) -> Result<(), Signal> {
    scene.among_readers_of(os, role, read_only, &mut |os, _, _| {
        scene.press_hard(os);
        let away = AT + (1 << 30);
        for (from, to) in [(AT, away), (away, AT)] {
            let to = Some(to);
            let remap = Remap { addr: from, old_len: LEN, new_len: LEN, may_move: true, fixed: to };
            os.mremap(remap).unwrap();
            os.compute(WHILE);
        }
    })
}

#[test]
fn scenario_04b_reclaim_then_move_away() {
    defers_under_lazy_policies(move_away_and_back);
}

/// A private copy is dropped, so the mapping shows the file again.
fn forget(scene: &Scene, os: &mut dyn Os, role: Role) -> Result<(), Signal> {
    scene.among_readers_of(os, role, private, &mut |os, _, _| {
        scene.press_hard(os);
        os.mprotect(AT, LEN, Prot::RW).unwrap();
        store_all(os, AT);
        os.mprotect(AT, LEN, Prot::READ).unwrap();
        scene.press(os);
        os.madvise(AT, LEN, Advice::DontNeed).unwrap();
    })
}

#[test]
fn scenario_04c_reclaim_then_forget() {
    defers_under_lazy_policies(forget);
}

/// The mapping becomes writable and is written: other threads must see the new copy.
fn make_writable(scene: &Scene, os: &mut dyn Os, role: Role) -> Result<(), Signal> {
    scene.among_readers_of(os, role, private, &mut |os, fd, _| {
        os.mprotect(AT, LEN, Prot::RW).unwrap();
        store_all(os, AT);
        os.compute(WHILE);
        os.mmap(private(fd)).unwrap();
    })
}

#[test]
fn scenario_05_reclaim_then_make_writable_and_write() {
    defers_under_lazy_policies(make_writable);
}

fn forbid(scene: &Scene, os: &mut dyn Os, role: Role) -> Result<(), Signal> {
    scene.among_readers_of(os, role, read_only, &mut |os, _, _| {
        scene.press_hard(os);
        os.mprotect(AT, LEN, Prot::NONE).unwrap();
        os.compute(WHILE);
        os.mprotect(AT, LEN, Prot::READ).unwrap();
    })
}

#[test]
fn scenario_05b_reclaim_then_forbid() {
    defers_under_lazy_policies(forbid);
}

/// Threads store while pages are write-protected and reclaimed: an entry that is read-only in the table may still be
/// writable in a TLB, and its flush must not be deferred.
fn protect_and_reclaim(scene: &Scene, os: &mut dyn Os, role: Role) -> Result<(), Signal> {
    if role > 0 {
        scene.arrive();
        while !scene.is_done() {
            store_all(os, AT);
            load_all(os, AT);
            os.compute(20_000);
        }
        return Ok(());
    }
    os.mmap(anonymous(Prot::RW)).unwrap();
    let writers = threads(os, 3);
    scene.wait_for(os, 3);
    scene.rounds(os, &mut |os, round| {
        os.mprotect(AT, LEN, Prot::READ).unwrap();
        if round % 2 == 1 {
            os.compute(WHILE);
        }
        os.madvise(AT, LEN, Advice::PageOut).unwrap();
        scene.press(os);
        os.mprotect(AT, LEN, Prot::RW).unwrap();
    });
    join_all(scene, os, writers);
    Ok(())
}

#[test]
fn scenario_06_write_protect_then_reclaim() {
    must_reclaim(runs_under_all_policies(protect_and_reclaim));
}

/// Write-back write-protects shared pages, and reclaim unmaps them: each store must reach the file.
fn write_back_and_reclaim(scene: &Scene, os: &mut dyn Os, role: Role) -> Result<(), Signal> {
    if role > 0 {
        scene.arrive();
        while !scene.is_done() {
            store_all(os, AT);
            os.compute(20_000);
        }
        return Ok(());
    }
    let fd = open(os, "text", LEN);
    os.mmap(view(fd, Prot::RW, true)).unwrap();
    let writers = threads(os, 2);
    scene.wait_for(os, 2);
    scene.rounds(os, &mut |os, _| {
        os.fsync(fd).unwrap();
        os.madvise(AT, LEN, Advice::PageOut).unwrap();
        os.pread(fd, 0, LEN).unwrap();
    });
    join_all(scene, os, writers);
    Ok(())
}

#[test]
fn scenario_06b_write_back_then_reclaim() {
    must_reclaim(runs_under_all_policies(write_back_and_reclaim));
}
