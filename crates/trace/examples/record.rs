//! What `pagefold record` does, without the rest of Pagefold: `cargo run --release -p pagefold-trace --example record
//! -- -o FILE [--keep] [--level N] [--window N] [--after MILLIONS] [--sample N] -- COMMAND ARGS`.

use std::process::ExitCode;

use pagefold_trace::record::{RecordOptions, record};

fn main() -> ExitCode {
    let mut options = RecordOptions::new("trace.pft", Vec::new());
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "-o" => options.output = arguments.next().unwrap_or_default().into(),
            "--keep" => options.keep = true,
            "--level" => options.level = arguments.next().and_then(|n| n.parse().ok()).unwrap_or(9),
            "--window" => options.window = arguments.next().and_then(|n| n.parse().ok()).unwrap_or(32),
            "--sample" => options.sample = arguments.next().and_then(|n| n.parse().ok()).unwrap_or(1),
            "--after" => {
                options.after = arguments.next().and_then(|n| n.parse().ok()).unwrap_or(0) * 1_000_000;
            }
            _ => {
                options.command = arguments.by_ref().collect();
                if argument != "--" {
                    options.command.insert(0, argument);
                }
            }
        }
    }
    match record(&options) {
        Ok(summary) => {
            let counts = summary.header.counts();
            eprintln!(
                "{}: {} bytes, {} threads, {} events, {} accesses, footprint {} MiB",
                options.output.display(),
                summary.file_len,
                summary.header.threads.len(),
                counts.events,
                counts.accesses(),
                summary.header.footprint >> 20
            );
            summary.header.warnings.iter().for_each(|warning| eprintln!("warning: {warning}"));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}
