//! Traces for Perfetto (ui.perfetto.dev): its protobuf format, packet by packet.
//!
//! Tracks: a group per core, with what the core did beside its calls; a group per application, with its
//! calls, and within each call its stages. Calls of one application that overlap, as posted ones do, get
//! tracks of their own, since slices of one track must nest. Source: `protos/perfetto/trace` of Perfetto.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Seek, Write};

use abi::trace::{Call, Event, EventKind, Lock, Record};

use super::protobuf::Message;
use crate::problem::Error;
use crate::reader::Reader;
use crate::{Names, nanoseconds};

/// Numbers of fields in Perfetto's messages.
mod field {
    pub const TRACE_PACKET: u32 = 1;
    pub const PACKET_TIMESTAMP: u32 = 8;
    pub const PACKET_SEQUENCE: u32 = 10;
    pub const PACKET_TRACK_EVENT: u32 = 11;
    pub const PACKET_TRACK: u32 = 60;
    pub const EVENT_ANNOTATION: u32 = 4;
    pub const EVENT_TYPE: u32 = 9;
    pub const EVENT_TRACK: u32 = 11;
    pub const EVENT_NAME: u32 = 23;
    pub const ANNOTATION_NUMBER: u32 = 3;
    pub const ANNOTATION_TEXT: u32 = 6;
    pub const ANNOTATION_NAME: u32 = 10;
    pub const TRACK_UUID: u32 = 1;
    pub const TRACK_NAME: u32 = 2;
    pub const TRACK_PARENT: u32 = 5;
}

/// Values of the type of a track event.
const BEGIN: u64 = 1;
const END: u64 = 2;
const INSTANT: u64 = 3;

/// All packets are of one sequence.
const SEQUENCE: u64 = 1;

/// Tracks of one group, at most: as many posted calls as one thread can have open, and some.
const LANES: usize = 128;

/// A group of tracks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Group {
    Core(u8),
    Application(u16),
}

impl Group {
    fn uuid(self) -> u64 {
        match self {
            Group::Core(core) => 1 << 40 | u64::from(core) << 8,
            Group::Application(application) => 2 << 40 | u64::from(application) << 8,
        }
    }

    fn name(self) -> String {
        match self {
            Group::Core(core) => format!("core {core}"),
            Group::Application(application) => format!("application {application}"),
        }
    }
}

/// Writes a trace for Perfetto. How many records.
///
/// # Errors
///
/// [`Error::Io`].
pub fn export<R: Read + Seek>(
    trace: &mut Reader<R>,
    names: Names,
    output: impl Write,
) -> Result<u64, Error> {
    let ticks_per_second = trace.header().ticks_per_second;
    let groups = BTreeSet::new();
    let mut export = Export { output, ticks_per_second, groups, lanes: BTreeMap::new() };
    let mut count = 0;
    while let Some(entry) = trace.next_entry()? {
        let written = match entry.record {
            Record::Call(call) => export.call(&call, names),
            Record::Lock(lock) => export.lock(&lock, names),
            Record::Event(event) => export.event(&event),
        };
        written.map_err(|source| Error::Io { at: 0, source })?;
        count += 1;
    }
    export.output.flush().map_err(|source| Error::Io { at: 0, source })?;
    Ok(count)
}

struct Export<W> {
    output: W,
    ticks_per_second: u64,
    groups: BTreeSet<Group>,
    /// By group: when the last slice of each track ended.
    lanes: BTreeMap<Group, Vec<u64>>,
}

impl<W: Write> Export<W> {
    fn call(&mut self, call: &Call, names: Names) -> std::io::Result<()> {
        let name = names(call.number);
        let track = self.track(Group::Application(call.application), call.start, call.end())?;
        let annotations = [
            text_annotation("path", call.path.name()),
            number_annotation("core", u64::from(call.core)),
            number_annotation("server core", u64::from(call.server_core)),
            number_annotation("contention", u64::from(call.contention)),
        ];
        self.begin(track, call.start, &name, &annotations)?;
        let mut at = call.start;
        let stages = [
            ("enter", call.enter),
            ("fly-in", call.fly_in),
            ("handle", call.poll),
            ("wait", call.wait),
            ("fly-out", call.fly_out),
            ("exit", call.exit),
        ];
        for (stage, duration) in stages {
            if duration.ticks() > 0 {
                self.begin(track, at, stage, &[])?;
                at += duration.ticks();
                self.end(track, at)?;
            }
        }
        self.end(track, call.end())
    }

    fn lock(&mut self, lock: &Lock, names: Names) -> std::io::Result<()> {
        let end = Record::Lock(*lock).end();
        let track = self.track(Group::Core(lock.core), lock.entry, end)?;
        let name = format!("{} lock {}", lock.scheme.name(), lock.lock);
        let annotations = [
            text_annotation("call", &names(lock.number)),
            number_annotation("contention", u64::from(lock.contention)),
        ];
        let acquired = lock.entry + u64::from(lock.waited);
        self.begin(track, lock.entry, &name, &annotations)?;
        if lock.waited > 0 {
            self.begin(track, lock.entry, "waiting", &[])?;
            self.end(track, acquired)?;
        }
        self.begin(track, acquired, "held", &[])?;
        self.end(track, acquired + u64::from(lock.held))?;
        self.end(track, end)
    }

    fn event(&mut self, event: &Event) -> std::io::Result<()> {
        let group = match event.kind {
            EventKind::Thread | EventKind::PageFault | EventKind::PathChange => {
                Group::Application(event.application)
            }
            _ => Group::Core(event.core),
        };
        let end = event.time + event.duration.ticks();
        let track = self.track(group, event.time, end)?;
        let annotations = [
            number_annotation("application", u64::from(event.application)),
            number_annotation("other core", u64::from(event.other_core)),
            number_annotation("detail", u64::from(event.detail)),
            number_annotation("value", event.value),
        ];
        if event.duration.ticks() == 0 {
            return self.track_event(track, event.time, INSTANT, event.kind.name(), &annotations);
        }
        self.begin(track, event.time, event.kind.name(), &annotations)?;
        self.end(track, end)
    }

    /// A track of the group that is free from `start` on; says who it is when it is new.
    fn track(&mut self, group: Group, start: u64, end: u64) -> std::io::Result<u64> {
        if self.groups.insert(group) {
            self.describe(group.uuid(), &group.name(), None)?;
        }
        let lanes = self.lanes.entry(group).or_default();
        let free = lanes.iter().position(|&last| last <= start);
        // With so many at once, the last track has what does not nest.
        let lane = free.unwrap_or(lanes.len()).min(LANES - 1);
        let uuid = group.uuid() + 1 + lane as u64;
        if lane == lanes.len() {
            lanes.push(end);
            let name = if lane == 0 { "calls".to_owned() } else { format!("calls, {}", lane + 1) };
            let name = if matches!(group, Group::Core(_)) { "events".to_owned() } else { name };
            self.describe(uuid, &name, Some(group.uuid()))?;
        } else {
            lanes[lane] = lanes[lane].max(end);
        }
        Ok(uuid)
    }

    fn describe(&mut self, uuid: u64, name: &str, parent: Option<u64>) -> std::io::Result<()> {
        let mut track =
            Message::new().number(field::TRACK_UUID, uuid).text(field::TRACK_NAME, name);
        if let Some(parent) = parent {
            track = track.number(field::TRACK_PARENT, parent);
        }
        self.packet(Message::new().message(field::PACKET_TRACK, &track))
    }

    fn begin(
        &mut self,
        track: u64,
        ticks: u64,
        name: &str,
        annotations: &[Message],
    ) -> std::io::Result<()> {
        self.track_event(track, ticks, BEGIN, name, annotations)
    }

    fn end(&mut self, track: u64, ticks: u64) -> std::io::Result<()> {
        self.track_event(track, ticks, END, "", &[])
    }

    fn track_event(
        &mut self,
        track: u64,
        ticks: u64,
        kind: u64,
        name: &str,
        annotations: &[Message],
    ) -> std::io::Result<()> {
        let mut event =
            Message::new().number(field::EVENT_TYPE, kind).number(field::EVENT_TRACK, track);
        if !name.is_empty() {
            event = event.text(field::EVENT_NAME, name);
        }
        for annotation in annotations {
            event = event.message(field::EVENT_ANNOTATION, annotation);
        }
        let ns = nanoseconds(ticks, self.ticks_per_second);
        let packet = Message::new()
            .number(field::PACKET_TIMESTAMP, ns)
            .message(field::PACKET_TRACK_EVENT, &event);
        self.packet(packet)
    }

    fn packet(&mut self, packet: Message) -> std::io::Result<()> {
        let packet = packet.number(field::PACKET_SEQUENCE, SEQUENCE);
        self.output.write_all(Message::new().message(field::TRACE_PACKET, &packet).bytes())
    }
}

fn number_annotation(name: &str, value: u64) -> Message {
    Message::new().text(field::ANNOTATION_NAME, name).number(field::ANNOTATION_NUMBER, value)
}

fn text_annotation(name: &str, value: &str) -> Message {
    Message::new().text(field::ANNOTATION_NAME, name).text(field::ANNOTATION_TEXT, value)
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use abi::trace::{Duration, Path};
    use prost::Message as _;

    use super::*;
    use crate::testing;

    /// Perfetto's messages, as far as the export uses them; prost reads them.
    #[derive(Clone, PartialEq, prost::Message)]
    struct Trace {
        #[prost(message, repeated, tag = "1")]
        packet: Vec<Packet>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    struct Packet {
        #[prost(uint64, optional, tag = "8")]
        timestamp: Option<u64>,
        #[prost(uint32, optional, tag = "10")]
        trusted_packet_sequence_id: Option<u32>,
        #[prost(message, optional, tag = "11")]
        track_event: Option<TrackEvent>,
        #[prost(message, optional, tag = "60")]
        track_descriptor: Option<TrackDescriptor>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    struct TrackEvent {
        #[prost(message, repeated, tag = "4")]
        debug_annotations: Vec<Annotation>,
        #[prost(int32, optional, tag = "9")]
        r#type: Option<i32>,
        #[prost(uint64, optional, tag = "11")]
        track_uuid: Option<u64>,
        #[prost(string, optional, tag = "23")]
        name: Option<String>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    struct Annotation {
        #[prost(uint64, optional, tag = "3")]
        uint_value: Option<u64>,
        #[prost(string, optional, tag = "6")]
        string_value: Option<String>,
        #[prost(string, optional, tag = "10")]
        name: Option<String>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    struct TrackDescriptor {
        #[prost(uint64, optional, tag = "1")]
        uuid: Option<u64>,
        #[prost(string, optional, tag = "2")]
        name: Option<String>,
        #[prost(uint64, optional, tag = "5")]
        parent_uuid: Option<u64>,
    }

    fn exported(records: &[Record]) -> Trace {
        let bytes = testing::file(2, records);
        let mut reader = Reader::new(Cursor::new(&bytes)).unwrap();
        let mut output = Vec::new();
        let names = |number: u16| format!("call_{number}");
        export(&mut reader, &names, &mut output).unwrap();
        Trace::decode(&output[..]).unwrap()
    }

    /// Begins and ends of every track, in order, have to nest.
    fn slices(trace: &Trace) -> u64 {
        let mut open: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        let mut count = 0;
        for packet in &trace.packet {
            let Some(event) = &packet.track_event else { continue };
            let stack = open.entry(event.track_uuid.unwrap()).or_default();
            let time = packet.timestamp.unwrap();
            match event.r#type.unwrap() {
                1 => {
                    assert!(stack.last().is_none_or(|&outer| outer <= time));
                    stack.push(time);
                }
                2 => {
                    assert!(stack.pop().unwrap() <= time);
                    count += 1;
                }
                other => assert_eq!(other, 3),
            }
        }
        assert!(open.values().all(Vec::is_empty));
        count
    }

    #[test]
    fn another_parser_reads_every_call_and_its_stages() {
        let trace = exported(&testing::calls(2, 100));
        // Each call has three stages that take time.
        assert_eq!(slices(&trace), 100 * 4);
        let names: BTreeSet<&str> = trace
            .packet
            .iter()
            .filter_map(|packet| packet.track_event.as_ref()?.name.as_deref())
            .collect();
        assert!(names.contains("call_3") && names.contains("handle") && !names.contains("wait"));
        assert!(trace.packet.iter().all(|packet| packet.trusted_packet_sequence_id == Some(1)));
    }

    #[test]
    fn every_track_is_described_before_it_is_used() {
        let trace = exported(&testing::calls(2, 100));
        let mut known = BTreeSet::new();
        for packet in &trace.packet {
            if let Some(track) = &packet.track_descriptor {
                assert!(known.insert(track.uuid.unwrap()));
                assert!(track.parent_uuid.is_none_or(|parent| known.contains(&parent)));
            }
            if let Some(event) = &packet.track_event {
                assert!(known.contains(&event.track_uuid.unwrap()));
            }
        }
        assert_eq!(known.len(), 4);
    }

    #[test]
    fn calls_that_overlap_get_tracks_of_their_own() {
        let posted = |start, poll| {
            Record::Call(Call {
                server_core: 1,
                path: Path::Posted,
                start,
                poll: Duration(poll),
                ..Call::default()
            })
        };
        let trace = exported(&[posted(100, 50), posted(110, 50), posted(120, 50), posted(155, 50)]);
        slices(&trace);
        let tracks = trace.packet.iter().filter(|packet| packet.track_descriptor.is_some()).count();
        assert_eq!(tracks, 1 + 3);
    }

    #[test]
    fn locks_and_events_stand_on_the_tracks_of_their_core() {
        let lock = Lock { entry: 10, waited: 5, held: 20, ..Lock::default() };
        let event = Event {
            core: 0,
            kind: EventKind::Doorbell,
            application: 0,
            other_core: 1,
            detail: 0,
            time: 100,
            duration: Duration(0),
            value: 0,
        };
        let trace = exported(&[Record::Lock(lock), Record::Event(event)]);
        assert_eq!(slices(&trace), 3);
        let last = trace.packet.last().unwrap().track_event.as_ref().unwrap();
        assert_eq!((last.r#type, last.name.as_deref()), (Some(3), Some("doorbell")));
    }
}
