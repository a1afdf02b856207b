//! Writes that have been submitted and have not ended: each with what its pages were then.

use mm::machine::Io;

/// Of each page a `T` is known.
pub(crate) struct InFlight<T>(Vec<(Io, Vec<T>)>);

impl<T> Default for InFlight<T> {
    fn default() -> InFlight<T> {
        InFlight(Vec::new())
    }
}

impl<T: Copy> InFlight<T> {
    /// A transfer is submitted: a write takes what its pages are from `frames`.
    pub(crate) fn begin(&mut self, io: &Io, frames: &[T]) {
        if io.write {
            let first = io.frame.index();
            self.0.push((*io, frames[first..first + io.pages as usize].to_vec()));
        }
    }

    /// A write ends. Returns its blocks, each with what its page was.
    pub(crate) fn end(&mut self, io: &Io) -> impl Iterator<Item = ((u8, u64), T)> + use<T> {
        let at = self.0.iter().position(|(other, _)| other == io);
        let (io, pages) = self.0.remove(at.expect("a write must be submitted before it ends"));
        (io.block..).zip(pages).map(move |(block, page)| ((io.device.0, block), page))
    }
}
