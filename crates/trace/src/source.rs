//! Where a replay gets its events from.

use crate::event::{Event, Packed, ThreadId};
use crate::header::Header;
use core::fmt::Display;

/// A trace that can be replayed.
pub trait Source {
    /// The events of a thread.
    type Stream<'a>: Events
    where
        Self: 'a;

    /// What the trace says about itself.
    fn header(&self) -> &Header;

    /// The events of one thread from the beginning; none if there is no such thread.
    fn stream(&self, thread: ThreadId) -> Self::Stream<'_>;

    /// Pages of a process with what the trace first tells of them, if that is known before the trace is read.
    fn first_contents(&self, process: u32) -> impl Iterator<Item = (u64, Packed)> {
        let _ = process;
        core::iter::empty()
    }
}

/// The events of one thread, in their order.
pub trait Events {
    /// Why there is no next event although there should be one.
    type Error: Display;

    /// The next event, `None` at the end.
    fn next_event(&mut self) -> Result<Option<Event>, Self::Error>;
}
