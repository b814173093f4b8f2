//! Threads that move bytes between the caller's descriptors and the console channel.
//!
//! Blocking reads and writes on threads of their own leave the descriptors as the caller made them
//! (no O_NONBLOCK on a file that others share), and a slow reader of one stream delays no other.
//! Memory is bounded by the protocol: standard input by the kernel's credits, each output stream by
//! its window.

use std::fs::File;
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, Read, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};

use abi::console::{
    CoreCounters, ExitReport, FrameKind, MAX_PAYLOAD, OUTPUT_WINDOW, OutputClosed, OutputCredit,
    StageTotals,
};
use abi::trace::ring::Rings;
use anyhow::{Context, Result};

use super::channel::{decode, frame, frame_of, read_frame};
use super::history;
use super::session::Event;

/// The byte (Ctrl-]) that, three times in a row on a terminal, stops Ferry itself.
const ESCAPE: u8 = 0x1d;
const ESCAPE_COUNT: usize = 3;

/// Starts the thread that writes frames to the kernel, in order.
pub fn send(mut channel_end: UnixStream) -> Sender<Vec<u8>> {
    let (frames, queue) = channel::<Vec<u8>>();
    std::thread::spawn(move || {
        // After an error the kernel is gone; the receiving thread reports that.
        while let Ok(bytes) = queue.recv() {
            if channel_end.write_all(&bytes).is_err() {
                break;
            }
        }
    });
    frames
}

/// Starts the thread that writes frames to a deterministic machine: all that there are, whenever the machine has
/// nothing to do.
pub fn send_when_idle(mut channel_end: UnixStream, process: u32) -> Sender<Vec<u8>> {
    let (frames, queue) = channel::<Vec<u8>>();
    std::thread::spawn(move || {
        while let Ok(mut bytes) = queue.recv() {
            history::wait_until_idle(process);
            queue.try_iter().for_each(|more| bytes.extend(more));
            if channel_end.write_all(&bytes).is_err() {
                break;
            }
        }
    });
    frames
}

/// A digest of all frames that came, where somebody wants to compare them.
#[derive(Clone, Default)]
pub struct Digest(Arc<Mutex<DefaultHasher>>);

impl Digest {
    /// Adds bytes.
    pub fn add(&self, bytes: &[u8]) {
        if let Ok(mut hasher) = self.0.lock() {
            hasher.write(bytes);
        }
    }

    /// What it is by now.
    pub fn value(&self) -> String {
        self.0.lock().map_or(String::new(), |hasher| format!("{:016x}", hasher.finish()))
    }
}

/// How many bytes of standard input the kernel still takes.
#[derive(Default)]
pub struct InputCredit {
    bytes: Mutex<u64>,
    granted: Condvar,
}

impl InputCredit {
    fn grant(&self, bytes: u64) {
        if let Ok(mut credit) = self.bytes.lock() {
            *credit = credit.saturating_add(bytes);
            self.granted.notify_one();
        }
    }

    /// Waits until there is credit, and returns it.
    fn wait(&self) -> u64 {
        let Ok(credit) = self.bytes.lock() else { return 0 };
        self.granted.wait_while(credit, |credit| *credit == 0).map_or(0, |credit| *credit)
    }

    fn spend(&self, bytes: u64) {
        if let Ok(mut credit) = self.bytes.lock() {
            *credit = credit.saturating_sub(bytes);
        }
    }
}

/// Starts the thread that reads standard input and sends it as the kernel grants credit.
pub fn read_input(
    credit: Arc<InputCredit>,
    frames: Sender<Vec<u8>>,
    events: Sender<Event>,
    is_terminal: bool,
) -> Result<()> {
    let mut input = duplicate(rustix::stdio::stdin())?;
    std::thread::spawn(move || {
        let mut buffer = [0; MAX_PAYLOAD];
        let mut escapes = 0;
        loop {
            let room = credit.wait().min(MAX_PAYLOAD as u64);
            let room = usize::try_from(room).unwrap_or(MAX_PAYLOAD);
            let count = match input.read(&mut buffer[..room]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                // A terminal that hung up, or no standard input at all, is an end of input.
                Err(_) | Ok(0) => break,
                Ok(count) => count,
            };
            let bytes = &buffer[..count];
            if is_terminal && count_escapes(&mut escapes, bytes) {
                drop(events.send(Event::Escaped));
            }
            credit.spend(count as u64);
            if frames.send(frame(FrameKind::Stdin, bytes)).is_err() {
                return;
            }
        }
        drop(frames.send(frame(FrameKind::StdinEnd, &[])));
    });
    Ok(())
}

/// Counts escape bytes in a row; true when there were enough.
fn count_escapes(escapes: &mut usize, bytes: &[u8]) -> bool {
    for byte in bytes {
        *escapes = if *byte == ESCAPE { *escapes + 1 } else { 0 };
        if *escapes == ESCAPE_COUNT {
            *escapes = 0;
            return true;
        }
    }
    false
}

/// The output streams, by what their frames are called.
pub const OUTPUTS: [FrameKind; 3] = [FrameKind::Stdout, FrameKind::Stderr, FrameKind::Terminal];

/// Starts the thread that writes one output stream to a descriptor. It ends, and reports
/// `OutputFinished`, when its queue does.
pub fn write_output(
    stream: FrameKind,
    descriptor: BorrowedFd<'_>,
    frames: Sender<Vec<u8>>,
    events: Sender<Event>,
) -> Result<Sender<Vec<u8>>> {
    let mut output = duplicate(descriptor)?;
    let (queue, received) = channel::<Vec<u8>>();
    std::thread::spawn(move || {
        if let Err(error) = pass_on(&mut output, stream, &received, &frames) {
            let number = error.raw_os_error().unwrap_or(0).unsigned_abs();
            let closed = OutputClosed { stream: stream as u32, error: number };
            drop(frames.send(frame_of(FrameKind::OutputClosed, &closed)));
            // What was on its way is lost, as it would be in a pipe. A kernel that goes on sending
            // does not know of closed streams: then the program has to be stopped.
            let flooded = received.iter().nth(OUTPUT_WINDOW as usize).is_some();
            if flooded {
                drop(events.send(Event::Flooded));
                received.iter().for_each(drop);
            }
        }
        drop(events.send(Event::OutputFinished));
    });
    Ok(queue)
}

/// Writes what comes, and answers each frame with credit for another.
fn pass_on(
    output: &mut impl Write,
    stream: FrameKind,
    received: &Receiver<Vec<u8>>,
    frames: &Sender<Vec<u8>>,
) -> io::Result<()> {
    while let Ok(bytes) = received.recv() {
        output.write_all(&bytes)?;
        let credit = OutputCredit { stream: stream as u32, frames: 1 };
        // An error means that the kernel is gone; its last output is still to be written.
        drop(frames.send(frame_of(FrameKind::OutputCredit, &credit)));
    }
    Ok(())
}

/// Starts the thread that receives the kernel's frames and deals them out. When the channel ends,
/// the queues of the output streams end with it.
pub fn receive(
    mut channel_end: UnixStream,
    credit: Arc<InputCredit>,
    outputs: [Sender<Vec<u8>>; 3],
    events: Sender<Event>,
    digest: Digest,
) {
    std::thread::spawn(move || {
        let problem = deal_out(&mut channel_end, &credit, &outputs, &events, &digest).err();
        drop(events.send(Event::ChannelClosed(problem.map(|error| error.to_string()))));
    });
}

fn deal_out(
    channel_end: &mut UnixStream,
    credit: &InputCredit,
    outputs: &[Sender<Vec<u8>>; 3],
    events: &Sender<Event>,
    digest: &Digest,
) -> io::Result<()> {
    while let Some((kind, payload)) = read_frame(channel_end)? {
        digest.add(&(kind as u32).to_le_bytes());
        digest.add(&payload);
        match kind {
            FrameKind::StdinCredit => credit.grant(u64::from(decode::<u32>(&payload)?)),
            FrameKind::Counters => {
                drop(events.send(Event::Counted(decode::<CoreCounters>(&payload)?)));
            }
            FrameKind::Stages => {
                drop(events.send(Event::Timed(decode::<StageTotals>(&payload)?)));
            }
            FrameKind::Trace => {
                drop(events.send(Event::Traced(decode::<Rings>(&payload)?)));
            }
            FrameKind::Exit => {
                drop(events.send(Event::Exited(decode::<ExitReport>(&payload)?)));
                return Ok(());
            }
            kind => {
                // Frames that only the host sends are passed over, as unknown ones are.
                let stream = OUTPUTS.iter().position(|stream| *stream == kind);
                if let Some(output) = stream.and_then(|index| outputs.get(index)) {
                    drop(output.send(payload));
                }
            }
        }
    }
    Ok(())
}

/// A descriptor of our own for the same open file.
fn duplicate(descriptor: BorrowedFd<'_>) -> Result<File> {
    let owned = descriptor.try_clone_to_owned().context("cannot use a standard descriptor")?;
    Ok(File::from(owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_escapes_in_a_row_count() {
        let mut escapes = 0;
        assert!(!count_escapes(&mut escapes, &[ESCAPE, ESCAPE, b'x', ESCAPE]));
        assert!(!count_escapes(&mut escapes, &[ESCAPE]));
        assert!(count_escapes(&mut escapes, &[ESCAPE, b'y']));
    }

    #[test]
    fn each_frame_of_output_is_answered_with_credit() {
        let (frames, sent) = channel();
        let (queue, received) = channel();
        queue.send(b"ab".to_vec()).unwrap();
        queue.send(b"c".to_vec()).unwrap();
        drop(queue);
        let mut output = Vec::new();
        pass_on(&mut output, FrameKind::Stdout, &received, &frames).unwrap();
        assert_eq!(output, b"abc");
        let credit = OutputCredit { stream: FrameKind::Stdout as u32, frames: 1 };
        let expected = frame_of(FrameKind::OutputCredit, &credit);
        assert_eq!(sent.try_iter().collect::<Vec<_>>(), [expected.clone(), expected]);
    }
}
