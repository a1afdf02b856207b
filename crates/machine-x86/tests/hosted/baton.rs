//! Whose turn it is.

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
    /// To wake it when its turn comes.
    handle: Option<std::thread::Thread>,
}

struct Turns {
    threads: Vec<Thread>,
    current: Option<usize>,
    /// The thread that ran last on each CPU.
    on_cpu: BTreeMap<u16, usize>,
    marks: HashMap<AnyKey, u64>,
    clock: Nanos,
    stopping: bool,
    rng: Rng,
}

pub struct Baton {
    turns: Mutex<Turns>,
}

thread_local! {
    static ME: Cell<usize> = const { Cell::new(usize::MAX) };
}

impl Turns {
    /// Give the turn to a thread that can run.
    fn choose(&mut self) {
        let ready = |thread: &Thread, clock: Nanos, stopping: bool| match thread.state {
            State::Ready => true,
            State::Waiting(_, deadline) => stopping || deadline.is_some_and(|at| at <= clock),
            State::Done => false,
        };
        loop {
            let (clock, stopping) = (self.clock, self.stopping);
            let able: Vec<usize> =
                (0..self.threads.len()).filter(|&i| ready(&self.threads[i], clock, stopping)).collect();
            if !able.is_empty() {
                let next = able[self.rng.below(able.len() as u64) as usize];
                self.threads[next].state = State::Ready;
                self.current = Some(next);
                return;
            }
            let deadlines = self.threads.iter().filter_map(|thread| match thread.state {
                State::Waiting(_, deadline) => deadline,
                _ => None,
            });
            match deadlines.min() {
                Some(at) => self.clock = at,
                None => {
                    self.current = None;
                    let waiting = |thread: &Thread| thread.state != State::Done;
                    if self.threads.iter().any(waiting) {
                        let states: Vec<State> = self.threads.iter().map(|thread| thread.state).collect();
                        eprintln!("everybody waits: {states:?}");
                        std::process::exit(101);
                    }
                    return;
                }
            }
        }
    }
}

impl Baton {
    pub fn new(seed: u64) -> Baton {
        Baton {
            turns: Mutex::new(Turns {
                threads: Vec::new(),
                current: None,
                on_cpu: BTreeMap::new(),
                marks: HashMap::new(),
                clock: 1,
                stopping: false,
                rng: Rng::new(seed),
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Turns> {
        self.turns.lock().expect("nobody panics with it held")
    }

    /// A new thread; returns its number.
    pub fn add(&self, cpu: u16, space: Option<SpaceId>) -> usize {
        let mut turns = self.lock();
        turns.threads.push(Thread { cpu, space, state: State::Ready, woken: false, handle: None });
        turns.threads.len() - 1
    }

    /// The calling thread is that one; returns when its turn comes. The first of all begins at once.
    pub fn begin(&self, number: usize) {
        ME.set(number);
        let mut turns = self.lock();
        turns.threads[number].handle = Some(std::thread::current());
        if number == 0 {
            turns.current = Some(0);
        }
        drop(turns);
        self.until_my_turn();
    }

    fn until_my_turn(&self) {
        while self.lock().current != Some(ME.get()) {
            std::thread::park();
        }
    }

    fn give_up(&self, state: State) {
        let mut turns = self.lock();
        turns.threads[ME.get()].state = state;
        turns.choose();
        if turns.current == Some(ME.get()) {
            return;
        }
        if let Some(next) = turns.current.and_then(|next| turns.threads[next].handle.as_ref()) {
            next.unpark();
        }
        drop(turns);
        if state != State::Done {
            self.until_my_turn();
        }
    }

    /// Others may run.
    pub fn pass(&self) {
        self.give_up(State::Ready);
    }

    /// The calling thread has ended.
    pub fn end(&self) {
        self.give_up(State::Done);
    }

    /// All others end; returns when they have.
    pub fn stop(&self) {
        self.lock().stopping = true;
        while self.lock().threads.iter().any(|thread| thread.state != State::Done && thread.cpu != u16::MAX) {
            self.lock().threads[ME.get()].cpu = u16::MAX;
            self.pass();
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
            let mut turns = self.lock();
            if turns.marks.get(&key).copied().unwrap_or(0) != mark {
                return true;
            }
            turns.threads[ME.get()].woken = false;
        }
        self.give_up(State::Waiting(key, deadline));
        self.lock().threads[ME.get()].woken
    }

    pub fn wake(&self, key: AnyKey) {
        let mut turns = self.lock();
        *turns.marks.entry(key).or_default() += 1;
        for thread in &mut turns.threads {
            if matches!(thread.state, State::Waiting(waiting, _) if waiting == key) {
                thread.state = State::Ready;
                thread.woken = true;
            }
        }
    }

    /// CPU and space of the calling thread, and whether another thread was the last to run on that CPU.
    pub fn here(&self) -> (u16, Option<SpaceId>, bool) {
        let mut turns = self.lock();
        let &Thread { cpu, space, .. } = &turns.threads[ME.get()];
        let cpu = if cpu == u16::MAX { 0 } else { cpu };
        let changed = turns.on_cpu.insert(cpu, ME.get()) != Some(ME.get());
        (cpu, space, changed)
    }

    pub fn set_space(&self, space: Option<SpaceId>) {
        self.lock().threads[ME.get()].space = space;
    }

    /// Let time pass; returns the time.
    pub fn clock(&self, nanos: Nanos) -> Nanos {
        let mut turns = self.lock();
        turns.clock += nanos;
        turns.clock
    }

    /// A random number below `n`.
    pub fn draw(&self, n: u64) -> u64 {
        self.lock().rng.below(n)
    }
}
