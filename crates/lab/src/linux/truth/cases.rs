//! What is compared.

/// A program with its conditions.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Its name in files and tables.
    pub name: &'static str,
    /// The program.
    pub program: &'static str,
    /// Memory, as `--memory` takes it.
    pub memory: &'static str,
    /// CPUs.
    pub cpus: u32,
    /// Settings, as `--set` takes them.
    pub set: &'static [&'static str],
    /// Swap areas, as `--swap` takes them; none: a disk.
    pub swap: &'static [&'static str],
    /// Whether it is run on request only, so that nothing is mended by looking at it.
    pub held_out: bool,
}

const fn case(name: &'static str, program: &'static str, memory: &'static str) -> Case {
    Case { name, program, memory, cpus: 2, set: &[], swap: &[], held_out: false }
}

const fn held(name: &'static str, program: &'static str, memory: &'static str) -> Case {
    Case { held_out: true, ..case(name, program, memory) }
}

/// A case with compressed swap.
const fn packed(of: Case, set: &'static [&'static str], swap: &'static [&'static str]) -> Case {
    Case { set, swap, ..of }
}

const ZRAM_LZ4: &[&str] = &["zram:100%,algorithm=lz4"];
const ZRAM_ZSTD: &[&str] = &["zram:100%,algorithm=zstd"];
const ZRAM_AND_DISK: &[&str] = &["zram:25%,algorithm=lz4,priority=100", "disk:128M"];
const ZSWAP_LZO: &[&str] = &[ZSWAP, "zswap.compressor=lzo-rle"];
const ZSWAP_LZ4: &[&str] = &[ZSWAP, "zswap.compressor=lz4"];
const ZSWAP_ZSTD: &[&str] = &[ZSWAP, "zswap.compressor=zstd"];

/// The setting that needs a kernel with zswap.
const ZSWAP: &str = "zswap.enabled=1";

/// Miss ratios alone: nothing is read that was not asked for.
const NO_READ_AHEAD: &[&str] = &["queue.read_ahead_kb=0", "fault_around_bytes=4096"];

/// What is compared. A third is held out: programs and traces of which no open case has another size or setting.
pub const CASES: &[Case] = &[
    Case { cpus: 1, ..case("sequential", "sequential:16M", "200%") },
    Case { cpus: 1, ..case("sequential-file", "sequential-file:16M", "200%") },
    case("zipf", "zipf:64M", "50%"),
    case("zipf-file", "zipf-file:64M", "50%"),
    Case { set: NO_READ_AHEAD, ..case("zipf-file-ra0", "zipf-file:64M", "50%") },
    Case { set: NO_READ_AHEAD, ..case("zipf-and-scan-ra0", "zipf-and-scan:48M", "50%") },
    case("hot-and-stream", "hot-and-stream:64M", "50%"),
    case("cassandra", "cassandra:32M", "50%"),
    case("memcached", "memcached:32M", "50%"),
    case("two-groups", "two-groups:32M", "150%"),
    case("mongodb", "mongodb:32M", "50%"),
    case("postgresql", "postgresql:32M", "50%"),
    case("zipf-and-scan", "zipf-and-scan:48M", "50%"),
    case("read-stream", "read-stream:64M", "50%"),
    case("stream", "stream:64M", "50%"),
    case("fork-write", "fork-write:32M", "75%"),
    case("map-storm", "map-storm:16M", "200%"),
    case("trace-sqlite", "traces/sqlite.pft", "50%"),
    case("zipf-75", "zipf:64M", "75%"),
    case("uniform", "uniform:32M", "75%"),
    Case { cpus: 1, ..case("zipf-1cpu", "zipf:64M", "50%") },
    Case { set: &["vm.page-cluster=0"], ..case("zipf-no-cluster", "zipf:64M", "50%") },
    case("shared-writers", "shared-writers:32M", "50%"),
    case("redis", "redis:24M", "50%"),
    Case { set: &["vm.swappiness=10"], ..case("cassandra-swappiness-10", "cassandra:32M", "50%") },
    Case { set: &["vm.swappiness=200"], ..case("cassandra-swappiness-200", "cassandra:32M", "50%") },
    case("lsm", "lsm:32M", "50%"),
    case("trace-redis", "traces/redis.pft", "50%"),
    Case { cpus: 4, ..case("zipf-4cpu", "zipf:64M", "50%") },
    Case { set: &["queue.read_ahead_kb=512"], ..case("zipf-file-ra512", "zipf-file:64M", "50%") },
    case("msync", "msync:32M", "150%"),
    Case { set: &["hugepages-2048kB.enabled=always"], ..case("zipf-thp", "zipf:64M", "75%") },
    case("get-scan", "get-scan:40M", "50%"),
    case("uniform-file", "uniform-file:48M", "50%"),
    packed(case("zipf-zram", "zipf:48M", "85%"), &[], ZRAM_LZ4),
    packed(case("memcached-zram", "memcached:32M", "85%"), &[], ZRAM_ZSTD),
    packed(case("redis-zram", "redis:24M", "85%"), &[], ZRAM_ZSTD),
    packed(case("uniform-zram-disk", "uniform:32M", "60%"), &[], ZRAM_AND_DISK),
    packed(case("redis-zswap", "redis:24M", "60%"), ZSWAP_ZSTD, &[]),
    packed(case("zipf-zswap", "zipf:64M", "50%"), ZSWAP_LZO, &[]),
    packed(case("uniform-zswap", "uniform:32M", "60%"), ZSWAP_LZ4, &[]),
    packed(case("trace-redis-zswap", "traces/redis.pft", "60%"), ZSWAP_ZSTD, &[]),
    held("held-phases", "phases:56M", "60%"),
    held("held-fio", "fio:48M", "55%"),
    held("held-mariadb", "mariadb:40M", "60%"),
    held("held-terasort", "terasort:40M", "60%"),
    held("held-usemem", "usemem:48M:nproc=2", "70%"),
    held("held-file-search", "file-search:40M", "60%"),
    Case { cpus: 4, ..held("held-fio-mmap-4cpu", "fio-mmap:48M", "55%") },
    Case { cpus: 1, ..held("held-spark-sort-1cpu", "spark-sort:40M", "65%") },
    held("held-trace-cc1", "traces/cc1.pft", "50%"),
    held("held-trace-compile", "traces/compile.pft", "50%"),
    held("held-trace-node", "traces/node.pft", "65%"),
    held("held-trace-pack", "traces/pack.pft", "100%"),
    Case {
        set: &["vm.swappiness=0"],
        ..held("held-trace-memcached-swappiness-0", "traces/memcached.pft", "65%")
    },
    Case { set: &["vm.swappiness=150"], ..held("held-trace-jvm-swappiness-150", "traces/jvm.pft", "60%") },
    Case {
        set: &["queue.read_ahead_kb=0"],
        ..held("held-trace-postgresql-ra0", "traces/postgresql.pft", "60%")
    },
    Case {
        set: &["hugepages-64kB.enabled=always"],
        ..held("held-trace-numpy-64kB", "traces/numpy.pft", "70%")
    },
    packed(held("held-phases-zram", "phases:56M", "75%"), &[], ZRAM_LZ4),
    packed(held("held-trace-memcached-zram-disk", "traces/memcached.pft", "65%"), &[], ZRAM_AND_DISK),
    packed(held("held-trace-jvm-zswap", "traces/jvm.pft", "60%"), ZSWAP_ZSTD, &[]),
    packed(held("held-trace-numpy-zswap", "traces/numpy.pft", "70%"), ZSWAP_LZO, &[]),
    held("held-anon-cow-rand", "anon-cow-rand:32M", "70%"),
];

impl Case {
    /// The file of a result in the folder of its kernel.
    pub fn file(&self, policy: &str) -> String {
        format!("{}.{policy}.json", self.name)
    }

    /// The file of its boots.
    pub fn boots_file(&self, policy: &str) -> String {
        format!("{}.{policy}.boots.json", self.name)
    }

    /// What the user would type.
    pub fn command(&self) -> String {
        let settings = self.set.iter().map(|setting| format!(" --set {setting}"));
        let more: String = settings.chain(self.swap.iter().map(|area| format!(" --swap {area}"))).collect();
        format!("{} --memory {} --cpus {}{more}", self.program, self.memory, self.cpus)
    }

    /// Whether it needs a kernel with zswap.
    pub fn needs_zswap(&self) -> bool {
        self.set.contains(&ZSWAP)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boot::{Second, Shape};
    use crate::engine::{Program, SwapSpec};
    use crate::profile::parse_setting;

    #[test]
    fn every_case_can_be_run_and_has_a_name_of_its_own() {
        let mut names: Vec<&str> = CASES.iter().map(|case| case.name).collect();
        for case in CASES {
            assert!(case.set.iter().all(|setting| parse_setting(setting).is_ok()), "{}", case.name);
            assert!(case.swap.iter().all(|area| area.parse::<SwapSpec>().is_ok()), "{}", case.name);
        }
        names.sort_unstable();
        names.dedup();
        assert!(names.len() == CASES.len() && names.len() >= 30, "{names:?}");
    }

    #[test]
    fn what_is_held_out_is_no_open_program_with_another_size() {
        let of = |held_out| CASES.iter().filter(move |case| case.held_out == held_out);
        let word = |case: &Case| case.program.split(':').next().unwrap_or_default();
        for held in of(true) {
            let open = of(false).find(|open| word(open) == word(held));
            assert!(open.is_none(), "{} is {} again", held.name, open.map_or("", |open| open.name));
        }
    }

    #[test]
    fn programs_are_there_and_their_memory_makes_a_machine() {
        for case in CASES {
            let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
            let recorded = case.program.ends_with(".pft").then(|| format!("{root}/{}", case.program));
            let program = Program::find(recorded.as_deref().unwrap_or(case.program)).expect(case.name);
            let memory: crate::size::Memory = case.memory.parse().expect(case.name);
            let machine = Shape::new(case.cpus, Second::Missing, memory.resolve(program.peak_live()), 0);
            assert!(machine.is_ok(), "{}: {:?}", case.name, machine.err());
        }
    }

    #[test]
    fn a_third_is_held_out() {
        let held = CASES.iter().filter(|case| case.held_out).count();
        assert_eq!(held, CASES.len() / 3);
    }
}
