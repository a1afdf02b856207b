//! The second of two passes: a trace of what the recording tells.
//!
//! The first thread opens the file, maps all memory and starts the others. Neighbouring accesses of a thread to one
//! page in one way become one run; nothing is reordered.

use std::collections::HashMap;
use std::path::Path;

use abi::{AccessKind, Call};

use super::settings::{Backing, Format};
use super::step::Step;
use super::survey::{Survey, touched};
use crate::container::Writer;
use crate::error::TraceError;
use crate::event::{Event, FileId, Run, ThreadId};
use crate::header::{Header, Place};
use crate::pages::PageSet;

/// Instructions that are told at once.
const GRAIN: u64 = 1024;
/// zstd's level.
const LEVEL: i32 = 15;

/// A trace that is being written.
pub(super) struct Writing {
    writer: Writer,
    threads: Vec<Thread>,
    /// By the recording's word for the task, the thread's index.
    index: HashMap<u64, usize>,
    /// The task that did the last step, with its thread's index.
    current: (u64, usize),
    /// Pages that hold something, if those that do not get a store before they are read.
    filled: Option<PageSet>,
    /// The recording's first time; `None` if times are left out.
    origin: Option<u64>,
}

/// A thread of the trace.
struct Thread {
    id: ThreadId,
    run: Option<Run>,
    instructions: u64,
    /// How long it has slept, in nanoseconds.
    slept: u64,
}

impl Writing {
    /// Begin a trace at `output` of what `survey` has found in `input`.
    pub fn begin(
        format: Format,
        input: &Path,
        output: &Path,
        survey: &Survey,
        backing: Backing,
    ) -> Result<Writing, TraceError> {
        let name = input.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let mut writer = Writer::create(output, format.recorder(), std::slice::from_ref(&name), LEVEL)?;
        let notes = format.note().map(str::to_owned).into_iter().chain(survey.left_out());
        notes.for_each(|note| writer.warn(note));
        let first = writer.add_process(None);
        let mut writing = Writing {
            writer,
            threads: vec![Thread::new(first)],
            index: HashMap::new(),
            current: (survey.tasks()[0], 0),
            filled: (backing == Backing::Anonymous).then(PageSet::default),
            origin: None,
        };
        let epoch = writing.map(survey, backing, &name)?;
        writing.start(survey.tasks(), epoch)?;
        Ok(writing)
    }

    /// Keep the time between accesses, of which this is the first by the recording's times.
    pub fn set_origin(&mut self, nanos: u64) {
        self.origin = Some(nanos);
    }

    /// Map all memory. Returns the number of the last mapping.
    fn map(&mut self, survey: &Survey, backing: Backing, name: &str) -> Result<u64, TraceError> {
        let (maps, length) = survey.maps(backing, 0);
        let first = self.threads[0].id;
        if length > 0 {
            let file = self.writer.add_file(name, length, Place::Regular);
            debug_assert_eq!(file, FileId(0));
            self.writer.push(first, &Event::opened(file))?;
        }
        for map in &maps {
            self.writer.push(first, map)?;
        }
        Ok(maps.len() as u64)
    }

    /// Start a thread for each task but the first, after all memory is mapped.
    fn start(&mut self, tasks: &[u64], epoch: u64) -> Result<(), TraceError> {
        let first = self.threads[0].id;
        for (at, &task) in tasks.iter().enumerate() {
            self.index.insert(task, at);
            if at > 0 {
                let id = self.writer.add_thread(first);
                self.writer.push(first, &Event::call(Call::Spawn(id.0)))?;
                self.writer.push(id, &Event::Sync { epoch })?;
                self.threads.push(Thread::new(id));
            }
        }
        Ok(())
    }

    /// Write a step.
    pub fn add(&mut self, step: Step) -> Result<(), TraceError> {
        match step {
            Step::Access { task, addr, bytes, mode, times } => {
                let at = self.thread(task);
                touched(addr, bytes).try_for_each(|page| self.touch(at, Run { page, count: times, mode }))
            }
            Step::Instructions { task, count } => {
                let at = self.thread(task);
                self.threads[at].instructions += count;
                Ok(())
            }
            Step::At { task, nanos } => {
                let at = self.thread(task);
                self.sleep(at, nanos)
            }
            Step::LeftOut(_) => Ok(()),
        }
    }

    /// The index of the task's thread.
    fn thread(&mut self, task: u64) -> usize {
        if self.current.0 != task {
            self.current = (task, self.index[&task]);
        }
        self.current.1
    }

    fn touch(&mut self, at: usize, new: Run) -> Result<(), TraceError> {
        if let Some(run) = &mut self.threads[at].run
            && (run.page, run.mode) == (new.page, new.mode)
            && let Some(count) = run.count.checked_add(new.count)
        {
            run.count = count;
            return Ok(());
        }
        let is_new = self.filled.as_mut().is_some_and(|filled| filled.insert(new.page));
        if is_new && new.mode != AccessKind::Store {
            self.flush(at)?;
            self.threads[at].run = Some(Run { count: 1, mode: AccessKind::Store, ..new });
        }
        self.flush(at)?;
        self.threads[at].run = Some(new);
        Ok(())
    }

    /// Write the thread's run, and what it has executed if that is much.
    fn flush(&mut self, at: usize) -> Result<(), TraceError> {
        let thread = &mut self.threads[at];
        if thread.instructions >= GRAIN {
            thread.tell(&mut self.writer)?;
        }
        match thread.run.take() {
            Some(run) => self.writer.push(thread.id, &Event::Run(run)),
            None => Ok(()),
        }
    }

    /// Sleep as long as passed in the recording until this time. What is done meanwhile takes its own time.
    fn sleep(&mut self, at: usize, nanos: u64) -> Result<(), TraceError> {
        let Some(origin) = self.origin else { return Ok(()) };
        let since = nanos.saturating_sub(origin);
        let pause = since.saturating_sub(self.threads[at].slept);
        if pause > 0 {
            self.flush(at)?;
            let thread = &mut self.threads[at];
            thread.tell(&mut self.writer)?;
            thread.slept = since;
            self.writer.push(thread.id, &Event::Idle { nanos: pause })?;
        }
        Ok(())
    }

    /// Write what is left, and put the trace in place.
    pub fn finish(mut self) -> Result<Header, TraceError> {
        for at in 0..self.threads.len() {
            self.flush(at)?;
            self.threads[at].tell(&mut self.writer)?;
        }
        self.writer.finish()
    }
}

impl Thread {
    fn new(id: ThreadId) -> Thread {
        Thread { id, run: None, instructions: 0, slept: 0 }
    }

    fn tell(&mut self, writer: &mut Writer) -> Result<(), TraceError> {
        match std::mem::take(&mut self.instructions) {
            0 => Ok(()),
            instructions => writer.push(self.id, &Event::Compute { instructions }),
        }
    }
}
