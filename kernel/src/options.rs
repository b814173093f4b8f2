//! The kernel command line.
//!
//! Words of the form `ferry.NAME=VALUE` are options; all other words belong to the machine and are
//! left alone. A value that cannot be used is logged and the default stays.

use alloc::string::String;
use alloc::vec::Vec;

use abi::trace::{Events, LockScheme};
use log::LevelFilter;
use policy::choice::Wanted;
use policy::place::{CoreSet, Wishes};
use policy::route::CallPath;

/// What the command line asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The call path in force (`ferry.path=auto|local|remote|posted`).
    pub path: Wanted,
    /// Application cores (`ferry.app=0,2-3`), kernel cores (`ferry.kernel=1`) and interrupt cores
    /// (`ferry.interrupt=1`).
    pub cores: Wishes,
    /// What is logged (`ferry.log=error|warn|info|debug|trace`).
    pub log: LevelFilter,
    /// Whether the stages of calls are timed (`ferry.stages=1`).
    pub stages: bool,
    /// Where the root file system is (`ferry.root=ram|host|disk`).
    pub root: Root,
    /// Records of the trace that each core has room for; 0 for none (`ferry.trace=RECORDS`).
    pub trace: u32,
    /// What of it is recorded (`ferry.events=BITS`, as `abi::trace::Events` has them).
    pub events: Events,
    /// The lock scheme (`ferry.locks=fine|coarse|giant-ticket|giant-clh|giant-mcs`).
    pub locks: LockScheme,
}

/// Where the root file system is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Root {
    /// In memory, as the initramfs has it.
    Memory,
    /// That of the host, seen through a layer in memory.
    Host,
    /// The ext4 of the first disk.
    Disk,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            path: Wanted::Auto,
            cores: Wishes::default(),
            log: LevelFilter::Warn,
            stages: false,
            root: Root::Memory,
            trace: 0,
            events: Events::USUAL,
            locks: LockScheme::Fine,
        }
    }
}

/// The tag of the host's root.
pub const ROOT_TAG: &str = "ferry.root";

/// A directory of the host (`ferry.share=TAG:PATH[:ro]`; in the path, `%` and two hexadecimal digits stand
/// for a byte).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// Tag of the file server.
    pub tag: String,
    /// Where it is mounted.
    pub path: Vec<u8>,
    /// Nothing may be changed through it.
    pub is_read_only: bool,
}

impl Share {
    fn parse(text: &str) -> Option<Share> {
        let mut parts = text.split(':');
        let (tag, path) = (parts.next()?, unescape(parts.next()?)?);
        let is_read_only = match parts.next() {
            None => false,
            Some("ro") => true,
            Some(_) => return None,
        };
        let is_good = path.first() == Some(&b'/') && !path.contains(&0) && parts.next().is_none();
        is_good.then(|| Share { tag: String::from(tag), path, is_read_only })
    }
}

fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()?);
        rest = after;
    }
    Some(bytes)
}

/// The directories of the host that a command line asks for, in order.
pub fn shares(command_line: &str) -> Vec<Share> {
    let words = command_line.split_ascii_whitespace();
    words.filter_map(|word| Share::parse(word.strip_prefix("ferry.share=")?)).collect()
}

/// Reads a command line. `complain` is called with every word that cannot be used.
pub fn parse(command_line: &str, mut complain: impl FnMut(&str)) -> Options {
    let mut options = Options::default();
    for word in command_line.split_ascii_whitespace() {
        let Some((name, value)) = word.strip_prefix("ferry.").and_then(|word| word.split_once('='))
        else {
            continue;
        };
        if apply(&mut options, name, value).is_none() {
            complain(word);
        }
    }
    options
}

fn apply(options: &mut Options, name: &str, value: &str) -> Option<()> {
    match name {
        "path" => {
            options.path = match value {
                "auto" => Wanted::Auto,
                "local" => Wanted::Fixed(CallPath::Local),
                "remote" => Wanted::Fixed(CallPath::Remote),
                "posted" => Wanted::Fixed(CallPath::Posted),
                _ => return None,
            }
        }
        "app" => options.cores.application = Some(core_list(value)?),
        "kernel" => options.cores.kernel = Some(core_list(value)?),
        "interrupt" => options.cores.interrupt = Some(core_list(value)?),
        "log" => options.log = value.parse().ok()?,
        "share" => drop(Share::parse(value)?),
        "root" => {
            options.root = match value {
                "ram" => Root::Memory,
                "host" => Root::Host,
                "disk" => Root::Disk,
                _ => return None,
            }
        }
        "stages" => options.stages = matches!(value, "0" | "1").then_some(value == "1")?,
        "trace" => options.trace = value.parse().ok()?,
        "events" => options.events = Events::from_bits(value.parse().ok()?),
        "locks" => options.locks = LockScheme::ALL.into_iter().find(|it| it.name() == value)?,
        _ => return None,
    }
    Some(())
}

/// A list such as `0,2-3`; `None` when it is not one.
fn core_list(text: &str) -> Option<CoreSet> {
    let mut set = CoreSet::EMPTY;
    for range in text.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.parse::<u32>().ok()?, last.parse::<u32>().ok()?);
        if first > last || last > 63 {
            return None;
        }
        (first..=last).for_each(|core| set.0 |= 1 << core);
    }
    Some(set)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(command_line: &str) -> Vec<String> {
        let mut words = Vec::new();
        parse(command_line, |word| words.push(word.into()));
        words
    }

    #[test]
    fn options_are_read_and_other_words_left_alone() {
        let line = "console=ttyS0 ferry.path=local ferry.app=0,2-3 ferry.kernel=1 \
                    ferry.interrupt=2 ferry.log=debug ferry.locks=giant-clh \
                    ferry.root=disk";
        let options = parse(line, |word| panic!("{word}"));
        assert_eq!(options.path, Wanted::Fixed(CallPath::Local));
        assert_eq!(options.cores.application, Some(CoreSet(0b1101)));
        assert_eq!(options.cores.kernel, Some(CoreSet(0b0010)));
        assert_eq!(options.cores.interrupt, Some(CoreSet(0b0100)));
        assert_eq!(options.log, LevelFilter::Debug);
        assert_eq!(options.locks, LockScheme::GiantClh);
        assert_eq!(options.root, Root::Disk);
    }

    #[test]
    fn shares_are_read_in_order() {
        let line = "ferry.share=a:/mnt ferry.path=local ferry.share=b:/x%20y%3az:ro";
        let share = |tag: &str, path: &[u8], is_read_only| Share {
            tag: tag.into(),
            path: path.into(),
            is_read_only,
        };
        assert_eq!(shares(line), [share("a", b"/mnt", false), share("b", b"/x y:z", true)]);
        assert!(complaints(line).is_empty());
    }

    #[test]
    fn what_cannot_be_used_is_complained_about_and_the_default_stays() {
        for word in [
            "ferry.path=fast",
            "ferry.app=",
            "ferry.app=3-1",
            "ferry.app=64",
            "ferry.log=loud",
            "ferry.unknown=1",
            "ferry.share=a:mnt",
            "ferry.share=a:/x%2",
            "ferry.share=a:/x:rw",
            "ferry.root=tape",
            "ferry.locks=giant",
        ] {
            assert_eq!(complaints(word), [word]);
            assert_eq!(parse(word, |_| ()), Options::default());
        }
    }
}
