//! Makes program files for tests.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::layout::PAGE;
use super::source::{PageSource, SharedStore};

/// A file with these bytes.
pub fn file_of(bytes: &[u8]) -> Arc<dyn PageSource> {
    let store = SharedStore::new(bytes.len() as u64);
    for (index, part) in bytes.chunks(PAGE as usize).enumerate() {
        store.page(index as u64).unwrap().write(0, part);
    }
    store
}

/// The headers of a program, from which a file is made.
pub struct Header {
    kind: u16,
    pub entry: u64,
    segments: Vec<[u8; 56]>,
    interpreter: Vec<u8>,
}

impl Header {
    pub fn executable() -> Header {
        Header { kind: 2, entry: 0x40_0100, segments: Vec::new(), interpreter: Vec::new() }
    }

    pub fn movable() -> Header {
        Header { kind: 3, ..Header::executable() }
    }

    fn add(&mut self, kind: u32, flags: u32, words: [u64; 6]) {
        let mut bytes = [0; 56];
        bytes[..4].copy_from_slice(&kind.to_le_bytes());
        bytes[4..8].copy_from_slice(&flags.to_le_bytes());
        for (chunk, word) in bytes[8..].chunks_mut(8).zip(words) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        self.segments.push(bytes);
    }

    pub fn load(&mut self, address: u64, offset: u64, file: u64, memory: u64, flags: u32) {
        self.add(1, flags, [offset, address, address, file, memory, PAGE]);
    }

    /// The name lies at byte 0x380 of the file.
    pub fn interpreter(&mut self, name: &[u8]) {
        self.interpreter = name.to_vec();
        self.add(3, 4, [0x380, 0x380, 0x380, name.len() as u64, name.len() as u64, 1]);
    }

    pub fn bytes(&self, size: usize) -> Vec<u8> {
        let mut bytes = alloc::vec![0; size];
        bytes[..7].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1, 1]);
        bytes[16..18].copy_from_slice(&self.kind.to_le_bytes());
        bytes[18..20].copy_from_slice(&62_u16.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.entry.to_le_bytes());
        bytes[32..40].copy_from_slice(&64_u64.to_le_bytes());
        bytes[54..56].copy_from_slice(&56_u16.to_le_bytes());
        bytes[56..58].copy_from_slice(&(self.segments.len() as u16).to_le_bytes());
        for (index, segment) in self.segments.iter().enumerate() {
            bytes[64 + 56 * index..][..56].copy_from_slice(segment);
        }
        bytes[0x380..0x380 + self.interpreter.len()].copy_from_slice(&self.interpreter);
        bytes
    }
}
