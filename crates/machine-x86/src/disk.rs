//! Block storage: virtio disks on PCI, the first for files, the second for swap.
//!
//! The crate `virtio-drivers` has the queue and the transport; here are the requests in flight, and the rules
//! for access:
//! - The memory manager submits from tasks and never waits, so transfers that the device cannot take yet wait
//!   in a list ([`Disk::waiting`]) with an ordinary lock. The device has two requests at a time. Transfers
//!   that follow each other on the disk, as read-ahead and write-back submit them page by page, become one
//!   request with a list of frames.
//! - The interrupt handler also accesses the device, because it must acknowledge the interrupt. So the
//!   device's lock keeps interrupts off, and nothing is allocated with it held: the handler may interrupt a
//!   task that allocates, and would then wait for a lock whose holder waits for the heap.
//! - A kernel thread, [`complete_transfers`], reports the ends of transfers to the memory manager: it takes
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
use virtio_drivers::queue::VirtQueue;
use virtio_drivers::transport::pci::bus::{Cam, Command, DeviceFunction, MmioCam, PciRoot};
use virtio_drivers::transport::pci::{PciTransport, virtio_device_type};
use virtio_drivers::transport::{DeviceStatus, DeviceType, Transport};
use virtio_drivers::{BufferDirection, Error, Hal, PhysAddr};

/// Requests that the device has at a time.
const REQUESTS: usize = 2;
/// The most transfers in one request.
const PARTS: usize = 32;
/// Descriptors: one for each transfer of a request, for its header and for its status.
const RING: usize = (REQUESTS * (PARTS + 2)).next_power_of_two();
/// Bytes of a sector, the unit of devices.
const SECTOR_SIZE: u64 = 512;
/// Sectors of a page.
const SECTORS: u64 = PAGE_SIZE / SECTOR_SIZE;

/// How the driver accesses memory: devices use physical addresses, and the direct map contains the heap and
/// all frames.
struct KernelMemory;

// SAFETY: the area for devices gives contiguous zeroed pages without another user until they are freed;
// devices' registers are mapped before their address is returned.
unsafe impl Hal for KernelMemory {
    fn dma_alloc(pages: usize, _: BufferDirection) -> (PhysAddr, NonNull<u8>) {
        // The driver regards address 0 as "no memory".
        let address = devices::dma_allocate(pages).unwrap_or(0);
        (address, NonNull::new(paging::direct(address)).expect("the direct map must not be at 0"))
    }

    unsafe fn dma_dealloc(address: PhysAddr, _: NonNull<u8>, pages: usize) -> i32 {
        devices::dma_release(address, pages);
        0
    }

    unsafe fn mmio_phys_to_virt(address: PhysAddr, size: usize) -> NonNull<u8> {
        paging::map_device(address, size as u64);
        NonNull::new(paging::direct(address)).expect("the direct map must not be at 0")
    }

    unsafe fn share(buffer: NonNull<[u8]>, _: BufferDirection) -> PhysAddr {
        paging::physical(buffer.cast::<u8>().as_ptr())
    }

    unsafe fn unshare(_: PhysAddr, _: NonNull<[u8]>, _: BufferDirection) {}
}

/// The header of a request, which the device reads.
#[repr(C)]
struct Header {
    kind: u32,
    reserved: u32,
    sector: u64,
}

impl Header {
    const READ: u32 = 0;
    const WRITE: u32 = 1;

    fn of(first: &Io) -> Header {
        let kind = if first.write { Header::WRITE } else { Header::READ };
        Header { kind, reserved: 0, sector: first.block * SECTORS }
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: three integers without padding.
        unsafe { core::slice::from_raw_parts((&raw const *self).cast(), size_of::<Header>()) }
    }
}

/// A request in flight: its transfers, which follow each other on the disk, and what the device reads and
/// writes besides their frames.
struct Request {
    /// Empty if the request is free. Has capacity for the most transfers of a request.
    parts: Vec<Io>,
    header: Header,
    status: [u8; 1],
}

impl Request {
    const DONE: u8 = 0;

    /// Call `exchange` with the buffers that the device reads, and those that it writes.
    ///
    /// # Safety
    /// As for [`frames`]. The request must not move while the device has it.
    unsafe fn buffers<R>(
        &mut self,
        exchange: impl for<'a> FnOnce(&'a [&'a [u8]], &'a mut [&'a mut [u8]]) -> R,
    ) -> R {
        let (parts, header) = (&self.parts, self.header.bytes());
        if self.header.kind == Header::WRITE {
            let mut inputs: [&[u8]; PARTS + 1] = [&[]; PARTS + 1];
            inputs[0] = header;
            for (input, io) in inputs[1..].iter_mut().zip(parts) {
                // SAFETY: as the caller promises.
                *input = unsafe { frames(io) };
            }
            exchange(&inputs[..=parts.len()], &mut [&mut self.status])
        } else {
            let mut outputs: [&mut [u8]; PARTS + 1] = core::array::from_fn(|_| <&mut [u8]>::default());
            for (output, io) in outputs.iter_mut().zip(parts) {
                // SAFETY: as the caller promises.
                *output = unsafe { frames(io) };
            }
            outputs[parts.len()] = &mut self.status;
            exchange(&[header], &mut outputs[..=parts.len()])
        }
    }
}

/// The device and its requests.
struct Device {
    transport: PciTransport,
    queue: VirtQueue<KernelMemory, RING>,
    /// On the heap, which devices can access.
    requests: Box<[Request]>,
    /// The index of a token's request.
    request_of: [u8; RING],
}

/// The frames of a transfer.
///
/// # Safety
/// The slice may be used only for its address: programs and the device change the bytes at any time.
unsafe fn frames(io: &Io) -> &'static mut [u8] {
    let start = paging::direct(io.frame.0 as u64 * PAGE_SIZE);
    // SAFETY: the memory manager's frames are mapped there forever.
    unsafe { core::slice::from_raw_parts_mut(start, io.pages as usize * PAGE_SIZE as usize) }
}

/// Number of a device's only queue.
const QUEUE: u16 = 0;

impl Device {
    /// Initialize the device.
    fn new(mut transport: PciTransport) -> Result<Device, Error> {
        /// Each side tells the other when to notify it.
        const EVENT_INDEX: u64 = 1 << 29;
        /// The device conforms to the standard.
        const VERSION_1: u64 = 1 << 32;
        let known = DeviceStatus::ACKNOWLEDGE | DeviceStatus::DRIVER;
        transport.set_status(DeviceStatus::empty());
        transport.set_status(known);
        let features = transport.read_device_features() & (EVENT_INDEX | VERSION_1);
        transport.write_driver_features(features);
        transport.set_status(known | DeviceStatus::FEATURES_OK);
        let queue = VirtQueue::new(&mut transport, QUEUE, false, features & EVENT_INDEX != 0)?;
        transport.finish_init();
        let request = || Request {
            parts: Vec::with_capacity(PARTS),
            header: Header { kind: 0, reserved: 0, sector: 0 },
            status: [0],
        };
        let requests = (0..REQUESTS).map(|_| request()).collect();
        Ok(Device { transport, queue, requests, request_of: [0; RING] })
    }

    /// Its size in sectors.
    fn sectors(&self) -> Result<u64, Error> {
        let word = |at| self.transport.read_config_space::<u32>(at).map(u64::from);
        self.transport.read_consistent(|| Ok(word(0)? | word(4)? << 32))
    }

    /// Start one request with as many of the first transfers of a list, which is not empty, as possible.
    /// There must be a free request.
    #[inline(never)]
    fn start(&mut self, waiting: &mut VecDeque<Io>) {
        let free = self.requests.iter().position(|request| request.parts.is_empty());
        let at = free.expect("a request must be free");
        let request = &mut self.requests[at];
        while request.parts.len() < PARTS
            && let Some(io) = waiting.front()
            && request.parts.last().is_none_or(|last| follows(last, io))
        {
            request.parts.push(*io);
            waiting.pop_front();
        }
        request.header = Header::of(&request.parts[0]);
        // SAFETY: the frames belong to the memory manager until the transfer has ended; the rest does not
        // move, and nothing accesses it until then.
        let token = unsafe { request.buffers(|inputs, outputs| self.queue.add(inputs, outputs)) };
        let token = token.unwrap_or_else(|error| panic!("cannot start {:?}: {error}", request.parts));
        self.request_of[token as usize] = at as u8;
        if self.queue.should_notify() {
            self.transport.notify(QUEUE);
        }
    }

    /// Finish a completed request: its transfers are appended to `completed`.
    fn finish(&mut self, completed: &mut Vec<Io>) -> bool {
        let Some(token) = self.queue.peek_used() else { return false };
        let request = &mut self.requests[self.request_of[token as usize] as usize];
        // SAFETY: the same memory as at the start.
        let popped =
            unsafe { request.buffers(|inputs, outputs| self.queue.pop_used(token, inputs, outputs)) };
        let done = popped.is_ok() && request.status == [Request::DONE];
        assert!(done, "{:?} failed: {popped:?}, status {:?}", request.parts, request.status);
        completed.append(&mut request.parts);
        true
    }
}

struct Disk {
    device: IrqLock<Device>,
    waiting: Lock<Waiting>,
    pages: u64,
}

/// Transfers that wait, oldest first, and the number of free requests.
struct Waiting {
    transfers: VecDeque<Io>,
    free: usize,
}

impl Disk {
    /// Start requests while the device has free ones. Mostly it has none.
    #[inline(always)]
    fn start_waiting(&self, waiting: &mut Waiting) {
        while waiting.free > 0 && !waiting.transfers.is_empty() {
            self.device.lock().start(&mut waiting.transfers);
            waiting.free -= 1;
        }
    }
}

/// Whether a transfer begins on the disk where another ends, so that both fit in one request.
#[inline]
fn follows(last: &Io, next: &Io) -> bool {
    last.write == next.write && last.block + last.pages as u64 == next.block
}

static DISK_LIST: Once<Vec<Disk>> = Once::new();

/// Transfers that were submitted and have not been reported as ended.
static IN_FLIGHT: AtomicU64 = AtomicU64::new(0);

/// Returns whether a transfer was not the memory manager's.
static WATCH: Once<fn(&Io) -> bool> = Once::new();

/// The key on which the completing task sleeps.
const COMPLETED: Key = Key::Other(KEY_KIND, 0);
/// The disks' kind among the kernel's keys.
const KEY_KIND: u32 = 0x6469_736b;

fn disks() -> &'static [Disk] {
    DISK_LIST.get().map_or(&[], Vec::as_slice)
}

/// Find the disks, in the order of their PCI numbers, and register as the driver of block devices if there
/// are any. Called once, before any transfer.
pub fn init() {
    let found = devices::pci().map(|window| find_disks(&window)).unwrap_or_default();
    if !DISK_LIST.call_once(|| found).is_empty() {
        devices::set_driver(devices::Driver { submit, interrupt });
    }
}

fn find_disks(window: &PciWindow) -> Vec<Disk> {
    // SAFETY: the firmware has described this configuration space, it is mapped, and only this function
    // accesses it.
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
    let failed = |error| -> ! { panic!("the disk at {function}: {error}") };
    let device = Device::new(transport).unwrap_or_else(|error| failed(error));
    let pages = device.sectors().unwrap_or_else(|error| failed(error)) / SECTORS;
    let waiting = Waiting { transfers: VecDeque::new(), free: REQUESTS };
    Disk { device: IrqLock::new(device), waiting: Lock::new(waiting), pages }
}

/// Whether no transfer is in flight.
pub fn is_idle() -> bool {
    IN_FLIGHT.load(Relaxed) == 0
}

/// Let `claims` see every completed transfer before the memory manager: `true` keeps it from the memory
/// manager. Only the first call has an effect.
pub fn watch(claims: fn(&Io) -> bool) {
    WATCH.call_once(|| claims);
}

/// Size of a disk in pages; `None` if there is no such disk.
pub fn pages(device: DeviceId) -> Option<u64> {
    disks().get(device.index()).map(|disk| disk.pages)
}

/// Start a transfer, now or when a request is free. Only called by tasks. A transfer beyond the disk is a bug
/// in the configuration of the memory manager.
fn submit(io: Io) {
    let disk = disks().get(io.device.index()).unwrap_or_else(|| panic!("{io:?}: no such disk"));
    assert!(
        io.block + io.pages as u64 <= disk.pages,
        "{io:?} reaches beyond the disk's {} pages",
        disk.pages
    );
    DISKS.count(&io);
    IN_FLIGHT.fetch_add(1, Relaxed);
    let mut waiting = disk.waiting.lock();
    waiting.transfers.push_back(io);
    disk.start_waiting(&mut waiting);
}

/// Acknowledge the disks' interrupts.
fn interrupt() {
    for disk in disks() {
        disk.device.lock().transport.ack_interrupt();
    }
    sched::wake(COMPLETED);
}

/// Report every completed transfer to the memory manager, forever: the disks' task. It outlives the daemons,
/// which end only when their transfers have ended.
pub fn complete_transfers() -> ! {
    let mut completed = Vec::with_capacity(PARTS);
    loop {
        let mark = sched::mark(COMPLETED);
        while take_completed(&mut completed) {
            let (watch, mm) = (WATCH.get(), machine::mm());
            for io in &completed {
                if !watch.is_some_and(|claims| claims(io)) {
                    mm.io_done(io);
                }
            }
            IN_FLIGHT.fetch_sub(completed.len() as u64, Relaxed);
            completed.clear();
        }
        // While the machine stops, waits end at once, and daemons that wait for a transfer must still run.
        if sched::stopping() {
            sched::yield_now();
        }
        sched::wait(COMPLETED, mark, None);
    }
}

/// Take the completed transfers of one request. Only called by one task. `completed` is empty and has room
/// for a request, so nothing is allocated.
fn take_completed(completed: &mut Vec<Io>) -> bool {
    disks().iter().any(|disk| {
        let some = disk.device.lock().finish(completed);
        if some {
            let mut waiting = disk.waiting.lock();
            waiting.free += 1;
            disk.start_waiting(&mut waiting);
        }
        some
    })
}
