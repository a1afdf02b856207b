//! What a flush must know of cleared entries.

use base::units::*;

/// A run of entries that was cleared, under the lock of its space's tables: what its flush must know.
///
/// ```
/// # #[allow(dead_code)] mod kernel { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernel/mod.rs")); }
/// # use kernel::*; use pagefold_flush::*;
/// let of_one_page = Cleared::page(A, P, Pfn(3));
/// // Two pages of a larger folio, which a program has written.
/// let dirty = Cleared { pages: 2, head: Pfn(0), writable: true, dirty: true, ..of_one_page };
/// assert_eq!((dirty.pfn, dirty.pages), (Pfn(3), 2));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Cleared {
    /// The space.
    pub space: SpaceId,
    /// The first page.
    pub page: Vpn,
    /// Number of pages. One table maps all of them.
    pub pages: u32,
    /// Size of what each entry mapped.
    pub order: Order,
    /// The frame of the first page; the others follow.
    pub pfn: Pfn,
    /// The folio's head.
    pub head: Pfn,
    /// Whether user mode could use it. If not, the change that forbade it was flushed, or is being flushed.
    pub usable: bool,
    /// Whether a CPU could store through it.
    pub writable: bool,
    /// Whether one has. Hardware sets the dirty bit in the entry before it caches a translation that stores may use
    /// without another walk, so through an entry that was not dirty when it was cleared no CPU can store any more.
    pub dirty: bool,
    /// Whether no CPU can have used any of it. (Hardware sets the young bit before it caches a translation.)
    pub never_used: bool,
    /// Whether the content is dropped, so that the address will read something else.
    pub dropped: bool,
}

impl Cleared {
    /// A read-only entry of one page, which is a folio by itself and was read through the entry.
    pub fn page(space: SpaceId, page: Vpn, pfn: Pfn) -> Cleared {
        let (pages, order, head) = (1, Order::ZERO, pfn);
        let (usable, writable, dirty, never_used, dropped) = (true, false, false, false, false);
        Cleared { space, page, pages, order, pfn, head, usable, writable, dirty, never_used, dropped }
    }
}
