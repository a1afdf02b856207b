//! mmap.

use super::vma::{Vma, VmaFlags, VmaView};
use super::{Spaces, Stop, VmaTree};
use crate::api::{Backing, Error, FileKind, MapRequest, Prot};
use crate::knobs::Knob;
use crate::machine::{Machine, WaitKey, Work};
use crate::mempolicy::MemPolicy;
use crate::mm_core::MmCore;
use crate::swap::RangeReadahead;
use crate::table::USER_END;
use crate::units::*;
use smallvec::SmallVec;

impl Spaces {
    /// Map memory. Returns the first page. The caller faults in the pages if `populate` or `locked` is set.
    pub fn mmap<M: Machine>(&self, core: &MmCore<M>, id: SpaceId, request: &MapRequest) -> Result<Vpn, Stop> {
        if request.pages == 0 || request.pages > USER_END.0 {
            return Err(Error::Invalid.into());
        }
        // Check before a fixed address unmaps anything.
        check_rights(request)?;
        let space = self.at(id);
        let _held = space.mapping.write(&core.machine, WaitKey::Space(id));
        let start = match request.at {
            Some(at) if at.0 > USER_END.0 - request.pages => return Err(Error::Invalid.into()),
            Some(at) => {
                self.unmap_range(core, id, at, Vpn(at.0 + request.pages));
                at
            }
            None => place(core, &space.vmas.lock(), request).ok_or(Error::NoMemory)?,
        };
        let (file, flags) = self.backing(core, request);
        let view = VmaView {
            id: self.new_vma_id(),
            start,
            pages: request.pages,
            prot: request.prot,
            flags,
            policy: MemPolicy::DEFAULT,
            file,
            anon_index: PageIndex(start.0),
            anon: None,
        };
        let vma = Vma { view, sets: SmallVec::new(), swapped: RangeReadahead::default() };
        vma.link(core, id, space.group());
        space.vmas.lock().insert(vma);
        core.charge(Work::VmaChange, 1);
        self.merge_at(core, id, Vpn(start.0 + request.pages));
        self.merge_at(core, id, start);
        Ok(start)
    }

    /// The file of a request, if any, and the range's flags.
    fn backing<M: Machine>(
        &self,
        core: &MmCore<M>,
        request: &MapRequest,
    ) -> (Option<(FileId, PageIndex)>, VmaFlags) {
        let mut flags = VmaFlags::MAY_WRITE;
        flags.set(VmaFlags::LOCKED, request.locked);
        let file = match request.backing {
            Backing::Anonymous => None,
            Backing::AnonymousShared => {
                flags |= VmaFlags::SHARED;
                Some((core.cache.create_nameless(FileKind::Shmem, request.pages * PAGE_SIZE), PageIndex(0)))
            }
            Backing::File { file, offset, shared, writable } => {
                flags.set(VmaFlags::SHARED, shared);
                if shared && !writable {
                    flags.remove(VmaFlags::MAY_WRITE);
                }
                Some((file, offset))
            }
        };
        (file, flags)
    }
}

/// A file that is open for reading only must not be mapped shared and writable.
fn check_rights(request: &MapRequest) -> Result<(), Error> {
    match request.backing {
        Backing::File { shared: true, writable: false, .. } if request.prot.contains(Prot::WRITE) => {
            Err(Error::Access)
        }
        _ => Ok(()),
    }
}

/// Choose an address. A mapping of 2 MiB of a file or more begins where large entries fit. So does one of whole 2 MiB
/// blocks of anonymous memory, as in Linux, if mappings are placed lower than usual: below the usual place blocks are
/// whole anyway.
fn place<M: Machine>(core: &MmCore<M>, vmas: &VmaTree, request: &MapRequest) -> Option<Vpn> {
    const LARGE: u64 = TABLE_ENTRIES as u64;
    let offset = match request.backing {
        Backing::File { offset, .. } => Some(offset.0),
        Backing::AnonymousShared => Some(0),
        Backing::Anonymous => None,
    };
    let offset = offset.filter(|_| core.knobs.get(Knob::ThpFilePmd) == 1 && request.pages >= LARGE);
    let whole = request.backing == Backing::Anonymous && request.pages.is_multiple_of(LARGE);
    match offset.or((whole && vmas.lowered() > 0).then_some(0)) {
        Some(offset) => {
            let start = vmas.gap(request.pages + LARGE - 1)?;
            Some(Vpn(start.0 + (offset.wrapping_sub(start.0)) % LARGE))
        }
        None => vmas.gap(request.pages),
    }
}
