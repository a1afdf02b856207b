//! Where CPU time went, as a flame graph of nested lists: a function is as wide as the time that it took, below the one
//! that called it. A list can be read without seeing it, and its words keep their size on a narrow screen.

use super::parts::table;
use crate::human;
use crate::tree::{SMALL, Share, TREE_NAMES, Tree};
use maud::{Markup, html};

/// Colours of roots, in order.
const COLORS: [&str; 5] = ["f0", "f1", "f2", "f3", "f4"];

/// The graph, and the same as a table.
pub(super) fn flame(tree: &Tree, runs: u32) -> Markup {
    let graph = Graph { all: tree.total_picos.max(1), runs: f64::from(runs.max(1)) };
    html! {
        figure {
            figcaption {
                "CPU time, all of it as wide as the page. Below a function are those that it called; in italics the work \
                 that it did itself. A pointer shows times."
            }
            ul.flame { (graph.functions(tree, true)) }
        }
        details.long {
            summary { "The same as a table" }
            (table("CPU time by function; [work] of each", &tree.to_grid(runs), TREE_NAMES, |_| false))
        }
    }
}

struct Graph {
    /// Picoseconds of all CPU time.
    all: u64,
    runs: f64,
}

impl Graph {
    /// What is below a function, or at the root.
    fn functions(&self, of: &Tree, root: bool) -> Markup {
        let wide = |picos: u64| picos as f64 >= self.all as f64 * SMALL;
        html! {
            @for (at, child) in of.children.iter().filter(|child| wide(child.total_picos)).enumerate() {
                li class=[root.then(|| COLORS[at % COLORS.len()])] style=(width(child.total_picos, of)) {
                    span title=(self.title(&child.name, child.total_picos)) { (child.name) }
                    ul { (self.functions(child, false)) }
                }
            }
            @for share in of.work.iter().filter(|share| wide(share.picos)) { (self.work(share, of)) }
        }
    }

    fn work(&self, share: &Share, of: &Tree) -> Markup {
        html! {
            li.work style=(width(share.picos, of)) {
                span title=(self.title(&share.name, share.picos)) { (share.name) }
            }
        }
    }

    fn title(&self, name: &str, picos: u64) -> String {
        let time = human::number(picos as f64 / 1000.0 / self.runs, "ns");
        format!("{name}: {time}, {:.1} %", picos as f64 * 100.0 / self.all as f64)
    }
}

/// The share of the function above.
fn width(picos: u64, of: &Tree) -> String {
    format!("width:{:.3}%", picos as f64 * 100.0 / of.total_picos.max(1) as f64)
}
