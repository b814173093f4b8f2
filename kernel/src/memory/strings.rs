//! Arguments and environment of a program on their way into its memory.
//!
//! A `StringList` keeps all strings in one buffer, each with its zero byte, as they will lie on the
//! stack, and enforces the limits of Linux: 128 KiB for one string, and a quarter of the stack limit
//! (at most 6 MiB, at least 128 KiB) for everything together, pointers included.

use abi::Errno;
use alloc::vec::Vec;
use base::task;

use super::user::UserMemory;

/// Most bytes of one string, its zero byte included.
pub const LONGEST_STRING: usize = 131_072;
/// Bytes that are read or written before others have the core, and as how many a string counts beside its
/// own.
const TURN: usize = 1 << 17;
const STRING_COST: usize = 256;

/// How much of a list has been treated since others had the core.
#[derive(Default)]
pub(super) struct Turn {
    spent: usize,
}

impl Turn {
    /// A string of so many bytes is next.
    pub(super) async fn string(&mut self, length: usize) {
        if self.spent > 0 && self.spent + length > TURN {
            self.spent = 0;
            task::yield_now().await;
        }
        self.spent += length + STRING_COST;
    }
}
/// What the limit never goes below.
const LEAST_LIMIT: u64 = 131_072;
/// What the limit never goes above: three quarters of the default stack.
const MOST_LIMIT: u64 = 6 << 20;

/// Strings that end with a zero byte, one after the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StringList {
    bytes: Vec<u8>,
    count: usize,
}

/// Bytes that arguments and environment may take under a stack limit.
pub fn space_limit(stack_limit: u64) -> u64 {
    (stack_limit / 4).clamp(LEAST_LIMIT, MOST_LIMIT)
}

impl StringList {
    /// An empty list.
    pub fn new() -> StringList {
        StringList::default()
    }

    /// A list of the given strings.
    ///
    /// # Errors
    /// Those of `push`.
    pub fn from_slices(strings: &[&[u8]]) -> Result<StringList, Errno> {
        let mut list = StringList::new();
        for string in strings {
            list.push(string)?;
        }
        Ok(list)
    }

    /// Adds a string; what follows a zero byte in it is left out.
    ///
    /// # Errors
    /// `E2BIG` when it is too long, `ENOMEM`.
    pub fn push(&mut self, string: &[u8]) -> Result<(), Errno> {
        let end = string.iter().position(|byte| *byte == 0).unwrap_or(string.len());
        let string = string.get(..end).unwrap_or_default();
        if string.len() >= LONGEST_STRING {
            return Err(Errno::E2BIG);
        }
        self.bytes.try_reserve(string.len() + 1).map_err(|_| Errno::ENOMEM)?;
        self.bytes.extend_from_slice(string);
        self.bytes.push(0);
        self.count += 1;
        Ok(())
    }

    /// Makes room for `length` bytes. A list that is long already gets all that it may still need, up to `budget`
    /// beyond that: growing step by step would copy megabytes in one turn.
    fn make_room(&mut self, length: usize, budget: u64) -> Result<(), Errno> {
        if self.bytes.len() < TURN || self.bytes.capacity() - self.bytes.len() >= length {
            return Ok(());
        }
        let most = usize::try_from(budget).unwrap_or(usize::MAX).saturating_add(length);
        self.bytes.try_reserve_exact(most).map_err(|_| Errno::ENOMEM)
    }

    /// Number of strings.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// All strings with their zero bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Each string with its zero byte.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.bytes.split_inclusive(|byte| *byte == 0)
    }

    /// Bytes that the strings and their pointers take on a stack.
    pub fn stack_bytes(&self) -> u64 {
        self.bytes.len() as u64 + 8 * self.count as u64
    }

    /// The list for the interpreter of a script: its own name and argument, then the script in place
    /// of the first string.
    ///
    /// # Errors
    /// Those of `push`.
    pub async fn for_interpreter(
        &self,
        interpreter: &[u8],
        argument: Option<&[u8]>,
        script: &[u8],
    ) -> Result<StringList, Errno> {
        let mut list = StringList::new();
        // One piece: growing it would copy what is there again and again.
        let length = interpreter.len() + argument.map_or(0, <[u8]>::len) + script.len() + 3;
        list.bytes.try_reserve(length + self.bytes.len()).map_err(|_| Errno::ENOMEM)?;
        let mut turn = Turn::default();
        list.push(interpreter)?;
        if let Some(argument) = argument {
            list.push(argument)?;
        }
        list.push(script)?;
        for string in self.iter().skip(1) {
            turn.string(string.len()).await;
            list.push(string)?;
        }
        Ok(list)
    }

    /// Reads a null-terminated array of pointers to strings, as `execve` takes it. A null `address`
    /// is an empty list. `budget` is what may still be used and is lowered by what was.
    ///
    /// # Errors
    /// `EFAULT`, `E2BIG`, `ENOMEM`.
    pub async fn read(
        memory: &UserMemory,
        address: u64,
        budget: &mut u64,
    ) -> Result<StringList, Errno> {
        let mut list = StringList::new();
        if address == 0 {
            return Ok(list);
        }
        let mut at = address;
        let mut turn = Turn::default();
        loop {
            let pointer: u64 = memory.read_value(at).await?;
            if pointer == 0 {
                return Ok(list);
            }
            let string = memory.read_string(pointer, LONGEST_STRING).await;
            let string = string.map_err(|error| match error {
                Errno::ENAMETOOLONG => Errno::E2BIG,
                other => other,
            })?;
            *budget = budget.checked_sub(string.len() as u64 + 9).ok_or(Errno::E2BIG)?;
            turn.string(string.len()).await;
            list.make_room(string.len() + 1, *budget)?;
            list.push(&string)?;
            at = at.checked_add(8).ok_or(Errno::EFAULT)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::finish as whole;
    use super::*;

    #[test]
    fn strings_keep_their_order_and_end() {
        let list = StringList::from_slices(&[b"a", b"", b"bc\0d"]).unwrap();
        assert_eq!(list.len(), 3);
        assert_eq!(list.bytes(), b"a\0\0bc\0");
        assert_eq!(list.stack_bytes(), 6 + 24);
    }

    #[test]
    fn the_interpreter_takes_the_first_place() {
        let list = StringList::from_slices(&[b"zero", b"one"]).unwrap();
        let result = whole(list.for_interpreter(b"/bin/sh", Some(b"-e"), b"./s")).unwrap();
        assert_eq!(result.bytes(), b"/bin/sh\0-e\0./s\0one\0");
        let none = StringList::new();
        let empty = whole(none.for_interpreter(b"/bin/sh", None, b"./s")).unwrap();
        assert_eq!(empty.bytes(), b"/bin/sh\0./s\0");
    }

    #[test]
    fn a_string_that_is_too_long_is_refused() {
        let long = alloc::vec![b'x'; LONGEST_STRING];
        assert_eq!(StringList::new().push(&long), Err(Errno::E2BIG));
        assert_eq!(StringList::new().push(&long[1..]), Ok(()));
    }

    #[test]
    fn the_limit_follows_the_stack_between_its_bounds() {
        assert_eq!(space_limit(8 << 20), 2 << 20);
        assert_eq!(space_limit(0), LEAST_LIMIT);
        assert_eq!(space_limit(u64::MAX), MOST_LIMIT);
    }
}
