//! A machine on the host: every task is a thread, one of them runs at a time, and a seed decides which.
//!
//! Tasks may switch at every access and at every call, so a task sees everything here that a task on another
//! CPU could see between two accesses. Each CPU has a software TLB that drops translations only when told to.

#![allow(dead_code, reason = "each test file uses a part of it")]

mod scheduler;
mod tlb;

use abi::call::{self, Exit, Tell};
use abi::{Buffer, Call, Errno, Signal};
use kernel::{After, Disk, GroupOutcome, GroupSpec, Host, Kernel, Key, Outcome, Rings, Task, Totals};
use machine_x86::user::{LaunchInfo, Ring, Settings};
use mm::api::{AccessKind, SwapArea};
use mm::knobs::{Knob, Knobs};
use mm::machine::{
    Asid, CpuSet, Flush, Io, Machine, MemoryRange, RemoteCall, TablePage, Ticket, WaitKey, Work, ZoneKind,
};
use mm::units::{CpuId, DeviceId, Nanos, NodeId, PAGE_SIZE, Pfn, SpaceId, TABLE_ENTRIES, Vpn};
use mm::{Config, Mm};
use scheduler::{AnyKey, Scheduler};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering::*};
use std::sync::{Arc, Mutex, OnceLock};
use tlb::Tlbs;

/// Words of a page.
const WORDS: usize = TABLE_ENTRIES;
/// Nanoseconds between two ticks.
const TICK: Nanos = 4_000_000;
/// Faults that one access may take.
const FAULTS: u32 = 1000;

/// The configuration of a run.
#[derive(Clone)]
pub struct Setup {
    /// The program, as on the command line.
    pub program: String,
    /// The image of the trace to replay.
    pub trace: Option<&'static [u8]>,
    pub seed: u64,
    pub cpus: usize,
    /// Bytes, in whole blocks of 4 MiB.
    pub memory: u64,
    pub swap: u32,
    pub asids: usize,
    /// Value of `tlb.unmap`.
    pub unmap: u64,
    /// Values of other knobs.
    pub knobs: Vec<(Knob, u64)>,
    /// Control groups at the start of the program.
    pub groups: Vec<GroupSpec>,
    /// Whether CPUs ignore requests to flush from other CPUs.
    pub ignore_flushes: bool,
    /// Whether memory is checked.
    pub check: bool,
    /// Run by tasks of role 0 instead of the program, with a function that makes calls.
    pub body: Option<Body>,
    /// The same for tasks of role 1.
    pub other: Option<Body>,
    /// Whether tasks may panic. Otherwise that fails the run.
    pub may_panic: bool,
    /// Run each time that a read has copied something.
    pub during_reads: Option<fn(&Mm<Hosted>)>,
}

/// A task that only makes system calls.
pub type Body = fn(&dyn Fn(Call<'_>) -> Result<u64, Errno>);

impl Setup {
    /// Four CPUs and a lazy policy.
    pub fn new(program: &str) -> Setup {
        Setup {
            program: program.to_owned(),
            trace: None,
            seed: 1,
            cpus: 4,
            memory: 16 << 20,
            swap: 4096,
            asids: 6,
            unmap: 3,
            knobs: Vec::new(),
            groups: Vec::new(),
            ignore_flushes: false,
            check: true,
            body: None,
            other: None,
            may_panic: false,
            during_reads: None,
        }
    }
}

/// The results of a run.
#[derive(Debug)]
pub struct Report {
    pub totals: Totals,
    pub signals: Vec<String>,
    /// For each process that was chosen to be killed, what had run out.
    pub ooms: Vec<String>,
    pub violations: Vec<String>,
    /// Notes for readers of the numbers.
    pub notes: Vec<String>,
    pub stats: BTreeMap<&'static str, i64>,
    /// The counters of the control groups.
    pub groups: Vec<GroupOutcome>,
    /// The messages of tasks that have panicked.
    pub panics: Vec<String>,
}

pub struct Hosted {
    setup: Setup,
    memory: [MemoryRange; 1],
    tables: Vec<TablePage>,
    words: Vec<AtomicU64>,
    tlbs: Mutex<Tlbs>,
    ticked: Vec<AtomicU64>,
    /// The CPU of the running thread.
    cpu: AtomicU16,
    /// Whether it acts for another CPU, which was asked to flush.
    in_remote_call: AtomicBool,
    scheduler: Scheduler,
    disk: Mutex<BTreeMap<(u8, u64), Vec<u64>>>,
    transfers: Mutex<VecDeque<Io>>,
    kernel: OnceLock<&'static Kernel<Hosted>>,
    launch: OnceLock<LaunchInfo>,
    violations: Mutex<Vec<String>>,
    notes: Mutex<Vec<String>>,
    panics: Mutex<Vec<String>>,
}

impl Hosted {
    fn new(setup: &Setup) -> Hosted {
        let frames = (setup.memory / PAGE_SIZE) as u32;
        let range = MemoryRange { node: NodeId(0), kind: ZoneKind::Normal, start: Pfn(0), frames };
        let zero = || AtomicU64::new(0);
        Hosted {
            setup: setup.clone(),
            memory: [range],
            tables: (0..frames).map(|_| std::array::from_fn(|_| zero())).collect(),
            words: (0..frames as usize * WORDS).map(|_| zero()).collect(),
            tlbs: Mutex::new(Tlbs::new(setup.cpus)),
            ticked: (0..setup.cpus).map(|_| zero()).collect(),
            cpu: AtomicU16::new(0),
            in_remote_call: AtomicBool::new(false),
            scheduler: Scheduler::new(setup.seed),
            disk: Mutex::default(),
            transfers: Mutex::default(),
            kernel: OnceLock::new(),
            launch: OnceLock::new(),
            violations: Mutex::default(),
            notes: Mutex::default(),
            panics: Mutex::default(),
        }
    }

    fn kernel(&self) -> &'static Kernel<Hosted> {
        self.kernel.get().expect("the kernel must be set before anything runs")
    }

    fn this(&self) -> &'static Hosted {
        self.kernel().mm().machine()
    }

    fn frame(&self, pfn: Pfn) -> &[AtomicU64] {
        &self.words[pfn.index() * WORDS..][..WORDS]
    }

    fn ignores_flush(&self) -> bool {
        self.setup.ignore_flushes && self.in_remote_call.load(SeqCst)
    }

    /// Wait as [`Scheduler::wait`] does.
    fn wait_for(&self, key: AnyKey, mark: u64, deadline: Option<Nanos>) -> bool {
        let woken = self.scheduler.wait(key, mark, deadline);
        self.resume();
        woken
    }

    /// Continue as the running thread: on its CPU, with its space loaded.
    fn resume(&self) {
        let (cpu, space, changed) = self.scheduler.current_thread();
        self.cpu.store(cpu, SeqCst);
        if changed {
            self.kernel().mm().switch(space);
        }
    }

    /// Another thread may run.
    fn pause(&self) {
        self.scheduler.advance(100);
        let cpu = self.cpu.load(SeqCst);
        let last = &self.ticked[cpu as usize];
        if self.now() - last.load(SeqCst) > TICK {
            last.store(self.now(), SeqCst);
            self.kernel().mm().tick();
        }
        if self.scheduler.random_below(4) == 0 {
            self.resched();
        }
    }

    fn spawn(&self, cpu: u16, space: Option<SpaceId>, body: impl FnOnce(&'static Hosted) + Send + 'static) {
        let (this, number) = (self.this(), self.scheduler.add(cpu, space));
        std::thread::spawn(move || {
            let life = std::panic::AssertUnwindSafe(|| {
                this.scheduler.start(number);
                this.resume();
                body(this);
            });
            if std::panic::catch_unwind(life).is_err() {
                // No other thread would ever run again.
                std::process::exit(101);
            }
            this.scheduler.end();
        });
    }

    fn complete_transfers(&self) {
        while !self.stopping() {
            let mark = self.scheduler.mark(AnyKey::Disk);
            let Some(io) = self.transfers.lock().unwrap().pop_front() else {
                self.wait_for(AnyKey::Disk, mark, None);
                continue;
            };
            for page in 0..io.pages {
                let frame = self.frame(io.frame.add(page));
                let mut disk = self.disk.lock().unwrap();
                let block =
                    disk.entry((io.device.0, io.block + page as u64)).or_insert_with(|| vec![0; WORDS]);
                for (word, on_disk) in frame.iter().zip(block) {
                    match io.write {
                        true => *on_disk = word.load(SeqCst),
                        false => word.store(*on_disk, SeqCst),
                    }
                }
            }
            self.kernel().mm().io_done(&io);
            self.resched();
        }
    }
}

/// Run a program.
pub fn run(setup: &Setup) -> Report {
    let knobs = Knobs::default();
    knobs.set(Knob::TlbUnmap, setup.unmap).unwrap();
    setup.knobs.iter().for_each(|&(knob, value)| knobs.set(knob, value).unwrap());
    let swap = SwapArea { device: DeviceId(1), pages: setup.swap, priority: 0, zram: None };
    let swap = if setup.swap > 0 { vec![swap] } else { Vec::new() };
    let mm = Mm::new(Hosted::new(setup), Config { knobs, swap, ..Config::default() })
        .expect("the machine must have enough memory");
    let disk = Disk { device: DeviceId(0), pages: 1 << 20, taken: 0, thin: false };
    let daemons = mm.daemons().len() as u32;
    // Never freed, because threads may outlive a test.
    let kernel: &'static Kernel<Hosted> = Box::leak(Box::new(Kernel::new(mm, Some(disk), daemons)));
    let host = kernel.mm().machine();
    let &Setup { check, seed, cpus, memory, .. } = setup;
    let settings = Settings { check, seed, cpus: cpus as u32, memory };
    let launch = LaunchInfo::new(&setup.program, setup.trace, settings);
    host.kernel.set(kernel).ok().expect("the kernel must be set once");
    host.launch
        .set(launch.expect("the program must exist"))
        .ok()
        .expect("the launch information must be set once");
    host.scheduler.start(host.scheduler.add(0, None));
    host.resume();
    host.spawn(0, None, Hosted::complete_transfers);
    for daemon in kernel.mm().daemons() {
        host.spawn(0, None, move |host| host.kernel().mm().daemon(daemon));
    }
    kernel.make_groups(&setup.groups).expect("the groups must be valid");
    kernel.start().expect("there must be room for a process");
    kernel.wait_for_end();
    host.scheduler.stop();
    host.resume();
    kernel.mm().validate().expect("validate must pass");
    let stats = mm::stat::Stat::ALL.iter().map(|&stat| (stat.name(), kernel.mm().mmu().stats.read(stat)));
    Report {
        totals: kernel.totals(),
        signals: kernel.signals(),
        ooms: kernel.mm().oom_reports().into_iter().map(|oom| oom.text).collect(),
        violations: host.violations.lock().unwrap().clone(),
        notes: host.notes.lock().unwrap().clone(),
        stats: stats.collect(),
        groups: kernel.group_outcomes(),
        panics: host.panics.lock().unwrap().clone(),
    }
}

impl Machine for Hosted {
    fn cpus(&self) -> usize {
        self.setup.cpus
    }

    fn node_of(&self, _: CpuId) -> NodeId {
        NodeId(0)
    }

    fn memory(&self) -> &[MemoryRange] {
        &self.memory
    }

    fn distance(&self, _: NodeId, _: NodeId) -> u32 {
        10
    }

    fn cpu(&self) -> CpuId {
        CpuId(self.cpu.load(SeqCst))
    }

    fn now(&self) -> Nanos {
        self.scheduler.advance(0)
    }

    fn table(&self, pfn: Pfn) -> &TablePage {
        &self.tables[pfn.index()]
    }

    fn zero(&self, pfn: Pfn, pages: u32) {
        for page in 0..pages {
            let pfn = pfn.add(page);
            self.frame(pfn).iter().chain(&self.tables[pfn.index()]).for_each(|word| word.store(0, SeqCst));
        }
    }

    fn copy(&self, to: Pfn, from: Pfn, pages: u32) {
        for page in 0..pages {
            for (to, from) in self.frame(to.add(page)).iter().zip(self.frame(from.add(page))) {
                to.store(from.load(SeqCst), SeqCst);
            }
        }
    }

    fn has_hw_pte_young(&self) -> bool {
        true
    }

    fn has_hw_nonleaf_young(&self) -> bool {
        false
    }

    fn asids(&self) -> usize {
        self.setup.asids
    }

    fn load_root(&self, root: Pfn, asid: Asid, keep: bool) {
        let keep = (keep && self.setup.asids > 0) || self.ignores_flush();
        self.tlbs.lock().unwrap().load_root(self.cpu(), root, asid, keep);
    }

    fn flush(&self, what: Flush) {
        if !self.ignores_flush() {
            self.tlbs.lock().unwrap().flush(self.cpu(), what);
        }
    }

    fn shootdown(&self, targets: &CpuSet, remote: &RemoteCall<'_>, local: &mut dyn FnMut()) {
        let here = self.cpu();
        assert!(!targets.contains(here));
        self.in_remote_call.store(true, SeqCst);
        for target in targets.iter() {
            self.cpu.store(target.0, SeqCst);
            remote(target);
        }
        self.in_remote_call.store(false, SeqCst);
        self.cpu.store(here.0, SeqCst);
        local();
    }

    fn submit(&self, io: Io) {
        self.transfers.lock().unwrap().push_back(io);
        self.scheduler.wake(AnyKey::Disk);
    }

    fn ticket(&self, key: WaitKey) -> Ticket {
        Ticket { key, mark: self.scheduler.mark(AnyKey::Mm(key)) }
    }

    fn wait(&self, ticket: Ticket, deadline: Option<Nanos>) -> bool {
        self.wait_for(AnyKey::Mm(ticket.key), ticket.mark, deadline)
    }

    fn wake(&self, key: WaitKey) {
        self.scheduler.wake(AnyKey::Mm(key));
    }

    fn resched(&self) {
        self.scheduler.yield_now();
        self.resume();
    }

    fn stopping(&self) -> bool {
        self.scheduler.stopping()
    }

    fn charge(&self, _: Work, _: u64) {
        self.scheduler.advance(10);
    }
}

impl Host for Hosted {
    fn start_task(&self, task: &Arc<Task>) -> Result<(), Errno> {
        let cpu = task.number() as usize % self.setup.cpus;
        let task = task.clone();
        self.spawn(cpu as u16, Some(task.space()), move |host| {
            let start = task.start();
            let ring = HostedRing { host, task: &task };
            let body = match start.role {
                0 => host.setup.body,
                1 => host.setup.other,
                _ => None,
            };
            match body {
                Some(body) => ring.run_body(body),
                None => host.launch.get().expect("the launch information must be set").run_task(&ring, start),
            }
            assert!(task.has_ended());
        });
        Ok(())
    }

    fn leave_space(&self, _: &Task, switch: &mut dyn FnMut()) {
        self.scheduler.set_space(None);
        switch();
    }

    fn give_way(&self) {
        self.resched();
    }

    fn key_ticket(&self, key: Key) -> u64 {
        self.scheduler.mark(AnyKey::Kernel(key))
    }

    fn key_wait(&self, key: Key, mark: u64, deadline: Option<Nanos>) -> bool {
        self.wait_for(AnyKey::Kernel(key), mark, deadline)
    }

    fn key_wake(&self, key: Key) {
        self.scheduler.wake(AnyKey::Kernel(key));
    }

    fn read_user(&self, from: Buffer, to: &mut [u8]) -> Result<(), Errno> {
        read(from.addr, to);
        Ok(())
    }
}

impl Rings for Hosted {
    fn user_arena(&self) -> Range<u64> {
        1..u64::MAX
    }

    fn copy_to_user(&self, to: u64, from: Pfn, at: u32, bytes: u32) {
        let words: Vec<[u8; 8]> =
            self.frame(from).iter().map(|word| word.load(SeqCst).to_ne_bytes()).collect();
        let part = &words.as_flattened()[at as usize..][..bytes as usize];
        let to = std::ptr::with_exposed_provenance_mut::<u8>(to as usize);
        // SAFETY: the kernel has checked that the range is in the buffer of the task's call. The buffer
        // consists of atomics, and only the task uses it, which is in the call.
        unsafe { std::ptr::copy_nonoverlapping(part.as_ptr(), to, part.len()) }
        if let Some(run_body) = self.setup.during_reads {
            run_body(self.kernel().mm());
        }
    }

    fn copy_from_user(&self, to: Pfn, at: u32, from: u64, bytes: u32) {
        let mut part = vec![0; bytes as usize];
        read(from, &mut part);
        let frame = self.frame(to);
        for (i, byte) in (at as usize..).zip(part) {
            let mut word = frame[i / 8].load(SeqCst).to_ne_bytes();
            word[i % 8] = byte;
            frame[i / 8].store(u64::from_ne_bytes(word), SeqCst);
        }
    }

    fn tell(&self, what: Tell, text: &str) {
        eprintln!("{what:?}: {text}");
        let violations = if what == Tell::Note { &self.notes } else { &self.violations };
        violations.lock().unwrap().push(text.to_owned());
    }
}

/// Read from a buffer of a task's call.
fn read(from: u64, to: &mut [u8]) {
    let from = std::ptr::with_exposed_provenance::<u8>(from as usize);
    // SAFETY: the kernel has checked that the range is in the buffer of the task's call, which stays valid
    // during the call.
    unsafe { std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), to.len()) }
}

/// Ring 3 of one task.
struct HostedRing<'a> {
    host: &'static Hosted,
    task: &'a Task,
}

impl HostedRing<'_> {
    /// Run `body` instead of a program.
    fn run_body(&self, body: Body) {
        let buffer =
            |text: &str| Buffer { addr: text.as_ptr().expose_provenance() as u64, len: text.len() as u64 };
        let call = |what: Call<'_>| {
            let (number, args) = what.encode(buffer);
            call::decode_answer(self.call(number, args))
        };
        body(&call);
        if !self.task.has_ended() {
            let _ = call(Call::Exit(Exit::default()));
        }
    }

    /// The word that an access reaches, after any number of faults.
    fn reach(&self, addr: u64, access: AccessKind) -> Result<&AtomicU64, Signal> {
        self.host.pause();
        for _ in 0..FAULTS {
            let (cpu, host) = (self.host.cpu(), self.host);
            let found = host.tlbs.lock().unwrap().translate(cpu, Vpn::of(addr), access, &host.tables);
            if let Some(pfn) = found {
                return Ok(&host.frame(pfn)[addr as usize % PAGE_SIZE as usize / 8]);
            }
            match host.kernel().fault(self.task, addr, access) {
                Outcome::Retry => {}
                Outcome::Signal(signal) => return Err(signal),
            }
        }
        panic!("{addr:#x} still faults after {FAULTS} faults ({access:?})");
    }
}

impl Ring for HostedRing<'_> {
    fn call(&self, number: u64, args: [u64; 6]) -> [u64; 2] {
        self.host.pause();
        match self.host.kernel().trap(self.task, number, args) {
            After::Return(answer) => {
                self.host.pause();
                answer
            }
            After::Ended => [0, 0],
            After::Panicked(text) => {
                assert!(self.host.setup.may_panic, "{text}");
                self.host.panics.lock().unwrap().push(text);
                self.host.kernel().exit(self.task, &Exit::default());
                [0, 0]
            }
        }
    }

    fn load(&self, addr: u64) -> Result<u64, Signal> {
        self.reach(addr, AccessKind::Load).map(|word| word.load(SeqCst))
    }

    fn store(&self, addr: u64, word: u64) -> Result<(), Signal> {
        self.reach(addr, AccessKind::Store).map(|at| at.store(word, SeqCst))
    }

    fn compute(&self, instructions: u64) {
        self.host.scheduler.advance(instructions);
        self.host.pause();
    }
}
