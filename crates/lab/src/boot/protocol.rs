//! What the guest says: lines that begin with `@` are records, everything else is its log.
//!
//! ```text
//! @pagefold 1                                    first record: the version of all that follows
//! @machine cpus=4 nodes=1 memory=67108864
//! @counter pgfault 1234                          the memory manager's counters, summed over the CPUs
//! @metric tlb_rounds 12                          what the machine counts
//! @group web usage memory.peak 4096              what a control group's files say: limits, usage, stat or events
//! @done nanos=N accesses=N progress=N tasks=N
//! @check checked=N violations=N
//! @condition node 0 managed = 8192               of a Linux guest: what it has that the simulated machine has, too
//! @note TEXT                                     what a reader of the numbers should know
//! @violation TEXT  @signal TEXT  @oom TEXT  @failed TEXT  @bad TEXT
//! @insns NAME PER N                              of the benchmark: instructions for each of N units
//! @end ok|failed|bad                             last
//! ```
//!
//! Reading is strict: a record that is unknown, malformed, said twice, or out of place is an error that names the line.
//! The two ends are built from one commit, so anything else means that they were not, or that the guest's memory is
//! damaged; a table of such numbers would be worse than none.

use crate::record::{GroupRecord, OracleRecord};
use mm::stat::Stat;
use std::collections::BTreeMap;

/// The version that this reader understands.
pub const VERSION: u64 = 1;

/// What a guest may count besides the counters of the memory manager.
pub const METRICS: &[&str] = &[
    "tlb_rounds",
    "ipis_sent",
    "ipis_received",
    "context_switches",
    "timer_ticks",
    "disk_reads",
    "disk_read_pages",
    "disk_writes",
    "disk_written_pages",
    // A Linux guest's: what the kernel used for itself, what was locked away, what the zones have, what a read took.
    "kernel_pages",
    "hidden_pages",
    "managed_pages",
    "read_micros",
    // What a read of a disk takes while the CPUs are idle, a large one then, and one while they work.
    "warm_disk_idle_nanos",
    "warm_disk_idle_large_nanos",
    "warm_disk_working_nanos",
    // Whether the kernel clears each page that it hands out.
    "clears_pages",
    // What the program spent in user mode and in the kernel, and kswapd; the instructions that it computed in user
    // mode, and what the probe took.
    "user_nanos",
    "system_nanos",
    "kswapd_nanos",
    "computed",
    "fault_picos",
    "zero_fault_picos",
    "copy_fault_picos",
    "read_picos",
    "instruction_picos",
    "pack_picos",
    "unpack_picos",
];

/// Beginnings of what compressed swap tells, device by device.
const COMPRESSED: [&str; 2] = ["zram", "zswap_"];

/// How a guest says that it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// As it should.
    Ok,
    /// The checker objected, an assertion fell, or a signal ended the program.
    Failed,
    /// It was asked for something that it cannot do.
    Bad,
}

impl Verdict {
    const ALL: [(&str, Verdict, i32); 3] =
        [("ok", Verdict::Ok, 33), ("failed", Verdict::Failed, 35), ("bad", Verdict::Bad, 37)];

    /// The status with which QEMU exits after it: the guest writes v to the exit device, QEMU makes 2v + 1 of it.
    pub fn status(self) -> i32 {
        Verdict::ALL.iter().find(|row| row.1 == self).map_or(0, |row| row.2)
    }

    /// Its word in the record.
    pub fn word(self) -> &'static str {
        Verdict::ALL.iter().find(|row| row.1 == self).map_or("", |row| row.0)
    }
}

/// What the guest found when it started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// CPUs that run.
    pub cpus: u64,
    /// NUMA nodes with memory.
    pub nodes: u64,
    /// Bytes that the memory manager was given.
    pub memory: u64,
}

/// What the program did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// Nanoseconds by the guest's clock.
    pub nanos: u64,
    /// Loads, stores and fetches.
    pub accesses: u64,
    /// Units of the program's own work.
    pub progress: u64,
    /// Tasks that ran.
    pub tasks: u64,
}

/// What a complaint is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A load did not return the last store.
    Violation,
    /// A task was ended by a signal.
    Signal,
    /// There was too little memory.
    OutOfMemory,
    /// An assertion fell.
    Failed,
    /// The kernel's command line asks for something that it cannot do.
    Bad,
}

impl Kind {
    fn of(record: &str) -> Option<Kind> {
        Some(match record {
            "@violation" => Kind::Violation,
            "@signal" => Kind::Signal,
            "@oom" => Kind::OutOfMemory,
            "@failed" => Kind::Failed,
            "@bad" => Kind::Bad,
            _ => return None,
        })
    }
}

/// One measurement of the benchmark.
#[derive(Clone, Debug, PartialEq)]
pub struct Instructions {
    /// The operation.
    pub name: String,
    /// Instructions for each unit.
    pub per: f64,
    /// Units that were counted.
    pub units: u64,
}

/// All that a guest has said.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// The machine as it found it.
    pub machine: Option<Found>,
    /// The memory manager's counters by name.
    pub counters: BTreeMap<String, i64>,
    /// What the machine counted, in the order in which it was said.
    pub metrics: Vec<(String, u64)>,
    /// What control groups have counted.
    pub groups: Vec<GroupRecord>,
    /// What the program did.
    pub done: Option<Done>,
    /// What the checker saw.
    pub check: Option<OracleRecord>,
    /// What a Linux guest has, by name.
    pub conditions: Vec<(String, String)>,
    /// What a reader of the numbers should know.
    pub notes: Vec<String>,
    /// Violations, signals and so on, in order.
    pub complaints: Vec<(Kind, String)>,
    /// Results of the benchmark.
    pub instructions: Vec<Instructions>,
    /// The last word.
    pub end: Option<Verdict>,
    /// Everything else, line by line; until the guest speaks, what the firmware says.
    pub log: Vec<String>,
}

/// A line that cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the guest's output, '{text}': {why}")]
pub struct ProtocolError {
    line: usize,
    text: String,
    why: String,
}

/// What a line was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    /// A record, which is in the report now.
    Record,
    /// The last record.
    End,
    /// A line of the log, which is in the report, too.
    Log,
}

/// Reads a guest's output line by line.
#[derive(Default)]
pub struct Parser {
    report: Report,
    lines: usize,
    greeted: bool,
}

type Checked<T> = Result<T, String>;

impl Parser {
    /// What has been said so far.
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// Whether its first process has spoken.
    pub fn greeted(&self) -> bool {
        self.greeted
    }

    /// All that was said.
    pub fn into_report(self) -> Report {
        self.report
    }

    /// Take the next line, without its line end.
    pub fn line(&mut self, raw: &str) -> Result<Line, ProtocolError> {
        self.lines += 1;
        let mut text = plain(raw);
        // The firmware may not have ended its last line when the kernel speaks first.
        if let Some(at) = text.find("@pagefold ").filter(|&at| at > 0 && !self.greeted) {
            let greeting = text.split_off(at);
            self.report.log.push(std::mem::replace(&mut text, greeting));
        }
        if !text.starts_with('@') {
            self.report.log.push(text);
            return Ok(Line::Log);
        }
        match self.record(&text) {
            Ok(()) if self.report.end.is_some() => Ok(Line::End),
            Ok(()) => Ok(Line::Record),
            Err(why) => Err(ProtocolError { line: self.lines, text, why }),
        }
    }

    fn record(&mut self, text: &str) -> Checked<()> {
        let (record, rest) = text.split_once(' ').unwrap_or((text, ""));
        if record == "@pagefold" {
            return self.greet(rest);
        }
        if !self.greeted {
            return Err("the guest has not said '@pagefold' first".into());
        }
        if self.report.end.is_some() {
            return Err("nothing may follow '@end'".into());
        }
        let report = &mut self.report;
        match record {
            "@machine" => {
                let [cpus, nodes, memory] = fields(rest, ["cpus", "nodes", "memory"])?;
                once(&mut report.machine, Found { cpus, nodes, memory })
            }
            "@done" => {
                let [nanos, accesses, progress, tasks] =
                    fields(rest, ["nanos", "accesses", "progress", "tasks"])?;
                once(&mut report.done, Done { nanos, accesses, progress, tasks })
            }
            "@check" => {
                let [checked, violations] = fields(rest, ["checked", "violations"])?;
                once(&mut report.check, OracleRecord { checked, violations })
            }
            "@counter" => {
                let [name, value] = words(rest)?;
                if Stat::from_name(name).is_none() {
                    return Err(format!("this pagefold has no counter '{name}'"));
                }
                match report.counters.insert(name.to_owned(), number(value)?) {
                    Some(_) => Err(format!("the counter '{name}' is said twice")),
                    None => Ok(()),
                }
            }
            "@metric" => {
                let [name, value] = words(rest)?;
                if !METRICS.contains(&name) && !COMPRESSED.iter().any(|start| name.starts_with(start)) {
                    return Err(format!("this pagefold knows no metric '{name}'"));
                }
                if report.metrics.iter().any(|(known, _)| known == name) {
                    return Err(format!("the metric '{name}' is said twice"));
                }
                report.metrics.push((name.to_owned(), number(value)?));
                Ok(())
            }
            "@group" => group(&mut report.groups, words(rest)?),
            "@insns" => {
                let [name, per, units] = words(rest)?;
                let per: f64 = number(per)?;
                if !per.is_finite() || per < 0.0 {
                    return Err(format!("'{per}' is no number of instructions"));
                }
                report.instructions.push(Instructions { name: name.to_owned(), per, units: number(units)? });
                Ok(())
            }
            "@condition" => {
                let (name, value) = rest.split_once(" = ").ok_or("' = ' belongs between name and value")?;
                report.conditions.push((name.to_owned(), value.to_owned()));
                Ok(())
            }
            "@note" => {
                report.notes.push(rest.to_owned());
                Ok(())
            }
            "@end" => {
                let verdict = Verdict::ALL.iter().find(|row| row.0 == rest);
                report.end = Some(verdict.ok_or("the end is one of ok, failed, bad")?.1);
                Ok(())
            }
            other => {
                let kind = Kind::of(other).ok_or_else(|| format!("'{other}' is no record"))?;
                report.complaints.push((kind, rest.to_owned()));
                Ok(())
            }
        }
    }

    fn greet(&mut self, version: &str) -> Checked<()> {
        if self.greeted {
            return Err("the guest starts again in the middle of a run".into());
        }
        if number::<u64>(version)? != VERSION {
            return Err(format!(
                "this pagefold understands version {VERSION}; build both from one checkout ('cargo xtask kernel' builds \
                 the kernel)"
            ));
        }
        self.greeted = true;
        self.report.log.clear();
        Ok(())
    }
}

/// A line of one of a group's files.
fn group(groups: &mut Vec<GroupRecord>, [name, part, file, value]: [&str; 4]) -> Checked<()> {
    let value = number(value)?;
    if groups.iter().all(|known| known.group != name) {
        groups.push(GroupRecord { group: name.to_owned(), ..GroupRecord::default() });
    }
    let group = groups.iter_mut().find(|known| known.group == name).expect("it was just put there");
    let twice = match part {
        "limits" => {
            let limit = (value != u64::MAX).then_some(value);
            group.limits.get_or_insert_default().insert(file.to_owned(), limit).is_some()
        }
        "usage" => group.usage.insert(file.to_owned(), value).is_some(),
        "stat" => group.stat.insert(file.to_owned(), value).is_some(),
        "events" => group.events.insert(file.to_owned(), value).is_some(),
        other => return Err(format!("a group tells no '{other}'")),
    };
    if twice { Err(format!("'{part} {file}' of the group '{name}' is said twice")) } else { Ok(()) }
}

/// Keep what may be said once.
fn once<T>(place: &mut Option<T>, value: T) -> Checked<()> {
    match place.replace(value) {
        Some(_) => Err("this was said before".into()),
        None => Ok(()),
    }
}

fn number<T: std::str::FromStr>(text: &str) -> Checked<T> {
    text.parse().map_err(|_| format!("'{text}' is no number"))
}

/// Split into an exact number of words.
fn words<const N: usize>(text: &str) -> Checked<[&str; N]> {
    let found: Vec<&str> = text.split_whitespace().collect();
    found.try_into().map_err(|found: Vec<&str>| format!("{N} words belong here, not {}", found.len()))
}

/// The numbers of `name=number` words with exactly these names, in this order.
fn fields<const N: usize>(text: &str, names: [&str; N]) -> Checked<[u64; N]> {
    let words: [&str; N] = words(text)?;
    let mut numbers = [0; N];
    for ((place, word), name) in numbers.iter_mut().zip(words).zip(names) {
        let value = word.strip_prefix(name).and_then(|rest| rest.strip_prefix('='));
        *place = number(value.ok_or_else(|| format!("'{name}=' is expected, not '{word}'"))?)?;
    }
    Ok(numbers)
}

/// The text without what moves a terminal's cursor: the firmware says such things before the kernel has its first word,
/// and nothing that a guest says may reach the user's terminal as a command.
fn plain(raw: &str) -> String {
    let mut text = String::with_capacity(raw.len());
    let mut chars = raw.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\x1b' if chars.peek() == Some(&'[') => {
                chars.next();
                // Parameters, then one letter.
                let _ = chars.find(|c| ('\x40'..='\x7e').contains(c));
            }
            '\x1b' => drop(chars.next()),
            '\t' => text.push(' '),
            c if c.is_control() => {}
            c => text.push(c),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Result<Report, ProtocolError> {
        let mut parser = Parser::default();
        text.lines().try_for_each(|line| parser.line(line).map(drop))?;
        Ok(parser.into_report())
    }

    #[test]
    fn a_whole_run_is_understood() {
        let text = "\x1b[2J\x1b[1;1HSeaBIOS (version 1.16)\nBooting\n\x1bc\x1b[?7lROM..@pagefold 1\nmemory found\n\
                    @machine cpus=4 nodes=1 memory=67108864\r\n@counter pgfault 1234\n@counter nr_dirty -3\n\
                    @metric tlb_rounds 12\n@group web limits memory.max 18446744073709551615\n\
                    @group web usage memory.peak 4096\n@done nanos=5 accesses=6 progress=7 tasks=8\n@check checked=9 violations=1\n\
                    @violation space 1 page 2: 3 instead of 4\n@condition node 0 low = 90\n@note 3 calls failed\n@insns anon_fault 1012.5 4096\n@end failed\n";
        let report = read(text).unwrap();
        assert_eq!(report.machine, Some(Found { cpus: 4, nodes: 1, memory: 67_108_864 }));
        assert_eq!(report.counters["pgfault"], 1234);
        assert_eq!(report.counters["nr_dirty"], -3);
        assert_eq!(report.metrics, [("tlb_rounds".to_owned(), 12)]);
        let [web] = &report.groups[..] else { panic!("{:?}", report.groups) };
        assert_eq!((web.group.as_str(), web.usage["memory.peak"]), ("web", 4096));
        assert_eq!(web.limits.as_ref().unwrap()["memory.max"], None);
        assert_eq!(report.done, Some(Done { nanos: 5, accesses: 6, progress: 7, tasks: 8 }));
        assert_eq!(report.check, Some(OracleRecord { checked: 9, violations: 1 }));
        assert_eq!(report.complaints, [(Kind::Violation, "space 1 page 2: 3 instead of 4".to_owned())]);
        assert_eq!(report.conditions, [("node 0 low".to_owned(), "90".to_owned())]);
        assert_eq!((report.instructions[0].per, &report.notes[0][..]), (1012.5, "3 calls failed"));
        assert_eq!((report.end, Verdict::Failed.status()), (Some(Verdict::Failed), 35));
        assert_eq!(report.log, ["memory found"]);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        for (text, expected) in [
            ("@counter pgfault 1", "line 1"),
            ("@counter pgfault 1", "has not said '@pagefold'"),
            (
                "hello\n@pagefold 2",
                "line 2 of the guest's output, '@pagefold 2': this pagefold understands version 1",
            ),
            ("@pagefold", "'' is no number"),
            ("@pagefold 1\n@pagefold 1", "starts again"),
            ("@pagefold 1\n@counter pgfoo 1", "no counter 'pgfoo'"),
            ("@pagefold 1\n@counter pgfault", "2 words belong here, not 1"),
            ("@pagefold 1\n@counter pgfault x", "'x' is no number"),
            ("@pagefold 1\n@counter pgfault 1\n@counter pgfault 1", "said twice"),
            ("@pagefold 1\n@metric speed 1", "no metric 'speed'"),
            ("@pagefold 1\n@metric tlb_rounds 1\n@metric tlb_rounds 1", "said twice"),
            ("@pagefold 1\n@group web peak memory.peak 1", "tells no 'peak'"),
            ("@pagefold 1\n@group web stat pgscan 1\n@group web stat pgscan 1", "'web' is said twice"),
            ("@pagefold 1\n@machine cpus=1 memory=1 nodes=1", "'nodes=' is expected, not 'memory=1'"),
            ("@pagefold 1\n@done nanos=1 accesses=1 progress=1 tasks=-1", "'-1' is no number"),
            ("@pagefold 1\n@check checked=1 violations=0\n@check checked=1 violations=0", "said before"),
            ("@pagefold 1\n@insns x NaN 3", "no number of instructions"),
            ("@pagefold 1\n@condition node 0 low 90", "belongs between name and value"),
            ("@pagefold 1\n@end fine", "one of ok, failed, bad"),
            ("@pagefold 1\n@end ok\n@end ok", "nothing may follow"),
            ("@pagefold 1\n@counte pgfault 1", "'@counte' is no record"),
        ] {
            let message = read(text).unwrap_err().to_string();
            assert!(message.contains(expected) && !message.contains('\n'), "{text:?}: {message}");
        }
    }

    #[test]
    fn nothing_that_moves_the_cursor_is_left() {
        for (raw, expected) in [
            ("a\x1b[31mred\x1b[0m\tb\r", "ared b"),
            ("\x1bcx\x07\x1b", "x"),
            ("\x1b[", ""),
            ("\u{9b}2Jx", "2Jx"),
            ("ü ok", "ü ok"),
        ] {
            assert_eq!(plain(raw), expected, "{raw:?}");
        }
    }

    proptest! {
        #[test]
        fn no_output_is_too_strange(lines in prop::collection::vec("(@[a-z]{0,8})?\\PC{0,20}", 0..20)) {
            let mut parser = Parser::default();
            for line in &lines {
                let _ = parser.line(line);
            }
            prop_assert_eq!(parser.lines, lines.len());
        }
    }
}
