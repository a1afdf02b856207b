//! `doctor`: which external programs are installed, what needs them, and how to get the missing ones.

use super::output;
use crate::boot::find::{self, above};
use crate::error::Result;
use crate::grid::Grid;
use crate::linux;
use clap::Args;
use serde::Serialize;
use std::path::PathBuf;

/// Arguments of `doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Print JSON: an array of objects
    #[arg(long)]
    json: bool,
}

/// A program or file that commands need.
#[derive(Debug, Serialize)]
struct Need {
    /// Its name.
    what: &'static str,
    /// The commands.
    needed_by: &'static str,
    /// Its path; `null` if it is missing.
    found: Option<String>,
    /// How to get it.
    remedy: &'static str,
}

/// `pagefold doctor`.
pub(super) fn doctor(args: &DoctorArgs) -> Result<()> {
    let needs = needs();
    output::either(args.json, &needs, |width| render(&needs, width))
}

fn needs() -> Vec<Need> {
    let need = |what, needed_by, found: Option<PathBuf>, remedy| {
        let found = found.map(|path| path.display().to_string());
        Need { what, needed_by, found, remedy }
    };
    vec![
        need(
            "qemu-system-x86_64",
            "boot, linux, truth",
            find::qemu(None).ok(),
            "Debian: apt-get install qemu-system-x86",
        ),
        need(
            "the booted machine's kernel",
            "boot",
            above(find::IMAGE),
            "in a checkout the first boot builds it; elsewhere: --kernel FILE",
        ),
        need("qemu-x86_64", "record", find::installed("qemu-x86_64"), "Debian: apt-get install qemu-user"),
        need("mke2fs", "linux, truth", linux::find::mke2fs().ok(), "Debian: apt-get install e2fsprogs"),
        need(
            "a Linux kernel",
            "linux, truth",
            linux::find::kernel(None, None).ok().map(|kernel| kernel.image),
            "in a checkout: cargo xtask linux, which installs nothing; elsewhere: --kernel FILE --modules DIR",
        ),
        need(
            "the Linux guest's first process",
            "linux, truth",
            linux::find::init().ok(),
            "in a checkout: cargo xtask linux",
        ),
    ]
}

fn render(needs: &[Need], width: usize) -> String {
    let mut grid = Grid::new(["what", "needed by", "found"]);
    grid.keys(1);
    for need in needs {
        grid.row([need.what, need.needed_by, need.found.as_deref().unwrap_or("MISSING")]);
    }
    let mut text = grid.render(|_| true, width);
    let missing: Vec<_> = needs.iter().filter(|need| need.found.is_none()).collect();
    text += "\nrun, compare, curve, sweep, reproduce, parts, bound, optimum, import and info need nothing.\n";
    for need in missing {
        text += &format!("{}: {}\n", need.what, need.remedy);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_program_comes_with_its_remedy() {
        let need = |found: Option<&str>| Need {
            what: "a tool",
            needed_by: "boot",
            found: found.map(str::to_owned),
            remedy: "get it",
        };
        let text = render(&[need(Some("/bin/tool")), need(None)], 80);
        assert!(text.contains("/bin/tool") && text.contains("MISSING"), "{text}");
        assert_eq!(text.matches("a tool: get it").count(), 1);
        assert!(needs().iter().all(|need| !need.remedy.is_empty()));
    }
}
