//! The command line that replays a failed run.

use crate::error::{Error, Result};
use std::any::Any;
use std::cell::RefCell;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Mutex, OnceLock};

/// Whether a run of this process has panicked.
static FAILED: AtomicBool = AtomicBool::new(false);

/// The user's file that says what options are that a command does not give.
static DEFAULTS: OnceLock<PathBuf> = OnceLock::new();

/// Words that commands need before their name.
static NEEDED: Mutex<Vec<String>> = Mutex::new(Vec::new());

thread_local! {
    /// The command that replays what this thread is running.
    static CURRENT: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Call `run`; if it panics, the message names `command`. Without [`install_panic_hook`] and where panics unwind, as in
/// the process of a caller, a panic is an error of the run.
pub fn guarded<T>(command: String, run: impl FnOnce() -> Result<T>) -> Result<T> {
    CURRENT.set(Some(command));
    // What a run has broken goes with it.
    let result = std::panic::catch_unwind(AssertUnwindSafe(run));
    CURRENT.set(None);
    result.unwrap_or_else(|panic| Err(Error::Failed(format!("an assertion failed: {}", message(&*panic)))))
}

/// Make a panic inside a run, a failed assertion of the memory manager or the machine, print the command that replays
/// it and exit with 1. The release profile aborts on panic, so this cannot wait for unwinding.
pub fn install_panic_hook() {
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let command = CURRENT.try_with(|current| current.try_borrow().ok().and_then(|c| c.clone()));
        let Ok(Some(command)) = command else { return default(info) };
        // If several runs fail at once, one message is enough.
        if FAILED.swap(true, SeqCst) {
            std::thread::park();
        }
        let message = message(info.payload());
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        eprintln!("pagefold: an assertion failed at {place}: {message}\nreplay: {command}");
        if std::env::var_os("RUST_BACKTRACE").is_some() {
            eprintln!("{}", std::backtrace::Backtrace::force_capture());
        }
        std::process::exit(1);
    }));
}

/// The user's file of defaults. Commands that replay a run have all that counts written out, and say that they hold
/// without it.
pub fn note_defaults(file: &Path) {
    DEFAULTS.get_or_init(|| file.to_owned());
}

/// The words of a command that was typed, with the file of defaults that it holds with.
pub fn typed(words: impl IntoIterator<Item = String>) -> Vec<String> {
    let with = DEFAULTS.get().map(|file| format!("PAGEFOLD_CONFIG={}", file.display()));
    with.into_iter().chain(["pagefold".to_owned()]).chain(words).collect()
}

/// The first words of a command that replays something.
pub fn first_words() -> Vec<String> {
    let without = DEFAULTS.get().map(|_| "PAGEFOLD_CONFIG=");
    let mut words: Vec<String> = without.into_iter().chain(["pagefold"]).map(str::to_owned).collect();
    words.extend(NEEDED.lock().expect("no thread panics while it reads").iter().cloned());
    words
}

/// From now on, commands that replay a run have this option.
pub fn needs(option: &str, value: &str) {
    let mut needed = NEEDED.lock().expect("no thread panics while it reads");
    needed.extend([option, value].map(str::to_owned));
}

/// What a panic says: a text, or one that was put together.
fn message(payload: &dyn Any) -> &str {
    let whole = payload.downcast_ref::<&str>().copied();
    whole.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("(no message)")
}

/// Quote words for a POSIX shell.
pub fn shell_line<S: AsRef<str>>(words: impl IntoIterator<Item = S>) -> String {
    let quoted: Vec<String> = words.into_iter().map(|word| quote(word.as_ref())).collect();
    quoted.join(" ")
}

fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=+%,@".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_of_a_panic_is_found_whether_it_has_arguments_or_not() {
        let said = |run: fn()| std::panic::catch_unwind(run).unwrap_err();
        assert_eq!(message(&*said(|| std::panic::panic_any("plain"))), "plain");
        assert_eq!(message(&*said(|| std::panic::panic_any(format!("page {}", 3)))), "page 3");
        assert_eq!(message(&*said(|| std::panic::panic_any(3))), "(no message)");
    }

    #[test]
    fn shell_splits_a_line_into_the_same_words() {
        let words = ["pagefold", "run", "my traces/a'b.pft", "", "--set", "vm.swappiness=10"];
        let line = shell_line(words);
        assert_eq!(line, r"pagefold run 'my traces/a'\''b.pft' '' --set vm.swappiness=10");
        let output = std::process::Command::new("sh")
            .args(["-c", &format!("printf '%s\\n' {line}")])
            .output()
            .unwrap();
        let back = String::from_utf8(output.stdout).unwrap();
        assert_eq!(back.split_terminator('\n').collect::<Vec<_>>(), words);
    }
}
