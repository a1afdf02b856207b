//! What the benchmarks share: a machine on which nothing but the memory manager takes time.
#![forbid(unsafe_code)]

use mm::machine::*;
use mm::primitive::{AtomicU64, Ordering::Relaxed};
use mm::units::*;
use std::sync::OnceLock;

/// One CPU, one node, one zone. Only page tables have content, and no other method does anything.
pub struct IdleMachine {
    memory: [MemoryRange; 1],
    tables: Vec<OnceLock<Box<TablePage>>>,
}

impl IdleMachine {
    /// A machine with `frames` frames of ordinary memory.
    pub fn new(frames: u32) -> IdleMachine {
        let range = MemoryRange { node: NodeId(0), kind: ZoneKind::Normal, start: Pfn(0), frames };
        IdleMachine { memory: [range], tables: (0..frames).map(|_| OnceLock::new()).collect() }
    }
}

impl Machine for IdleMachine {
    fn cpus(&self) -> usize {
        1
    }
    #[inline]
    fn node_of(&self, _cpu: CpuId) -> NodeId {
        NodeId(0)
    }
    fn memory(&self) -> &[MemoryRange] {
        &self.memory
    }
    fn distance(&self, _from: NodeId, _to: NodeId) -> u32 {
        10
    }
    #[inline]
    fn cpu(&self) -> CpuId {
        CpuId(0)
    }
    fn now(&self) -> Nanos {
        0
    }
    #[inline]
    fn table(&self, pfn: Pfn) -> &TablePage {
        self.tables[pfn.index()].get_or_init(|| Box::new(std::array::from_fn(|_| AtomicU64::new(0))))
    }
    fn zero(&self, pfn: Pfn, _pages: u32) {
        if let Some(table) = self.tables[pfn.index()].get() {
            table.iter().for_each(|entry| entry.store(0, Relaxed));
        }
    }
    fn copy(&self, _to: Pfn, _from: Pfn, _pages: u32) {}
    fn has_hw_pte_young(&self) -> bool {
        true
    }
    fn has_hw_nonleaf_young(&self) -> bool {
        true
    }
    fn asids(&self) -> usize {
        0
    }
    fn load_root(&self, _root: Pfn, _asid: Asid, _keep: bool) {}
    fn flush(&self, _what: Flush) {}
    fn shootdown(&self, _targets: &CpuSet, _remote: &RemoteCall<'_>, local: &mut dyn FnMut()) {
        local();
    }
    fn submit(&self, _io: Io) {}
    fn ticket(&self, key: WaitKey) -> Ticket {
        Ticket { key, mark: 0 }
    }
    fn wait(&self, _ticket: Ticket, _deadline: Option<Nanos>) -> bool {
        true
    }
    fn wake(&self, _key: WaitKey) {}
    fn resched(&self) {}
    fn stopping(&self) -> bool {
        true
    }
    fn listens(&self) -> bool {
        false
    }
    #[inline]
    fn charge(&self, _work: Work, _count: u64) {}
}
