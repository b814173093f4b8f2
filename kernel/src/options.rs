//! The kernel command line.
//!
//! Words of the form `ferry.NAME=VALUE` are options; all other words belong to the machine and are
//! left alone. A value that cannot be used is logged and the default stays.

use log::LevelFilter;
use policy::choice::Wanted;
use policy::place::CoreSet;
use policy::route::CallPath;

/// What the command line asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The call path in force (`ferry.path=auto|local|remote|posted`).
    pub path: Wanted,
    /// Application cores (`ferry.app=0,2-3`).
    pub application: Option<CoreSet>,
    /// Kernel cores (`ferry.kernel=1`).
    pub kernel: Option<CoreSet>,
    /// What is logged (`ferry.log=error|warn|info|debug|trace`).
    pub log: LevelFilter,
    /// Whether the stages of calls are timed (`ferry.stages=1`).
    pub stages: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            path: Wanted::Auto,
            application: None,
            kernel: None,
            log: LevelFilter::Warn,
            stages: false,
        }
    }
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
        "app" => options.application = Some(core_list(value)?),
        "kernel" => options.kernel = Some(core_list(value)?),
        "log" => options.log = value.parse().ok()?,
        "stages" => options.stages = matches!(value, "0" | "1").then_some(value == "1")?,
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
    use alloc::vec::Vec;

    fn complaints(command_line: &str) -> Vec<alloc::string::String> {
        let mut words = Vec::new();
        parse(command_line, |word| words.push(word.into()));
        words
    }

    #[test]
    fn options_are_read_and_other_words_left_alone() {
        let line = "console=ttyS0 ferry.path=local ferry.app=0,2-3 ferry.kernel=1 ferry.log=debug";
        let options = parse(line, |word| panic!("{word}"));
        assert_eq!(options.path, Wanted::Fixed(CallPath::Local));
        assert_eq!(options.application, Some(CoreSet(0b1101)));
        assert_eq!(options.kernel, Some(CoreSet(0b0010)));
        assert_eq!(options.log, LevelFilter::Debug);
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
        ] {
            assert_eq!(complaints(word), [word]);
            assert_eq!(parse(word, |_| ()), Options::default());
        }
    }
}
