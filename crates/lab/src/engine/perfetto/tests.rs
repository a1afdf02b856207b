//! The trace, read with another implementation of protocol buffers.

use super::Perfetto;
use crate::engine::{Machine, Program, RunConfig, SharedTimeline};
use prost::Message;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

/// Declares messages with the numbers of Perfetto's descriptions, and those of their fields that the tests read.
macro_rules! messages {
    ($($name:ident { $($(#[$form:meta])* $field:ident: $type:ty,)* })*) => {
        $(
            #[derive(Clone, PartialEq, Message)]
            struct $name { $($(#[$form])* $field: $type,)* }
        )*
    };
}

messages! {
    Trace {
        #[prost(message, repeated, tag = "1")] packet: Vec<Packet>,
    }
    Packet {
        #[prost(message, optional, tag = "1")] ftrace_events: Option<Bundle>,
        #[prost(message, optional, tag = "2")] process_tree: Option<ProcessTree>,
        #[prost(message, optional, tag = "7")] sys_stats: Option<SysStats>,
        #[prost(uint64, tag = "8")] timestamp: u64,
        #[prost(message, optional, tag = "9")] process_stats: Option<ProcessStats>,
        #[prost(uint32, tag = "10")] sequence: u32,
        #[prost(message, optional, tag = "11")] track_event: Option<TrackEvent>,
        #[prost(message, optional, tag = "12")] interned_data: Option<InternedData>,
        #[prost(uint32, tag = "13")] sequence_flags: u32,
        #[prost(message, optional, tag = "60")] track_descriptor: Option<TrackDescriptor>,
    }
    Bundle {
        #[prost(uint32, tag = "1")] cpu: u32,
        #[prost(message, repeated, tag = "2")] event: Vec<FtraceEvent>,
    }
    FtraceEvent {
        #[prost(uint64, tag = "1")] timestamp: u64,
        #[prost(uint32, tag = "2")] pid: u32,
        #[prost(message, optional, tag = "4")] sched_switch: Option<SchedSwitch>,
        #[prost(message, optional, tag = "48")] kswapd_wake: Option<KswapdWake>,
    }
    SchedSwitch {
        #[prost(string, tag = "1")] prev_comm: String,
        #[prost(int32, tag = "2")] prev_pid: i32,
        #[prost(int64, tag = "4")] prev_state: i64,
        #[prost(string, tag = "5")] next_comm: String,
        #[prost(int32, tag = "6")] next_pid: i32,
    }
    KswapdWake {
        #[prost(int32, tag = "1")] nid: i32,
    }
    ProcessTree {
        #[prost(message, repeated, tag = "1")] processes: Vec<Process>,
        #[prost(message, repeated, tag = "2")] threads: Vec<Thread>,
    }
    Process {
        #[prost(int32, tag = "1")] pid: i32,
        #[prost(string, repeated, tag = "3")] cmdline: Vec<String>,
    }
    Thread {
        #[prost(int32, tag = "1")] tid: i32,
        #[prost(string, tag = "2")] name: String,
        #[prost(int32, tag = "3")] tgid: i32,
    }
    SysStats {
        #[prost(message, repeated, tag = "1")] meminfo: Vec<Value>,
        #[prost(message, repeated, tag = "2")] vmstat: Vec<Value>,
    }
    Value {
        #[prost(uint32, tag = "1")] key: u32,
        #[prost(uint64, tag = "2")] value: u64,
    }
    ProcessStats {
        #[prost(message, repeated, tag = "1")] processes: Vec<ProcessMemory>,
    }
    ProcessMemory {
        #[prost(int32, tag = "1")] pid: i32,
        #[prost(uint64, tag = "3")] vm_rss_kb: u64,
        #[prost(uint64, tag = "4")] rss_anon_kb: u64,
        #[prost(uint64, tag = "7")] vm_swap_kb: u64,
    }
    TrackEvent {
        #[prost(uint32, tag = "9")] kind: u32,
        #[prost(uint64, tag = "10")] name_iid: u64,
        #[prost(uint64, tag = "11")] track_uuid: u64,
        #[prost(message, repeated, tag = "4")] debug_annotations: Vec<Annotation>,
        #[prost(fixed64, repeated, tag = "47")] flow_ids: Vec<u64>,
        #[prost(fixed64, repeated, tag = "48")] terminating_flow_ids: Vec<u64>,
    }
    Annotation {
        #[prost(uint64, tag = "3")] uint_value: u64,
        #[prost(string, tag = "10")] name: String,
    }
    InternedData {
        #[prost(message, repeated, tag = "2")] event_names: Vec<EventName>,
    }
    EventName {
        #[prost(uint64, tag = "1")] iid: u64,
        #[prost(string, tag = "2")] name: String,
    }
    TrackDescriptor {
        #[prost(uint64, tag = "1")] uuid: u64,
        #[prost(string, tag = "2")] name: String,
        #[prost(message, optional, tag = "4")] thread: Option<ThreadDescriptor>,
    }
    ThreadDescriptor {
        #[prost(int32, tag = "1")] pid: i32,
        #[prost(int32, tag = "2")] tid: i32,
        #[prost(string, tag = "5")] thread_name: String,
    }
}

const MEMORY: u64 = 8 << 20;

/// A run that swaps and flushes on other CPUs, as a trace, and what it counted.
fn drawn() -> (Vec<u8>, crate::record::RunRecord) {
    let machine = Machine::find("laptop").unwrap();
    let program = Program::find("zipf:12M:3").unwrap();
    let trace = Arc::new(Mutex::new(Perfetto::new(Vec::new(), "zipf", machine.devices())));
    let drawn = Some(SharedTimeline(trace.clone()));
    let config = RunConfig { memory: Some(MEMORY), timeline: drawn, ..machine.config() };
    let record = program.measure(&config, "classic").unwrap();
    let undrawn = RunConfig { timeline: None, ..config.clone() };
    assert_eq!(program.measure(&undrawn, "classic").unwrap(), record, "drawing must change nothing");
    let mut trace = trace.lock().unwrap();
    trace.finish().unwrap();
    (std::mem::take(&mut trace.out), record)
}

/// The names of slices, by track and in the order in which they end. Fails unless they are nested.
fn slices(trace: &Trace) -> BTreeMap<u64, Vec<String>> {
    let (mut names, mut open, mut closed) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    let mut latest = BTreeMap::<u64, u64>::new();
    for packet in &trace.packet {
        let new = packet.interned_data.iter().flat_map(|data| &data.event_names);
        names.extend(new.map(|entry| (entry.iid, entry.name.clone())));
        let Some(event) = &packet.track_event else { continue };
        let before = latest.insert(event.track_uuid, packet.timestamp);
        assert!(before <= Some(packet.timestamp), "a track must be in the order of time");
        let open: &mut Vec<String> = open.entry(event.track_uuid).or_default();
        match event.kind {
            1 => open.push(names[&event.name_iid].clone()),
            2 => closed
                .entry(event.track_uuid)
                .or_insert_with(Vec::new)
                .push(open.pop().expect("a slice must begin before it ends")),
            kind => assert_eq!(kind, 3),
        }
    }
    closed
}

#[test]
fn a_trace_is_read_by_another_implementation() {
    let (bytes, record) = drawn();
    let trace = Trace::decode(&bytes[..]).unwrap();
    assert_eq!(trace.packet[0].sequence_flags, 1, "the first packet must begin the sequence");
    assert!(trace.packet.iter().all(|packet| packet.sequence == 1));

    // Every page fault is a slice of a thread.
    let slices = slices(&trace);
    let threads: BTreeMap<u64, &ThreadDescriptor> = trace
        .packet
        .iter()
        .filter_map(|packet| packet.track_descriptor.as_ref())
        .filter_map(|track| Some((track.uuid, track.thread.as_ref()?)))
        .collect();
    let of_program = threads.iter().filter(|(_, thread)| thread.thread_name.starts_with("zipf:"));
    let faults = of_program.flat_map(|(track, _)| &slices[track]).filter(|name| *name == "exc_page_fault");
    assert_eq!(faults.count() as i64, record.counters["pgfault"]);

    // Every transfer is a slice of a device. Some may have been submitted after the program's end.
    let events = trace.packet.iter().filter_map(|packet| packet.track_event.as_ref());
    let annotations = events.flat_map(|event| &event.debug_annotations);
    let pages = annotations.filter(|annotation| annotation.name == "pages").map(|pages| pages.uint_value);
    let swapped = record.counters["pswpout"] + record.counters["pswpin"];
    assert!(swapped > 1000 && pages.sum::<u64>() as i64 >= swapped);
}

#[test]
fn each_cpu_switches_from_what_it_switched_to() {
    let trace = Trace::decode(&drawn().0[..]).unwrap();
    let mut running = BTreeMap::<u32, (i32, u64)>::new();
    let mut switches = 0;
    for bundle in trace.packet.iter().filter_map(|packet| packet.ftrace_events.as_ref()) {
        for event in &bundle.event {
            let Some(switch) = &event.sched_switch else { continue };
            let (before, at) =
                running.insert(bundle.cpu, (switch.next_pid, event.timestamp)).unwrap_or((0, 0));
            assert_eq!((switch.prev_pid, event.pid as i32), (before, before));
            assert!(at <= event.timestamp && switch.prev_pid != switch.next_pid);
            assert_eq!(switch.next_pid == 0, switch.next_comm == "swapper");
            switches += 1;
        }
    }
    assert!(switches > 10);
    assert!(running.values().all(|&(pid, _)| pid == 0), "all CPUs must be idle at the end: {running:?}");
}

#[test]
fn arrows_lead_from_senders_to_receivers() {
    let (bytes, record) = drawn();
    let trace = Trace::decode(&bytes[..]).unwrap();
    let events = || trace.packet.iter().filter_map(|packet| packet.track_event.as_ref());
    let begin: BTreeSet<u64> = events().flat_map(|event| event.flow_ids.clone()).collect();
    let end: Vec<u64> = events().flat_map(|event| event.terminating_flow_ids.clone()).collect();
    assert_eq!(end.len() as i64, record.counters["nr_tlb_remote_flush_received"]);
    assert!(!end.is_empty());
    assert_eq!(begin, end.into_iter().collect());
}

#[test]
fn levels_and_counters_are_those_of_the_run() {
    let (bytes, record) = drawn();
    let trace = Trace::decode(&bytes[..]).unwrap();
    let (mut meminfo, mut vmstat, mut processes) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
    for packet in &trace.packet {
        if let Some(stats) = &packet.sys_stats {
            meminfo.extend(stats.meminfo.iter().map(|value| (value.key, value.value)));
            vmstat.extend(stats.vmstat.iter().map(|value| (value.key, value.value)));
        }
        processes.extend(packet.process_stats.iter().flat_map(|stats| stats.processes.clone()));
    }
    assert_eq!(meminfo[&1], MEMORY / 1024);
    // VMSTAT_PGFAULT, VMSTAT_PSWPOUT: the last look is up to a millisecond before the end.
    for (key, name) in [(49, "pgfault"), (42, "pswpout")] {
        let (shown, counted) = (vmstat[&key] as i64, record.counters[name]);
        assert!(shown <= counted && shown * 10 >= counted * 9, "{name}: {shown} of {counted}");
    }
    let tree = trace.packet.iter().filter_map(|packet| packet.process_tree.as_ref());
    let threads: Vec<Thread> = tree.flat_map(|tree| tree.threads.clone()).collect();
    let kswapd = threads.iter().find(|thread| thread.name == "kswapd0").unwrap();
    assert_eq!(kswapd.tid, kswapd.tgid);
    let program = threads.iter().find(|thread| thread.name == "zipf:0").unwrap();
    let of_program = || processes.iter().filter(|process| process.pid == program.tgid);
    assert!(of_program().any(|process| process.vm_swap_kb > 0));
    assert!(of_program().all(|process| process.rss_anon_kb <= process.vm_rss_kb));
    let ftrace = trace.packet.iter().filter_map(|packet| packet.ftrace_events.as_ref());
    let woken = ftrace.flat_map(|bundle| &bundle.event).filter(|event| event.kswapd_wake.is_some());
    assert!(woken.count() > 0);
}
