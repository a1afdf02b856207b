//! Block storage: virtio disks on PCI, the first for files, the second for swap.
//!
//! The queue and the transport are the crate `virtio-drivers`'; here stand the requests under way, and who may touch
//! what:
//! - The memory manager submits from tasks and never waits, so what the device is not given yet stands in a line
//!   ([`Disk::line`]), behind an ordinary lock. The device has two requests at a time. What comes meanwhile and follows
//!   on the disk what came before it, as read-ahead and write-back do page by page, goes out as one request with a list
//!   of frames.
//! - The device itself is also reached by the interrupt handler, which must acknowledge it; its lock keeps interrupts
//!   off, and nothing is allocated under it: who allocates may be interrupted by the handler, which would then wait for
//!   a lock whose holder waits for the heap.
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
use virtio_drivers::queue::VirtQueue;
use virtio_drivers::transport::pci::bus::{Cam, Command, DeviceFunction, MmioCam, PciRoot};
use virtio_drivers::transport::pci::{PciTransport, virtio_device_type};
use virtio_drivers::transport::{DeviceStatus, DeviceType, Transport};
use virtio_drivers::{BufferDirection, Error, Hal, PhysAddr};

/// Requests that the device has at once.
const REQUESTS: usize = 2;
/// Most transfers in one request.
const PARTS: usize = 32;
/// Descriptors: one for each transfer of a request, for its header and for its status.
const RING: usize = (REQUESTS * (PARTS + 2)).next_power_of_two();
/// Bytes of a sector, the unit that devices count in.
const SECTOR_SIZE: u64 = 512;
/// Sectors of a page.
const SECTORS: u64 = PAGE_SIZE / SECTOR_SIZE;

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

/// What a device reads at the head of a request.
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
        // SAFETY: three integers without room between them.
        unsafe { core::slice::from_raw_parts((&raw const *self).cast(), size_of::<Header>()) }
    }
}

/// A request under way: its transfers, which follow each other on the disk, and what the device reads and writes
/// besides their frames.
struct Request {
    /// None: it is free. Has room for all that a request can have.
    parts: Vec<Io>,
    header: Header,
    status: [u8; 1],
}

impl Request {
    const DONE: u8 = 0;

    /// Have `exchange` see what the device reads, and what it writes.
    ///
    /// # Safety
    /// As for [`frames`]. The request stays where it is while the device has it.
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

/// The device and what it was given.
struct Device {
    transport: PciTransport,
    queue: VirtQueue<KernelMemory, RING>,
    /// In the heap, which devices reach.
    requests: Box<[Request]>,
    /// The request that is known by a token.
    request_of: [u8; RING],
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

/// Number of a device's only queue.
const QUEUE: u16 = 0;

impl Device {
    /// Begin to use the device.
    fn new(mut transport: PciTransport) -> Result<Device, Error> {
        /// Both sides say from where on they want to be told.
        const EVENT_INDEX: u64 = 1 << 29;
        /// The device is as the standard describes it.
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

    /// Hand over as many of the first transfers of a line, which is not empty, as can be one request. There is a
    /// request that is free.
    #[inline(never)]
    fn start(&mut self, line: &mut VecDeque<Io>) {
        let free = self.requests.iter().position(|request| request.parts.is_empty());
        let at = free.expect("a free request was counted");
        let request = &mut self.requests[at];
        while request.parts.len() < PARTS
            && let Some(io) = line.front()
            && request.parts.last().is_none_or(|last| follows(last, io))
        {
            request.parts.push(*io);
            line.pop_front();
        }
        request.header = Header::of(&request.parts[0]);
        // SAFETY: the frames stay the memory manager's until it is told of the end; the rest stays in its place, which
        // nobody touches before.
        let token = unsafe { request.buffers(|inputs, outputs| self.queue.add(inputs, outputs)) };
        let token = token.unwrap_or_else(|error| panic!("{:?} was refused: {error}", request.parts));
        self.request_of[token as usize] = at as u8;
        if self.queue.should_notify() {
            self.transport.notify(QUEUE);
        }
    }

    /// Take a request that has ended: its transfers are appended to `ended`.
    fn finish(&mut self, ended: &mut Vec<Io>) -> bool {
        let Some(token) = self.queue.peek_used() else { return false };
        let request = &mut self.requests[self.request_of[token as usize] as usize];
        // SAFETY: the same memory as at the start.
        let popped =
            unsafe { request.buffers(|inputs, outputs| self.queue.pop_used(token, inputs, outputs)) };
        let done = popped.is_ok() && request.status == [Request::DONE];
        assert!(done, "{:?} failed: {popped:?}, status {:?}", request.parts, request.status);
        ended.append(&mut request.parts);
        true
    }
}

struct Disk {
    device: IrqLock<Device>,
    line: Lock<Line>,
    pages: u64,
}

/// Transfers that wait for room, oldest first, and requests that the device could have.
struct Line {
    waiting: VecDeque<Io>,
    free: usize,
}

impl Disk {
    /// Hand over what the device can take. Mostly that is nothing.
    #[inline(always)]
    fn pump(&self, line: &mut Line) {
        while line.free > 0 && !line.waiting.is_empty() {
            self.device.lock().start(&mut line.waiting);
            line.free -= 1;
        }
    }
}

/// Does a transfer begin on the disk where another ends, so that both can be in one request?
#[inline]
fn follows(last: &Io, next: &Io) -> bool {
    last.write == next.write && last.block + last.pages as u64 == next.block
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

/// Find the disks, in the order of their PCI numbers, and become the driver of block devices if there are any. Called
/// once, before anything is submitted.
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
    let failed = |error| -> ! { panic!("the disk at {function}: {error}") };
    let device = Device::new(transport).unwrap_or_else(|error| failed(error));
    let pages = device.sectors().unwrap_or_else(|error| failed(error)) / SECTORS;
    let line = Line { waiting: VecDeque::new(), free: REQUESTS };
    Disk { device: IrqLock::new(device), line: Lock::new(line), pages }
}

/// Is no transfer under way?
pub fn is_idle() -> bool {
    UNDER_WAY.load(Relaxed) == 0
}

/// Have `claims` look at every transfer that has ended, before the memory manager is told: `true` keeps it. Only the
/// first to ask for this is asked.
pub fn watch(claims: fn(&Io) -> bool) {
    WATCH.call_once(|| claims);
}

/// Size of a disk in pages; `None` if there is no such disk.
pub fn pages(device: DeviceId) -> Option<u64> {
    disks().get(device.index()).map(|disk| disk.pages)
}

/// Start a transfer, now or when there is room. From tasks only. One that does not lie on the disk is a mistake of
/// whoever told the memory manager what there is.
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
    let mut line = disk.line.lock();
    line.waiting.push_back(io);
    disk.pump(&mut line);
}

/// Make the disks take their interrupts back.
fn interrupt() {
    for disk in disks() {
        disk.device.lock().transport.ack_interrupt();
    }
    sched::wake(ENDED);
}

/// Tell the memory manager of every transfer that has ended, for ever: what the disks' task does. It outlives the
/// daemons, as they end only when what they have begun has ended.
pub fn tell_of_ends() -> ! {
    let mut ended = Vec::with_capacity(PARTS);
    loop {
        let mark = sched::mark(ENDED);
        while take_ended(&mut ended) {
            let (watch, mm) = (WATCH.get(), machine::mm());
            for io in &ended {
                if !watch.is_some_and(|claims| claims(io)) {
                    mm.io_done(io);
                }
            }
            UNDER_WAY.fetch_sub(ended.len() as u64, Relaxed);
            ended.clear();
        }
        // While the machine stops, waits end at once: daemons that wait for a transfer must still get to run.
        if sched::stopping() {
            sched::yield_now();
        }
        sched::wait(ENDED, mark, None);
    }
}

/// Take what has ended of one disk. From one task only. `ended` is empty and has room for a request, so nothing is
/// allocated.
fn take_ended(ended: &mut Vec<Io>) -> bool {
    disks().iter().any(|disk| {
        let some = disk.device.lock().finish(ended);
        if some {
            let mut line = disk.line.lock();
            line.free += 1;
            disk.pump(&mut line);
        }
        some
    })
}
