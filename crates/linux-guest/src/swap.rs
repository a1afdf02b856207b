//! Swap space on a disk: the header that the kernel looks for, and the call.

use crate::sys;
use alloc::format;
use alloc::vec;
use program::Call;

const PAGE: usize = 4096;

/// Enable swap on a disk, with a priority if one is given.
pub fn on(device: &str, priority: Option<u32>) -> Result<(), sys::Code> {
    let name = device.rsplit('/').next().unwrap_or(device);
    let sectors = sys::read_text(&format!("/sys/block/{name}/size"))?;
    let pages = sectors.trim().parse::<u64>().unwrap_or(0) * 512 / PAGE as u64;
    let mut header = vec![0u8; PAGE];
    // Version, and the number of the last page.
    header[1024..1028].copy_from_slice(&1u32.to_le_bytes());
    header[1028..1032].copy_from_slice(&(pages.saturating_sub(1) as u32).to_le_bytes());
    header[PAGE - 10..].copy_from_slice(b"SWAPSPACE2");
    let fd = sys::open(device, sys::O_WRONLY)?;
    let written = sys::write(fd, &header);
    // SAFETY: the call accesses no memory.
    let synced = unsafe { sys::make(Call::Fsync(fd)) };
    sys::close(fd)?;
    const PREFER: u64 = 0x8000;
    let flags = priority.map_or(0, |priority| PREFER | u64::from(priority));
    written.and(synced.map(drop)).and_then(|()| sys::swap_on(device, flags))
}
