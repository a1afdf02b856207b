//! Recording real programs, from the emulator to the trace. Where the emulator is missing these tests say so and
//! pass; the errors are tested everywhere.

use std::path::Path;

use abi::{AccessKind, Call};
use pagefold_trace::event::{Event, ThreadId};
use pagefold_trace::record::{RecordError, RecordOptions, Summary, record, record_watched};
use pagefold_trace::{Info, Reader};

fn options(output: &Path, command: &[&str]) -> RecordOptions {
    let mut options = RecordOptions::new(output, command.iter().map(|&word| word.to_owned()).collect());
    options.level = 3;
    options
}

/// Record a command; `None` if the emulator or the program is not installed here.
fn try_record(output: &Path, command: &[&str]) -> Option<Summary> {
    match record(&options(output, command)) {
        Ok(summary) => Some(summary),
        Err(error @ (RecordError::NoEmulator { .. } | RecordError::NoProgram { .. })) => {
            println!("SKIPPED: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_program_is_recorded_with_its_files_and_maps() {
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("input.bin"), folder.path().join("cp.pft"));
    std::fs::write(&input, vec![7u8; 300_000]).unwrap();
    let copy = folder.path().join("copy.bin");
    let command = [
        "dd",
        &format!("if={}", input.display()),
        &format!("of={}", copy.display()),
        "bs=4096",
        "status=none",
    ];
    let Some(summary) = try_record(&output, &command) else { return };
    assert_eq!(std::fs::metadata(&copy).unwrap().len(), 300_000);
    assert!(summary.header.warnings.is_empty(), "{:?}", summary.header.warnings);
    let file = |name: &str| summary.header.files.iter().position(|file| file.name == name).unwrap();
    let (from, to) = (file("input.bin"), file("copy.bin"));
    assert_eq!(summary.header.files[from].size, 300_000);
    assert_eq!(summary.header.files[to].size, 0);
    let reader = Reader::open(&output).unwrap();
    reader.verify().unwrap();
    let (mut read, mut written) = (0, 0);
    for event in reader.stream(ThreadId(0)) {
        match event.unwrap() {
            Event::Call { call: Call::Pread(file, buffer, offset), .. } if file as usize == from => {
                assert_eq!(offset, read);
                read += buffer.len;
            }
            Event::Call { call: Call::Pwrite(file, buffer, offset), .. } if file as usize == to => {
                assert_eq!(offset, written);
                written += buffer.len;
            }
            _ => {}
        }
    }
    assert_eq!((read, written), (300_000, 300_000));
    let counts = summary.header.counts();
    assert!(counts.loads > 1000 && counts.stores > 1000 && counts.instructions > counts.fetches);
    let info = Info::read(&reader).unwrap();
    assert!(info.files.iter().any(|file| file.name.contains("input.bin")));
    assert_eq!(info.curve.last().unwrap().accesses, info.accesses);
    assert!(info.processes[0].maps[0] > 0 && info.processes[0].maps[2] > 0);
}

#[test]
fn a_recording_can_begin_late_with_what_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("late.pft");
    // The variable has some 50 pages, which the loop after it does not write.
    let script = "printf -v x '%0200000d' 7; i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done; : ${#x}";
    let mut options = options(&output, &["bash", "-c", script]);
    let mut late = |after: u64| {
        options.after = after;
        match record(&options) {
            Ok(summary) => Some(summary.header),
            Err(RecordError::NoEmulator { .. }) => None,
            Err(error) => panic!("{error}"),
        }
    };
    let Some(whole) = late(0) else { return };
    let half = late(whole.counts().instructions / 2).unwrap();
    let (all, some) = (whole.counts(), half.counts());
    let part = some.instructions as f64 / all.instructions as f64;
    assert!((0.4..0.6).contains(&part), "{part} of the instructions");
    let pages = (half.data_pages, whole.data_pages);
    // bash also had a copy of it, which it has given back before.
    assert!(pages.0 > 100 && pages.0 + 60 > pages.1, "{pages:?}");
    assert!(half.warnings.iter().any(|warning| warning.contains("of the first")), "{:?}", half.warnings);
    let epochs = |header: &pagefold_trace::Header| header.processes[0].epochs;
    assert_eq!(epochs(&half), epochs(&whole));
    // Relocated data are protected from writing, and what was written is there before.
    let none = late(u64::MAX).unwrap();
    let counts = none.counts();
    assert_eq!((counts.accesses(), epochs(&none)), (counts.stores, epochs(&whole)));
    assert!((1..100).contains(&counts.stores), "{counts:?}");
}

#[test]
fn a_sample_has_all_calls_and_instructions_and_some_pages() {
    const BLOCK: u64 = 2 << 20;
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("input.bin"), folder.path().join("dd.pft"));
    std::fs::File::create(&input).unwrap().set_len(64 * BLOCK).unwrap();
    let from = format!("if={}", input.display());
    // A child that becomes another program samples, too.
    let command = ["sh", "-c", "dd \"$0\" of=/dev/null bs=1M status=none; true", &from];
    let recorded = |sample: u64| {
        let mut options = options(&output, &command);
        options.sample = sample;
        match record(&options) {
            Ok(summary) => Some((summary.header, Info::read(&Reader::open(&output).unwrap()).unwrap())),
            Err(RecordError::NoEmulator { .. }) => None,
            Err(error) => panic!("{error}"),
        }
    };
    let Some((all, whole)) = recorded(1) else { return };
    let (header, info) = recorded(4).unwrap();
    assert_eq!((all.sample, header.sample, info.sample), (1, 4, 4));
    assert_eq!(all.sampled(), None);
    assert!(header.sampled().unwrap().contains("4 times as much"));
    let instructions = (whole.totals.instructions as f64, info.totals.instructions as f64);
    assert!((instructions.1 / instructions.0 - 1.0).abs() < 0.02, "{instructions:?}");
    assert_eq!(header.processes.len(), all.processes.len());
    let reader = Reader::open(&output).unwrap();
    let file = header.files.iter().position(|file| file.name == "input.bin").unwrap();
    let mut blocks = std::collections::BTreeMap::<u64, u64>::new();
    for thread in 0..header.threads.len() as u32 {
        for event in reader.stream(ThreadId(thread)) {
            if let Event::Call { call: Call::Pread(from, buffer, at), .. } = event.unwrap()
                && from as usize == file
            {
                *blocks.entry(at / BLOCK).or_default() += buffer.len;
            }
        }
    }
    assert!(blocks.values().all(|&read| read == BLOCK), "each that is there is there as a whole: {blocks:?}");
    assert!((4..=32).contains(&blocks.len()), "{} of 64", blocks.len());
    assert!(info.accesses < whole.accesses && header.footprint < all.footprint / 2, "{}", header.footprint);
}

#[test]
fn what_pages_hold_is_told_as_compressors_see_it() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("dd.pft");
    let content = |from: &str| {
        // The buffer has 256 pages, which the kernel fills.
        let command = ["dd", &format!("if={from}"), "of=/dev/null", "bs=1M", "count=1", "status=none"];
        let summary = try_record(&output, &command)?;
        assert!(summary.header.warnings.is_empty(), "{:?}", summary.header.warnings);
        Some(Info::read(&Reader::open(&output).unwrap()).unwrap().content)
    };
    let (Some(noise), Some(zero)) = (content("/dev/urandom"), content("/dev/zero")) else { return };
    assert!((256..300).contains(&noise.lz4.whole) && (256..300).contains(&noise.zstd.whole), "{noise:?}");
    assert!(zero.zero >= 256 && zero.lz4.whole < 10, "{zero:?}");
    // Stack, heap and libraries' data: they get smaller, and more so with zstd.
    let others = zero.pages - zero.zero - zero.same;
    assert!(others > 5 && zero.zstd.bytes < zero.lz4.bytes && zero.lz4.bytes < others * 2048, "{zero:?}");
}

#[test]
fn forks_become_processes_and_exec_is_followed() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("sh.pft");
    let script = "(x=1; while [ $x -lt 50 ]; do x=$((x+1)); done); true | true; /bin/true; wait";
    let Some(summary) = try_record(&output, &["sh", "-c", script]) else { return };
    let header = &summary.header;
    assert!(header.processes.len() >= 4, "{} processes", header.processes.len());
    assert!(header.processes[1..].iter().all(|process| process.forked_by == Some(ThreadId(0))));
    assert!(header.warnings.is_empty() && summary.unfollowed.is_empty(), "{:?}", header.warnings);
    let reader = Reader::open(&output).unwrap();
    reader.verify().unwrap();
    let events: Vec<Event> = reader.stream(ThreadId(0)).map(Result::unwrap).collect();
    let forks =
        events.iter().filter(|event| matches!(event, Event::Call { call: Call::Fork(_), .. })).count();
    let joins =
        events.iter().filter(|event| matches!(event, Event::Call { call: Call::Join(_), .. })).count();
    assert_eq!((forks, joins), (header.processes.len() - 1, forks));
}

#[test]
fn a_failing_program_leaves_no_trace_unless_asked() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("fail.pft");
    std::fs::write(&output, "precious").unwrap();
    let mut options = options(&output, &["sh", "-c", "exit 3"]);
    match record(&options) {
        Err(error @ RecordError::Failed { .. }) => {
            assert!(error.to_string().contains("exit status: 3"), "{error}")
        }
        Err(RecordError::NoEmulator { .. }) => return println!("SKIPPED: no emulator"),
        other => panic!("{other:?}"),
    }
    assert_eq!(std::fs::read(&output).unwrap(), b"precious");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    options.keep = true;
    let summary = record(&options).unwrap();
    assert!(summary.header.warnings.iter().any(|warning| warning.contains("exit status: 3")));
    options.command[2] = "kill -9 $$".into();
    let summary = record(&options).unwrap();
    assert!(summary.header.warnings.iter().any(|warning| warning.contains("was killed")));
    Reader::open(&output).unwrap().verify().unwrap();
}

/// The programs of each process, and what the trace says of itself.
fn programs(output: &Path) -> Vec<Vec<String>> {
    let reader = Reader::open(output).unwrap();
    reader.verify().unwrap();
    Info::read(&reader).unwrap().processes.into_iter().map(|process| process.programs).collect()
}

/// Record a script for the shell; returns the programs of its processes, and the rest that is known.
fn record_script(folder: &Path, script: &str) -> Option<(Vec<Vec<String>>, Summary)> {
    let output = folder.join("x.pft");
    let script = format!("cd {}; {script}", folder.display());
    let summary = try_record(&output, &["bash", "-c", &script])?;
    assert!(summary.header.warnings.is_empty(), "{script}: {:?}", summary.header.warnings);
    Some((programs(&output), summary))
}

#[test]
fn a_pipeline_is_recorded_with_all_its_programs() {
    let folder = tempfile::tempdir().unwrap();
    let script = "/bin/echo b | cat | sort > sorted; X=1 exec env Y=2 sh -c 'echo $X$Y > own'";
    let Some((processes, _)) = record_script(folder.path(), script) else { return };
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    assert_eq!((read("sorted"), read("own")), ("b\n".to_owned(), "12\n".to_owned()));
    assert!(processes[0].iter().any(|name| name == "env") && processes[0].len() == 3, "{processes:?}");
    for name in ["echo", "cat", "sort"] {
        let mut runs = processes[1..].iter().filter(|programs| programs.len() == 2);
        assert!(runs.any(|programs| programs[1].split('#').next() == Some(name)), "{name}: {processes:?}");
    }
}

/// What a program does in a script is what it does alone.
#[test]
fn a_program_is_recorded_alike_alone_and_in_a_script() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("x.pft");
    let Some(alone) = try_record(&output, &["sort", "/proc/cpuinfo", "-o", "/dev/null"]) else { return };
    let script = "sort /proc/cpuinfo -o /dev/null; true";
    let Some(inside) = try_record(&output, &["sh", "-c", script]) else { return };
    let accesses = |summary: &Summary, thread: usize| summary.header.threads[thread].counts.accesses() as f64;
    assert_eq!(programs(&output)[1][1], "sort");
    let (alone, inside) = (accesses(&alone, 0), accesses(&inside, 1));
    assert!((inside / alone - 1.0).abs() < 0.01, "{alone} accesses alone, {inside} in a script");
}

/// A process that becomes another program has nothing mapped of the old one, and what it accesses is mapped.
#[test]
fn exec_gives_the_process_a_new_address_space() {
    let folder = tempfile::tempdir().unwrap();
    let Some((processes, _)) = record_script(folder.path(), "exec /bin/true") else { return };
    assert_eq!(processes.len(), 1);
    let reader = Reader::open(&folder.path().join("x.pft")).unwrap();
    let (mut mapped, mut execs, mut epochs) = (std::collections::BTreeSet::new(), 0, 0);
    let pages = |addr: u64, len: u64| addr >> 12..(addr + len).div_ceil(4096);
    for event in reader.stream(ThreadId(0)).map(Result::unwrap) {
        if let Some(epoch) = event.epoch().filter(|&epoch| epoch > 0) {
            assert_eq!(epoch, epochs + 1);
            epochs = epoch;
        }
        match event {
            Event::Exec => execs += 1,
            Event::Call { epoch: 0, call: Call::Mmap(map), value } => {
                assert!(pages(value, map.len).all(|page| mapped.insert(page)), "{event:?}");
            }
            Event::Call { call: Call::Mmap(map), value, .. } => mapped.extend(pages(value, map.len)),
            Event::Call { call: Call::Munmap(addr, len), .. } => pages(addr, len).for_each(|page| {
                mapped.remove(&page);
            }),
            Event::Run(run) => assert!(mapped.contains(&run.page), "{run:?}"),
            _ => {}
        }
    }
    assert_eq!(execs, 1);
}

#[test]
fn programs_are_executed_as_the_kernel_does() {
    let folder = tempfile::tempdir().unwrap();
    let script = "exec 7<keep; (exec -a other sh -c 'echo $0; read x <&7; echo $x'); \
        cp /bin/echo gone; exec 9<gone; rm gone; /proc/self/fd/9 deleted; \
        (cd sub && ./run a 'b c'); (exec /proc/self/exe -c 'echo itself'); ./text; ./none 2> err; echo $?; \
        env -i /bin/sh -c 'echo $#${HOME-empty}${LD_PRELOAD-unset}'; LD_PRELOAD=./no.so sh -c 'echo $LD_PRELOAD' 2> err2";
    std::fs::create_dir(folder.path().join("sub")).unwrap();
    let write = |name: &str, text: &str| {
        use std::os::unix::fs::PermissionsExt;
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    write("keep", "kept\n");
    write("sub/run", "#!/bin/sh -e\necho $0 $1 $2 $#\n");
    // Without an interpreter: the kernel refuses it, and the shell runs it.
    write("text", "echo text\n");
    let script = format!("({script}) > said");
    let Some((processes, _)) = record_script(folder.path(), &script) else { return };
    let said = std::fs::read_to_string(folder.path().join("said")).unwrap();
    let expected = "other\nkept\ndeleted\n./run a b c 2\nitself\ntext\n127\n0emptyunset\n./no.so\n";
    assert_eq!(said, expected);
    // What no program is starts none.
    assert!(processes.iter().flatten().all(|name| name != "text" && name != "none"), "{processes:?}");
}

/// `std` starts programs with `posix_spawn`, which the emulator makes a `fork`.
#[test]
fn programs_that_threads_start_are_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("x.pft");
    let this = std::env::current_exe().unwrap();
    let words = [this.to_str().unwrap(), "threads_start_programs", "--exact", "--test-threads=1"];
    let Some(summary) = try_record(&output, &words) else { return };
    assert!(summary.header.warnings.is_empty(), "{:?}", summary.header.warnings);
    let processes = programs(&output);
    let echoes = processes.iter().filter(|programs| programs.last().is_some_and(|name| name == "echo"));
    assert_eq!(echoes.count(), 12, "{processes:?}");
}

/// The program that [`programs_that_threads_start_are_recorded`] records, which must also work alone.
#[test]
fn threads_start_programs() {
    // While one forks, the others run and end.
    let start = || {
        for _ in 0..4 {
            let output = std::process::Command::new("/bin/echo").arg("x").output().unwrap();
            assert_eq!(output.stdout, b"x\n");
        }
    };
    let threads: Vec<_> = (0..3).map(|_| std::thread::spawn(start)).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn a_program_with_rights_of_its_own_is_refused_or_told() {
    use std::os::unix::fs::{PermissionsExt, chown};
    let folder = tempfile::tempdir().unwrap();
    let (own, output) = (folder.path().join("own"), folder.path().join("x.pft"));
    std::fs::copy("/bin/true", &own).unwrap();
    if chown(&own, Some(12_345), None).is_err() {
        return println!("SKIPPED: only root can give files away");
    }
    std::fs::set_permissions(&own, std::fs::Permissions::from_mode(0o4755)).unwrap();
    let own = own.display().to_string();
    match record(&options(&output, &[&own])) {
        Err(error @ RecordError::Privileged { .. }) => {
            assert!(error.to_string().contains("setuid"), "{error}")
        }
        Err(error @ RecordError::NoEmulator { .. }) => return println!("SKIPPED: {error}"),
        other => panic!("{other:?}"),
    }
    assert!(!output.exists());
    let Some(summary) = try_record(&output, &["sh", "-c", &format!("{own}; {own}; true")]) else { return };
    assert_eq!(summary.unfollowed.len(), 2, "{:?}", summary.unfollowed);
    let text = &summary.unfollowed[0];
    assert!(text.starts_with("sh (process 1) became ") && text.contains("own (gets rights"), "{text}");
    assert!(summary.unfollowed.iter().all(|text| summary.header.warnings.contains(text)));
}

#[test]
fn a_program_that_a_signal_ends_is_kept_to_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("x.pft");
    // Not INT and HUP: a job in the background may have inherited that they are ignored.
    for signal in ["USR1", "TERM", "SEGV"] {
        let Some(summary) = try_record(&output, &["sh", "-c", &format!("/bin/true; kill -{signal} $$")])
        else {
            return;
        };
        assert!(summary.ended_early, "{:?}", summary.header.warnings);
        assert!(summary.unfollowed.is_empty(), "{:?}", summary.unfollowed);
        // Nothing is missing.
        let [warning] = &summary.header.warnings[..] else { panic!("{:?}", summary.header.warnings) };
        assert!(warning.contains("where the program was ended") && warning.contains(signal), "{warning}");
        let processes = programs(&output);
        assert!(processes.len() == 2 && processes[1][1..] == ["true"], "{processes:?}");
    }
}

#[test]
fn what_cannot_be_recorded_is_said_before_anything_runs() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("x.pft");
    let message = |options: &RecordOptions| record(options).unwrap_err().to_string();
    assert!(message(&options(&output, &[])).contains("no command"));
    assert!(
        message(&options(&output, &["no-such-program-7"])).contains("no-such-program-7: no such program")
    );
    let mut missing = options(&output, &["true"]);
    missing.emulator = Some("/no/such/qemu".into());
    let text = message(&missing);
    assert!(text.contains("/no/such/qemu") && text.contains("apt-get install qemu-user"), "{text}");
    assert!(!output.exists());
}

#[test]
fn an_emulator_without_plugins_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("x.pft");
    let mut options = options(&output, &["true"]);
    // Anything that runs and does not load the plugin.
    options.emulator = Some("/bin/false".into());
    let text = record(&options).unwrap_err().to_string();
    assert!(text.contains("/bin/false recorded nothing"), "{text}");
    assert!(!output.exists());
}

#[test]
fn a_recording_can_be_ended_and_is_a_trace_then() {
    let folder = tempfile::tempdir().unwrap();
    let (scratch, output) = (folder.path().join("scratch"), folder.path().join("x.pft"));
    std::fs::create_dir(&scratch).unwrap();
    // Besides mkfifo, three processes that would go on for ever: one waits, one ends when it is asked to, the first
    // is killed by that.
    let fifo = folder.path().join("fifo").display().to_string();
    let script = "(trap 'exit 0' TERM; while :; do x=1; done) & (read x) <&3 & while :; do x=1; done";
    let mut options = options(&output, &["sh", "-c", &format!("mkfifo {fifo}; exec 3<>{fifo}; {script}")]);
    options.scratch = Some(scratch.clone());
    let mut last = pagefold_trace::record::Progress::default();
    let mut enough = |progress: pagefold_trace::record::Progress| {
        assert!(progress.accesses >= last.accesses && progress.bytes >= last.bytes);
        last = progress;
        progress.accesses < 2_000_000 || progress.processes < 4
    };
    let summary = match record_watched(&options, &mut enough) {
        Err(error @ RecordError::NoEmulator { .. }) => return println!("SKIPPED: {error}"),
        result => result.unwrap(),
    };
    assert!(summary.ended_early && summary.header.warnings[0].contains("ended before the program was"));
    assert!(last.bytes > 0 && summary.header.counts().accesses() >= last.accesses);
    assert_eq!(summary.header.processes.len(), 4);
    Reader::open(&output).unwrap().verify().unwrap();
    assert_eq!(std::fs::read_dir(&scratch).unwrap().count(), 0);
    // A process that is still running would have the plugin's file mapped.
    let maps = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path().join("maps"));
    let left = maps.filter_map(|maps| std::fs::read_to_string(maps).ok());
    assert_eq!(left.filter(|maps| maps.contains(scratch.to_str().unwrap())).count(), 0);
}

#[test]
fn a_script_is_recorded_with_what_interprets_it() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let (script, made) = (folder.path().join("run.sh"), folder.path().join("made"));
    std::fs::write(&script, "#!/usr/bin/env sh\necho $1 $WORD > $2\n").unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let (output, command) = (
        folder.path().join("x.pft"),
        ["env", "WORD=b", script.to_str().unwrap(), "a", made.to_str().unwrap()],
    );
    let Some(summary) = try_record(&output, &command) else { return };
    assert_eq!(std::fs::read_to_string(&made).unwrap(), "a b\n");
    assert_eq!(summary.header.command, command);
    assert!(summary.header.files.iter().any(|file| file.name == "run.sh"));
    let [process] = &programs(&output)[..] else { panic!() };
    assert_eq!((process.len(), &*process[0], &*process[1]), (3, "env", "env"));
}

/// Hardware that loads a word only to store it again faults once, for the store: a page that such an instruction
/// touches first is stored to first.
#[cfg(target_arch = "x86_64")]
#[test]
fn pages_that_are_changed_in_place_are_stored_to_first() {
    const PROGRAM: &str = "fn main() {
        let mut bytes = vec![0u8; 4 << 20];
        for page in bytes.chunks_mut(4096) {
            // SAFETY: the byte is in the page, which nothing else uses.
            unsafe { std::arch::asm!(\"inc byte ptr [{}]\", in(reg) page.as_mut_ptr().add(64)) };
        }
        std::hint::black_box(&bytes);
    }";
    let folder = tempfile::tempdir().unwrap();
    let [source, program, output] = ["a.rs", "a", "a.pft"].map(|name| folder.path().join(name));
    std::fs::write(&source, PROGRAM).unwrap();
    let made = std::process::Command::new("rustc").arg("-o").arg(&program).arg(&source).status().unwrap();
    assert!(made.success());
    let Some(_) = try_record(&output, &[&program.display().to_string()]) else { return };
    let (mut first, mut pages) = (std::collections::HashMap::new(), 0..0);
    for event in Reader::open(&output).unwrap().stream(ThreadId(0)) {
        match event.unwrap() {
            Event::Call { call: Call::Mmap(map), value, .. } if (4 << 20..5 << 20).contains(&map.len) => {
                let start = value >> 12;
                pages = start..start + (map.len >> 12);
            }
            Event::Run(run) if run.mode != AccessKind::Fetch => _ = first.entry(run.page).or_insert(run.mode),
            _ => {}
        }
    }
    let touched = || pages.clone().filter_map(|page| first.get(&page));
    assert!(touched().count() >= 1024, "{pages:?}");
    assert!(touched().filter(|&&mode| mode == AccessKind::Load).count() < 4);
}
