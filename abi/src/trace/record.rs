//! The records: calls, locks, and rarer events.

use super::duration::Duration;
use super::kinds::{EventKind, LockScheme, Path};
use super::{Words, field};

/// Highest number of a core.
pub const MAX_CORE: u8 = 63;
/// Highest number of a call.
pub const MAX_CALL: u16 = 511;
/// Highest number of an application; thread numbers are written modulo one more.
pub const MAX_APPLICATION: u16 = 0x7fff;
/// Latest moment, in ticks since the trace began: 78 hours of a clock with 1 ns.
pub const MAX_STAMP: u64 = (1 << 48) - 1;

const KIND_CALL: u64 = 1;
const KIND_LOCK: u64 = 2;
const KIND_EVENT: u64 = 3;

/// What a core may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// A system call that is over.
    Call(Call),
    /// A lock that was taken and released.
    Lock(Lock),
    /// Anything else.
    Event(Event),
}

/// Why three words are no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordError {
    /// Nothing was written there.
    Empty,
    /// A kind that this version does not know.
    UnknownKind(u8),
    /// A kind of event that this version does not know.
    UnknownEvent(u8),
    /// A path that this version does not know.
    UnknownPath(u8),
    /// A lock scheme that this version does not know.
    UnknownScheme(u8),
    /// Bits that have to be 0 are not.
    ReservedBits,
}

impl core::fmt::Display for RecordError {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            RecordError::Empty => out.write_str("an empty record"),
            RecordError::UnknownKind(kind) => write!(out, "a record of the unknown kind {kind}"),
            RecordError::UnknownEvent(kind) => write!(out, "an event of the unknown kind {kind}"),
            RecordError::UnknownPath(path) => write!(out, "a call by the unknown path {path}"),
            RecordError::UnknownScheme(scheme) => write!(out, "the unknown lock scheme {scheme}"),
            RecordError::ReservedBits => out.write_str("reserved bits that are not 0"),
        }
    }
}

impl core::error::Error for RecordError {}

/// One system call, written after its answer was published.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// Core of the caller.
    pub core: u8,
    /// Core that handled it; the caller's own for a local call.
    pub server_core: u8,
    /// Thread that called: its number modulo `MAX_APPLICATION` + 1.
    pub application: u16,
    /// Number of the call.
    pub number: u16,
    /// How it was carried.
    pub path: Path,
    /// How many other cores were in the kernel when its record was written; 63 stands for more too.
    pub contention: u8,
    /// When the stage *enter* began, in ticks since the trace began.
    pub start: u64,
    /// From the program to the decoded call.
    pub enter: Duration,
    /// From there to the beginning of the handler: travelling and waiting in a queue.
    pub fly_in: Duration,
    /// The handler at work.
    pub poll: Duration,
    /// The handler waiting for something.
    pub wait: Duration,
    /// From the handler's end until its caller's core has the answer.
    pub fly_out: Duration,
    /// From there to the program.
    pub exit: Duration,
}

impl Call {
    /// The whole call, in ticks.
    pub const fn total(&self) -> u64 {
        self.enter.ticks()
            + self.fly_in.ticks()
            + self.poll.ticks()
            + self.wait.ticks()
            + self.fly_out.ticks()
            + self.exit.ticks()
    }

    /// When it was over, in ticks since the trace began.
    pub const fn end(&self) -> u64 {
        self.start + self.total()
    }
}

/// One lock, from asking for it to having released it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lock {
    /// Core that took it.
    pub core: u8,
    /// Which lock: 0 under a giant scheme, the class of calls under the coarse one.
    pub lock: u8,
    /// Scheme and kind.
    pub scheme: LockScheme,
    /// Call for which it was taken.
    pub number: u16,
    /// Thread for which it was taken, as in [`Call`].
    pub application: u16,
    /// How many other cores were in the kernel when it was released; 63 stands for more too.
    pub contention: u8,
    /// When it was asked for, in ticks since the trace began.
    pub entry: u64,
    /// Ticks until it was acquired; `u32::MAX` stands for more too.
    pub waited: u32,
    /// Ticks from acquiring it to releasing it; likewise.
    pub held: u32,
    /// What releasing it took.
    pub release: Duration,
}

const DETAIL_BITS: u32 = 24;
/// The largest [`Event::detail`].
pub const MOST_DETAIL: u32 = (1 << DETAIL_BITS) - 1;

/// What happens more rarely than calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Core on which it happened.
    pub core: u8,
    /// What.
    pub kind: EventKind,
    /// Thread that it is about, as in [`Call`]; 0 where it is about none.
    pub application: u16,
    /// Another core that takes part; the meaning depends on the kind.
    pub other_core: u8,
    /// 24 bits whose meaning depends on the kind.
    pub detail: u32,
    /// When it began, in ticks since the trace began.
    pub time: u64,
    /// How long it took; 0 where that has no meaning.
    pub duration: Duration,
    /// A value whose meaning depends on the kind.
    pub value: u64,
}

impl Record {
    /// The words of a record. Numbers beyond their fields are cut off: contention and times of locks to
    /// the largest value, the others to their lower bits.
    #[inline]
    pub const fn encode(&self) -> Words {
        match self {
            Record::Call(call) => encode_call(call),
            Record::Lock(lock) => encode_lock(lock),
            Record::Event(event) => encode_event(event),
        }
    }

    /// The record in three words.
    ///
    /// # Errors
    ///
    /// What [`Record::encode`] never writes.
    pub fn decode(words: &Words) -> Result<Record, RecordError> {
        match field(words[0], 0, 4) {
            KIND_CALL => decode_call(words).map(Record::Call),
            KIND_LOCK => decode_lock(words).map(Record::Lock),
            KIND_EVENT => decode_event(words).map(Record::Event),
            0 if *words == [0; 3] => Err(RecordError::Empty),
            kind => Err(RecordError::UnknownKind(kind as u8)),
        }
    }

    /// Core that the record is about.
    pub const fn core(&self) -> u8 {
        match self {
            Record::Call(call) => call.core,
            Record::Lock(lock) => lock.core,
            Record::Event(event) => event.core,
        }
    }

    /// When it began, in ticks since the trace began.
    pub const fn start(&self) -> u64 {
        match self {
            Record::Call(call) => call.start,
            Record::Lock(lock) => lock.entry,
            Record::Event(event) => event.time,
        }
    }

    /// When it was over, in ticks since the trace began.
    pub const fn end(&self) -> u64 {
        match self {
            Record::Call(call) => call.end(),
            Record::Lock(lock) => {
                lock.entry + lock.waited as u64 + lock.held as u64 + lock.release.ticks()
            }
            Record::Event(event) => event.time + event.duration.ticks(),
        }
    }
}

#[inline]
const fn core_bits(core: u8) -> u64 {
    (core & MAX_CORE) as u64
}

#[inline]
const fn application_bits(application: u16) -> u64 {
    (application & MAX_APPLICATION) as u64
}

#[inline]
const fn call_bits(number: u16) -> u64 {
    (number & MAX_CALL) as u64
}

#[inline]
const fn contention_bits(contention: u8) -> u64 {
    if contention > 63 { 63 } else { contention as u64 }
}

#[inline]
const fn stamped(stamp: u64, duration: Duration) -> u64 {
    stamp & MAX_STAMP | (duration.0 as u64) << 48
}

const fn short(word: u64, shift: u32) -> Duration {
    Duration(field(word, shift, 16) as u16)
}

#[inline]
const fn encode_call(call: &Call) -> Words {
    [
        KIND_CALL
            | core_bits(call.core) << 4
            | core_bits(call.server_core) << 10
            | (call.path as u64) << 16
            | call_bits(call.number) << 18
            | application_bits(call.application) << 27
            | contention_bits(call.contention) << 42
            | (call.exit.0 as u64) << 48,
        stamped(call.start, call.enter),
        call.fly_in.0 as u64
            | (call.poll.0 as u64) << 16
            | (call.wait.0 as u64) << 32
            | (call.fly_out.0 as u64) << 48,
    ]
}

fn decode_call(words: &Words) -> Result<Call, RecordError> {
    let [head, time, stages] = *words;
    let path = match field(head, 16, 2) {
        0 => Path::Local,
        1 => Path::Remote,
        2 => Path::Posted,
        other => return Err(RecordError::UnknownPath(other as u8)),
    };
    Ok(Call {
        core: field(head, 4, 6) as u8,
        server_core: field(head, 10, 6) as u8,
        application: field(head, 27, 15) as u16,
        number: field(head, 18, 9) as u16,
        path,
        contention: field(head, 42, 6) as u8,
        start: time & MAX_STAMP,
        enter: short(time, 48),
        fly_in: short(stages, 0),
        poll: short(stages, 16),
        wait: short(stages, 32),
        fly_out: short(stages, 48),
        exit: short(head, 48),
    })
}

#[inline]
const fn encode_lock(lock: &Lock) -> Words {
    [
        KIND_LOCK
            | core_bits(lock.core) << 4
            | (lock.lock as u64) << 10
            | call_bits(lock.number) << 18
            | application_bits(lock.application) << 27
            | contention_bits(lock.contention) << 42
            | (lock.scheme as u64) << 48,
        stamped(lock.entry, lock.release),
        lock.waited as u64 | (lock.held as u64) << 32,
    ]
}

fn decode_lock(words: &Words) -> Result<Lock, RecordError> {
    let [head, time, spans] = *words;
    if head >> 51 != 0 {
        return Err(RecordError::ReservedBits);
    }
    Ok(Lock {
        core: field(head, 4, 6) as u8,
        lock: field(head, 10, 8) as u8,
        scheme: LockScheme::from_code(field(head, 48, 3))?,
        number: field(head, 18, 9) as u16,
        application: field(head, 27, 15) as u16,
        contention: field(head, 42, 6) as u8,
        entry: time & MAX_STAMP,
        waited: field(spans, 0, 32) as u32,
        held: field(spans, 32, 32) as u32,
        release: short(time, 48),
    })
}

#[inline]
const fn encode_event(event: &Event) -> Words {
    [
        KIND_EVENT
            | core_bits(event.core) << 4
            | core_bits(event.other_core) << 10
            | (event.kind as u64) << 16
            | application_bits(event.application) << 24
            | field(event.detail as u64, 0, DETAIL_BITS) << 39,
        stamped(event.time, event.duration),
        event.value,
    ]
}

fn decode_event(words: &Words) -> Result<Event, RecordError> {
    let [head, time, value] = *words;
    if head >> 63 != 0 {
        return Err(RecordError::ReservedBits);
    }
    Ok(Event {
        core: field(head, 4, 6) as u8,
        kind: EventKind::from_code(field(head, 16, 8))?,
        application: field(head, 24, 15) as u16,
        other_core: field(head, 10, 6) as u8,
        detail: field(head, 39, DETAIL_BITS) as u32,
        time: time & MAX_STAMP,
        duration: short(time, 48),
        value,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every bit pattern of `bits` bits that sets one bit, none or all.
    fn patterns(bits: u32) -> impl Iterator<Item = u64> {
        let all = (1 << bits) - 1;
        (0..bits).map(|bit| 1 << bit).chain([0, all])
    }

    /// Checks that a record and only this record is read from its words.
    fn survives(record: Record) {
        assert_eq!(Record::decode(&record.encode()), Ok(record));
    }

    #[test]
    fn every_field_of_a_call_survives_alone() {
        let base = Call::default();
        let call = |change: &dyn Fn(&mut Call)| {
            let mut call = base;
            change(&mut call);
            survives(Record::Call(call));
        };
        for bits in patterns(6) {
            call(&|call| call.core = bits as u8);
            call(&|call| call.server_core = bits as u8);
            call(&|call| call.contention = bits as u8);
        }
        patterns(15).for_each(|bits| call(&|call| call.application = bits as u16));
        patterns(9).for_each(|bits| call(&|call| call.number = bits as u16));
        patterns(48).for_each(|bits| call(&|call| call.start = bits));
        Path::ALL.into_iter().for_each(|path| call(&|call| call.path = path));
        for bits in patterns(16) {
            let stage = Duration(bits as u16);
            call(&|call| call.enter = stage);
            call(&|call| call.fly_in = stage);
            call(&|call| call.poll = stage);
            call(&|call| call.wait = stage);
            call(&|call| call.fly_out = stage);
            call(&|call| call.exit = stage);
        }
    }

    #[test]
    fn every_field_of_a_lock_survives_alone() {
        let lock = |change: &dyn Fn(&mut Lock)| {
            let mut lock = Lock::default();
            change(&mut lock);
            survives(Record::Lock(lock));
        };
        for bits in patterns(6) {
            lock(&|lock| lock.core = bits as u8);
            lock(&|lock| lock.contention = bits as u8);
        }
        patterns(8).for_each(|bits| lock(&|lock| lock.lock = bits as u8));
        patterns(9).for_each(|bits| lock(&|lock| lock.number = bits as u16));
        patterns(15).for_each(|bits| lock(&|lock| lock.application = bits as u16));
        patterns(48).for_each(|bits| lock(&|lock| lock.entry = bits));
        patterns(16).for_each(|bits| lock(&|lock| lock.release = Duration(bits as u16)));
        LockScheme::ALL.into_iter().for_each(|scheme| lock(&|lock| lock.scheme = scheme));
        for bits in patterns(32) {
            lock(&|lock| lock.waited = bits as u32);
            lock(&|lock| lock.held = bits as u32);
        }
    }

    #[test]
    fn every_field_of_an_event_survives_alone() {
        for kind in EventKind::ALL {
            let event = |change: &dyn Fn(&mut Event)| {
                let mut event = Event {
                    core: 0,
                    kind,
                    application: 0,
                    other_core: 0,
                    detail: 0,
                    time: 0,
                    duration: Duration(0),
                    value: 0,
                };
                change(&mut event);
                survives(Record::Event(event));
            };
            for bits in patterns(6) {
                event(&|event| event.core = bits as u8);
                event(&|event| event.other_core = bits as u8);
            }
            patterns(15).for_each(|bits| event(&|event| event.application = bits as u16));
            patterns(DETAIL_BITS).for_each(|bits| event(&|event| event.detail = bits as u32));
            patterns(48).for_each(|bits| event(&|event| event.time = bits));
            patterns(16).for_each(|bits| event(&|event| event.duration = Duration(bits as u16)));
            (0..64).for_each(|bit| event(&|event| event.value = 1 << bit));
        }
    }

    #[test]
    fn whatever_is_read_is_written_back_bit_by_bit() {
        // Words from a generator of Marsaglia (xorshift64), with all kinds, paths and schemes among them.
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let mut read = 0;
        for _ in 0..100_000 {
            let words = [next(), next(), next()];
            if let Ok(record) = Record::decode(&words) {
                assert_eq!(record.encode(), words);
                read += 1;
            }
        }
        assert!(read > 1_000, "{read}");
    }

    #[test]
    fn what_is_never_written_is_refused() {
        let call = Record::Call(Call::default()).encode();
        assert_eq!(Record::decode(&[0; 3]), Err(RecordError::Empty));
        assert_eq!(Record::decode(&[9, 0, 0]), Err(RecordError::UnknownKind(9)));
        let path = [call[0] | 3 << 16, call[1], call[2]];
        assert_eq!(Record::decode(&path), Err(RecordError::UnknownPath(3)));
        assert_eq!(Record::decode(&[2 | 7 << 48, 0, 0]), Err(RecordError::UnknownScheme(7)));
        assert_eq!(Record::decode(&[2 | 1 << 51, 0, 0]), Err(RecordError::ReservedBits));
        assert_eq!(Record::decode(&[3 | 200 << 16, 0, 0]), Err(RecordError::UnknownEvent(200)));
        assert_eq!(Record::decode(&[3 | 1 << 16 | 1 << 63, 0, 0]), Err(RecordError::ReservedBits));
    }

    #[test]
    fn numbers_beyond_their_fields_do_not_spill() {
        let call = Call { contention: 200, core: 64, start: u64::MAX, ..Call::default() };
        let Ok(Record::Call(read)) = Record::decode(&Record::Call(call).encode()) else {
            panic!("not a call")
        };
        assert_eq!((read.contention, read.core, read.start), (63, 0, MAX_STAMP));
        assert_eq!((read.path, read.enter), (Path::Local, Duration(0)));
    }
}
