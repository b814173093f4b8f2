//! Cutting the byte stream from the host into frames, and decoding the start frame.
//!
//! The host is trusted to mean well, not to be free of errors: a frame of unknown kind is skipped, a
//! frame that is too long ends the stream, and a malformed start frame is refused with a reason.

use alloc::vec::Vec;

use super::*;

/// What the host wants to be run.
pub struct Start {
    /// Path of the program.
    pub program: Vec<u8>,
    /// Arguments; the first is the program's name.
    pub arguments: Vec<Vec<u8>>,
    /// `K=V` strings.
    pub environment: Vec<Vec<u8>>,
    /// Working directory.
    pub directory: Vec<u8>,
    /// Bit n: the host's descriptor n is a terminal.
    pub terminals: u32,
    /// Size of the terminal.
    pub window: WindowSize,
}

/// Decodes the payload of a start frame.
pub fn parse_start(payload: &[u8]) -> Result<Start, &'static str> {
    let (header, rest) =
        StartHeader::read_from_prefix(payload).map_err(|_| "it is shorter than its header")?;
    if header.version != PROTOCOL_VERSION {
        return Err("it is of another protocol version");
    }
    let mut strings = rest.split_inclusive(|&byte| byte == 0).map(|string| match string {
        [string @ .., 0] => Ok(string.to_vec()),
        _ => Err("its last string is not terminated"),
    });
    let mut take = |count: u32| -> Result<Vec<Vec<u8>>, &'static str> {
        let mut list = Vec::new();
        for _ in 0..count {
            list.push(strings.next().ok_or("it has fewer strings than it says")??);
        }
        Ok(list)
    };
    let program = take(1)?.pop().unwrap_or_default();
    let directory = take(1)?.pop().unwrap_or_default();
    let arguments = take(header.argument_count)?;
    let environment = take(header.environment_count)?;
    if arguments.is_empty() {
        return Err("it names no program");
    }
    Ok(Start {
        program,
        arguments,
        environment,
        directory,
        terminals: header.terminals,
        window: header.window,
    })
}

/// Cuts a byte stream into frames.
pub struct FrameParser {
    buffer: Vec<u8>,
    longest: usize,
    broken: bool,
}

impl FrameParser {
    /// A parser that refuses payloads longer than `longest` bytes.
    pub const fn new(longest: usize) -> FrameParser {
        FrameParser { buffer: Vec::new(), longest, broken: false }
    }

    /// Takes more bytes and calls `each` with every frame that is complete.
    pub fn feed(&mut self, bytes: &[u8], mut each: impl FnMut(FrameKind, &[u8])) {
        if self.broken {
            return;
        }
        self.buffer.extend_from_slice(bytes);
        let mut rest = &self.buffer[..];
        while let Ok((header, after)) = FrameHeader::read_from_prefix(rest) {
            let length = header.length as usize;
            if length > self.longest {
                log::error!("the host sent a frame of {length} bytes; the channel is closed");
                self.broken = true;
                return;
            }
            let Some((payload, after)) = after.split_at_checked(length) else { break };
            match FrameKind::from_number(header.kind) {
                Some(kind) => each(kind, payload),
                None => log::error!("the host sent a frame of unknown kind {}", header.kind),
            }
            rest = after;
        }
        let consumed = self.buffer.len() - rest.len();
        self.buffer.drain(..consumed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u32, payload: &[u8]) -> Vec<u8> {
        let header = FrameHeader { kind, length: payload.len() as u32 };
        [header.as_bytes(), payload].concat()
    }

    fn parse_in_pieces(stream: &[u8], piece: usize) -> Vec<(FrameKind, Vec<u8>)> {
        let mut parser = FrameParser::new(64);
        let mut frames = Vec::new();
        for bytes in stream.chunks(piece) {
            parser.feed(bytes, |kind, payload| frames.push((kind, payload.to_vec())));
        }
        frames
    }

    #[test]
    fn frames_survive_being_cut_anywhere() {
        let stream = [frame(2, b"hello"), frame(99, b"?"), frame(3, b""), frame(2, b"x")].concat();
        let expected = [
            (FrameKind::Stdin, b"hello".to_vec()),
            (FrameKind::StdinEnd, Vec::new()),
            (FrameKind::Stdin, b"x".to_vec()),
        ];
        for piece in 1..=stream.len() {
            assert_eq!(parse_in_pieces(&stream, piece), expected);
        }
    }

    #[test]
    fn a_frame_that_is_too_long_closes_the_channel() {
        let stream = [frame(2, &[0; 65]), frame(3, b"")].concat();
        assert!(parse_in_pieces(&stream, 7).is_empty());
    }

    fn start(version: u32, arguments: u32, environment: u32, strings: &[u8]) -> Vec<u8> {
        let header = StartHeader {
            version,
            terminals: 5,
            argument_count: arguments,
            environment_count: environment,
            window: WindowSize { rows: 24, columns: 80, ..WindowSize::default() },
        };
        [header.as_bytes(), strings].concat()
    }

    #[test]
    fn a_start_frame_is_decoded() {
        let payload = start(PROTOCOL_VERSION, 2, 1, b"/bin/ls\0/tmp\0ls\0-l\0A=b\0");
        let start = parse_start(&payload).unwrap();
        assert_eq!(start.arguments, [b"ls".to_vec(), b"-l".to_vec()]);
        assert_eq!(start.environment, [b"A=b".to_vec()]);
        assert_eq!(start.program, b"/bin/ls");
        assert_eq!(start.directory, b"/tmp");
        assert_eq!((start.terminals, start.window.columns), (5, 80));
    }

    #[test]
    fn malformed_start_frames_are_refused() {
        let good = start(PROTOCOL_VERSION, 1, 0, b"/bin/ls\0/\0ls\0");
        assert!(parse_start(&good).is_ok());
        for length in 0..good.len() {
            assert!(parse_start(&good[..length]).is_err(), "cut to {length}");
        }
        assert!(parse_start(&start(PROTOCOL_VERSION + 1, 1, 0, b"/bin/ls\0/\0ls\0")).is_err());
        assert!(parse_start(&start(PROTOCOL_VERSION, 0, 0, b"/bin/ls\0/\0")).is_err());
        assert!(parse_start(&start(PROTOCOL_VERSION, u32::MAX, 0, b"/bin/ls\0/\0ls\0")).is_err());
    }
}
