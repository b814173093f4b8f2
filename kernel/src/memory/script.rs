//! The first line of a script: `#!INTERPRETER [ARGUMENT]`.

use abi::Errno;

/// Bytes at the start of a file that decide what it is.
pub const START_SIZE: usize = 256;

/// The parsed line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScriptLine<'a> {
    /// Path of the interpreter.
    pub interpreter: &'a [u8],
    /// Everything after it, as one argument.
    pub argument: Option<&'a [u8]>,
}

/// Parses the line if the file starts with one. `start` is at most the first 256 bytes of the file.
///
/// # Errors
/// `ENOEXEC` when there is no interpreter, or its name does not end within these bytes.
pub fn parse(start: &[u8]) -> Result<Option<ScriptLine<'_>>, Errno> {
    let Some(rest) = start.strip_prefix(b"#!") else { return Ok(None) };
    let end = rest.iter().position(|byte| matches!(byte, b'\n' | 0));
    let is_cut = end.is_none() && start.len() >= START_SIZE;
    let line = match end {
        Some(end) => rest.get(..end).unwrap_or_default(),
        // Like Linux, the last byte of the window is not looked at.
        None if is_cut => rest.get(..rest.len() - 1).unwrap_or_default(),
        None => rest,
    };
    let line = trim_start(line);
    let name_end = line.iter().position(is_blank);
    if line.is_empty() || (is_cut && name_end.is_none()) {
        return Err(Errno::ENOEXEC);
    }
    let (interpreter, rest) = line.split_at(name_end.unwrap_or(line.len()));
    let argument = trim_end(trim_start(rest));
    Ok(Some(ScriptLine { interpreter, argument: (!argument.is_empty()).then_some(argument) }))
}

fn is_blank(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

fn trim_start(line: &[u8]) -> &[u8] {
    let start = line.iter().position(|byte| !is_blank(byte)).unwrap_or(line.len());
    line.get(start..).unwrap_or_default()
}

fn trim_end(line: &[u8]) -> &[u8] {
    let end = line.iter().rposition(|byte| !is_blank(byte)).map_or(0, |last| last + 1);
    line.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn line(text: &[u8]) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
        let line = parse(text).unwrap()?;
        Some((line.interpreter.to_vec(), line.argument.map(<[u8]>::to_vec)))
    }

    #[test]
    fn other_files_are_not_scripts() {
        assert_eq!(line(b"\x7fELF"), None);
        assert_eq!(line(b"#"), None);
        assert_eq!(line(b""), None);
    }

    #[test]
    fn the_rest_of_the_line_is_one_argument() {
        assert_eq!(line(b"#!/bin/sh\necho"), Some((b"/bin/sh".to_vec(), None)));
        let two = Some((b"/usr/bin/env".to_vec(), Some(b"-S a  b".to_vec())));
        assert_eq!(line(b"#! \t/usr/bin/env \t-S a  b \t\n"), two);
        assert_eq!(line(b"#!/bin/sh"), Some((b"/bin/sh".to_vec(), None)));
    }

    #[test]
    fn a_line_without_interpreter_is_refused() {
        assert_eq!(parse(b"#!\n"), Err(Errno::ENOEXEC));
        assert_eq!(parse(b"#!  \t \n/bin/sh"), Err(Errno::ENOEXEC));
        assert_eq!(parse(b"#!"), Err(Errno::ENOEXEC));
    }

    #[test]
    fn a_name_that_does_not_end_is_refused_and_an_argument_is_cut() {
        let mut long = b"#!/".to_vec();
        long.resize(START_SIZE, b'x');
        assert_eq!(parse(&long), Err(Errno::ENOEXEC));
        let mut argument = b"#!/i ".to_vec();
        argument.resize(START_SIZE, b'y');
        let parsed = parse(&argument).unwrap().unwrap();
        assert_eq!(parsed.interpreter, b"/i");
        assert_eq!(parsed.argument.unwrap().len(), START_SIZE - 1 - 5);
    }
}
