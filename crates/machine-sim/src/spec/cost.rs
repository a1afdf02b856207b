//! The cost of work, in time. Every number has a source.
//!
//! A cost is given in one of three units: `ns`, `cycles` of the machine's clock, or `insns`, instructions of the Linux
//! kernel, which take `insns / (kernel_ipc * ghz)` nanoseconds. The defaults are in `machines/costs.toml`; the table
//! `costs` of a machine's file may replace single ones.

use super::SpecError;
use mm::machine::Work;
use serde::Deserialize;
use std::collections::BTreeMap;

/// The most nanoseconds of one unit: 2^32 units then still fit into a CPU's clock (see `cpu.rs`).
const MOST: f64 = 1e6;

/// The defaults.
const DEFAULTS: &str = include_str!("../../machines/costs.toml");

macro_rules! hardware {
    ($($variant:ident $name:literal $help:literal;)*) => {
        /// Work of the hardware, of a program or of the scheduler.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Hardware {
            $(#[doc = $help] $variant,)*
        }

        impl Hardware {
            /// All items, in table order.
            pub const ALL: &'static [Hardware] = &[$(Hardware::$variant,)*];

            /// Name in cost files.
            pub const fn name(self) -> &'static str {
                match self { $(Hardware::$variant => $name,)* }
            }

            /// One line of help.
            pub const fn help(self) -> &'static str {
                match self { $(Hardware::$variant => $help,)* }
            }
        }
    };
}

hardware! {
    Access "access" "one load, store or fetch that hits the caches, with the instructions around it";
    Instruction "instruction" "one instruction of a program that touches no memory";
    L2TlbHit "l2_tlb_hit" "find a translation in the second-level TLB";
    WalkStepHit "walk_step_hit" "one step of a page walk whose line is in the CPU's cache";
    WalkStepMemory "walk_step_memory" "one step of a page walk whose line is not";
    Invlpg "invlpg" "drop the translation of one page";
    FullFlush "full_flush" "drop all translations";
    LoadRoot "load_root" "load another root table";
    IpiSend "ipi_send" "prepare a request to other CPUs";
    IpiTarget "ipi_target" "add one CPU to the request";
    IpiDeliver "ipi_deliver" "from sending to the first instruction of the handler";
    IpiReceive "ipi_receive" "enter, run and leave the handler, without what it drops";
    IpiAck "ipi_ack" "from the handler's answer to the sender's seeing it";
    BroadcastFlush "broadcast_flush" "drop all translations of programs on all CPUs without interrupts, and wait";
    LineSocket "line_socket" "fetch a cache line that another CPU of the same node wrote before";
    LineRemote "line_remote" "fetch a cache line that a CPU of another node wrote before";
    ContextSwitch "context_switch" "schedule another task on a CPU";
    IoWait "io_wait" "from handing requests to devices to leaving the CPU, for a task that waits for them";
    Sample "sample" "write the record of one sampled read of memory";
}

/// One cost as a file gives it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Given {
    ns: Option<f64>,
    cycles: Option<f64>,
    insns: Option<f64>,
    source: String,
}

/// A cost table as a file gives it; a machine's file may hold a part of one.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CostFile {
    kernel_ipc: Option<Rate>,
    #[serde(default)]
    work: BTreeMap<String, Given>,
    #[serde(default)]
    hardware: BTreeMap<String, Given>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rate {
    value: f64,
    source: String,
}

/// One row of the cost table.
#[derive(Clone, PartialEq, Debug)]
pub struct CostRow {
    /// Name of the work.
    pub name: &'static str,
    /// One unit of it.
    pub help: &'static str,
    /// Nanoseconds for one unit.
    pub nanos: f64,
    /// Where the number comes from.
    pub source: String,
}

/// The costs on one machine, in picoseconds.
#[derive(Clone, Debug)]
pub struct Costs {
    work: [u64; Work::COUNT],
    hardware: [u64; Hardware::ALL.len()],
    kernel_ipc: f64,
    rows: Vec<CostRow>,
}

impl Costs {
    /// The defaults, with a machine's own numbers in their place.
    pub(super) fn new(own: &CostFile, ghz: f64) -> Result<Costs, SpecError> {
        let mut file: CostFile =
            toml::from_str(DEFAULTS).map_err(|error| SpecError::parse("costs.toml", error))?;
        file.work.extend(own.work.clone());
        file.hardware.extend(own.hardware.clone());
        let ipc = own.kernel_ipc.clone().or(file.kernel_ipc.clone());
        let ipc = ipc.ok_or_else(|| SpecError::new("kernel_ipc", "is missing".into()))?;
        if !(0.01..=20.0).contains(&ipc.value) {
            return Err(SpecError::new("kernel_ipc", format!("is {:?}, not between 0.01 and 20", ipc.value)));
        }
        let mut costs = Costs { work: [0; _], hardware: [0; _], kernel_ipc: ipc.value, rows: Vec::new() };
        for &work in Work::ALL {
            let row = convert("work", work.name(), work.help(), &mut file.work, ghz, &ipc)?;
            costs.work[work as usize] = picos(row.nanos);
            costs.rows.push(row);
        }
        for &item in Hardware::ALL {
            let row = convert("hardware", item.name(), item.help(), &mut file.hardware, ghz, &ipc)?;
            costs.hardware[item as usize] = picos(row.nanos);
            costs.rows.push(row);
        }
        let unknown = file.work.into_keys().chain(file.hardware.into_keys()).next();
        match unknown {
            Some(name) => Err(SpecError::new(&format!("costs.{name}"), "names no work that is known".into())),
            None => Ok(costs),
        }
    }

    /// Picoseconds for one unit of the memory manager's work.
    #[inline(always)]
    pub fn work(&self, work: Work) -> u64 {
        self.work[work as usize]
    }

    /// Picoseconds for one unit of the hardware's work.
    #[inline(always)]
    pub fn hardware(&self, item: Hardware) -> u64 {
        self.hardware[item as usize]
    }

    /// Instructions of the kernel that a CPU executes in a cycle.
    pub fn kernel_ipc(&self) -> f64 {
        self.kernel_ipc
    }

    /// All costs with their sources.
    pub fn rows(&self) -> impl Iterator<Item = &CostRow> {
        self.rows.iter()
    }
}

fn picos(nanos: f64) -> u64 {
    (nanos * 1000.0).round() as u64
}

fn convert(
    table: &str,
    name: &'static str,
    help: &'static str,
    given: &mut BTreeMap<String, Given>,
    ghz: f64,
    ipc: &Rate,
) -> Result<CostRow, SpecError> {
    let key = format!("costs.{table}.{name}");
    let cost = given.remove(name).ok_or_else(|| SpecError::new(&key, "is missing".into()))?;
    let (nanos, unit) = match (cost.ns, cost.cycles, cost.insns) {
        (Some(ns), None, None) => (ns, String::new()),
        (None, Some(cycles), None) => (cycles / ghz, format!("{cycles} cycles at {ghz} GHz: ")),
        (None, None, Some(insns)) => (
            insns / (ipc.value * ghz),
            format!("{insns} instructions, {} a cycle ({}), {ghz} GHz: ", ipc.value, ipc.source),
        ),
        _ => return Err(SpecError::new(&key, "needs exactly one of ns, cycles, insns".into())),
    };
    if !(0.0..=MOST).contains(&nanos) {
        return Err(SpecError::new(&key, format!("is {nanos:?} ns, not between 0 and a millisecond")));
    }
    if cost.source.trim().is_empty() {
        return Err(SpecError::new(&key, "has no source".into()));
    }
    Ok(CostRow { name, help, nanos, source: format!("{unit}{}", cost.source) })
}
