//! Which formats there are, and what a caller may choose.

/// A format that can be imported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// valgrind's lackey, text.
    Lackey,
    /// What `damo record` writes: JSON, compressed or not, or text of perf script.
    Damon,
    /// A configuration of masim.
    Masim,
    /// Memory samples as perf script prints them.
    Perf,
    /// The text of drmemtrace's tool `view`.
    Dynamorio,
    /// libCacheSim's oracleGeneral or lcs.
    Libcachesim,
    /// ChampSim's instructions.
    Champsim,
    /// Page numbers as text.
    Pages,
}

impl Format {
    /// All formats.
    pub const ALL: [Format; 8] = [
        Format::Lackey,
        Format::Damon,
        Format::Masim,
        Format::Perf,
        Format::Dynamorio,
        Format::Libcachesim,
        Format::Champsim,
        Format::Pages,
    ];

    /// Its name in commands.
    pub const fn name(self) -> &'static str {
        match self {
            Format::Lackey => "lackey",
            Format::Damon => "damon",
            Format::Masim => "masim",
            Format::Perf => "perf",
            Format::Dynamorio => "dynamorio",
            Format::Libcachesim => "libcachesim",
            Format::Champsim => "champsim",
            Format::Pages => "pages",
        }
    }

    /// The tool that makes such files, as traces name their recorder.
    pub(super) const fn recorder(self) -> &'static str {
        match self {
            Format::Lackey => "valgrind lackey",
            Format::Damon => "DAMON",
            Format::Masim => "masim configuration",
            Format::Perf => "perf script",
            Format::Dynamorio => "DynamoRIO view",
            Format::Libcachesim => "libCacheSim trace",
            Format::Champsim => "ChampSim trace",
            Format::Pages => "page numbers",
        }
    }

    /// How such a file is made.
    pub(super) const fn remedy(self) -> &'static str {
        match self {
            Format::Lackey => "make it with valgrind --tool=lackey --trace-mem=yes",
            Format::Damon => "make it with damo record, as json_compressed, json or perf_script",
            Format::Masim => "docs/imports.md shows what a configuration looks like",
            Format::Perf => {
                "make it with perf mem record and then perf script -F comm,pid,tid,time,event,addr,data_src"
            }
            Format::Dynamorio => "make it with drrun -t drmemtrace -tool view 2> FILE",
            Format::Libcachesim => "make it with libCacheSim's traceConv, as oracleGeneral or lcs",
            Format::Champsim => "make it with ChampSim's tracer; records of CloudSuite traces are not read",
            Format::Pages => "write one page number a line, or the four numbers of the ARC paper's files",
        }
    }

    /// What pages are if the caller does not say.
    pub(super) const fn backing(self) -> Backing {
        match self {
            Format::Lackey | Format::Dynamorio | Format::Champsim => Backing::Program,
            Format::Damon | Format::Masim | Format::Perf | Format::Pages => Backing::Anonymous,
            Format::Libcachesim => Backing::File,
        }
    }

    /// What a reader of the trace should know about its making.
    pub(super) const fn note(self) -> Option<&'static str> {
        match self {
            Format::Damon => Some(
                "made from DAMON's samples: each page of a region is touched as often as the region was found \
                 accessed, all at one time of an aggregation interval",
            ),
            Format::Perf => Some(
                "made from samples: one access for each, at its time; what was not sampled is not in the trace",
            ),
            Format::Masim => Some("made from a configuration: the number of accesses is that of --rate"),
            _ => None,
        }
    }
}

/// What the imported pages are, of which a recording does not tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Backing {
    /// Anonymous memory where the recording stores, else of a file that is mapped privately: code and constants.
    Program,
    /// Anonymous memory. A page that is read before it was written gets a store first, because it held something.
    Anonymous,
    /// Of one file, mapped shared.
    File,
}

/// What a caller may choose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Seed of what is drawn.
    pub seed: u64,
    /// What pages are; `None`: what is usual for the format.
    pub backing: Option<Backing>,
    /// Whether the program sleeps as long as passed between accesses by the times that the recording tells.
    pub times: bool,
    /// The process (perf) or target (DAMON) to import, if the recording has several.
    pub only: Option<u64>,
    /// Accesses in a millisecond of a phase of masim.
    pub rate: u64,
    /// The most distinct pages.
    pub most_pages: u64,
}

impl Default for Settings {
    fn default() -> Self {
        // 64 GiB: a text of a few bytes can name any range, and is refused instead of taking all memory.
        Settings { seed: 1, backing: None, times: true, only: None, rate: 1000, most_pages: 1 << 24 }
    }
}
