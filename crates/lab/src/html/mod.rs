//! Results as one page of HTML: for people who were not there when the command ran. It needs no network and no script,
//! follows the reader's light or dark background, and can be read by keyboard, by a screen reader, on a telephone and
//! on paper.
//!
//! ```text
//! parts        tables, facts, notes
//! experiment   the page of run, compare and their directories
//! sweep        the page of a sweep's directory
//! sentence     what an experiment says, in a sentence
//! series       levels and rates over time
//! heat         accesses by address and time
//! flame        where CPU time went
//! ```

mod experiment;
mod flame;
mod heat;
mod parts;
mod sentence;
mod series;
mod sweep;
#[cfg(test)]
mod tests;

pub use experiment::experiment;
pub use sweep::sweep;

use crate::document::{Origin, SCHEMA};
use crate::svg;
use maud::{DOCTYPE, Markup, PreEscaped, html};

/// What a page looks like.
const STYLE: &str = include_str!("style.css");

/// A part of a page, which its list of contents leads to.
struct Section {
    /// Its name in links.
    id: &'static str,
    title: &'static str,
    body: Markup,
}

/// A page: what was run, what came of it in a few sentences, and its parts. `command` made it, of runs that the build
/// `made` did.
fn page(
    title: &str,
    lead: &[String],
    sections: &[Section],
    (command, made): (&str, Option<&Origin>),
) -> String {
    let here = Origin::here(SCHEMA);
    let other = made.filter(|made| (&made.version, &made.commit) != (&here.version, &here.commit));
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) " \u{2013} Pagefold" }
                style { (PreEscaped(STYLE)) (PreEscaped(svg::style())) }
            }
            body {
                a.skip href="#result" { "Skip to the result" }
                header {
                    h1 { (title) }
                    @for sentence in lead { p.lead { (sentence) } }
                    nav aria-label="Contents" {
                        ul {
                            @for section in sections { li { a href={ "#" (section.id) } { (section.title) } } }
                            li { a href="#command" { "Command" } }
                        }
                    }
                }
                main {
                    @for section in sections {
                        section id=(section.id) aria-labelledby={ (section.id) "-title" } {
                            h2 id={ (section.id) "-title" } { (section.title) }
                            (section.body)
                        }
                    }
                    section id="command" aria-labelledby="command-title" {
                        h2 id="command-title" { "Command" }
                        p { "This page was made by" }
                        pre.command tabindex="0" { (command) }
                        p.faint {
                            "with Pagefold " (here.version) " at commit " (here.commit)
                            @if let Some(made) = other {
                                "; its runs were done by Pagefold " (made.version) " at commit " (made.commit)
                            }
                            ". Runs repeat: the same command of the same commit gives the same page."
                        }
                    }
                }
            }
        }
    };
    page.into_string()
}
