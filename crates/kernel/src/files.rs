//! Files by name, and their place on the disk.

use abi::Errno;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use mm::api::FileKind;
use mm::units::{DeviceId, FileId, PAGE_SIZE, pages_of};

/// Most bytes of a file in memory.
const MOST_IN_MEMORY: u64 = 1 << 46;
/// Share of a disk's free pages that a new file gets at least, as room to grow, if blocks are places on the disk.
const SHARE: u64 = 16;

/// Where files live.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Disk {
    /// The device.
    pub device: DeviceId,
    /// Its size. Pages that are not taken are zero when the machine starts.
    pub pages: u64,
    /// Pages at its start that belong to no file.
    pub taken: u64,
    /// Whether files take space for their initial size only and share the rest. Every file then has as many block
    /// numbers as the disk has blocks: they identify content and tell neighbours apart but are no places. Otherwise
    /// block numbers are places.
    pub thin: bool,
}

/// A file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct File {
    /// Its id in the memory manager.
    pub id: FileId,
    /// Its kind and place.
    pub kind: FileKind,
    /// Its largest size in bytes.
    pub capacity: u64,
}

/// All files. A file gets its blocks once, when it is created.
#[derive(Debug)]
pub(crate) struct Files {
    disk: Option<Disk>,
    next_block: u64,
    taken: u64,
    list: Vec<File>,
    names: BTreeMap<String, u32>,
}

impl Files {
    /// No files.
    pub(crate) fn new(disk: Option<Disk>) -> Files {
        let taken = disk.map_or(0, |disk| disk.taken);
        Files { disk, next_block: taken, taken, list: Vec::new(), names: BTreeMap::new() }
    }

    /// The number of the file with this name. `create` creates a file that does not exist.
    pub(crate) fn find(
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
        let id = create(kind);
        assert!(
            self.list.iter().all(|file| file.id != id),
            "{id:?} is in use and cannot be the file '{name}'"
        );
        self.list.push(File { id, kind, capacity });
        self.names.insert(name.into(), number);
        Ok(number)
    }

    /// Blocks for a file of `pages` pages.
    fn room(&mut self, pages: u64) -> Result<(FileKind, u64), Errno> {
        let disk = self.disk.ok_or(Errno::NoSpc)?;
        let left = disk.pages.saturating_sub(self.taken);
        if pages > left {
            return Err(Errno::NoSpc);
        }
        let own = pages.max(left / SHARE);
        let (blocks, takes) = if disk.thin { (disk.pages, pages) } else { (own, own) };
        let block = self.next_block;
        self.next_block += blocks;
        self.taken += takes;
        assert!(
            self.taken <= disk.pages,
            "{} pages of a disk with {} pages are taken",
            self.taken,
            disk.pages
        );
        Ok((FileKind::Disk { device: disk.device, block }, blocks.saturating_mul(PAGE_SIZE)))
    }

    /// All of them, by number.
    pub(crate) fn list(&self) -> &[File] {
        &self.list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(files: &mut Files, name: &str, pages: u64) -> Result<(u32, u64), Errno> {
        let mut place = 0;
        let id = FileId(files.list().len() as u32);
        let number = files.find(name, pages * 4096, false, |kind| {
            let FileKind::Disk { block, .. } = kind else { panic!("the file must be on the disk") };
            place = block;
            id
        })?;
        Ok((number, place))
    }

    #[test]
    fn files_get_their_own_blocks_and_room_to_grow() {
        let disk = Disk { device: DeviceId(0), pages: 1600, taken: 0, thin: false };
        let mut files = Files::new(Some(disk));
        assert_eq!(file(&mut files, "a", 10), Ok((0, 0)));
        assert_eq!(files.list()[0].capacity, 100 * 4096);
        assert_eq!(file(&mut files, "b", 500), Ok((1, 100)));
        assert_eq!(files.list()[1].capacity, 500 * 4096);
        assert_eq!(file(&mut files, "a", 99), Ok((0, 0)));
        assert_eq!(file(&mut files, "c", 1001), Err(Errno::NoSpc));
        assert_eq!(file(&mut files, "c", 1000), Ok((2, 600)));
    }

    #[test]
    fn on_a_thin_disk_only_initial_sizes_take_space() {
        let disk = Disk { device: DeviceId(0), pages: 1600, taken: 100, thin: true };
        let mut files = Files::new(Some(disk));
        assert_eq!(file(&mut files, "a", 10), Ok((0, 100)));
        assert_eq!(file(&mut files, "b", 1400), Ok((1, 1700)));
        assert_eq!(files.list()[0].capacity, 1600 * 4096);
        assert_eq!(file(&mut files, "c", 91), Err(Errno::NoSpc));
        assert_eq!(file(&mut files, "c", 90), Ok((2, 3300)));
    }

    #[test]
    #[should_panic(expected = "is in use and cannot be the file 'b'")]
    fn a_file_of_the_memory_manager_has_one_name() {
        let mut files = Files::new(None);
        let _ = files.find("a", 4096, true, |_| FileId(3));
        let _ = files.find("b", 4096, true, |_| FileId(3));
    }

    #[test]
    fn without_a_disk_only_memory_files_exist() {
        let mut files = Files::new(None);
        assert_eq!(file(&mut files, "a", 1), Err(Errno::NoSpc));
        assert_eq!(files.find("a", 4096, true, |_| FileId(0)), Ok(0));
    }
}
