//! Stands in for QEMU in the tests of `ferry run`: speaks the console protocol on the sockets that
//! it inherits, as a kernel would, and behaves as the word after `fake=` on the kernel's command
//! line says. It keeps to the protocol's windows and credits, and says so on the serial port when
//! the host does not.

#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use abi::console::{
    EXIT_NOT_STARTED, EXIT_SIGNAL, EXIT_STATUS, ExitReport, FrameHeader, FrameKind, OUTPUT_WINDOW,
    OutputClosed, OutputCredit, PROTOCOL_VERSION, StartHeader, WindowSize,
};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use zerocopy::{FromBytes, IntoBytes};

/// Standard input that the fake kernel takes at a time, in bytes.
const INPUT_ROOM: u32 = 10_000;

struct Machine {
    channel: UnixStream,
    serial: UnixStream,
    /// Frames of each output stream that are not answered yet.
    unanswered: HashMap<u32, u32>,
    closed: Option<OutputClosed>,
    strings: Vec<String>,
    header: StartHeader,
    /// Frames that came while output waited for its window.
    pending: Vec<(FrameKind, Vec<u8>)>,
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let mut machine = Machine::connect(&arguments);
    let mode = option(&arguments, "fake=").unwrap_or_else(|| "status".to_string());
    machine.receive_start();
    match mode.as_str() {
        "arguments" => machine.print_start(),
        "echo" => machine.echo(),
        "flood" => machine.flood(),
        "window" => machine.print_windows(),
        "typed" => machine.print_typed(),
        "hang" => std::thread::sleep(Duration::from_secs(1000)),
        "obey" => machine.obey(),
        "closed" => machine.write_until_closed(),
        "ignorant" => machine.ignore_closed(),
        "panic" => machine.panic(false),
        "panic-hang" => machine.panic(true),
        "silent" => {}
        "nonsense" => machine.send_bytes(&[0xff; 64]),
        "missing" => machine.exit(EXIT_NOT_STARTED, 2),
        "forbidden" => machine.exit(EXIT_NOT_STARTED, 13),
        "killed" => machine.exit(EXIT_SIGNAL, 11),
        "stays" => {
            machine.exit(EXIT_STATUS, 7);
            std::thread::sleep(Duration::from_secs(1000));
        }
        _ => machine.exit(EXIT_STATUS, 7),
    }
}

/// The word that follows `key` anywhere in the arguments.
fn option(arguments: &[String], key: &str) -> Option<String> {
    let text = arguments.iter().find_map(|argument| argument.split_once(key))?.1;
    let end = text.find([' ', ',']).unwrap_or(text.len());
    Some(text[..end].to_string())
}

/// A socket that was inherited under this number.
fn inherited(arguments: &[String], key: &str) -> UnixStream {
    let number = option(arguments, key).and_then(|number| number.parse().ok()).expect("a number");
    let this = pidfd_open(getpid(), PidfdFlags::empty()).expect("this process");
    UnixStream::from(pidfd_getfd(this, number, PidfdGetfdFlags::empty()).expect("an open socket"))
}

impl Machine {
    fn connect(arguments: &[String]) -> Machine {
        let place = arguments.iter().position(|argument| argument == "-initrd").expect("-initrd");
        let mut magic = [0; 6];
        File::open(&arguments[place + 1])
            .and_then(|mut file| file.read_exact(&mut magic))
            .expect("an initramfs");
        assert_eq!(&magic, b"070701");
        Machine {
            channel: inherited(arguments, "id=console,fd="),
            serial: inherited(arguments, "id=log,fd="),
            unanswered: HashMap::new(),
            closed: None,
            strings: Vec::new(),
            header: StartHeader::read_from_bytes(&[0; 24]).expect("24 bytes"),
            pending: Vec::new(),
        }
    }

    fn send_bytes(&mut self, bytes: &[u8]) {
        self.channel.write_all(bytes).expect("the host reads");
    }

    fn send(&mut self, kind: FrameKind, payload: &[u8]) {
        let header = FrameHeader { kind: kind as u32, length: payload.len() as u32 };
        let frame = [header.as_bytes(), payload].concat();
        self.send_bytes(&frame);
    }

    fn exit(&mut self, reason: u32, value: u32) {
        self.send(FrameKind::Exit, ExitReport { reason, value }.as_bytes());
    }

    /// The next frame from the host; a host that is gone ends this machine.
    fn next(&mut self) -> (FrameKind, Vec<u8>) {
        let mut header = [0; 8];
        if self.channel.read_exact(&mut header).is_err() {
            std::process::exit(0);
        }
        let header = FrameHeader::read_from_bytes(&header).expect("8 bytes");
        let mut payload = vec![0; header.length as usize];
        self.channel.read_exact(&mut payload).expect("a complete frame");
        let kind = FrameKind::from_number(header.kind).expect("a known frame");
        match kind {
            FrameKind::OutputCredit => {
                let credit = OutputCredit::read_from_bytes(&payload).expect("an OutputCredit");
                *self.unanswered.get_mut(&credit.stream).expect("a used stream") -= credit.frames;
            }
            FrameKind::OutputClosed => {
                self.closed = OutputClosed::read_from_bytes(&payload).ok();
            }
            _ => {}
        }
        (kind, payload)
    }

    fn receive_start(&mut self) {
        let (kind, payload) = self.next();
        assert_eq!(kind, FrameKind::Start);
        let (header, strings) = StartHeader::read_from_prefix(&payload).expect("a StartHeader");
        assert_eq!(header.version, PROTOCOL_VERSION);
        self.header = header;
        let text = String::from_utf8(strings.to_vec()).expect("UTF-8 in tests");
        self.strings = text.split_terminator('\0').map(str::to_string).collect();
        let count = 2 + header.argument_count + header.environment_count;
        assert_eq!(self.strings.len(), count as usize);
    }

    /// Sends one frame of output as soon as its window permits.
    fn output(&mut self, stream: FrameKind, payload: &[u8]) {
        while *self.unanswered.entry(stream as u32).or_default() >= OUTPUT_WINDOW {
            let frame = self.next();
            self.pending.push(frame);
            if self.closed.is_some() {
                return;
            }
        }
        *self.unanswered.entry(stream as u32).or_default() += 1;
        self.send(stream, payload);
    }

    fn print_start(&mut self) {
        let mut lines = vec![format!("terminals {}", self.header.terminals)];
        lines.append(&mut self.strings);
        for line in lines {
            self.output(FrameKind::Stdout, format!("{line}\n").as_bytes());
        }
        self.exit(EXIT_STATUS, 0);
    }

    /// Standard input comes back on standard output, its length on standard error.
    fn echo(&mut self) {
        let mut total = 0;
        self.send(FrameKind::StdinCredit, &INPUT_ROOM.to_le_bytes());
        let mut room = INPUT_ROOM;
        loop {
            let (kind, payload) = match self.pending.is_empty() {
                true => self.next(),
                false => self.pending.remove(0),
            };
            match kind {
                FrameKind::Stdin => {
                    let length = payload.len() as u32;
                    assert!(length <= room, "the host sends no more than was granted");
                    room -= length;
                    total += payload.len();
                    self.output(FrameKind::Stdout, &payload);
                    if room < INPUT_ROOM / 2 {
                        self.send(FrameKind::StdinCredit, &(INPUT_ROOM - room).to_le_bytes());
                        room = INPUT_ROOM;
                    }
                }
                FrameKind::StdinEnd => break,
                _ => {}
            }
        }
        self.output(FrameKind::Stderr, format!("{total} bytes\n").as_bytes());
        self.exit(EXIT_STATUS, 0);
    }

    /// Eight MiB on each of the two streams, in turn.
    fn flood(&mut self) {
        for _ in 0..2048 {
            self.output(FrameKind::Stdout, &[b'o'; 4096]);
            self.output(FrameKind::Stderr, &[b'e'; 4096]);
        }
        self.exit(EXIT_STATUS, 3);
    }

    /// The size of the terminal at the start, and at the first change.
    fn print_windows(&mut self) {
        let window = self.header.window;
        self.print_window(window);
        loop {
            if let (FrameKind::WindowSize, payload) = self.next() {
                let window = WindowSize::read_from_bytes(&payload).expect("a WindowSize");
                self.print_window(window);
                return self.exit(EXIT_STATUS, 0);
            }
        }
    }

    fn print_window(&mut self, window: WindowSize) {
        let text = format!("{}x{}\r\n", window.rows, window.columns);
        self.output(FrameKind::Terminal, text.as_bytes());
    }

    /// The first four bytes that are typed, as numbers.
    fn print_typed(&mut self) {
        self.output(FrameKind::Terminal, b"ready\r\n");
        self.send(FrameKind::StdinCredit, &INPUT_ROOM.to_le_bytes());
        let mut typed = Vec::new();
        while typed.len() < 4 {
            if let (FrameKind::Stdin, payload) = self.next() {
                typed.extend(payload);
            }
        }
        self.output(FrameKind::Terminal, format!("{typed:?}\r\n").as_bytes());
        self.exit(EXIT_STATUS, 0);
    }

    /// Runs until it is told to stop, and dies of that signal.
    fn obey(&mut self) {
        self.output(FrameKind::Stderr, b"running\n");
        loop {
            if let (FrameKind::Terminate, payload) = self.next() {
                let signal = u32::read_from_bytes(&payload).expect("a signal");
                return self.exit(EXIT_SIGNAL, signal);
            }
        }
    }

    fn write_until_closed(&mut self) {
        loop {
            self.output(FrameKind::Stdout, b"y\n");
            if let Some(closed) = self.closed {
                assert_eq!(closed.stream, FrameKind::Stdout as u32);
                return self.exit(EXIT_SIGNAL, if closed.error == 32 { 13 } else { 9 });
            }
        }
    }

    /// A kernel that does not know of closed streams.
    fn ignore_closed(&mut self) {
        let mut reader = self.channel.try_clone().expect("a second handle");
        std::thread::spawn(move || drop(std::io::copy(&mut reader, &mut std::io::sink())));
        loop {
            self.send(FrameKind::Stdout, b"y\n");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn panic(&mut self, hangs: bool) {
        self.output(FrameKind::Stdout, b"before\n");
        let text = "some line\r\npanic: something broke\r\nat kernel/src/boot.rs:12\r\n\
            backtrace: 0x1234\r\npanic: end\r\n";
        self.serial.write_all(text.as_bytes()).expect("the host reads the log");
        if hangs {
            std::thread::sleep(Duration::from_secs(1000));
        }
    }
}
