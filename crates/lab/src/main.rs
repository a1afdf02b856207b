//! The command `pagefold`.
#![forbid(unsafe_code)]

use pagefold::error::Error;
use std::process::ExitCode;

fn main() -> ExitCode {
    match pagefold::cli::main(std::env::args_os()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if !matches!(error, Error::BrokenPipe) {
                eprintln!("pagefold: {}", error.line());
            }
            ExitCode::from(error.exit_code())
        }
    }
}
