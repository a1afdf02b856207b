//! Sweeps: a program under many values of what varies, with several seeds for each combination.
//!
//! A sweep is axes with values. Each combination of values is a point, and says what is run for it; points that run the
//! same share it. Every kind of sweep runs its cells in the same way, keeps them in the same store, and hands the
//! finished ones to a [`Document`](crate::document::Document), which is written as text, as JSON and as a picture.
//!
//! ```text
//! plan      axes, points and what they run
//! file      the plan of a sweep file
//! cells     what is run, ready to run
//! store     what became of each run
//! result    the points of a sweep file with their numbers; also CSV
//! curve     more and less memory
//! parts     the parts of MGLRU, each left out and each added
//! optimum   replacement policies against the fewest refaults
//! need      how much memory a program needs
//! swap      kinds of swap against each other
//! tune      the best values of knobs
//! worth     what a change is worth
//! ```

mod cells;
pub mod curve;
mod file;
pub mod need;
pub mod optimum;
pub mod parts;
mod plan;
mod result;
mod store;
pub mod swap;
pub mod tune;
mod worth;

pub use cells::Catalog;
pub use plan::{Point, Sweep, What};
pub use result::{Outcome, Row};
pub use store::{Done, FILE, Key, Loaded, is_directory, load, plan};
