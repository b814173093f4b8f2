//! A disk that remembers: a server of network block devices (NBD) that keeps every write and every flush in order, so that
//! the disk can be had as a power cut at any moment would have left it.
//!
//! The model of the cut: what was written before the last flush is there; of what came later, each sector is there or not, as
//! chance will have it, because disks write their cache back in any order, and a write of several sectors may be torn.
//!
//! It can be told to fail, or to answer nothing any more (`Mood`).
//!
//! Specification: the NBD project's doc/proto.md (fixed newstyle negotiation, simple replies).

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

/// Bytes that are written as a whole or not at all.
const SECTOR: usize = 512;
/// Longest request that is believed, in bytes.
const MOST: usize = 32 << 20;
/// Each so many requests one is answered late, and how late.
const LATE: (usize, Duration) = (64, Duration::from_millis(30));

/// What happened to the disk.
enum Event {
    Write(usize, Vec<u8>),
    Flush,
}

/// How the server answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    /// As it should.
    Good,
    /// Writes and flushes are errors.
    Failing,
    /// Not at all.
    Silent,
}

/// The disk and its past.
struct Disk {
    mood: Mood,
    first: Vec<u8>,
    now: Vec<u8>,
    events: Vec<Event>,
}

/// The server; it serves as long as somebody is connected.
pub struct Server {
    disk: Arc<Mutex<Disk>>,
    connections: Arc<Mutex<Vec<UnixStream>>>,
    socket: PathBuf,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Server {
    /// Serves these bytes, at a socket in a directory.
    pub fn start(bytes: Vec<u8>, directory: &Path) -> Result<Server> {
        let socket = directory.join("nbd");
        drop(std::fs::remove_file(&socket));
        let listener = UnixListener::bind(&socket)
            .with_context(|| format!("cannot listen at {}", socket.display()))?;
        let mood = Mood::Good;
        let disk = Disk { mood, now: bytes.clone(), first: bytes, events: Vec::new() };
        let disk = Arc::new(Mutex::new(disk));
        let served = disk.clone();
        let connections = Arc::new(Mutex::new(Vec::new()));
        let connected = connections.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                lock(&connected).extend(stream.try_clone());
                // The end of the connection is that of the machine, however it comes.
                drop(serve(stream, &served));
            }
        });
        Ok(Server { disk, connections, socket })
    }

    /// Where it listens.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Answers like this from now on.
    pub fn set_mood(&self, mood: Mood) {
        lock(&self.disk).mood = mood;
    }

    /// Ends all connections: the machine's requests fail.
    pub fn hang_up(&self) {
        for stream in lock(&self.connections).drain(..) {
            // It may be at its end already.
            drop(stream.shutdown(std::net::Shutdown::Both));
        }
    }

    /// The bytes of the disk.
    pub fn content(&self) -> Vec<u8> {
        lock(&self.disk).now.clone()
    }

    /// How many writes and flushes there were until now.
    pub fn moment(&self) -> usize {
        lock(&self.disk).events.len()
    }

    /// The disk as a power cut would have left it after so many writes and flushes. `chance` tells of each sector that was not
    /// flushed whether it was written.
    pub fn cut(&self, moment: usize, mut chance: impl FnMut() -> bool) -> Vec<u8> {
        let disk = lock(&self.disk);
        let events = disk.events.get(..moment).unwrap_or(&disk.events);
        let flushed = events.iter().rposition(|event| matches!(event, Event::Flush)).unwrap_or(0);
        let mut bytes = disk.first.clone();
        for (index, event) in events.iter().enumerate() {
            let Event::Write(offset, written) = event else { continue };
            for (sector, part) in written.chunks(SECTOR).enumerate() {
                if index < flushed || chance() {
                    let at = offset + sector * SECTOR;
                    bytes[at..at + part.len()].copy_from_slice(part);
                }
            }
        }
        bytes
    }
}

struct Wire(UnixStream);

impl Wire {
    fn bytes<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.0.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn u16(&mut self) -> Result<u16> {
        Ok(u16::from_be_bytes(self.bytes()?))
    }

    fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_be_bytes(self.bytes()?))
    }

    fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_be_bytes(self.bytes()?))
    }

    fn vector(&mut self, length: usize) -> Result<Vec<u8>> {
        ensure!(length <= MOST, "a request of {length} bytes");
        let mut bytes = vec![0; length];
        self.0.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}

const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
const REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// The disk has these: flush and forced unit access.
const TRANSMISSION_FLAGS: u16 = 1 | 4 | 8;

/// Agrees with the client on the one disk that there is.
fn negotiate(wire: &mut Wire, size: u64) -> Result<()> {
    const FIXED_NEWSTYLE: u16 = 1;
    const NO_ZEROES: u16 = 2;
    const INFO: u32 = 6;
    const GO: u32 = 7;
    const ACKNOWLEDGED: u32 = 1;
    const INFORMATION: u32 = 3;
    const UNSUPPORTED: u32 = 0x8000_0001;
    wire.0.write_all(b"NBDMAGIC")?;
    wire.0.write_all(&OPTION_MAGIC.to_be_bytes())?;
    wire.0.write_all(&(FIXED_NEWSTYLE | NO_ZEROES).to_be_bytes())?;
    wire.u32()?;
    loop {
        ensure!(wire.u64()? == OPTION_MAGIC, "no option");
        let (option, length) = (wire.u32()?, wire.u32()?);
        wire.vector(length as usize)?;
        let mut reply = |kind: u32, data: &[u8]| -> Result<()> {
            let mut bytes = REPLY_MAGIC.to_be_bytes().to_vec();
            for word in [option, kind, data.len() as u32] {
                bytes.extend(word.to_be_bytes());
            }
            bytes.extend(data);
            Ok(wire.0.write_all(&bytes)?)
        };
        if option != GO && option != INFO {
            reply(UNSUPPORTED, &[])?;
            continue;
        }
        let mut export = vec![0, 0];
        export.extend(size.to_be_bytes());
        export.extend(TRANSMISSION_FLAGS.to_be_bytes());
        reply(INFORMATION, &export)?;
        reply(ACKNOWLEDGED, &[])?;
        if option == GO {
            return Ok(());
        }
    }
}

fn serve(stream: UnixStream, disk: &Mutex<Disk>) -> Result<()> {
    const REQUEST_MAGIC: u32 = 0x2560_9513;
    const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
    const FORCED: u16 = 1;
    const EIO: u32 = 5;
    let mut wire = Wire(stream);
    let size = lock(disk).now.len();
    negotiate(&mut wire, size as u64)?;
    for count in 1_usize.. {
        ensure!(wire.u32()? == REQUEST_MAGIC, "no request");
        let (flags, kind, handle) = (wire.u16()?, wire.u16()?, wire.u64()?);
        let (offset, length) = (wire.u64()? as usize, wire.u32()? as usize);
        ensure!(offset.checked_add(length).is_some_and(|end| end <= size), "beyond the end");
        if count.is_multiple_of(LATE.0) {
            std::thread::sleep(LATE.1);
        }
        let written = if kind == 1 { wire.vector(length)? } else { Vec::new() };
        let mut data = Vec::new();
        let mut error = 0_u32;
        let mood = lock(disk).mood;
        match kind {
            _ if mood == Mood::Silent => continue,
            1 | 3 if mood == Mood::Failing => error = EIO,
            0 => data = lock(disk).now[offset..offset + length].to_vec(),
            1 => {
                let mut disk = lock(disk);
                disk.now[offset..offset + length].copy_from_slice(&written);
                disk.events.push(Event::Write(offset, written));
                if flags & FORCED != 0 {
                    // Stricter than it must be: everything before is durable too.
                    disk.events.push(Event::Flush);
                }
            }
            2 => return Ok(()),
            3 => lock(disk).events.push(Event::Flush),
            _ => bail!("request {kind} is not known"),
        }
        let mut reply = SIMPLE_REPLY_MAGIC.to_be_bytes().to_vec();
        reply.extend(error.to_be_bytes());
        reply.extend(handle.to_be_bytes());
        reply.extend(data);
        wire.0.write_all(&reply)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_flushed_is_there_and_the_rest_by_chance() {
        let events = vec![
            Event::Write(0, vec![1; SECTOR]),
            Event::Flush,
            Event::Write(SECTOR, vec![2; 2 * SECTOR]),
        ];
        let first = vec![0; 4 * SECTOR];
        let disk =
            Arc::new(Mutex::new(Disk { mood: Mood::Good, now: first.clone(), first, events }));
        let server = Server { disk, connections: Arc::default(), socket: PathBuf::new() };
        let sectors = |bytes: Vec<u8>| bytes.chunks(SECTOR).map(|it| it[0]).collect::<Vec<u8>>();
        assert_eq!(sectors(server.cut(3, || true)), [1, 2, 2, 0]);
        assert_eq!(sectors(server.cut(3, || false)), [1, 0, 0, 0]);
        let mut turns = [true, false].into_iter();
        assert_eq!(sectors(server.cut(3, || turns.next().unwrap())), [1, 2, 0, 0]);
        assert_eq!(sectors(server.cut(1, || false)), [0, 0, 0, 0]);
    }
}
