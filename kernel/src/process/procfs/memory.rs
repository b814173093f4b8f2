//! Files about the memory of a process: `auxv`, `smaps`, `smaps_rollup`, `pagemap`, `mem`.

use alloc::vec::Vec;
use core::future::Future;
use core::pin::pin;
use core::task::{Context, Poll, Waker};

use abi::Errno;
use abi::memory::aux;
use fs::Identity;
use fs::pseudo::{Content, Part};

use super::process::Subject;
use super::status::read_memory;
use crate::memory::{PAGE, UserMemory};
use crate::process::Capability;
use crate::process::thread::Resources;

/// Bytes of a word.
const WORD: usize = 8;

/// `auxv`: what lies behind the environment at the beginning of the stack.
pub(super) fn auxiliary_vector(inside: &Resources, _: u64) -> Result<Part, Errno> {
    let regions = inside.space.regions();
    let bytes = read_memory(&inside.space, regions.stack_start..regions.arguments.start);
    let words = || {
        bytes.chunks_exact(WORD).map(|word| word.try_into().map(u64::from_ne_bytes).unwrap_or(0))
    };
    let count = words().next().unwrap_or(0);
    let arguments = usize::try_from(count).unwrap_or(usize::MAX).saturating_add(2);
    let environment = words().skip(arguments).position(|word| word == 0);
    let start = arguments.saturating_add(environment.map_or(usize::MAX, |length| length + 1));
    let mut text = Vec::new();
    let mut rest = words().skip(start);
    while let (Some(key), Some(value)) = (rest.next(), rest.next()) {
        text.extend_from_slice(&key.to_ne_bytes());
        text.extend_from_slice(&value.to_ne_bytes());
        if key == aux::NULL {
            break;
        }
    }
    Ok(Part { text, next: None })
}

/// A part of `smaps`.
pub(super) fn sizes(inside: &Resources, cursor: u64) -> Result<Part, Errno> {
    let mut text = Vec::new();
    let next = inside.space.sizes_of_areas(cursor, &mut text)?;
    Ok(Part { text, next })
}

/// `smaps_rollup`
pub(super) fn sum_of_sizes(inside: &Resources, cursor: u64) -> Result<Part, Errno> {
    let mut text = Vec::new();
    let next = inside.space.sizes_of_all(cursor, &mut text)?;
    Ok(Part { text, next })
}

/// `pagemap`: a word for each page.
pub(super) struct PageMap {
    pub(super) subject: Subject,
}

impl Content for PageMap {
    fn admit(&self, opener: &Identity) -> Result<(), Errno> {
        self.subject.look_into(opener).map(|_| ())
    }

    fn generate(&self, _: &Identity) -> Result<Vec<u8>, Errno> {
        Err(Errno::EINVAL)
    }

    fn granule(&self) -> Option<usize> {
        Some(WORD)
    }

    fn bytes_at(&self, opener: &Identity, offset: u64, length: usize) -> Result<Vec<u8>, Errno> {
        let Ok(inside) = self.subject.look_into(opener) else { return Ok(Vec::new()) };
        let shows_frames = opener.is_capable(Capability::Administer);
        let first = offset / WORD as u64;
        let words = inside.space.page_words(first, length / WORD, shows_frames);
        Ok(words.into_iter().flat_map(u64::to_ne_bytes).collect())
    }
}

/// `mem`: the memory itself, by address. It is written as a tracer writes it: private pages that the program may
/// only read get a copy.
pub(super) struct Memory {
    pub(super) subject: Subject,
}

/// What a future that need not wait gives; `EIO` when it fails or waits.
fn at_once<T>(future: impl Future<Output = Result<T, Errno>>) -> Result<T, Errno> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Ok(value)) => Ok(value),
        _ => Err(Errno::EIO),
    }
}

impl Content for Memory {
    fn admit(&self, opener: &Identity) -> Result<(), Errno> {
        self.subject.look_into(opener).map(|_| ())
    }

    fn generate(&self, _: &Identity) -> Result<Vec<u8>, Errno> {
        Err(Errno::EIO)
    }

    fn granule(&self) -> Option<usize> {
        Some(1)
    }

    fn bytes_at(&self, opener: &Identity, offset: u64, length: usize) -> Result<Vec<u8>, Errno> {
        let Ok(inside) = self.subject.look_into(opener) else { return Ok(Vec::new()) };
        let memory = UserMemory::new(inside.space);
        let mut bytes = Vec::new();
        while bytes.len() < length {
            let at = offset.checked_add(bytes.len() as u64).ok_or(Errno::EIO)?;
            let rest = (PAGE - at % PAGE).min((length - bytes.len()) as u64);
            match at_once(memory.read_vector(at, rest as usize)) {
                Ok(part) => bytes.extend_from_slice(&part),
                Err(error) if bytes.is_empty() => return Err(error),
                Err(_) => break,
            }
        }
        Ok(bytes)
    }

    fn write(&self, writer: &Identity, offset: u64, bytes: &[u8]) -> Result<usize, Errno> {
        let Ok(inside) = self.subject.look_into(writer) else { return Ok(0) };
        at_once(UserMemory::new(inside.space).write_forcibly(offset, bytes))?;
        Ok(bytes.len())
    }
}
