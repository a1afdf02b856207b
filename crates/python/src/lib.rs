//! The part of the Python package `pagefold` that is written in Rust: commands with their results as JSON and Arrow,
//! traces of page numbers, and what a sweep needs that a cluster works on. `python/pagefold` offers it to people.

mod commands;
mod errors;
mod numbers;
mod rows;
mod spread;
mod table;

use pyo3::prelude::*;

/// The module.
#[pymodule]
mod _pagefold {
    #[pymodule_export]
    use super::commands::call;
    #[pymodule_export]
    use super::errors::RunFailed;
    #[pymodule_export]
    use super::numbers::write_trace;
    #[pymodule_export]
    use super::rows::table_of;
    #[pymodule_export]
    use super::spread::{Spread, build, work};
    #[pymodule_export]
    use super::table::Table;
}
