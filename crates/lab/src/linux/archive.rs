//! The guest's initial file system: a cpio archive of the kind that kernels unpack ("newc").

/// A directory, and a file that can be run, as the archive has modes.
const DIRECTORY: u32 = 0o40755;
const FILE: u32 = 0o100755;

/// An archive in the making.
#[derive(Default)]
pub struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

impl Archive {
    /// Add a directory.
    pub fn directory(&mut self, name: &str) {
        self.entry(name, DIRECTORY, &[]);
    }

    /// Add a file.
    pub fn file(&mut self, name: &str, content: &[u8]) {
        self.entry(name, FILE, content);
    }

    /// The archive.
    pub fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    /// Thirteen numbers of eight digits, the name with a zero, the content; both padded to words.
    fn entry(&mut self, name: &str, mode: u32, content: &[u8]) {
        self.entries += 1;
        let size = u32::try_from(content.len()).expect("the archive's files are small");
        let name_size = name.len() as u32 + 1;
        let numbers = [self.entries, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name_size, 0];
        self.bytes.extend_from_slice(b"070701");
        numbers.iter().for_each(|number| self.bytes.extend(format!("{number:08X}").into_bytes()));
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_follow_each_other_in_words() {
        let mut archive = Archive::default();
        archive.directory("proc");
        archive.file("init", b"12345");
        let bytes = archive.finish();
        let text = String::from_utf8_lossy(&bytes);
        let starts: Vec<usize> = text.match_indices("070701").map(|(at, _)| at).collect();
        assert!(starts.len() == 3 && starts.iter().all(|at| at % 4 == 0), "{starts:?}");
        assert_eq!(&text[starts[1] + 54..starts[1] + 62], "00000005", "the size");
        assert!(text[starts[1]..].contains("init\0") && text.contains("12345\0\0\x00070701"));
        assert!(text.trim_end_matches('\0').ends_with("TRAILER!!!"));
    }
}
