//! How long requests take.

use super::*;
use mm::machine::Io;
use mm::units::{DeviceId, Pfn};

fn spec(queue_depth: u32) -> DeviceSpec {
    DeviceSpec {
        name: "d".into(),
        size: Bytes(1 << 30),
        read_us: 100.0,
        write_us: 20.0,
        sequential_us: None,
        read_mbs: 4096.0,
        write_mbs: 2048.0,
        queue_depth,
        jitter_pct: 0.0,
        late: Late::default(),
        fails: Failures::default(),
        source: "test".into(),
    }
}

/// A request for single pages from `block` on.
fn request(now: u64, write: bool, block: u64, pages: u32) -> Request {
    let mut plug = Plug::default();
    for i in 0..pages {
        let block = block + i as u64;
        let io =
            Io { device: DeviceId(0), write, block, frame: Pfn(block as u32), pages: 1, continues: false };
        plug.add(now, io, 0).expect("there is room");
    }
    let mut requests = plug.take();
    assert_eq!(requests.len(), 1);
    requests.remove(0)
}

/// Microseconds at which a request that starts at once is done.
fn done(started: Option<Started>) -> u64 {
    started.expect("it starts at once").done / 1_000_000
}

#[test]
fn one_request_takes_its_latency() {
    let mut device = Device::new(&spec(4), 7);
    assert_eq!(done(device.submit(0, request(0, false, 10, 1))), 100);
    assert_eq!(done(device.submit(500_000_000, request(500_000_000, true, 90, 1))), 520);
    assert_eq!(device.counts.busy, 120_000_000);
    assert_eq!((device.counts.reads, device.counts.writes), (1, 1));
}

#[test]
fn a_request_of_many_pages_takes_one_latency_and_all_transfers() {
    let mut device = Device::new(&spec(4), 7);
    // 99 us of latency and 32 of transfer.
    assert_eq!(done(device.submit(0, request(0, false, 10, 32))), 131);
    assert_eq!((device.counts.reads, device.counts.read_merges), (1, 0));
}

#[test]
fn requests_beyond_the_queue_wait_for_a_tag_and_can_be_joined_meanwhile() {
    let mut device = Device::new(&spec(2), 7);
    let first = device.submit(0, request(0, false, 10, 1)).unwrap();
    assert_eq!(done(device.submit(0, request(0, false, 20, 1))), 100);
    assert_eq!(device.submit(0, request(0, false, 30, 1)), None);
    assert_eq!(device.submit(5, request(5, false, 31, 1)), None);
    assert_eq!(device.submit(5, request(5, false, 11, 1)), None, "the first has started");
    let (ended, next) = device.end(first.done, first.tag);
    assert_eq!(ended.parts().map(|io| io.block).collect::<Vec<_>>(), [10]);
    assert_eq!(done(next), 201);
    assert_eq!((device.counts.reads, device.counts.read_merges), (4, 1));
    let (ended, next) = device.end(next.unwrap().done, next.unwrap().tag);
    assert_eq!(ended.parts().map(|io| io.block).collect::<Vec<_>>(), [30, 31]);
    assert_eq!(done(next), 301);
    assert_eq!(device.counts.busy, 301_000_000);
}

#[test]
fn what_continues_the_last_request_takes_the_sequential_latency() {
    let mut device = Device::new(&DeviceSpec { sequential_us: Some(3.0), ..spec(1) }, 7);
    let mut now = 0;
    let mut times = Vec::new();
    for (write, block, pages) in [(false, 10, 2), (false, 12, 1), (false, 14, 1), (true, 15, 1)] {
        let started = device.submit(now, request(now, write, block, pages)).unwrap();
        device.end(started.done, started.tag);
        times.push((started.done - now) / 1_000_000);
        now = started.done;
    }
    assert_eq!(times, [101, 3, 100, 3]);
}

#[test]
fn a_flood_runs_at_the_bandwidth() {
    let mut device = Device::new(&spec(1024), 7);
    let last = (0..1000).map(|i| done(device.submit(0, request(0, false, 1000 * i, 256)))).max().unwrap();
    // 256,000 pages at one a microsecond.
    assert_eq!(last, 256_000);
}

#[test]
fn latencies_stay_within_the_jitter_and_use_all_of_it() {
    let mut device = Device::new(&DeviceSpec { jitter_pct: 10.0, ..spec(1) }, 7);
    let mut now = 0;
    let times: Vec<u64> = (0..1000)
        .map(|i| {
            let started = device.submit(now, request(now, false, 10 * i, 1)).unwrap();
            device.end(started.done, started.tag);
            let begun = std::mem::replace(&mut now, started.done);
            now - begun
        })
        .collect();
    let (least, most) = (times.iter().min().unwrap() / 1_000_000, times.iter().max().unwrap() / 1_000_000);
    assert_eq!((least, most), (90, 109));
}

#[test]
fn a_share_of_the_requests_is_late() {
    let late = Late { share_pct: 25.0, us: 900.0 };
    let mut device = Device::new(&DeviceSpec { late, ..spec(1) }, 7);
    let mut now = 0;
    let mut delayed = 0;
    for i in 0..1000 {
        let started = device.submit(now, request(now, false, 10 * i, 1)).unwrap();
        device.end(started.done, started.tag);
        match (started.done - now) / 1_000_000 {
            100 => {}
            1000 => delayed += 1,
            other => panic!("a request took {other} us"),
        }
        now = started.done;
    }
    assert!((200..300).contains(&delayed), "{delayed} of 1000 were late");
}
