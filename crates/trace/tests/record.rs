//! Recording real programs, from the emulator to the trace. Where the emulator is missing these tests say so and
//! pass; the errors are tested everywhere.

use std::path::Path;

use abi::Call;
use trace::event::{Event, ThreadId};
use trace::record::{RecordError, RecordOptions, Summary, record, record_watched};
use trace::{Info, Reader};

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
fn forks_become_processes_and_exec_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("sh.pft");
    let script = "(x=1; while [ $x -lt 50 ]; do x=$((x+1)); done); true | true; /bin/true; wait";
    let Some(summary) = try_record(&output, &["sh", "-c", script]) else { return };
    let header = &summary.header;
    assert!(header.processes.len() >= 4, "{} processes", header.processes.len());
    assert!(header.processes[1..].iter().all(|process| process.forked_by == Some(ThreadId(0))));
    assert!(header.warnings.iter().any(|warning| warning.contains("execve")), "{:?}", header.warnings);
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
    options.command[2] = "exec true".into();
    assert!(matches!(record(&options), Err(RecordError::Replaced)));
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
    let mut last = trace::record::Progress::default();
    let mut enough = |progress: trace::record::Progress| {
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
    // Whoever still ran would have the plugin's file in memory.
    let maps = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path().join("maps"));
    let left = maps.filter_map(|maps| std::fs::read_to_string(maps).ok());
    assert_eq!(left.filter(|maps| maps.contains(scratch.to_str().unwrap())).count(), 0);
}

#[test]
fn of_a_script_the_interpreter_is_recorded() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let (script, made) = (folder.path().join("run.sh"), folder.path().join("made"));
    std::fs::write(&script, "#!/usr/bin/env sh\necho $1 $WORD > $2\n").unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let command = ["env", "WORD=b", script.to_str().unwrap(), "a", made.to_str().unwrap()];
    let Some(summary) = try_record(&folder.path().join("x.pft"), &command) else { return };
    assert_eq!(std::fs::read_to_string(&made).unwrap(), "a b\n");
    assert!(summary.program.ends_with("sh"), "{}", summary.program.display());
    assert_eq!(summary.header.command, command);
    assert!(summary.header.files.iter().any(|file| file.name == "run.sh"));
}
