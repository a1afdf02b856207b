//! Anonymous memory: copy on write, fork and swap, and the reuse of freed frames.

use super::scene::*;
use program::{Advice, Map, Os, Prot, Role, Signal};

/// Roles of processes.
const CHILD: Role = 100;
/// An area for page tables and memory.
const WIDE: u64 = 0x100_0000_0000;

/// Three threads read memory that was written once, swapped out and swapped in, so that its entries are read-only and
/// clean; `deed` follows every burst.
fn readers_of_swapped_memory(
    scene: &Scene,
    os: &mut dyn Os,
    role: Role,
    deed: &mut dyn FnMut(&mut dyn Os, u32),
) -> Result<(), Signal> {
    let mut prepare = |os: &mut dyn Os| {
        os.mmap(anonymous(Prot::RW)).unwrap();
        store_all(os, AT);
        os.madvise(AT, LEN, Advice::PageOut).unwrap();
    };
    scene.among_readers(os, role, &mut prepare, deed)
}

/// One thread's store makes an entry writable while others read the previous page.
fn swap_in_for_write(scene: &Scene, os: &mut dyn Os, role: Role) -> Result<(), Signal> {
    readers_of_swapped_memory(scene, os, role, &mut |os, _| {
        scene.press_hard(os);
        store_all(os, AT);
        os.compute(WHILE);
        // Clean copies in swap again, which the others read back.
        os.madvise(AT, LEN, Advice::PageOut).unwrap();
        load_all(os, AT);
    })
}

#[test]
fn scenario_25_swap_out_then_swap_in_for_write() {
    reclaims_under_all_policies(swap_in_for_write);
}

fn fork_between(scene: &Scene, os: &mut dyn Os, role: Role) -> Result<(), Signal> {
    if role == CHILD {
        load_all(os, AT);
        os.compute(WHILE);
        store_all(os, AT);
        return Ok(());
    }
    readers_of_swapped_memory(scene, os, role, &mut |os, round| {
        let child = os.fork(CHILD).unwrap();
        os.madvise(AT, LEN, Advice::PageOut).unwrap();
        os.compute(WHILE * (round as u64 % 3));
        store_all(os, AT);
        os.compute(WHILE);
        os.join(child);
    })
}

#[test]
fn scenario_25b_fork_between_swap_out_and_write() {
    reclaims_under_all_policies(fork_between);
    assert_live(fork_between);
}

/// Pages freed by MADV_FREE may be dropped without a write: they read as the old content or zero, and after a store as
/// that.
fn free_lazily(scene: &Scene, os: &mut dyn Os, role: Role) -> Result<(), Signal> {
    readers_of_swapped_memory(scene, os, role, &mut |os, _| {
        store_all(os, AT);
        os.madvise(AT, LEN, Advice::Free).unwrap();
        os.compute(WHILE);
        scene.press(os);
        store_all(os, AT);
    })
}

#[test]
fn scenario_25c_madv_free_then_write() {
    reclaims_under_all_policies(free_lazily);
}

/// Every thread stores now and then to pages that all read: the zero page and private pages of a file become copies.
fn copy_while_others_read(scene: &Scene, os: &mut dyn Os, role: Role) -> Result<(), Signal> {
    let (zeroes, text) = (AT, AT + 2 * LEN);
    if role > 0 {
        let mut page = role as u64;
        scene.arrive();
        while !scene.is_done() {
            load_all(os, zeroes);
            load_all(os, text);
            page = (page * 5 + 1) % PAGES;
            let _ = os.store(zeroes + page * PAGE);
            let _ = os.store(text + page * PAGE);
            os.compute(20_000);
        }
        return Ok(());
    }
    let fd = open(os, "text", LEN);
    let map = |os: &mut dyn Os| {
        os.mmap(anonymous(Prot::RW)).unwrap();
        os.mmap(Map { addr: Some(text), ..view(fd, Prot::RW, false) }).unwrap();
    };
    map(os);
    let tasks = threads(os, 3);
    scene.wait_for(os, 3);
    scene.rounds(os, &mut |os, _| {
        scene.press_hard(os);
        map(os);
    });
    join_all(scene, os, tasks);
    Ok(())
}

#[test]
fn scenario_17_a_fault_makes_a_page_writable_while_others_read() {
    reclaims_under_all_policies(copy_while_others_read);
    assert_live(copy_while_others_read);
}

/// Tasks read a file whose pages reclaim frees, and the frames are used again.
fn become_memory(scene: &Scene, os: &mut dyn Os, role: Role) -> Result<(), Signal> {
    scene.among_readers_of(os, role, read_only, &mut |os, _, _| {
        let at = os.mmap(Map::anonymous(2 << 20)).unwrap();
        store_pages(os, at, 512);
        os.munmap(at, 2 << 20).unwrap();
    })
}

#[test]
fn scenario_08_freed_frames_become_memory() {
    defers_under_lazy_policies(become_memory);
    assert_live(become_memory);
}

/// A page table for every page: tables are zeroed, and hardware walks them.
fn become_tables(scene: &Scene, os: &mut dyn Os, role: Role) -> Result<(), Signal> {
    scene.among_readers_of(os, role, read_only, &mut |os, _, _| {
        for i in 0..128 {
            let at = WIDE + i * (2 << 20);
            os.mmap(Map { addr: Some(at), ..Map::anonymous(PAGE) }).unwrap();
            let _ = os.store(at);
        }
        os.munmap(WIDE, 128 * (2 << 20)).unwrap();
    })
}

#[test]
fn scenario_08b_freed_frames_become_page_tables() {
    defers_under_lazy_policies(become_tables);
}

fn become_cache(scene: &Scene, os: &mut dyn Os, role: Role) -> Result<(), Signal> {
    scene.among_readers_of(os, role, read_only, &mut |os, _, _| {
        let other = open(os, "other", 1 << 20);
        os.pwrite(other, 0, 1 << 20).unwrap();
        os.ftruncate(other, 0).unwrap();
        os.close(other).unwrap();
    })
}

#[test]
fn scenario_08c_freed_frames_become_pages_of_files() {
    defers_under_lazy_policies(become_cache);
}
