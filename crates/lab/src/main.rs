//! The command `pagefold`.
#![forbid(unsafe_code)]

use lab::error::Error;
use std::process::ExitCode;

fn main() -> ExitCode {
    match lab::cli::main(std::env::args_os()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if !matches!(error, Error::BrokenPipe) {
                eprintln!("pagefold: {}", error.line());
            }
            ExitCode::from(error.exit_code())
        }
    }
}
