//! The first contents of a program's stack, as the System V ABI for x86-64 lays them out.
//!
//! ```text
//!   top   8 zero bytes
//!         name of the program file
//!         strings of the environment
//!         strings of the arguments
//!         platform name, 16 random bytes
//!         (down to a multiple of 16)
//!         auxiliary vector: pairs, the last one null
//!         pointers to the environment, null
//!         pointers to the arguments, null
//!   sp -> number of arguments
//! ```

use abi::Errno;
use abi::memory::aux;
use alloc::vec::Vec;
use core::ops::Range;

use super::strings::{StringList, Turn};

/// Bytes that are copied in one go.
const PIECE: usize = 1 << 16;

/// What the stack is made from.
pub struct StackContents<'a> {
    /// Arguments.
    pub arguments: &'a StringList,
    /// Environment.
    pub environment: &'a StringList,
    /// Name of the program file.
    pub file_name: &'a [u8],
    /// Name of the platform.
    pub platform: &'a [u8],
    /// For the program's own use.
    pub random: [u8; 16],
    /// The auxiliary vector without the entries that point into the stack.
    pub auxiliary: &'a [(u64, u64)],
}

/// A finished stack: `bytes` belong at `pointer`.
#[derive(Debug)]
pub struct BuiltStack {
    /// Stack pointer at the start.
    pub pointer: u64,
    /// Everything from there to the top.
    pub bytes: Vec<u8>,
    /// Strings of the arguments.
    pub arguments: Range<u64>,
    /// Strings of the environment.
    pub environment: Range<u64>,
}

/// Lays the stack out below `top`, which is a multiple of 16.
///
/// # Errors
/// `E2BIG` when it does not fit below `top`, `ENOMEM`.
pub async fn build(top: u64, contents: &StackContents<'_>) -> Result<BuiltStack, Errno> {
    let below = |from: u64, length: usize| from.checked_sub(length as u64).ok_or(Errno::E2BIG);
    let name = below(top, 8 + contents.file_name.len() + 1)?;
    let environment = below(name, contents.environment.bytes().len())?;
    let arguments = below(environment, contents.arguments.bytes().len())?;
    let platform = below(arguments, contents.platform.len() + 1)?;
    let random = below(platform, contents.random.len())? & !15;
    let words = 1
        + contents.arguments.len()
        + 1
        + contents.environment.len()
        + 1
        + 2 * (contents.auxiliary.len() + 4);
    let pointer = below(random, words * 8)? & !15;

    let length = usize::try_from(top - pointer).map_err(|_| Errno::E2BIG)?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(length).map_err(|_| Errno::ENOMEM)?;
    push(&mut bytes, contents.arguments.len() as u64);
    push_pointers(&mut bytes, arguments, contents.arguments).await;
    push_pointers(&mut bytes, environment, contents.environment).await;
    let pointing = [(aux::RANDOM, random), (aux::EXECFN, name), (aux::PLATFORM, platform)];
    for (key, value) in contents.auxiliary.iter().chain(&pointing) {
        push(&mut bytes, *key);
        push(&mut bytes, *value);
    }
    push(&mut bytes, aux::NULL);
    push(&mut bytes, 0);

    let parts = [
        (random, contents.random.as_slice()),
        (platform, contents.platform),
        (arguments, contents.arguments.bytes()),
        (environment, contents.environment.bytes()),
        (name, contents.file_name),
        (top, &[]),
    ];
    let mut turn = Turn::default();
    for (address, part) in parts {
        bytes.resize((address - pointer) as usize, 0);
        for piece in part.chunks(PIECE) {
            turn.string(piece.len()).await;
            bytes.extend_from_slice(piece);
        }
    }
    Ok(BuiltStack {
        pointer,
        bytes,
        arguments: arguments..environment,
        environment: environment..name,
    })
}

fn push(bytes: &mut Vec<u8>, word: u64) {
    bytes.extend_from_slice(&word.to_le_bytes());
}

async fn push_pointers(bytes: &mut Vec<u8>, start: u64, strings: &StringList) {
    let mut address = start;
    let mut turn = Turn::default();
    for string in strings.iter() {
        turn.string(string.len()).await;
        push(bytes, address);
        address += string.len() as u64;
    }
    push(bytes, 0);
}

#[cfg(test)]
mod tests {
    use super::super::tests::finish;
    use super::*;

    const TOP: u64 = 0x7fff_0000;

    fn word(stack: &BuiltStack, address: u64) -> u64 {
        let at = (address - stack.pointer) as usize;
        u64::from_le_bytes(stack.bytes[at..at + 8].try_into().unwrap())
    }

    fn string(stack: &BuiltStack, address: u64) -> Vec<u8> {
        let rest = &stack.bytes[(address - stack.pointer) as usize..];
        rest[..rest.iter().position(|byte| *byte == 0).unwrap()].to_vec()
    }

    fn example(arguments: &[&[u8]]) -> BuiltStack {
        finish(build(
            TOP,
            &StackContents {
                arguments: &StringList::from_slices(arguments).unwrap(),
                environment: &StringList::from_slices(&[b"A=1", b"B=22"]).unwrap(),
                file_name: b"/bin/x",
                platform: b"x86_64",
                random: [7; 16],
                auxiliary: &[(aux::PAGESZ, 4096)],
            },
        ))
        .unwrap()
    }

    #[test]
    fn vectors_point_to_the_strings() {
        let stack = example(&[b"x", b"", b"long argument"]);
        let at = stack.pointer;
        assert_eq!(word(&stack, at), 3);
        assert_eq!(string(&stack, word(&stack, at + 8)), b"x");
        assert_eq!(string(&stack, word(&stack, at + 16)), b"");
        assert_eq!(string(&stack, word(&stack, at + 24)), b"long argument");
        assert_eq!(word(&stack, at + 32), 0);
        assert_eq!(string(&stack, word(&stack, at + 40)), b"A=1");
        assert_eq!(string(&stack, word(&stack, at + 48)), b"B=22");
        assert_eq!(word(&stack, at + 56), 0);
        assert_eq!(stack.bytes.len() as u64, TOP - stack.pointer);
        assert_eq!(word(&stack, TOP - 8), 0);
    }

    #[test]
    fn the_auxiliary_vector_ends_and_points_into_the_stack() {
        let stack = example(&[b"x"]);
        let mut at = stack.pointer + 8 * (1 + 2 + 3);
        let mut seen = Vec::new();
        while word(&stack, at) != aux::NULL {
            seen.push((word(&stack, at), word(&stack, at + 8)));
            at += 16;
        }
        let value = |key| seen.iter().find(|(k, _)| *k == key).unwrap().1;
        assert_eq!(value(aux::PAGESZ), 4096);
        assert_eq!(string(&stack, value(aux::EXECFN)), b"/bin/x");
        assert_eq!(string(&stack, value(aux::PLATFORM)), b"x86_64");
        assert_eq!(word(&stack, value(aux::RANDOM)), 0x0707_0707_0707_0707);
    }

    #[test]
    fn the_stack_pointer_is_aligned_whatever_the_number_of_arguments() {
        let many: Vec<&[u8]> = alloc::vec![b"ab"; 9];
        for count in 0..9 {
            assert_eq!(example(&many[..count]).pointer % 16, 0);
        }
    }

    #[test]
    fn strings_that_do_not_fit_are_refused() {
        let large = alloc::vec![b'x'; 5000];
        let arguments = StringList::from_slices(&[&large]).unwrap();
        let contents = StackContents {
            arguments: &arguments,
            environment: &StringList::new(),
            file_name: b"x",
            platform: b"x86_64",
            random: [0; 16],
            auxiliary: &[],
        };
        assert_eq!(finish(build(4096, &contents)).unwrap_err(), Errno::E2BIG);
    }
}
