//! What is to be compared.

use super::original::Original;
use crate::boot::{Second, Shape};
use crate::engine::SwapSpec;
use crate::profile::Profile;
use crate::replay;
use std::time::Duration;

/// A program, and the conditions on both sides.
#[derive(Clone, Debug)]
pub struct Job {
    /// The program, as the user named it.
    pub program: String,
    /// CPUs.
    pub cpus: u32,
    /// The second node.
    pub second: Second,
    /// Bytes of memory; rounded to what machines can have.
    pub memory: u64,
    /// Bytes of swap space on the disk.
    pub swap: u64,
    /// Swap areas, if they are more than that.
    pub areas: Vec<SwapSpec>,
    /// The first seed.
    pub seed: u64,
    /// Seeds.
    pub runs: u32,
    /// Boots with each seed.
    pub boots: u32,
    /// The profile.
    pub profile: Profile,
    /// Whether the guest's time counts instructions.
    pub icount: bool,
    /// What Linux runs instead of the recording of it.
    pub original: Option<Original>,
    /// More words for Linux.
    pub append: String,
    /// The longest that a boot may take.
    pub timeout: Duration,
    /// Whether to show every counter that moved.
    pub all: bool,
}

/// The option that names swap space.
const SWAP: &str = "--swap";

impl Job {
    /// The command line that does the comparison for one seed again.
    pub(super) fn command(&self, shape: &Shape, seed: u64) -> String {
        let more = [("--seed", seed.to_string()), ("--boots", self.boots.to_string())];
        let options = shape.options().into_iter().chain(more);
        let mut words = replay::first_words();
        words.extend(["linux", &self.program, "--profile", &self.profile.name].map(str::to_owned));
        for (knob, value) in self.profile.settings() {
            words.extend(["--set".to_owned(), format!("{knob}={value}")]);
        }
        for (flag, value) in options.filter(|(flag, _)| *flag != SWAP || self.areas.is_empty()) {
            words.extend([flag.to_owned(), value]);
        }
        words.extend(self.areas.iter().flat_map(|area| [SWAP.to_owned(), area.to_string()]));
        words.extend(self.icount.then(|| "--icount".to_owned()));
        if !self.append.is_empty() {
            words.extend(["--append".to_owned(), self.append.clone()]);
        }
        if let Some(Original { command, with, .. }) = &self.original {
            words.extend(with.iter().flat_map(|path| ["--with".to_owned(), path.display().to_string()]));
            words.push("--exe".to_owned());
            words.extend_from_slice(command);
        }
        replay::shell_line(words)
    }
}
