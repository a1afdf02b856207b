//! Where a replay gets its events from.

use crate::event::{Event, ThreadId};
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
}

/// The events of one thread, in their order.
pub trait Events {
    /// Why there is no next event although there should be one.
    type Error: Display;

    /// The next event, `None` at the end.
    fn next_event(&mut self) -> Result<Option<Event>, Self::Error>;
}
