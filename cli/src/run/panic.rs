//! A kernel panic, explained: the message, and the addresses of the backtrace as functions and lines.
//!
//! On the serial port a panic is `panic: MESSAGE`, perhaps `at FILE:LINE`, then a line `backtrace: 0x…`
//! for each address, then `panic: end`. Lines may begin with a time or a core number.

use std::fmt::Write as _;
use std::path::Path;

const MARK: &str = "panic: ";
const END: &str = "panic: end";
const ADDRESS_MARK: &str = "backtrace: ";

/// What the kernel said when it died.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct KernelPanic {
    /// The message, one line or several.
    pub message: Vec<String>,
    /// Return addresses, the innermost first.
    pub addresses: Vec<u64>,
}

/// Whether this line of the log ends a panic.
pub fn is_end(line: &str) -> bool {
    line.trim_end().ends_with(END)
}

/// The first panic in a log; later ones are usually its consequences.
pub fn find(log: &str) -> Option<KernelPanic> {
    let mut lines = log.lines().map(|line| line.trim_end_matches('\r'));
    let first = lines.by_ref().find_map(|line| line.split_once(MARK).map(|(_, text)| text))?;
    let mut panic = KernelPanic { message: vec![first.to_string()], addresses: Vec::new() };
    for line in lines.take_while(|line| !is_end(line)) {
        match line.split_once(ADDRESS_MARK) {
            Some((_, address)) => {
                let digits = address.split_whitespace().next().unwrap_or("");
                let parsed = u64::from_str_radix(digits.trim_start_matches("0x"), 16);
                panic.addresses.extend(parsed.ok());
            }
            None if panic.addresses.is_empty() => panic.message.push(line.to_string()),
            None => {}
        }
    }
    Some(panic)
}

impl KernelPanic {
    /// The panic as text for the user, with symbols from the kernel's ELF file.
    pub fn describe(&self, kernel: &Path) -> String {
        let mut text = format!("kernel panic: {}\n", self.message.join("\n  "));
        let symbols = addr2line::Loader::new(kernel);
        if let Err(error) = &symbols {
            // Writing to a String cannot fail, here and below.
            let _ = writeln!(text, "  (no symbols: {}: {error})", kernel.display());
        }
        for (index, address) in self.addresses.iter().enumerate() {
            // A return address is behind its call; the innermost may be exact, which does not hurt.
            let frames = match &symbols {
                Ok(symbols) => describe_address(symbols, address.saturating_sub(1)),
                Err(_) => Vec::new(),
            };
            let _ = match frames.split_first() {
                Some((first, _)) => writeln!(text, "  {index:>2}: {address:#x} {first}"),
                None => writeln!(text, "  {index:>2}: {address:#x}"),
            };
            for inlined_into in frames.iter().skip(1) {
                let _ = writeln!(text, "      inlined into {inlined_into}");
            }
        }
        text
    }
}

/// Functions and lines at an address, the innermost inlined one first.
fn describe_address(symbols: &addr2line::Loader, address: u64) -> Vec<String> {
    let mut described = Vec::new();
    if let Ok(mut frames) = symbols.find_frames(address) {
        while let Ok(Some(frame)) = frames.next() {
            let name = frame
                .function
                .as_ref()
                .and_then(|function| function.demangle().ok().map(|name| name.into_owned()));
            let place = frame.location.as_ref().map(|location| {
                format!("{}:{}", location.file.unwrap_or("?"), location.line.unwrap_or(0))
            });
            described.push(match (name, place) {
                (Some(name), Some(place)) => format!("{name} ({place})"),
                (Some(name), None) => name,
                (None, Some(place)) => place,
                (None, None) => continue,
            });
        }
    }
    if described.is_empty() {
        described.extend(
            symbols
                .find_symbol(address)
                .map(|name| addr2line::demangle_auto(name.into(), None).into_owned()),
        );
    }
    described
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "booting\r\n[1.5 cpu1] panic: index out of bounds\r\nat kernel/src/boot.rs:7\r\n\
        backtrace: 0xffffffff80001234\r\nbacktrace: 0xffffffff80005678 more\r\npanic: end\r\n\
        panic: second\r\n";

    #[test]
    fn the_first_panic_is_found_whole() {
        let panic = find(LOG).unwrap();
        assert_eq!(panic.message, ["index out of bounds", "at kernel/src/boot.rs:7"]);
        assert_eq!(panic.addresses, [0xffff_ffff_8000_1234, 0xffff_ffff_8000_5678]);
        assert!(find("all is well\n").is_none());
    }

    #[test]
    fn a_panic_that_breaks_off_is_still_told() {
        let panic = find("panic: dead\nbacktrace: nonsense\n").unwrap();
        assert_eq!((panic.message.len(), panic.addresses.len()), (1, 0));
    }

    #[test]
    fn addresses_get_the_names_of_functions() {
        // The test program is an ELF file with symbols: its entry point is the C library's `_start`.
        let program = std::env::current_exe().unwrap();
        let bytes = std::fs::read(&program).unwrap();
        let entry = u64::from_le_bytes(bytes[24..32].try_into().unwrap());
        let panic = KernelPanic { message: vec!["test".into()], addresses: vec![entry + 1] };
        let text = panic.describe(&program);
        assert!(text.contains("_start"), "{text}");
    }

    #[test]
    fn without_symbols_the_addresses_remain() {
        let panic = KernelPanic { message: vec!["test".into()], addresses: vec![0x1234] };
        assert!(panic.describe(Path::new("/no/kernel")).contains("0x1234"));
    }
}
