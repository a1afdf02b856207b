//! Files by name, and where they lie on the disk.

use super::Disk;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use mm::api::FileKind;
use mm::units::{FileId, pages_of};
use program::Errno;

/// Most bytes of a file in memory.
const MOST_IN_MEMORY: u64 = 1 << 46;
/// Every new file gets at least this share of what is left of the disk, to grow in.
const SHARE: u64 = 16;

/// A file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct File {
    /// What the memory manager calls it.
    pub(super) id: FileId,
    /// Most bytes that it can have.
    pub(super) capacity: u64,
}

/// All files. A file's blocks are given out once, when it is made.
#[derive(Debug)]
pub(super) struct Files {
    disk: Option<Disk>,
    next_block: u64,
    list: Vec<File>,
    names: BTreeMap<String, u32>,
}

impl Files {
    /// No files, on an empty disk.
    pub(super) fn new(disk: Option<Disk>) -> Files {
        Files { disk, next_block: 0, list: Vec::new(), names: BTreeMap::new() }
    }

    /// The number of the file of that name. `create` makes one that is not there.
    pub(super) fn find(
        &mut self,
        name: &str,
        size: u64,
        in_memory: bool,
        create: impl FnOnce(FileKind) -> FileId,
    ) -> Result<u32, Errno> {
        if let Some(&file) = self.names.get(name) {
            return Ok(file);
        }
        let (kind, capacity) = match in_memory {
            true => (FileKind::Shmem, MOST_IN_MEMORY),
            false => self.room(pages_of(size))?,
        };
        let number = self.list.len() as u32;
        self.list.push(File { id: create(kind), capacity });
        self.names.insert(name.into(), number);
        Ok(number)
    }

    /// Blocks for a file of `pages` pages.
    fn room(&mut self, pages: u64) -> Result<(FileKind, u64), Errno> {
        let disk = self.disk.ok_or(Errno::NoSpc)?;
        let left = disk.pages.saturating_sub(self.next_block);
        if pages > left {
            return Err(Errno::NoSpc);
        }
        let count = pages.max(left / SHARE);
        let block = self.next_block;
        self.next_block += count;
        Ok((FileKind::Disk { device: disk.device, block }, count.saturating_mul(mm::units::PAGE_SIZE)))
    }

    /// A file that was found.
    pub(super) fn get(&self, number: u32) -> File {
        self.list[number as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mm::units::DeviceId;

    fn file(files: &mut Files, name: &str, pages: u64) -> Result<(u32, u64), Errno> {
        let mut place = 0;
        let number = files.find(name, pages * 4096, false, |kind| {
            let FileKind::Disk { block, .. } = kind else { panic!("a file on the disk was asked for") };
            place = block;
            FileId(7)
        })?;
        Ok((number, place))
    }

    #[test]
    fn files_get_blocks_of_their_own_and_room_to_grow() {
        let mut files = Files::new(Some(Disk { device: DeviceId(0), pages: 1600 }));
        assert_eq!(file(&mut files, "a", 10), Ok((0, 0)));
        assert_eq!(files.get(0).capacity, 100 * 4096);
        assert_eq!(file(&mut files, "b", 500), Ok((1, 100)));
        assert_eq!(files.get(1).capacity, 500 * 4096);
        assert_eq!(file(&mut files, "a", 99), Ok((0, 0)));
        assert_eq!(file(&mut files, "c", 1001), Err(Errno::NoSpc));
        assert_eq!(file(&mut files, "c", 1000), Ok((2, 600)));
    }

    #[test]
    fn without_a_disk_files_live_in_memory_only() {
        let mut files = Files::new(None);
        assert_eq!(file(&mut files, "a", 1), Err(Errno::NoSpc));
        assert_eq!(files.find("a", 4096, true, |_| FileId(0)), Ok(0));
    }
}
