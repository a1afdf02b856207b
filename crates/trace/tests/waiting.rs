//! What tasks wait for: programs whose order is known are recorded, and their traces are gone through in the worst
//! orders that a machine could choose. Where the emulator is missing the recordings are left out, and that is said.

use std::ffi::{c_int, c_void};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Barrier, OnceLock, mpsc};
use std::time::Duration;

use abi::Call;
use pagefold_trace::event::{Event, ThreadId};
use pagefold_trace::record::{RecordError, RecordOptions, record};
use pagefold_trace::{Header, Reader};

/// A machine that lets a thread run for as long as it can, and then the next of a list.
struct Adversary {
    header: Header,
    events: Vec<Vec<Event>>,
    at: Vec<usize>,
    started: Vec<bool>,
    marks: Vec<u64>,
    /// By thread: the last change of its address space that it has come to.
    seen: Vec<u64>,
    done: Vec<u64>,
    opened: Vec<String>,
}

impl Adversary {
    fn new(reader: &Reader) -> Adversary {
        let header = reader.header().clone();
        let threads = header.threads.len();
        let events = |thread| reader.stream(ThreadId(thread as u32)).map(Result::unwrap).collect();
        Adversary {
            events: (0..threads).map(events).collect(),
            at: vec![0; threads],
            started: (0..threads).map(|thread| thread == 0).collect(),
            marks: vec![0; threads],
            seen: vec![0; threads],
            done: vec![0; header.processes.len()],
            opened: Vec::new(),
            header,
        }
    }

    fn ended(&self, thread: ThreadId) -> bool {
        let thread = thread.0 as usize;
        self.started[thread] && self.at[thread] == self.events[thread].len()
    }

    /// Whether every other thread of the process that runs has come to where it saw the change.
    fn others_saw(&self, by: usize, process: usize, epoch: u64) -> bool {
        let others = (0..self.seen.len()).filter(|&thread| {
            thread != by && self.header.threads[thread].process as usize == process && self.started[thread]
        });
        others.into_iter().all(|thread| self.ended(ThreadId(thread as u32)) || self.seen[thread] >= epoch)
    }

    /// Do the thread's next event, or come to where it waits; `false` if it is there already, or has none.
    fn step(&mut self, thread: usize) -> bool {
        let Some(&event) = self.events[thread].get(self.at[thread]).filter(|_| self.started[thread]) else {
            return false;
        };
        let process = self.header.threads[thread].process as usize;
        let (last, before) = (self.header.processes[process].epochs, self.seen[thread]);
        let may = match event {
            Event::Sync { epoch } => {
                self.seen[thread] = self.seen[thread].max(epoch.min(last));
                self.done[process] >= epoch.min(last)
            }
            Event::After { thread, mark } => self.marks[thread.0 as usize] >= mark,
            Event::Call { call: Call::Join(task), .. } => self.ended(ThreadId(task)),
            _ => match event.epoch() {
                Some(epoch) => {
                    let turn = self.done[process] >= epoch - 1;
                    self.seen[thread] = self.seen[thread].max(epoch - u64::from(!turn));
                    turn && (!event.takes_away() || self.others_saw(thread, process, epoch))
                }
                None => true,
            },
        };
        if !may {
            // Others may go on because it has come here.
            return self.seen[thread] > before;
        }
        self.at[thread] += 1;
        self.done[process] = self.done[process].max(event.epoch().unwrap_or(0));
        match event {
            Event::Mark => self.marks[thread] += 1,
            Event::Call { call: Call::Open(..), value, .. } => {
                let name = &self.header.files[value as usize].name;
                self.opened.extend(name.strip_prefix("phase-").map(str::to_owned));
            }
            _ => {}
        }
        if let Some(thread) = event.starts() {
            self.started[thread.0 as usize] = true;
        }
        true
    }

    /// Go through all, each time with the first thread of `order` that may go on; returns the phases as they began.
    fn run(mut self, order: &[usize]) -> Vec<String> {
        while order.iter().any(|&thread| self.step(thread)) {}
        let next = |thread: &usize| self.events[*thread].get(self.at[*thread]);
        let left = (0..self.at.len()).filter(|thread| self.started[*thread] && next(thread).is_some());
        let left: Vec<_> = left.map(|thread| (thread, next(&thread), self.seen[thread])).collect();
        assert!(left.is_empty(), "threads wait without end: {left:?}, changes made {:?}", self.done);
        self.opened
    }
}

/// The phases of a trace in every order that prefers some thread, and in every one that puts it off.
fn worst_orders(path: &Path) -> Vec<Vec<String>> {
    let reader = Reader::open(path).unwrap();
    reader.verify().unwrap();
    let threads = reader.header().threads.len();
    let others = |one: usize| (0..threads).filter(move |&thread| thread != one);
    let preferred = (0..threads).map(|first| [first].into_iter().chain(others(first).rev()).collect());
    let put_off = (0..threads).map(|last| others(last).chain([last]).collect());
    let orders: Vec<Vec<usize>> = preferred.chain(put_off).collect();
    orders.iter().map(|order| Adversary::new(&reader).run(order)).collect()
}

/// Record a command and see that its phases come in order, `count` of them.
fn check(output: &Path, command: Vec<String>, count: usize) {
    let mut options = RecordOptions::new(output, command);
    options.level = 1;
    match record(&options) {
        Ok(_) => {}
        Err(error @ (RecordError::NoEmulator { .. } | RecordError::NoProgram { .. })) => {
            return println!("SKIPPED: {error}");
        }
        Err(error) => panic!("{error}"),
    }
    for phases in worst_orders(output) {
        assert_eq!(phases.len(), count, "{phases:?}");
        // The number says where in the order; what has the same number comes in any.
        let numbers: Vec<&str> = phases.iter().map(|phase| phase.split('.').next().unwrap()).collect();
        assert!(numbers.is_sorted(), "{phases:?}");
    }
}

#[test]
fn threads_wait_as_they_did() {
    let folder = tempfile::Builder::new().suffix(".phases").tempdir().unwrap();
    let this = std::env::current_exe().unwrap();
    let words =
        [this.to_str().unwrap(), "program", "--exact", "--test-threads=1", folder.path().to_str().unwrap()];
    check(&folder.path().join("x.pft"), words.map(str::to_owned).to_vec(), PHASES);
}

#[test]
fn processes_wait_as_they_did() {
    let folder = tempfile::tempdir().unwrap();
    let at = |phase: &str| folder.path().join(format!("phase-{phase}")).display().to_string();
    // The reader of the pipe was forked before the writers, and all commands are built into the shell.
    let script = format!(
        "(: >{}; echo x; : >{}.a; echo y; : >{}.b) | (read x; : >{}.c; read y; read z || : >{}); : >{}",
        at("1"),
        at("2"),
        at("2"),
        at("2"),
        at("3"),
        at("4")
    );
    check(&folder.path().join("x.pft"), ["sh".into(), "-c".into(), script].to_vec(), 6);
}

/// How many phases [`program`] has.
const PHASES: usize = 17;

/// Where [`program`] writes.
static FOLDER: OnceLock<String> = OnceLock::new();

fn phase(name: &str) {
    std::fs::write(Path::new(FOLDER.get().unwrap()).join(format!("phase-{name}")), name).unwrap();
}

/// A thread without the cleanup of Rust's own threads: joining it after its end makes no call.
fn bare_thread(pause: Duration) {
    extern "C" fn begin(_: *mut c_void) -> *mut c_void {
        phase("00");
        std::ptr::null_mut()
    }
    unsafe extern "C" {
        fn pthread_create(
            thread: *mut usize,
            attributes: *const c_void,
            begin: extern "C" fn(*mut c_void) -> *mut c_void,
            argument: *mut c_void,
        ) -> c_int;
        fn pthread_join(thread: usize, result: *mut *mut c_void) -> c_int;
    }
    let (mut thread, nothing) = (0, std::ptr::null_mut());
    // SAFETY: the thread is joined once, while its data is alive, and its result is not needed.
    let results = unsafe {
        let begun = pthread_create(&mut thread, nothing, begin, nothing);
        std::thread::sleep(pause);
        (begun, pthread_join(thread, std::ptr::null_mut()))
    };
    assert_eq!(results, (0, 0));
}

/// Not a test: the program that [`threads_wait_as_they_did`] records, which gives it a folder as a second name.
#[test]
fn program() {
    let Some(folder) = std::env::args().find(|word| word.ends_with(".phases")) else { return };
    FOLDER.set(folder).unwrap();
    let long = Duration::from_millis(100);
    // The end of a thread that is waited for, and of one that has ended by then.
    bare_thread(5 * long);
    for (first, second, pause) in [("01", "02", Duration::ZERO), ("03", "04", 5 * long)] {
        let first = std::thread::spawn(move || phase(first));
        std::thread::sleep(pause);
        first.join().unwrap();
        phase(second);
    }
    // A barrier, to which they come in turn.
    let barrier = Arc::new(Barrier::new(3));
    let threads = (0..3).map(|thread| {
        let barrier = barrier.clone();
        std::thread::spawn(move || {
            std::thread::sleep(long * thread);
            phase(&format!("05.{thread}"));
            barrier.wait();
            phase(&format!("06.{thread}"));
        })
    });
    threads.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
    // A channel, which is a futex; sockets of both kinds.
    let (sender, receiver) = mpsc::channel::<()>();
    let (mut near, mut far) = UnixStream::pair().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let other = {
        std::thread::spawn(move || {
            receiver.recv().unwrap();
            phase("08");
            far.write_all(b"x").unwrap();
            let mut stream = listener.accept().unwrap().0;
            stream.read_exact(&mut [0]).unwrap();
            phase("10");
            stream.write_all(b"z").unwrap();
        })
    };
    std::thread::sleep(long);
    phase("07");
    sender.send(()).unwrap();
    near.read_exact(&mut [0]).unwrap();
    phase("09");
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"y").unwrap();
    stream.read_exact(&mut [0]).unwrap();
    phase("11");
    other.join().unwrap();
    phase("12");
}
