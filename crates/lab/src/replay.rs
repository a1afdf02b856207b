//! The command line that replays a failed run.

use std::any::Any;
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// Whether a run of this process has panicked.
static FAILED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// The command that replays what this thread is running.
    static CURRENT: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Call `run`; if it panics, the message names `command`.
pub fn guarded<T>(command: String, run: impl FnOnce() -> T) -> T {
    CURRENT.set(Some(command));
    let result = run();
    CURRENT.set(None);
    result
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
