//! The rules of the house that a compiler does not check. Each has a short name that reviews can cite; CONTRIBUTING.md
//! lists them. What broke a rule when it was made is in a list that can only shrink (`ratchet`).

mod circles;
mod figures;
mod files;
mod floors;
mod functions;
mod links;
mod mutants;
mod phrases;
mod project;
mod prose;
mod published;
mod ratchet;
#[path = "../../src/summary.rs"]
mod summary;
mod truth;
mod type_names;
mod visibility;
mod width;
