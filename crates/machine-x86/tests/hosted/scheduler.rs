//! A deterministic scheduler: one thread runs at a time.

use kernel::Key;
use mm::machine::WaitKey;
use mm::units::{Nanos, SpaceId};
use program::rng::Rng;
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard};

/// What a thread can wait for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AnyKey {
    Mm(WaitKey),
    Kernel(Key),
    Disk,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Ready,
    Waiting(AnyKey, Option<Nanos>),
    Done,
}

struct Thread {
    cpu: u16,
    space: Option<SpaceId>,
    state: State,
    woken: bool,
    /// To unpark it when its turn comes.
    handle: Option<std::thread::Thread>,
}

struct Inner {
    threads: Vec<Thread>,
    current: Option<usize>,
    /// The thread that ran last on each CPU.
    on_cpu: BTreeMap<u16, usize>,
    marks: HashMap<AnyKey, u64>,
    advance: Nanos,
    stopping: bool,
    rng: Rng,
}

pub struct Scheduler {
    inner: Mutex<Inner>,
}

thread_local! {
    static ME: Cell<usize> = const { Cell::new(usize::MAX) };
}

impl Inner {
    /// Choose a thread that can run.
    fn choose(&mut self) {
        let ready = |thread: &Thread, advance: Nanos, stopping: bool| match thread.state {
            State::Ready => true,
            State::Waiting(_, deadline) => stopping || deadline.is_some_and(|at| at <= advance),
            State::Done => false,
        };
        loop {
            let (advance, stopping) = (self.advance, self.stopping);
            let runnable: Vec<usize> =
                (0..self.threads.len()).filter(|&i| ready(&self.threads[i], advance, stopping)).collect();
            if !runnable.is_empty() {
                let next = runnable[self.rng.below(runnable.len() as u64) as usize];
                self.threads[next].state = State::Ready;
                self.current = Some(next);
                return;
            }
            let deadlines = self.threads.iter().filter_map(|thread| match thread.state {
                State::Waiting(_, deadline) => deadline,
                _ => None,
            });
            match deadlines.min() {
                Some(at) => self.advance = at,
                None => {
                    self.current = None;
                    let waiting = |thread: &Thread| thread.state != State::Done;
                    if self.threads.iter().any(waiting) {
                        let states: Vec<State> = self.threads.iter().map(|thread| thread.state).collect();
                        eprintln!("deadlock: all threads wait: {states:?}");
                        std::process::exit(101);
                    }
                    return;
                }
            }
        }
    }
}

impl Scheduler {
    pub fn new(seed: u64) -> Scheduler {
        Scheduler {
            inner: Mutex::new(Inner {
                threads: Vec::new(),
                current: None,
                on_cpu: BTreeMap::new(),
                marks: HashMap::new(),
                advance: 1,
                stopping: false,
                rng: Rng::new(seed),
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("no thread may panic with the lock held")
    }

    /// Add a thread; returns its number.
    pub fn add(&self, cpu: u16, space: Option<SpaceId>) -> usize {
        let mut inner = self.lock();
        inner.threads.push(Thread { cpu, space, state: State::Ready, woken: false, handle: None });
        inner.threads.len() - 1
    }

    /// Register the calling thread under a number, and return when its turn comes. The first thread starts at
    /// once.
    pub fn start(&self, number: usize) {
        ME.set(number);
        let mut inner = self.lock();
        inner.threads[number].handle = Some(std::thread::current());
        if number == 0 {
            inner.current = Some(0);
        }
        drop(inner);
        self.until_my_turn();
    }

    fn until_my_turn(&self) {
        while self.lock().current != Some(ME.get()) {
            std::thread::park();
        }
    }

    fn switch_away(&self, state: State) {
        let mut inner = self.lock();
        inner.threads[ME.get()].state = state;
        inner.choose();
        if inner.current == Some(ME.get()) {
            return;
        }
        if let Some(next) = inner.current.and_then(|next| inner.threads[next].handle.as_ref()) {
            next.unpark();
        }
        drop(inner);
        if state != State::Done {
            self.until_my_turn();
        }
    }

    /// Let other threads run.
    pub fn yield_now(&self) {
        self.switch_away(State::Ready);
    }

    /// The calling thread has ended.
    pub fn end(&self) {
        self.switch_away(State::Done);
    }

    /// End all other threads, and return when they have ended.
    pub fn stop(&self) {
        self.lock().stopping = true;
        while self.lock().threads.iter().any(|thread| thread.state != State::Done && thread.cpu != u16::MAX) {
            self.lock().threads[ME.get()].cpu = u16::MAX;
            self.yield_now();
        }
    }

    pub fn stopping(&self) -> bool {
        self.lock().stopping
    }

    pub fn mark(&self, key: AnyKey) -> u64 {
        self.lock().marks.get(&key).copied().unwrap_or(0)
    }

    pub fn wait(&self, key: AnyKey, mark: u64, deadline: Option<Nanos>) -> bool {
        {
            let mut inner = self.lock();
            if inner.marks.get(&key).copied().unwrap_or(0) != mark {
                return true;
            }
            inner.threads[ME.get()].woken = false;
        }
        self.switch_away(State::Waiting(key, deadline));
        self.lock().threads[ME.get()].woken
    }

    pub fn wake(&self, key: AnyKey) {
        let mut inner = self.lock();
        *inner.marks.entry(key).or_default() += 1;
        for thread in &mut inner.threads {
            if matches!(thread.state, State::Waiting(waiting, _) if waiting == key) {
                thread.state = State::Ready;
                thread.woken = true;
            }
        }
    }

    /// CPU and space of the calling thread, and whether another thread ran last on that CPU.
    pub fn current_thread(&self) -> (u16, Option<SpaceId>, bool) {
        let mut inner = self.lock();
        let &Thread { cpu, space, .. } = &inner.threads[ME.get()];
        let cpu = if cpu == u16::MAX { 0 } else { cpu };
        let changed = inner.on_cpu.insert(cpu, ME.get()) != Some(ME.get());
        (cpu, space, changed)
    }

    pub fn set_space(&self, space: Option<SpaceId>) {
        self.lock().threads[ME.get()].space = space;
    }

    /// Let time pass; returns the new time.
    pub fn advance(&self, nanos: Nanos) -> Nanos {
        let mut inner = self.lock();
        inner.advance += nanos;
        inner.advance
    }

    /// A random number below `n`.
    pub fn random_below(&self, n: u64) -> u64 {
        self.lock().rng.below(n)
    }
}
