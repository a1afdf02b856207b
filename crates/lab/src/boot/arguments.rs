//! QEMU's command line, which guests of both kinds and the machine's shape extend.

use std::ffi::OsString;
use std::path::Path;

/// QEMU's arguments.
#[derive(Default)]
pub(crate) struct Arguments(pub(crate) Vec<OsString>);

impl Arguments {
    /// Append `words`.
    pub(crate) fn add<'a>(&mut self, words: impl IntoIterator<Item = &'a str>) -> &mut Arguments {
        self.0.extend(words.into_iter().map(OsString::from));
        self
    }

    /// Attach `images` as disks.
    pub(crate) fn disks<const N: usize>(&mut self, images: [Option<&Path>; N], options: &str) {
        for (number, image) in images.into_iter().flatten().enumerate() {
            // A comma ends a value; QEMU reads two as one comma of the value.
            let image = image.display().to_string().replace(',', ",,");
            self.add(["-drive", &format!("if=none,id=d{number},format=raw{options},file={image}")]);
            self.add(["-device", &format!("virtio-blk-pci,drive=d{number}")]);
        }
    }
}
