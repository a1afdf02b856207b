//! Names of what work is about: files, and memory without one.

use mm::units::{FileId, PAGE_SIZE};
use std::collections::BTreeMap;

/// Pages from which a mapping without a file has a name of its own: 1 MiB.
const OWN_NAME: u64 = 256;

/// What work is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum About {
    /// A file.
    File(FileId),
    /// A mapping without a file: its pages, from the first to behind the last.
    Memory {
        /// The first page.
        start: u64,
        /// The page after the last.
        end: u64,
    },
    /// An address at which nothing is mapped.
    Nothing,
}

/// The number of the name for memory without a file that has none of its own.
const ANONYMOUS: u32 = 0;
/// That for a file that the program has not opened by a name.
const SHARED: u32 = 1;

/// The names that a run has met, by number.
pub(super) struct Names {
    files: BTreeMap<FileId, u32>,
    all: Vec<String>,
    /// Large mappings: all pages that each has had, and its number.
    large: Vec<(u64, u64, u32)>,
}

impl Default for Names {
    fn default() -> Names {
        let all = ["anonymous memory", "shared memory"].map(str::to_owned).to_vec();
        Names { files: BTreeMap::new(), all, large: Vec::new() }
    }
}

impl Names {
    /// A file has a name.
    pub(super) fn file(&mut self, file: FileId, name: &str) {
        if !self.files.contains_key(&file) {
            let number = self.number_of(name);
            self.files.insert(file, number);
        }
    }

    /// The number of the name for something.
    pub(super) fn number(&mut self, about: About) -> u32 {
        match about {
            About::File(file) => self.files.get(&file).copied().unwrap_or(SHARED),
            About::Memory { start, end } if end - start >= OWN_NAME => self.large(start, end),
            About::Memory { .. } | About::Nothing => ANONYMOUS,
        }
    }

    /// A large mapping is called by where it began when it was met first; it may grow, and shrink.
    fn large(&mut self, start: u64, end: u64) -> u32 {
        let met = self.large.iter_mut().find(|(from, to, _)| start < *to && *from < end);
        if let Some((from, to, number)) = met {
            (*from, *to) = (start.min(*from), end.max(*to));
            return *number;
        }
        let number = self.number_of(&format!("anonymous memory at {:#x}", start * PAGE_SIZE));
        self.large.push((start, end, number));
        number
    }

    fn number_of(&mut self, name: &str) -> u32 {
        let known = self.all.iter().position(|known| known == name);
        known.unwrap_or_else(|| {
            self.all.push(name.to_owned());
            self.all.len() - 1
        }) as u32
    }

    /// A name.
    pub(super) fn name(&self, number: u32) -> &str {
        &self.all[number as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_mapping_keeps_its_name_while_it_grows() {
        let mut names = Names::default();
        names.file(FileId(3), "data.db");
        let mut name = |about| {
            let number = names.number(about);
            names.name(number).to_owned()
        };
        assert_eq!(name(About::File(FileId(3))), "data.db");
        assert_eq!(name(About::File(FileId(4))), "shared memory");
        assert_eq!(name(About::Nothing), "anonymous memory");
        assert_eq!(name(About::Memory { start: 16, end: 20 }), "anonymous memory");
        let first = "anonymous memory at 0x10000";
        assert_eq!(name(About::Memory { start: 16, end: 300 }), first);
        assert_eq!(name(About::Memory { start: 8, end: 900 }), first);
        assert_eq!(name(About::Memory { start: 500, end: 900 }), first);
        assert_eq!(name(About::Memory { start: 1000, end: 2000 }), "anonymous memory at 0x3e8000");
    }
}
