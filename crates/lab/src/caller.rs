//! The program that a command is a part of, where that is not a shell: what the command would print is handed to it,
//! and it stops the command by a flag in place of a signal.
//!
//! A caller holds for a thread ([`Caller::call`]), and for those that the command starts (`jobs`).

use crate::columns::Columns;
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard};

thread_local! {
    static CURRENT: RefCell<Option<Caller>> = const { RefCell::new(None) };
}

/// Whom a command is carried out for.
#[derive(Clone)]
pub struct Caller {
    words: Arc<[String]>,
    stop: Arc<AtomicBool>,
    told: Arc<Mutex<Told>>,
}

/// What a command has told its caller.
#[derive(Default)]
pub struct Told {
    /// What it would have printed on standard output.
    pub printed: String,
    /// A row for each run that it did or read, if it is one that keeps runs.
    pub runs: Option<Columns>,
}

impl Caller {
    /// A caller of the command with these words, the first of which is `pagefold`.
    pub fn new(words: Vec<String>) -> Caller {
        Caller { words: words.into(), stop: Arc::default(), told: Arc::default() }
    }

    /// The words of the command.
    pub fn words(&self) -> &[String] {
        &self.words
    }

    /// Carry out `command` for this caller.
    pub fn call<T>(&self, command: impl FnOnce() -> T) -> T {
        let before = CURRENT.replace(Some(self.clone()));
        let result = command();
        CURRENT.set(before);
        result
    }

    /// Have the command end as by Ctrl-C.
    pub fn stop(&self) {
        self.stop.store(true, SeqCst);
    }

    /// What it was told.
    pub fn told(&self) -> Told {
        std::mem::take(&mut *self.lock())
    }

    /// The caller of this thread's command; `None`: a shell.
    pub fn current() -> Option<Caller> {
        CURRENT.with_borrow(Clone::clone)
    }

    /// The flag that stops the command.
    pub fn stops(&self) -> Arc<AtomicBool> {
        self.stop.clone()
    }

    /// Add to what is printed.
    pub fn print(&self, text: &str) {
        self.lock().printed += text;
    }

    fn lock(&self) -> MutexGuard<'_, Told> {
        self.told.lock().expect("no thread panics while it holds the lock")
    }
}

/// Hand the runs of this thread's command to its caller, if it has one.
pub fn tell_runs(runs: impl FnOnce() -> Columns) {
    if let Some(caller) = Caller::current() {
        let runs = runs();
        caller.lock().runs = Some(runs);
    }
}

/// Whether the caller of this thread's command has stopped it.
pub fn is_stopped() -> bool {
    Caller::current().is_some_and(|caller| caller.stop.load(SeqCst))
}
