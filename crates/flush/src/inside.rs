//! The state of a [`Tlb`], for the tests and models of the memory manager. No part of the interface.

use crate::debt::{Domain, Generation};
use crate::host::{Cause, Host};
use crate::range::Range;
use crate::tlb::ledger::ZoneLedger;
use crate::tlb::{Context, FlushRequest, Initiator, Tlb};
use base::arena::Arena;
use base::cpus::CpuSet;
use base::primitive::Ordering::Relaxed;
use base::units::*;
use std_alloc::vec::Vec;

pub use crate::cpu::CpuTlb;
pub use crate::debt::{Debt, Sum};

/// Access to it.
pub trait Inside {
    /// Spaces.
    fn contexts(&self) -> &Arena<Context>;
    /// CPUs.
    fn cpus(&self) -> &[CpuTlb];
    /// Zones.
    fn zones(&self) -> &[ZoneLedger];
    /// Files.
    fn files(&self) -> &Arena<Domain>;
    /// Draw a generation.
    fn draw(&self) -> Generation;
    /// The newest generation.
    fn newest(&self) -> Generation;
    /// What a CPU is done with.
    fn done(&self, cpu: CpuId) -> Generation;
    /// CPUs of a debt that still owe.
    fn owing(&self, debt: &Debt) -> CpuSet;
    /// Leave a debt.
    fn owe<H: Host>(&self, host: &H, context: &Context, file: Option<FileId>, debt: &Debt);
    /// Leave a debt with a zone.
    fn owe_frame<H: Host>(&self, host: &H, zone: ZoneId, debt: &Debt) -> Generation;
    /// Have CPUs catch up.
    fn pay<H: Host>(&self, host: &H, owing: CpuSet) -> bool;
    /// Pay a debt.
    fn pay_sum<H: Host>(&self, host: &H, debt: &Debt, since: Nanos, cause: Cause);
    /// On a CPU, a request comes to catch up with a generation of a space.
    fn catch_up_with<H: Host>(&self, host: &H, cpu: CpuId, request: (SpaceId, Range, u64));
    /// A CPU unloads its space.
    fn leave<H: Host>(&self, host: &H, cpu: CpuId);
    /// A CPU leaves the set of its space's CPUs.
    fn leave_context<H: Host>(&self, host: &H, cpu: CpuId);
    /// This CPU drops translations of the loaded space.
    fn drop_pages<H: Host>(&self, host: &H, start: Vpn, count: u32, stride: Order);
    /// Whether a CPU still owes for cleared entries of a space.
    fn space_owes(&self, space: SpaceId, cpu: CpuId) -> bool;
    /// All that decides what the ledger does next, with generations counted back from the newest: equal ones go on
    /// equally.
    fn state(&self) -> Vec<u64>;
}

impl Inside for Tlb {
    fn contexts(&self) -> &Arena<Context> {
        &self.contexts
    }

    fn cpus(&self) -> &[CpuTlb] {
        &self.cpus
    }

    fn zones(&self) -> &[ZoneLedger] {
        &self.zones
    }

    fn files(&self) -> &Arena<Domain> {
        &self.files
    }

    fn draw(&self) -> Generation {
        Tlb::draw(self)
    }

    fn newest(&self) -> Generation {
        Tlb::newest(self)
    }

    fn done(&self, cpu: CpuId) -> Generation {
        Tlb::done(self, cpu)
    }

    fn owing(&self, debt: &Debt) -> CpuSet {
        Tlb::owing(self, debt)
    }

    fn owe<H: Host>(&self, host: &H, context: &Context, file: Option<FileId>, debt: &Debt) {
        Tlb::owe(self, host, context, file, debt);
    }

    fn owe_frame<H: Host>(&self, host: &H, zone: ZoneId, debt: &Debt) -> Generation {
        Tlb::owe_frame(self, host, zone, debt)
    }

    fn pay<H: Host>(&self, host: &H, owing: CpuSet) -> bool {
        Tlb::pay(self, host, owing)
    }

    fn pay_sum<H: Host>(&self, host: &H, debt: &Debt, since: Nanos, cause: Cause) {
        Tlb::pay_sum(self, host, debt, since, cause);
    }

    fn catch_up_with<H: Host>(&self, host: &H, cpu: CpuId, request: (SpaceId, Range, u64)) {
        let (space, range, generation) = request;
        self.catch_up(host, cpu, &FlushRequest { space, range, generation }, Initiator::AnotherCpu);
    }

    fn leave<H: Host>(&self, host: &H, cpu: CpuId) {
        Tlb::leave(self, host, cpu);
    }

    fn leave_context<H: Host>(&self, host: &H, cpu: CpuId) {
        Tlb::leave_context(self, host, cpu);
    }

    fn drop_pages<H: Host>(&self, host: &H, start: Vpn, count: u32, stride: Order) {
        Tlb::drop_pages(self, host, start, count, stride);
    }

    fn space_owes(&self, space: SpaceId, cpu: CpuId) -> bool {
        let sum = self.contexts[space.0].debts.read();
        sum.is_some_and(|sum| sum.debt.cpus.contains(cpu) && self.done(cpu) < sum.debt.generation)
    }

    fn state(&self) -> Vec<u64> {
        let bits = |cpus: CpuSet| cpus.iter().fold(0, |bits, cpu| bits | 1 << cpu.0);
        let back = |generation: Generation| self.newest().0 - generation.0;
        let mut state = Vec::new();
        let spaces = (0..self.contexts.bound()).map(|space| &self.contexts[space]);
        let domains = spaces.clone().map(|context| &context.debts);
        let files = (0..self.files.bound()).filter_map(|file| self.files.get(file));
        for domain in domains.chain(files).chain(self.zones.iter().map(|zone| &zone.domain)) {
            let sum = domain.read().map(|sum| (back(sum.debt.generation), sum.debt.cpus, sum.since));
            let (generation, cpus, since) = sum.unwrap_or((u64::MAX, CpuSet::EMPTY, 0));
            state.extend([generation, since, bits(cpus)]);
        }
        for context in spaces.clone() {
            let tightening = u64::from(context.tightening.load(Relaxed));
            state.extend([context.id.load(Relaxed), tightening, context.never_deferred.load(Relaxed).into()]);
            state.push(bits(context.cpus()));
        }
        let missed = |id: u64, generation: u64| {
            let context = spaces.clone().find(|context| context.id.load(Relaxed) == id);
            context.map_or(generation, |context| context.generation.load(Relaxed) - generation)
        };
        for cpu in &self.cpus {
            state.push(back(cpu.done()));
            cpu.state(&mut state, missed);
        }
        state.extend(self.zones.iter().map(|zone| back(Generation(zone.paid.load(Relaxed)))));
        state
    }
}
