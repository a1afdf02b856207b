//! `cargo run --release -p trace --example info -- FILE`: what `pagefold info` prints; with `--decode` also how
//! fast the events can be read.

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use trace::event::ThreadId;
use trace::{Info, Reader, TraceError};

fn show(path: &Path, decode: bool) -> Result<(), TraceError> {
    let reader = Reader::open(path)?;
    print!("{}", Info::read(&reader)?.render());
    if decode {
        let (begin, mut events) = (Instant::now(), 0u64);
        for thread in 0..reader.header().threads.len() as u32 {
            let mut stream = reader.stream(ThreadId(thread));
            while stream.next_event()?.is_some() {
                events += 1;
            }
        }
        let seconds = begin.elapsed().as_secs_f64();
        println!(
            "\ndecoded {events} events in {seconds:.2} s: {:.1} million/s",
            events as f64 / seconds / 1e6
        );
    }
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let decode = arguments.iter().any(|argument| argument == "--decode");
    let Some(path) = arguments.iter().find(|argument| !argument.starts_with("--")) else {
        eprintln!("usage: info [--decode] FILE");
        return ExitCode::from(2);
    };
    match show(Path::new(path), decode) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}
