//! Block storage: virtio disks on PCI, the first for files, the second for swap.
//!
//! The driver is the crate `virtio-drivers`; here stand the requests under way, and who may touch what:
//! - The memory manager submits from tasks and never waits, so what the device's ring has no room for stands in a line
//!   ([`Disk::line`]), behind an ordinary lock.
//! - The device itself is also reached by the interrupt handler, which must acknowledge it; its lock keeps interrupts off,
//!   and nothing is allocated under it: who allocates may be interrupted by the handler, which would then wait for a lock
//!   whose holder waits for the heap.
//! - The end of a transfer is told to the memory manager by a kernel thread, [`tell_of_ends`]: it takes
//!   locks that an interrupted task may hold.

use crate::arch::lock::IrqLock;
use crate::arch::paging;
use crate::report::DISKS;
use crate::sched::Key;
use crate::{devices, machine, sched};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use machine_x86::acpi::PciWindow;
use mm::lock::Lock;
use mm::machine::Io;
use mm::units::{DeviceId, PAGE_SIZE};
use spin::Once;
use virtio_drivers::device::blk::{BlkReq, BlkResp, RespStatus, SECTOR_SIZE, VirtIOBlk};
use virtio_drivers::transport::DeviceType;
use virtio_drivers::transport::pci::bus::{Cam, Command, DeviceFunction, MmioCam, PciRoot};
use virtio_drivers::transport::pci::{PciTransport, virtio_device_type};
use virtio_drivers::{BufferDirection, Error, Hal, PhysAddr};

/// Requests that the driver's ring holds at once.
const RING: usize = 16;
/// Sectors of a page.
const SECTORS: u64 = PAGE_SIZE / SECTOR_SIZE as u64;

/// How the driver reaches memory: devices see physical addresses, the heap and all frames are mapped in one piece.
struct KernelMemory;

// SAFETY: the area for devices gives contiguous zeroed pages that nobody else has until they are given back; devices'
// registers are mapped before their address is returned.
unsafe impl Hal for KernelMemory {
    fn dma_alloc(pages: usize, _: BufferDirection) -> (PhysAddr, NonNull<u8>) {
        // The driver takes address 0 for "none left".
        let address = devices::dma_allocate(pages).unwrap_or(0);
        (address, NonNull::new(paging::direct(address)).expect("the direct map is not at 0"))
    }

    unsafe fn dma_dealloc(address: PhysAddr, _: NonNull<u8>, pages: usize) -> i32 {
        devices::dma_release(address, pages);
        0
    }

    unsafe fn mmio_phys_to_virt(address: PhysAddr, size: usize) -> NonNull<u8> {
        paging::map_device(address, size as u64);
        NonNull::new(paging::direct(address)).expect("the direct map is not at 0")
    }

    unsafe fn share(buffer: NonNull<[u8]>, _: BufferDirection) -> PhysAddr {
        paging::physical(buffer.cast::<u8>().as_ptr())
    }

    unsafe fn unshare(_: PhysAddr, _: NonNull<[u8]>, _: BufferDirection) {}
}

/// A request under way: what the device reads and writes besides the frames.
struct Slot {
    io: Option<Io>,
    request: BlkReq,
    response: BlkResp,
}

/// The device and what it was given.
struct Device {
    driver: VirtIOBlk<KernelMemory, PciTransport>,
    /// In the heap, which devices reach.
    slots: Box<[Slot]>,
    /// The slot of a request that is known by its token.
    slot_of: [u8; RING],
}

/// The frames of a transfer.
///
/// # Safety
/// Nobody may use the slice but for its address: programs and the device change the bytes as they like.
unsafe fn frames(io: &Io) -> &'static mut [u8] {
    let start = paging::direct(io.frame.0 as u64 * PAGE_SIZE);
    // SAFETY: frames that the memory manager owns are mapped there for ever.
    unsafe { core::slice::from_raw_parts_mut(start, io.pages as usize * PAGE_SIZE as usize) }
}

impl Device {
    fn new(driver: VirtIOBlk<KernelMemory, PciTransport>) -> Device {
        let slot = || Slot { io: None, request: BlkReq::default(), response: BlkResp::default() };
        Device { driver, slots: (0..RING).map(|_| slot()).collect(), slot_of: [0; RING] }
    }

    /// Hand a request over. `false`: there is no room for it now.
    fn start(&mut self, io: Io) -> bool {
        let Some(at) = self.slots.iter().position(|slot| slot.io.is_none()) else { return false };
        let Slot { request, response, .. } = &mut self.slots[at];
        let sector = (io.block * SECTORS) as usize;
        // SAFETY: the frames stay the memory manager's until it is told of the end; request and response stay in their slot,
        // which nobody touches before.
        let started = unsafe {
            match io.write {
                true => self.driver.write_blocks_nb(sector, request, frames(&io), response),
                false => self.driver.read_blocks_nb(sector, request, frames(&io), response),
            }
        };
        match started {
            Ok(token) => {
                self.slots[at].io = Some(io);
                self.slot_of[token as usize] = at as u8;
                true
            }
            Err(Error::QueueFull) => false,
            Err(error) => panic!("{io:?} was refused: {error}"),
        }
    }

    /// A request that has ended.
    fn finish(&mut self) -> Option<Io> {
        let token = self.driver.peek_used()?;
        let Slot { io, request, response } = &mut self.slots[self.slot_of[token as usize] as usize];
        let io = io.take().expect("the device ends only what it was given");
        // SAFETY: the same memory as at the start.
        let ended = unsafe {
            match io.write {
                true => self.driver.complete_write_blocks(token, request, frames(&io), response),
                false => self.driver.complete_read_blocks(token, request, frames(&io), response),
            }
        };
        assert!(ended.is_ok() && response.status() == RespStatus::OK, "{io:?} failed: {ended:?}");
        Some(io)
    }
}

struct Disk {
    device: IrqLock<Device>,
    /// Requests that wait for room, oldest first.
    line: Lock<VecDeque<Io>>,
    pages: u64,
}

impl Disk {
    /// Hand over what there is room for.
    fn pump(&self) {
        let mut line = self.line.lock();
        while let Some(&io) = line.front() {
            if !self.device.lock().start(io) {
                break;
            }
            line.pop_front();
        }
    }
}

static FOUND: Once<Vec<Disk>> = Once::new();

/// Transfers that were submitted and whose end has not been told.
static UNDER_WAY: AtomicU64 = AtomicU64::new(0);

/// Says of a transfer that it was not the memory manager's.
static WATCH: Once<fn(&Io) -> bool> = Once::new();

/// What the task that tells of ended transfers sleeps on.
const ENDED: Key = Key::Other(KEY_KIND, 0);
/// The disks' kind among the kernel's own keys.
const KEY_KIND: u32 = 0x6469_736b;

fn disks() -> &'static [Disk] {
    FOUND.get().map_or(&[], Vec::as_slice)
}

/// Find the disks, in the order of their PCI numbers, and become the driver of block devices if there are any. Called once, before anything is
/// submitted.
pub fn init() {
    let found = devices::pci().map(|window| on_window(&window)).unwrap_or_default();
    if !FOUND.call_once(|| found).is_empty() {
        devices::set_driver(devices::Driver { submit, interrupt });
    }
}

fn on_window(window: &PciWindow) -> Vec<Disk> {
    // SAFETY: the firmware told that configuration space is there, it is mapped, and only this uses it.
    let access = unsafe { MmioCam::new(paging::direct(window.address), Cam::Ecam) };
    let mut root = PciRoot::new(access);
    let mut found = Vec::new();
    for bus in window.first_bus..=window.last_bus {
        let disks =
            root.enumerate_bus(bus).filter(|(_, info)| virtio_device_type(info) == Some(DeviceType::Block));
        found.extend(disks.map(|(function, _)| function));
    }
    found.into_iter().map(|function| open(&mut root, function)).collect()
}

fn open(root: &mut PciRoot<MmioCam<'static>>, function: DeviceFunction) -> Disk {
    root.set_command(function, Command::MEMORY_SPACE | Command::BUS_MASTER);
    let transport = PciTransport::new::<KernelMemory, _>(root, function);
    let transport = transport.unwrap_or_else(|error| panic!("the disk at {function}: {error}"));
    let driver = VirtIOBlk::new(transport).unwrap_or_else(|error| panic!("the disk at {function}: {error}"));
    let pages = driver.capacity() / SECTORS;
    Disk { device: IrqLock::new(Device::new(driver)), line: Lock::default(), pages }
}

/// Is no transfer under way?
pub fn is_idle() -> bool {
    UNDER_WAY.load(Relaxed) == 0
}

/// Have `claims` look at every transfer that has ended, before the memory manager is told: `true` keeps it. Only the first to
/// ask for this is asked.
pub fn watch(claims: fn(&Io) -> bool) {
    WATCH.call_once(|| claims);
}

/// Size of a disk in pages; `None` if there is no such disk.
pub fn pages(device: DeviceId) -> Option<u64> {
    disks().get(device.index()).map(|disk| disk.pages)
}

/// Start a transfer, now or when there is room. From tasks only. One that does not lie on the disk is a mistake of whoever told
/// the memory manager what there is.
fn submit(io: Io) {
    let disk = disks().get(io.device.index()).unwrap_or_else(|| panic!("{io:?}: there is no such disk"));
    assert!(
        io.block + io.pages as u64 <= disk.pages,
        "{io:?} reaches beyond the disk's {} pages",
        disk.pages
    );
    let (requests, pages) = match io.write {
        true => (&DISKS.writes, &DISKS.written_pages),
        false => (&DISKS.reads, &DISKS.read_pages),
    };
    requests.fetch_add(1, Relaxed);
    pages.fetch_add(io.pages as u64, Relaxed);
    UNDER_WAY.fetch_add(1, Relaxed);
    disk.line.lock().push_back(io);
    disk.pump();
}

/// Make the disks take their interrupts back.
fn interrupt() {
    for disk in disks() {
        disk.device.lock().driver.ack_interrupt();
    }
    sched::wake(ENDED);
}

/// Tell the memory manager of every transfer that has ended, for ever: what the disks' task does. It outlives the daemons, as they
/// end only when what they have begun has ended.
pub fn tell_of_ends() -> ! {
    loop {
        let mark = sched::mark(ENDED);
        while let Some(io) = next_ended() {
            if !WATCH.get().is_some_and(|claims| claims(&io)) {
                machine::mm().io_done(&io);
            }
            UNDER_WAY.fetch_sub(1, Relaxed);
        }
        // While the machine stops, waits end at once: daemons that wait for a transfer must still get to run.
        if sched::stopping() {
            sched::yield_now();
        }
        sched::wait(ENDED, mark, None);
    }
}

/// A transfer that has ended. From one task only.
fn next_ended() -> Option<Io> {
    disks().iter().find_map(|disk| {
        let io = disk.device.lock().finish()?;
        disk.pump();
        Some(io)
    })
}
