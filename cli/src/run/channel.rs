//! Frames of the console channel (`abi::console`), encoded and decoded.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use abi::console::{
    FrameHeader, FrameKind, MAX_PAYLOAD, MAX_START, PROTOCOL_VERSION, StartHeader, WindowSize,
};
use anyhow::{Result, bail};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// What is to run.
pub struct Start<'a> {
    /// The program's file, an absolute path of the guest.
    pub path: &'a Path,
    /// Its working directory.
    pub working_directory: &'a Path,
    /// Its arguments; the first is its name.
    pub arguments: &'a [OsString],
    /// Its environment, `K=V` each.
    pub environment: &'a [String],
}

impl Start<'_> {
    /// The frame that starts the program. `terminals` has bit n set when descriptor n is one.
    pub fn encode(&self, terminals: u32, window: WindowSize) -> Result<Vec<u8>> {
        let header = StartHeader {
            version: PROTOCOL_VERSION,
            terminals,
            argument_count: u32::try_from(self.arguments.len())?,
            environment_count: u32::try_from(self.environment.len())?,
            window,
        };
        let mut payload = header.as_bytes().to_vec();
        let paths = [self.path, self.working_directory].map(|path| path.as_os_str().as_bytes());
        let arguments = self.arguments.iter().map(|argument| argument.as_bytes());
        let environment = self.environment.iter().map(String::as_bytes);
        for text in paths.into_iter().chain(arguments).chain(environment) {
            payload.extend_from_slice(text);
            payload.push(0);
        }
        if payload.len() > MAX_START {
            bail!("the arguments and the environment are longer than {MAX_START} bytes");
        }
        Ok(frame(FrameKind::Start, &payload))
    }
}

/// A frame with this payload.
pub fn frame(kind: FrameKind, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    let header = FrameHeader { kind: kind as u32, length };
    let mut bytes = Vec::with_capacity(size_of::<FrameHeader>() + payload.len());
    bytes.extend_from_slice(header.as_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// A frame whose payload is a structure.
pub fn frame_of(kind: FrameKind, payload: &(impl IntoBytes + Immutable)) -> Vec<u8> {
    frame(kind, payload.as_bytes())
}

/// The next frame; `None` at the end of the channel. Frames of unknown kinds are passed over.
pub fn read_frame(channel: &mut impl Read) -> io::Result<Option<(FrameKind, Vec<u8>)>> {
    loop {
        let mut header = [0; size_of::<FrameHeader>()];
        match channel.read_exact(&mut header) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
            Err(error) => return Err(error),
        }
        let [k0, k1, k2, k3, l0, l1, l2, l3] = header;
        let kind = u32::from_le_bytes([k0, k1, k2, k3]);
        let length = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
        if length > MAX_PAYLOAD {
            let text = format!("a frame of kind {kind} has {length} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        let mut payload = vec![0; length];
        match channel.read_exact(&mut payload) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(error),
        }
        if let Some(kind) = FrameKind::from_number(kind) {
            return Ok(Some((kind, payload)));
        }
    }
}

/// A payload that is a structure.
pub fn decode<T: FromBytes>(payload: &[u8]) -> io::Result<T> {
    T::read_from_bytes(payload)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "a frame has the wrong length"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use abi::console::{EXIT_STATUS, ExitReport};

    #[test]
    fn a_start_frame_has_its_strings_in_order() {
        let start = Start {
            path: Path::new("/bin/ls"),
            working_directory: Path::new("/"),
            arguments: &["ls".into(), "-l".into()],
            environment: &["A=b".to_string()],
        };
        let bytes = start.encode(5, WindowSize::default()).unwrap();
        let strings = &bytes[size_of::<FrameHeader>() + size_of::<StartHeader>()..];
        assert_eq!(strings, b"/bin/ls\0/\0ls\0-l\0A=b\0");
        assert_eq!(bytes[4..8], u32::to_le_bytes(24 + 20));
    }

    #[test]
    fn frames_are_read_back_and_unknown_ones_passed_over() {
        let mut bytes = FrameHeader { kind: 99, length: 2 }.as_bytes().to_vec();
        bytes.extend_from_slice(b"??");
        bytes.extend(frame_of(FrameKind::Exit, &ExitReport { reason: EXIT_STATUS, value: 3 }));
        let mut channel = bytes.as_slice();
        let (kind, payload) = read_frame(&mut channel).unwrap().unwrap();
        assert_eq!(kind, FrameKind::Exit);
        assert_eq!(decode::<ExitReport>(&payload).unwrap().value, 3);
        assert!(read_frame(&mut channel).unwrap().is_none());
        assert!(decode::<ExitReport>(b"short").is_err());
    }

    #[test]
    fn a_frame_that_is_too_long_is_an_error() {
        let header = FrameHeader { kind: FrameKind::Stdout as u32, length: 1 << 30 };
        assert!(read_frame(&mut header.as_bytes()).is_err());
    }
}
