//! The contents of a trace as text.

use crate::human::{bytes, grouped};
use std::fmt::Write as _;
use trace::Info;
use trace::info::WINDOWS;

fn size(count: u64) -> String {
    bytes(count as f64)
}

/// The contents as text.
pub fn render(info: &Info) -> String {
    let mut out = String::new();
    text(info, &mut out).expect("writing to a string does not fail");
    out
}

fn text(info: &Info, out: &mut String) -> std::fmt::Result {
    let totals = &info.totals;
    writeln!(out, "{} ({}, {})", info.path, size(info.file_bytes), info.recorder)?;
    writeln!(out, "command       {}", info.command.join(" "))?;
    writeln!(out, "footprint     {} touched, {} at most at once", size(info.footprint), size(info.peak))?;
    writeln!(
        out,
        "pages         {} of memory, {} of files",
        grouped(info.data_pages),
        grouped(info.file_pages)
    )?;
    writeln!(
        out,
        "accesses      {} in {} runs: {} loads, {} stores, {} fetches",
        grouped(info.accesses),
        grouped(totals.runs),
        grouped(totals.loads),
        grouped(totals.stores),
        grouped(totals.fetches)
    )?;
    writeln!(
        out,
        "runs          {} of loads, {} of stores, {} of fetches",
        grouped(info.runs[0]),
        grouped(info.runs[1]),
        grouped(info.runs[2])
    )?;
    writeln!(out, "instructions  {}", grouped(totals.instructions))?;
    writeln!(out, "file calls    {} read, {} written", size(info.bytes_read), size(info.bytes_written))?;
    writeln!(
        out,
        "\nprocess  forked by  threads  maps: anonymous  shared  file  shared file    mapped  changes  program"
    )?;
    for row in &info.processes {
        let [anonymous, shared, file, shared_file] = row.maps;
        writeln!(
            out,
            "{:>7}  {:>9}  {:>7}  {anonymous:>15}  {shared:>6}  {file:>4}  {shared_file:>11}  {:>8}  {:>7}  {}",
            row.process,
            row.forked_by.map_or("-".to_owned(), |thread| format!("thread {thread}")),
            row.threads,
            size(row.mapped_bytes),
            row.changes,
            row.programs.join(", then ")
        )?;
    }
    writeln!(out, "\nthread  process      events        loads       stores      fetches  instructions")?;
    for row in &info.threads {
        let counts = &row.counts;
        writeln!(
            out,
            "{:>6}  {:>7}  {:>10}  {:>11}  {:>11}  {:>11}  {:>12}",
            row.thread,
            row.process,
            counts.events,
            counts.loads,
            counts.stores,
            counts.fetches,
            counts.instructions
        )?;
    }
    text_files(info, out)?;
    text_curve(info, out)?;
    info.warnings.iter().try_for_each(|warning| writeln!(out, "\nwarning: {warning}"))
}

fn text_files(info: &Info, out: &mut String) -> std::fmt::Result {
    writeln!(out, "\nfile  size at first use  place    name")?;
    for (at, file) in info.files.iter().enumerate() {
        let place = format!("{:?}", file.place).to_lowercase();
        writeln!(out, "{at:>4}  {:>17}  {place:<7}  {}", file.size, file.name)?;
    }
    Ok(())
}

fn text_curve(info: &Info, out: &mut String) -> std::fmt::Result {
    const WIDTH: u64 = 40;
    const STEP: usize = 4;
    writeln!(
        out,
        "\nworking set: pages touched in one {WINDOWS}th of the time, of each {STEP} the last (threads run beside each other)\n    \
         accesses   pages  up to here"
    )?;
    let most = info.curve.iter().map(|point| point.pages).max().unwrap_or(0).max(1);
    for point in info.curve.iter().skip(STEP - 1).step_by(STEP) {
        let bar = "#".repeat((point.pages * WIDTH / most) as usize);
        writeln!(out, "{:>12}  {:>6}  {:>10}  {bar}", point.accesses, point.pages, point.cumulative)?;
    }
    Ok(())
}
