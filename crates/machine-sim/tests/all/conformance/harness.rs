//! The kernel around the simulated machine, for the suite.

use conformance::{Harness, IoWatch, Report, Scratch, run_some};
use machine_sim::bare::{self, Bare};
use machine_sim::{RunConfig, RunError, SimMachine};
use mm::Mm;
use mm::api::AccessKind;
use mm::machine::{Io, Machine};
use mm::units::*;
use std::fmt::Arguments;

/// A machine over the simulated one.
pub trait Below: Machine + AsRef<SimMachine> {
    /// The suite begins.
    fn begin(&self) {}

    /// A transfer has ended; `tell` passes it to the kernel.
    fn ended(&self, io: &Io, tell: &dyn Fn(&Io)) {
        tell(io);
    }
}

impl Below for SimMachine {}

struct Kernel<'k, 'b, M: Machine> {
    bare: &'k Bare<'b, M>,
    watch: &'b IoWatch,
    scratch: Scratch,
}

impl<M: Machine + AsRef<SimMachine>> Harness for Kernel<'_, '_, M> {
    type Machine = M;

    fn mm(&self) -> &Mm<M> {
        self.bare.mm()
    }

    fn start(&self, cpu: CpuId, entry: fn(usize), argument: usize) {
        self.bare.start(cpu, entry, argument);
    }

    fn pause(&self) {
        self.bare.pause();
    }

    fn spin(&self) {
        self.bare.spin();
    }

    fn enter(&self, space: Option<SpaceId>) {
        self.bare.enter(space);
    }

    fn in_io_context(&self, entry: fn(usize), argument: usize) -> bool {
        self.bare.interrupt(|| entry(argument));
        true
    }

    /// A simulated page is one number.
    fn words(&self) -> usize {
        1
    }

    fn load(&self, page: Vpn, _word: usize) -> Option<u64> {
        self.bare.access(page, AccessKind::Load, None)
    }

    fn store(&self, page: Vpn, _word: usize, value: u64) -> bool {
        self.bare.access(page, AccessKind::Store, Some(value)).is_some()
    }

    fn code(&self) -> Option<u64> {
        Some(1)
    }

    fn fetch(&self, page: Vpn) -> bool {
        self.bare.access(page, AccessKind::Fetch, None).is_some()
    }

    fn spin_as_program(&self, page: Vpn) -> bool {
        while self.load(page, 0) == Some(0) {
            self.bare.spin();
        }
        true
    }

    fn scratch(&self) -> Option<Scratch> {
        Some(self.scratch)
    }

    fn watch(&self) -> &IoWatch {
        self.watch
    }

    fn patience(&self) -> Nanos {
        1_000_000_000
    }

    fn effort(&self) -> u32 {
        2
    }

    fn progress(&self, line: Arguments<'_>) {
        eprintln!("{line}");
    }

    fn give_up(&self, why: &str) -> ! {
        self.bare.give_up(why)
    }
}

/// Run the checks whose names begin with `wanted` on a machine, as `wrap` changes it.
pub fn check<M: Below>(
    config: &RunConfig,
    wrap: impl FnOnce(SimMachine) -> M,
    wanted: &str,
) -> Result<Report, RunError> {
    let watch = IoWatch::new();
    // After the swap space, which is at the start of the same device.
    let block =
        config.machine.swap_areas().map_or(0, |areas| areas.iter().map(|area| u64::from(area.pages)).sum());
    let device = DeviceId(config.machine.file_device() as u8);
    let scratch = Scratch { device, block, blocks: 1 << 16 };
    let mut report = Report::new();
    let io_done = |mm: &Mm<M>, io: &Io| {
        mm.machine().ended(io, &|io| {
            if !watch.claims(io) {
                mm.io_done(io);
            }
        });
    };
    bare::run(config, wrap, &io_done, |bare| {
        bare.mm().machine().begin();
        run_some(&Kernel { bare, watch: &watch, scratch }, &mut report, wanted);
    })?;
    Ok(report)
}
