//! The command `pagefold`.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    pagefold::cli::start()
}
