//! Missing and late flushes that were found in other kernels, each written against the ledger as its authors wrote it.
//!
//! `faults` has those that do not compile, beside them the compiler's output, which `TRYBUILD=overwrite` renews for
//! another version. Those here panic the first time that they run, because a linear value is dropped, or show a
//! program the wrong content on the TLB of the specification. docs/flushes.md has the table of all. Nothing here is
//! another project's text: each is the same mistake, in this kernel's words.

#[allow(dead_code, reason = "each test uses a part")]
mod kernel;

use kernel::*;
use pagefold_flush::*;

const DEFER: Shape = Shape::Defer { at_ticks: false };
const COLLECT: Shape = Shape::Collect { listed: false };

/// Not in the one-threaded form, which has the same interface.
#[cfg(not(feature = "one-thread"))]
#[test]
fn faults_that_do_not_compile() {
    let tests = trybuild::TestCases::new();
    tests.pass("tests/faults/corrected.rs");
    for fault in ["asterinas_970", "litebox_848", "nanvix_2244", "quark_639", "tgoskits_920"] {
        tests.compile_fail(format!("tests/faults/{fault}.rs"));
    }
}

/// CPU 1 reads the first page, which must show `expected` or fault.
fn reads(kernel: &Kernel, expected: u64) {
    kernel.on(1);
    let read = kernel.read(P);
    assert!(read.is_none_or(|read| read == expected), "a CPU reads {read:?}, and the page shows {expected}");
}

// --- linear values, at the first run ---

/// microsoft/litebox#671 (open): the unmapping CPU invalidates its own TLB, and there is no request to others.
#[test]
#[should_panic(expected = "emptied entries must be given to a gather or a batch, or flushed")]
fn litebox_671_a_flush_of_the_own_cpu_alone() {
    let (kernel, _ledger) = Kernel::that_was_read(COLLECT);
    let _emptied = kernel.clear(A, P);
    kernel.flush(Flush::Pages { start: P, count: 1, stride: Order::ZERO });
}

/// microsoft/litebox#769: pages are mapped at other addresses, and translations of the old ones are left.
#[test]
#[should_panic(expected = "emptied entries must be given to a gather or a batch, or flushed")]
fn litebox_769_a_move_that_leaves_the_old_translation() {
    let (kernel, _ledger) = Kernel::that_was_read(COLLECT);
    let emptied = kernel.clear(A, P);
    kernel.map(A, Vpn(7), emptied.what().pfn, false);
}

/// asterinas/asterinas#862: a write fault puts a copy in the place of a page that is shared, without a flush: another
/// thread still reads the original.
#[test]
#[should_panic(expected = "emptied entries must be given to a gather or a batch, or flushed")]
fn asterinas_862_a_copy_on_write_without_a_flush() {
    let (kernel, ledger) = Kernel::that_was_read(COLLECT);
    let copy = kernel.allocate(&ledger);
    let emptied = kernel.clear(A, P);
    kernel.fill(copy, kernel.content(emptied.what().pfn));
    kernel.map(A, P, copy, true);
}

/// asterinas/asterinas#2849 (open): the destructor of an area of the kernel's addresses unmaps it, drops what was
/// mapped, and gives the addresses back.
#[test]
#[should_panic(expected = "emptied entries must be given to a gather or a batch, or flushed")]
fn asterinas_2849_a_destructor_that_unmaps() {
    struct Area<'a>(&'a Kernel, std::ops::Range<u64>);
    impl Drop for Area<'_> {
        fn drop(&mut self) {
            for page in self.1.clone() {
                drop(self.0.clear(A, Vpn(page)));
            }
        }
    }
    let (kernel, _ledger) = Kernel::that_was_read(COLLECT);
    drop(Area(&kernel, 0..2));
}

/// coconut-svsm/svsm#1188: a page that was shared with the host becomes private again and is freed, while CPUs have it
/// cached as shared. (An entry whose attributes change is one that loses rights.)
#[test]
#[should_panic(expected = "entries that lost rights must be given to a gather, or flushed")]
fn svsm_1188_a_page_is_freed_with_a_changed_attribute() {
    let (kernel, ledger) = Kernel::that_was_read(COLLECT);
    let made_private = kernel.forbid_stores(A, P);
    kernel.free_frame(&ledger, made_private.what().pfn);
}

/// gem5/gem5#409 (a simulator in C++): munmap changes the emulated process's page table, and the virtual CPU's TLB goes
/// on translating.
#[test]
#[should_panic(expected = "emptied entries must be given to a gather or a batch, or flushed")]
fn gem5_409_munmap_without_a_flush() {
    let (kernel, _ledger) = Kernel::that_was_read(COLLECT);
    let _unmapped: Vec<Emptied> = [P, Q].into_iter().map(|page| kernel.clear(A, page)).collect();
}

// --- the specification of a TLB, at the first run ---

/// litebox#671 from below: a host whose `send` reaches no other CPU. The ledger cannot know.
#[test]
#[should_panic(expected = "a CPU reads Some(7), and the page shows 100")]
fn litebox_671_a_host_that_asks_no_cpu() {
    reuse_of_a_frame(Some(Deaf::Fully));
}

#[test]
fn litebox_671_corrected() {
    reuse_of_a_frame(None);
}

fn reuse_of_a_frame(deaf: Option<Deaf>) {
    let (mut kernel, ledger) = Kernel::that_was_read(COLLECT);
    kernel.deaf = deaf;
    let refs = ledger.flush_emptied(&kernel, kernel.clear(A, P));
    kernel.free(&ledger, refs);
    let frame = kernel.allocate(&ledger);
    kernel.fill(frame, 7);
    reads(&kernel, 100);
}

/// asterinas/asterinas#1952: the stack of a task that ended is unmapped, a new task's stack gets its addresses, and a
/// CPU that ran the first finds the first one's content. Here: the flush was left for later, which is allowed, and the
/// address is used again without paying.
#[test]
#[should_panic(expected = "a CPU reads Some(100), and the page shows 7")]
fn asterinas_1952_an_address_is_used_again() {
    reuse_of_an_address(|_, _| ());
}

#[test]
fn asterinas_1952_corrected() {
    reuse_of_an_address(|kernel, ledger| kernel.settle(ledger, A));
}

fn reuse_of_an_address(pay: impl Fn(&Kernel, &Tlb)) {
    let (kernel, ledger) = Kernel::that_was_read(DEFER);
    let mut batch = UnmapBatch::new(&kernel);
    let refs = batch.take(&kernel, &ledger, kernel.clear(A, P));
    batch.settle(&kernel, &ledger);
    let stack = Pfn(FRAMES - 1);
    kernel.fill(stack, 7);
    pay(&kernel, &ledger);
    kernel.map(A, P, stack, true);
    kernel.free(&ledger, refs);
    reads(&kernel, 7);
}

/// nanvix/nanvix#2244: the entry of a table is cleared, the table's frame is freed, and a CPU walks through it. The
/// ledger learns of tables by [`Gather::table`] alone.
#[test]
#[should_panic(expected = "a CPU walks a table that was freed")]
fn nanvix_2244_a_table_is_freed_without_a_flush() {
    freeing_a_table(|kernel, _| kernel.free_table(kernel.unlink_table(A)));
}

#[test]
fn nanvix_2244_corrected() {
    freeing_a_table(|kernel, ledger| {
        let free = |finished: Finished<'_>| {
            finished.tables.iter().for_each(|&table| kernel.free_table(table));
        };
        ledger.gather(kernel, A, |gather| gather.table(kernel.unlink_table(A)), free);
    });
}

/// CPU 1 has read the first page and reads the third, through the table that it has cached.
fn freeing_a_table(free: impl Fn(&Kernel, &Tlb)) {
    let (kernel, ledger) = Kernel::that_was_read(COLLECT);
    free(&kernel, &ledger);
    kernel.on(1);
    assert_eq!(kernel.read(Vpn(2)), None);
}

// --- what is no fault here, or not the ledger's ---

/// Quark#639 with a batch: a frame that is freed before its batch has flushed takes the debt along, and its next user
/// pays.
#[test]
fn quark_639_through_a_batch_is_right() {
    let (kernel, ledger) = Kernel::that_was_read(COLLECT);
    let mut batch = UnmapBatch::new(&kernel);
    let refs = batch.take(&kernel, &ledger, kernel.clear(A, P));
    kernel.free(&ledger, refs);
    let frame = kernel.allocate(&ledger);
    kernel.fill(frame, 7);
    reads(&kernel, 100);
    kernel.on(0);
    batch.settle(&kernel, &ledger);
}

/// tgoskits#920 and #1007: a page leaves the cache although an entry still maps it, because nobody looked for that
/// entry, or because the lock of its tables could not be taken. The ledger knows nothing of entries that nobody
/// clears. But each holds a reference, and references come from cleared entries only: the frame cannot be freed.
#[test]
fn tgoskits_1007_an_entry_that_is_left_keeps_its_frame() {
    let (kernel, ledger) = Kernel::that_was_read(COLLECT);
    let shared = kernel.entry(A, P).expect("the page must be mapped").frame;
    kernel.map(B, P, shared, false);
    let mut references = 2;
    let (frame, dropped) = ledger.flush_emptied(&kernel, kernel.clear(A, P)).release(&kernel);
    references -= dropped;
    assert_eq!((frame, references), (shared, 1), "the entry of the other space has one");
}
