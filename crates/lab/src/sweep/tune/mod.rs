//! Tuning: which values of knobs suit a program, searched with half of the seeds and judged with the other half.
//!
//! ```text
//! axis     knobs and limits of groups with their values
//! space    combinations of values, and what they run
//! search   which combination to try next
//! judge    what the best is worth on seeds that the search did not see
//! apply    lines for Linux
//! result   tables and sentences
//! ```

pub mod apply;
mod axis;
mod judge;
mod result;
mod search;
mod space;

pub use axis::Around;
pub use judge::{Half, Judgement, Outcome};
pub use result::{Conditions, Found, Tried, Tuning};
pub use search::Search;
pub use space::{Setting, Space};
