//! A machine on the host: every task is a thread, one of them runs at a time, and which one is drawn from a seed.
//!
//! What a task on another CPU can see between any two touches of memory, it sees here too: the turn may pass at every
//! touch and at every call. Each CPU has a software TLB that keeps everything until it is told to drop it.

#![allow(dead_code, reason = "each test file uses a part of it")]

mod baton;
mod tlb;

use abi::call::{self, Exit, Tell};
use abi::{Buffer, Call, Errno, Signal};
use baton::{AnyKey, Baton};
use kernel::{After, Disk, GroupOutcome, GroupSpec, Host, Kernel, Key, Outcome, Rings, Task, Totals};
use machine_x86::user::{Home, Ring};
use mm::api::{AccessKind, SwapArea};
use mm::knobs::{Knob, Knobs};
use mm::machine::{
    Asid, CpuSet, Flush, Io, Machine, MemoryRange, RemoteCall, TablePage, Ticket, WaitKey, Work, ZoneKind,
};
use mm::units::{CpuId, DeviceId, Nanos, NodeId, PAGE_SIZE, Pfn, SpaceId, TABLE_ENTRIES, Vpn};
use mm::{Config, Mm};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering::*};
use std::sync::{Arc, Mutex, OnceLock};
use tlb::Tlbs;

/// Words of a page.
const WORDS: usize = TABLE_ENTRIES;
/// Nanoseconds between ticks.
const TICK: Nanos = 4_000_000;
/// Faults that one touch may take.
const FAULTS: u32 = 1000;

/// What a run is made of.
#[derive(Clone)]
pub struct Setup {
    /// As the command line names it.
    pub program: String,
    /// The image of the trace to run.
    pub trace: Option<&'static [u8]>,
    pub seed: u64,
    pub cpus: usize,
    /// Bytes, whole blocks of 4 MiB.
    pub memory: u64,
    pub swap: u32,
    pub asids: usize,
    /// Value of `tlb.unmap`.
    pub unmap: u64,
    /// Values of others.
    pub knobs: Vec<(Knob, u64)>,
    /// Control groups that the program begins with.
    pub groups: Vec<GroupSpec>,
    /// CPUs do not flush what others ask them to flush.
    pub deaf: bool,
    /// Is memory checked?
    pub check: bool,
    /// What the first task does instead of the program, given a way to make calls.
    pub body: Option<Body>,
    /// What others do each time that a read has copied something.
    pub beside_reads: Option<fn(&Mm<Hosted>)>,
}

/// What a task does with system calls alone.
pub type Body = fn(&dyn Fn(Call<'_>) -> Result<u64, Errno>);

impl Setup {
    /// Four CPUs, a lazy policy.
    pub fn new(program: &str) -> Setup {
        let program = program.to_owned();
        let (deaf, check) = (false, true);
        Setup {
            program,
            trace: None,
            seed: 1,
            cpus: 4,
            memory: 16 << 20,
            swap: 4096,
            asids: 6,
            unmap: 3,
            knobs: Vec::new(),
            groups: Vec::new(),
            deaf,
            check,
            body: None,
            beside_reads: None,
        }
    }
}

/// What came of it.
#[derive(Debug)]
pub struct Report {
    pub totals: Totals,
    pub signals: Vec<String>,
    /// For each process that the memory manager chose to die, what had run out.
    pub ooms: Vec<String>,
    pub violations: Vec<String>,
    /// What a reader of the numbers should know.
    pub notes: Vec<String>,
    pub stats: BTreeMap<&'static str, i64>,
    /// What control groups have counted.
    pub groups: Vec<GroupOutcome>,
}

pub struct Hosted {
    cpus: usize,
    memory: [MemoryRange; 1],
    asids: usize,
    deaf: bool,
    tables: Vec<TablePage>,
    words: Vec<AtomicU64>,
    tlbs: Mutex<Tlbs>,
    ticked: Vec<AtomicU64>,
    /// The CPU that the thread whose turn it is acts for.
    cpu: AtomicU16,
    /// It acts for another, which was asked to flush.
    asked: AtomicBool,
    baton: Baton,
    disk: Mutex<BTreeMap<(u8, u64), Vec<u64>>>,
    transfers: Mutex<VecDeque<Io>>,
    kernel: OnceLock<&'static Kernel<Hosted>>,
    home: OnceLock<Home>,
    body: Option<Body>,
    beside_reads: Option<fn(&Mm<Hosted>)>,
    told: Mutex<Vec<String>>,
    notes: Mutex<Vec<String>>,
}

impl Hosted {
    fn new(setup: &Setup) -> Hosted {
        let frames = (setup.memory / PAGE_SIZE) as u32;
        let range = MemoryRange { node: NodeId(0), kind: ZoneKind::Normal, start: Pfn(0), frames };
        let zero = || AtomicU64::new(0);
        Hosted {
            cpus: setup.cpus,
            memory: [range],
            asids: setup.asids,
            deaf: setup.deaf,
            tables: (0..frames).map(|_| std::array::from_fn(|_| zero())).collect(),
            words: (0..frames as usize * WORDS).map(|_| zero()).collect(),
            tlbs: Mutex::new(Tlbs::new(setup.cpus)),
            ticked: (0..setup.cpus).map(|_| zero()).collect(),
            cpu: AtomicU16::new(0),
            asked: AtomicBool::new(false),
            baton: Baton::new(setup.seed),
            disk: Mutex::default(),
            transfers: Mutex::default(),
            kernel: OnceLock::new(),
            home: OnceLock::new(),
            body: setup.body,
            beside_reads: setup.beside_reads,
            told: Mutex::default(),
            notes: Mutex::default(),
        }
    }

    fn kernel(&self) -> &'static Kernel<Hosted> {
        self.kernel.get().expect("set before anything runs")
    }

    fn this(&self) -> &'static Hosted {
        self.kernel().mm().machine()
    }

    fn frame(&self, pfn: Pfn) -> &[AtomicU64] {
        &self.words[pfn.index() * WORDS..][..WORDS]
    }

    /// Go on as the thread whose turn it has become: on its CPU, with its space loaded.
    fn resume(&self) {
        let (cpu, space, changed) = self.baton.here();
        self.cpu.store(cpu, SeqCst);
        if changed {
            self.kernel().mm().switch(space);
        }
    }

    /// The turn may pass to another thread.
    fn pause(&self) {
        self.baton.clock(100);
        let cpu = self.cpu.load(SeqCst);
        let last = &self.ticked[cpu as usize];
        if self.now() - last.load(SeqCst) > TICK {
            last.store(self.now(), SeqCst);
            self.kernel().mm().tick();
        }
        if self.baton.draw(4) == 0 {
            self.baton.pass();
            self.resume();
        }
    }

    fn spawn(&self, cpu: u16, space: Option<SpaceId>, body: impl FnOnce(&'static Hosted) + Send + 'static) {
        let (this, number) = (self.this(), self.baton.add(cpu, space));
        std::thread::spawn(move || {
            let life = std::panic::AssertUnwindSafe(|| {
                this.baton.begin(number);
                this.resume();
                body(this);
            });
            if std::panic::catch_unwind(life).is_err() {
                // Nobody else would ever get the turn.
                std::process::exit(101);
            }
            this.baton.end();
        });
    }

    fn complete_transfers(&self) {
        while !self.stopping() {
            let mark = self.baton.mark(AnyKey::Disk);
            let Some(io) = self.transfers.lock().unwrap().pop_front() else {
                self.baton.wait(AnyKey::Disk, mark, None);
                self.resume();
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
            self.baton.pass();
            self.resume();
        }
    }
}

/// Run a program.
pub fn run(setup: &Setup) -> Report {
    let knobs = Knobs::default();
    knobs.set(Knob::TlbUnmap, setup.unmap).unwrap();
    setup.knobs.iter().for_each(|&(knob, value)| knobs.set(knob, value).unwrap());
    let swap = SwapArea { device: DeviceId(1), pages: setup.swap, priority: 0 };
    let swap = if setup.swap > 0 { vec![swap] } else { Vec::new() };
    let mm = Mm::new(Hosted::new(setup), Config { knobs, swap, ..Config::default() }).expect("enough memory");
    let disk = Disk { device: DeviceId(0), pages: 1 << 20, taken: 0, thin: false };
    let daemons = mm.daemons().len() as u32;
    // Never freed: threads and tests outlive each other.
    let kernel: &'static Kernel<Hosted> = Box::leak(Box::new(Kernel::new(mm, Some(disk), daemons)));
    let host = kernel.mm().machine();
    let home =
        Home::new(&setup.program, setup.trace, setup.check, setup.seed, setup.cpus as u32, setup.memory);
    host.kernel.set(kernel).ok().expect("set once");
    host.home.set(home.expect("a program")).ok().expect("set once");
    host.baton.begin(host.baton.add(0, None));
    host.resume();
    host.spawn(0, None, Hosted::complete_transfers);
    for daemon in kernel.mm().daemons() {
        host.spawn(0, None, move |host| host.kernel().mm().daemon(daemon));
    }
    kernel.make_groups(&setup.groups).expect("groups that can be");
    kernel.start().expect("room for a process");
    kernel.wait_for_end();
    host.baton.stop();
    host.resume();
    kernel.mm().validate().expect("all structures agree");
    let stats = mm::stat::Stat::ALL.iter().map(|&stat| (stat.name(), kernel.mm().mmu().stats.read(stat)));
    Report {
        totals: kernel.totals(),
        signals: kernel.signals(),
        ooms: kernel.mm().oom_reports().into_iter().map(|oom| oom.text).collect(),
        violations: host.told.lock().unwrap().clone(),
        notes: host.notes.lock().unwrap().clone(),
        stats: stats.collect(),
        groups: kernel.group_outcomes(),
    }
}

impl Machine for Hosted {
    fn cpus(&self) -> usize {
        self.cpus
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
        self.baton.clock(0)
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
        self.asids
    }

    fn load_root(&self, root: Pfn, asid: Asid, keep: bool) {
        let keep = (keep && self.asids > 0) || (self.deaf && self.asked.load(SeqCst));
        self.tlbs.lock().unwrap().load_root(self.cpu(), root, asid, keep);
    }

    fn flush(&self, what: Flush) {
        if self.deaf && self.asked.load(SeqCst) {
            return;
        }
        self.tlbs.lock().unwrap().flush(self.cpu(), what);
    }

    fn shootdown(&self, targets: &CpuSet, remote: &RemoteCall<'_>, local: &mut dyn FnMut()) {
        let here = self.cpu();
        assert!(!targets.contains(here));
        self.asked.store(true, SeqCst);
        for target in targets.iter() {
            self.cpu.store(target.0, SeqCst);
            remote(target);
        }
        self.asked.store(false, SeqCst);
        self.cpu.store(here.0, SeqCst);
        local();
    }

    fn submit(&self, io: Io) {
        self.transfers.lock().unwrap().push_back(io);
        self.baton.wake(AnyKey::Disk);
    }

    fn ticket(&self, key: WaitKey) -> Ticket {
        Ticket { key, mark: self.baton.mark(AnyKey::Mm(key)) }
    }

    fn wait(&self, ticket: Ticket, deadline: Option<Nanos>) -> bool {
        let woken = self.baton.wait(AnyKey::Mm(ticket.key), ticket.mark, deadline);
        self.resume();
        woken
    }

    fn wake(&self, key: WaitKey) {
        self.baton.wake(AnyKey::Mm(key));
    }

    fn resched(&self) {
        self.baton.pass();
        self.resume();
    }

    fn stopping(&self) -> bool {
        self.baton.stopping()
    }

    fn charge(&self, _: Work, _: u64) {
        self.baton.clock(10);
    }
}

impl Host for Hosted {
    fn start_task(&self, task: &Arc<Task>) -> Result<(), Errno> {
        let cpu = task.number() as usize % self.cpus;
        let task = task.clone();
        self.spawn(cpu as u16, Some(task.space()), move |host| {
            let start = task.start();
            let ring = HostedRing { host, task: &task };
            match host.body.filter(|_| start.role == 0) {
                Some(body) => ring.act(body),
                None => host.home.get().expect("set before").live(&ring, start),
            }
            assert!(task.has_ended());
        });
        Ok(())
    }

    fn leave_space(&self, _: &Task, switch: &mut dyn FnMut()) {
        self.baton.set_space(None);
        switch();
    }

    fn give_way(&self) {
        self.resched();
    }

    fn key_ticket(&self, key: Key) -> u64 {
        self.baton.mark(AnyKey::Kernel(key))
    }

    fn key_wait(&self, key: Key, mark: u64, deadline: Option<Nanos>) -> bool {
        let woken = self.baton.wait(AnyKey::Kernel(key), mark, deadline);
        self.resume();
        woken
    }

    fn key_wake(&self, key: Key) {
        self.baton.wake(AnyKey::Kernel(key));
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
        // SAFETY: the kernel has checked that the range lies in the buffer that the task named, which consists of
        // atomics and is used by the task alone, while it is in the call.
        unsafe { std::ptr::copy_nonoverlapping(part.as_ptr(), to, part.len()) }
        if let Some(act) = self.beside_reads {
            act(self.kernel().mm());
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
        let told = if what == Tell::Note { &self.notes } else { &self.told };
        told.lock().unwrap().push(text.to_owned());
    }
}

/// Read what a task has named.
fn read(from: u64, to: &mut [u8]) {
    let from = std::ptr::with_exposed_provenance::<u8>(from as usize);
    // SAFETY: the kernel has checked that the range lies in the buffer that the task named, which stays while it is in
    // the call.
    unsafe { std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), to.len()) }
}

/// Ring 3 of one task.
struct HostedRing<'a> {
    host: &'static Hosted,
    task: &'a Task,
}

impl HostedRing<'_> {
    /// Do something else than a program.
    fn act(&self, body: Body) {
        let place =
            |text: &str| Buffer { addr: text.as_ptr().expose_provenance() as u64, len: text.len() as u64 };
        let call = |what: Call<'_>| {
            let (number, args) = what.encode(place);
            call::decode_answer(self.call(number, args))
        };
        body(&call);
        let _ = call(Call::Exit(Exit::default()));
    }

    /// The frame that an access reaches, after as many faults as it takes.
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
            After::Panicked(text) => panic!("{text}"),
        }
    }

    fn load(&self, addr: u64) -> Result<u64, Signal> {
        self.reach(addr, AccessKind::Load).map(|word| word.load(SeqCst))
    }

    fn store(&self, addr: u64, word: u64) -> Result<(), Signal> {
        self.reach(addr, AccessKind::Store).map(|at| at.store(word, SeqCst))
    }

    fn compute(&self, instructions: u64) {
        self.host.baton.clock(instructions);
        self.host.pause();
    }
}
