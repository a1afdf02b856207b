//! The reference strings of the LIRS paper, imported: LRU hits as often in the traces as another simulator says.
//!
//! The strings come with a package of Maven's of 95 MB, which the test fetches once if it is told to; else it skips.
//! The paper (Jiang and Zhang, SIGMETRICS 2002) prints hit ratios as curves, not as numbers. So the numbers here are
//! those of libCacheSim 0.3.5 (Python), to which the same files were given on 28 November 2026.

use pagefold_trace::event::{Event, ThreadId};
use pagefold_trace::import::{Backing, Format, Request, Settings, import};
use pagefold_trace::{Reader, TraceError};
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::process::{Command, Stdio};

const ARTIFACT: &str = "com.github.ben-manes.caffeine:simulator:3.1.8";
const JAR: &str = "com/github/ben-manes/caffeine/simulator/3.1.8/simulator-3.1.8.jar";
const FOLDER: &str = "com/github/benmanes/caffeine/cache/simulator/parser/lirs";

/// A string, its references and pages, and how often LRU hits by the pages of memory.
type String_ = (&'static str, u64, usize, &'static [(usize, u64)]);

const STRINGS: [String_; 7] = [
    ("2_pools", 100_000, 9939, &[(100, 21946), (300, 45141), (450, 50274)]),
    ("cpp", 9047, 1223, &[(20, 56), (100, 6307), (500, 7670)]),
    ("cs", 6781, 1409, &[(500, 124), (1300, 124), (1500, 5372)]),
    ("gli", 6015, 2529, &[(250, 55), (500, 57), (1000, 674), (2000, 3453)]),
    ("multi1", 15858, 2606, &[(500, 7375), (1000, 7648), (2000, 13196)]),
    ("ps", 10448, 3083, &[(500, 5072), (2500, 7364)]),
    ("sprite", 133_996, 7075, &[(100, 28917), (500, 104_922), (1000, 121_452)]),
];

/// The package's file, which is fetched if `PAGEFOLD_FETCH` is set.
fn jar() -> Option<PathBuf> {
    let repository = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("maven");
    let jar = repository.join(JAR);
    if !jar.is_file() && std::env::var_os("PAGEFOLD_FETCH").is_some() {
        let arguments = ["-q", "-B", "dependency:get", "-Dtransitive=false"];
        let [artifact, local] =
            [format!("-Dartifact={ARTIFACT}"), format!("-Dmaven.repo.local={}", repository.display())];
        let mut fetch = Command::new("mvn");
        fetch.args(arguments).args([artifact, local]).stdout(Stdio::null()).stderr(Stdio::null());
        fetch.status().ok()?;
    }
    jar.is_file().then_some(jar)
}

/// A file of the package.
fn unpack(jar: &PathBuf, name: &str) -> Option<Vec<u8>> {
    let output =
        Command::new("unzip").arg("-p").arg(jar).arg(format!("{FOLDER}/{name}.trace.gz")).output().ok()?;
    output.status.success().then_some(output.stdout)
}

/// The pages that a trace refers to, one after the other.
fn references(reader: &Reader) -> Result<Vec<u64>, TraceError> {
    let mut pages = Vec::new();
    for event in reader.stream(ThreadId(0)) {
        if let Event::Run(run) = event? {
            pages.extend(std::iter::repeat_n(run.page, run.count as usize));
        }
    }
    Ok(pages)
}

/// How often a page is in a memory of `size` pages that replaces the one that was not used for longest.
fn lru_hits(references: &[u64], size: usize) -> u64 {
    let (mut last, mut by_time): (HashMap<u64, usize>, BTreeMap<usize, u64>) = Default::default();
    let mut hits = 0;
    for (now, &page) in references.iter().enumerate() {
        match last.insert(page, now) {
            Some(before) => {
                by_time.remove(&before);
                hits += 1;
            }
            None if by_time.len() == size => {
                let (_, oldest) = by_time.pop_first().unwrap();
                last.remove(&oldest);
            }
            None => {}
        }
        by_time.insert(now, page);
    }
    hits
}

#[test]
fn lru_hits_in_imported_strings_as_often_as_in_another_simulator() {
    let Some(jar) = jar() else {
        println!(
            "SKIPPED: {ARTIFACT} is not there; with PAGEFOLD_FETCH=1 mvn fetches it (Debian: apt-get install maven)"
        );
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    for (name, length, pages, hits) in STRINGS {
        let Some(string) = unpack(&jar, name) else {
            println!("SKIPPED: unzip cannot read {} (Debian: apt-get install unzip)", jar.display());
            return;
        };
        let (input, output) = (folder.path().join(name), folder.path().join("out.pft"));
        std::fs::write(&input, string).unwrap();
        // Pages of a file are not written before they are read: the trace has the references alone.
        let settings = Settings { backing: Some(Backing::File), ..Settings::default() };
        let request = Request { format: Format::Pages, input: &input, output: &output, settings };
        let header = import(&request, &mut || true).unwrap();
        assert_eq!((header.counts().accesses(), header.file_pages), (length, pages as u64), "{name}");
        let references = references(&Reader::open(&output).unwrap()).unwrap();
        for &(size, expected) in hits {
            assert_eq!(lru_hits(&references, size), expected, "{name} in {size} pages");
        }
    }
}
