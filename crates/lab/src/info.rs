//! The contents of a trace as text.

use crate::grid::Grid;
use crate::human::{bytes, grouped};
use crate::replay::shell_line;
use std::fmt::Write as _;
use trace::Info;
use trace::event::PAGE_SIZE;
use trace::info::{ContentRow, PackedRow, WINDOWS};

fn size(count: u64) -> String {
    bytes(count as f64)
}

/// The contents as text.
pub fn render(info: &Info, width: usize) -> String {
    let mut out = String::new();
    text(info, width, &mut out).expect("writing to a string does not fail");
    out
}

fn text(info: &Info, width: usize, out: &mut String) -> std::fmt::Result {
    let totals = &info.totals;
    writeln!(out, "{} ({}, {})", info.path, size(info.file_bytes), info.recorder)?;
    writeln!(out, "command       {}", shell_line(&info.command))?;
    text_sample(info, out)?;
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
    if info.content.pages > 0 {
        writeln!(out, "content       {}", content(&info.content))?;
    }
    let programs: Vec<String> = info.processes.iter().map(|row| row.programs.join(", then ")).collect();
    let mut grid = Grid::new([
        "process",
        "forked by",
        "threads",
        "maps: anonymous",
        "shared",
        "file",
        "shared file",
        "mapped",
        "changes",
        "program",
    ]);
    for (row, programs) in info.processes.iter().zip(programs) {
        let forked_by = row.forked_by.map_or("-".to_owned(), |thread| format!("thread {thread}"));
        let [anonymous, shared, file, shared_file] = row.maps.map(|count| count.to_string());
        grid.row([
            row.process.to_string(),
            forked_by,
            row.threads.to_string(),
            anonymous,
            shared,
            file,
            shared_file,
            size(row.mapped_bytes),
            row.changes.to_string(),
            programs,
        ]);
    }
    write!(out, "\n{}", grid.render(|column| column == 9, width))?;
    let mut grid = Grid::new(["thread", "process", "events", "loads", "stores", "fetches", "instructions"]);
    for row in &info.threads {
        let counts = &row.counts;
        let counts =
            [counts.events, counts.loads, counts.stores, counts.fetches, counts.instructions].map(grouped);
        grid.row([row.thread.to_string(), row.process.to_string()].into_iter().chain(counts));
    }
    write!(out, "\n{}", grid.render(|_| false, width))?;
    text_files(info, width, out)?;
    text_curve(info, width, out)?;
    info.warnings.iter().try_for_each(|warning| writeln!(out, "\nwarning: {warning}"))
}

/// How much of the program is there, if it is a sample.
fn text_sample(info: &Info, out: &mut String) -> std::fmt::Result {
    let times = |bytes: u64| size(bytes.saturating_mul(info.sample));
    let whole = [info.footprint, info.peak].map(times);
    match info.sample {
        0 | 1 => Ok(()),
        one_in => writeln!(
            out,
            "sample        one in {one_in} pages; the whole program has some {} ({} at once)",
            whole[0], whole[1]
        ),
    }
}

/// What compressors made of the pages that were written.
fn content(row: &ContentRow) -> String {
    let others = row.pages - row.zero - row.same;
    let packed = |name, packed: &PackedRow| {
        let share = |part: u64, all: u64| 100.0 * part as f64 / all.max(1) as f64;
        // Compressed swap keeps a page as it is that does not get smaller.
        let bytes = packed.bytes + packed.whole * PAGE_SIZE;
        let (to, whole) = (share(bytes, others * PAGE_SIZE), share(packed.whole, others));
        format!("to {to:.0} % by {name} ({whole:.0} % of them incompressible)")
    };
    format!(
        "{} pages written: {} zero, {} one word, the others {}, {}",
        grouped(row.pages),
        grouped(row.zero),
        grouped(row.same),
        packed("lz4", &row.lz4),
        packed("zstd", &row.zstd)
    )
}

fn text_files(info: &Info, width: usize, out: &mut String) -> std::fmt::Result {
    let mut grid = Grid::new(["file", "size at first use", "place", "name"]);
    // A long name continues in the next line of the terminal; it stays beside its file.
    grid.join(1..4);
    for (at, file) in info.files.iter().enumerate() {
        let place = format!("{:?}", file.place).to_lowercase();
        grid.row([at.to_string(), file.size.to_string(), place, file.name.clone()]);
    }
    write!(out, "\n{}", grid.render(|column| column > 1, width))
}

fn text_curve(info: &Info, width: usize, out: &mut String) -> std::fmt::Result {
    const COLUMNS: usize = 34;
    const STEP: usize = 4;
    writeln!(
        out,
        "\nworking set: pages touched in one {WINDOWS}th of the time, the most of each {STEP} (threads run beside each other)\n    \
         accesses   pages  up to here"
    )?;
    let longest = width.saturating_sub(COLUMNS).clamp(1, 40) as u64;
    let most = info.curve.iter().map(|point| point.pages).max().unwrap_or(0).max(1);
    for points in info.curve.chunks(STEP) {
        let pages = points.iter().map(|point| point.pages).max().unwrap_or(0);
        let bar = "#".repeat((pages * longest / most) as usize);
        let last = &points[points.len() - 1];
        let line = format!("{:>12}  {pages:>6}  {:>10}  {bar}", last.accesses, last.cumulative);
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}
