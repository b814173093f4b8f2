//! Cores, path and locks in a file: what `ferry tune --save` writes and `ferry run --layout` uses.

use std::path::Path;

use abi::trace::LockScheme;
use serde::{Deserialize, Serialize};

use super::options::{Arguments, CallPath, core_list, parse_cores};
use crate::status::Usage;

/// What a machine is and how it carries calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Saved {
    /// Cores of the machine.
    pub cpus: usize,
    /// How calls are carried.
    pub path: CallPath,
    /// Cores of programs, as in 0,2-3; none: as the kernel chooses them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app_cores: Option<String>,
    /// Cores that serve calls, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_cores: Option<String>,
    /// Cores that look after devices, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupt_cores: Option<String>,
    /// Name of the lock scheme.
    pub locks: String,
}

impl Saved {
    /// What options ask for.
    pub fn of(arguments: &Arguments) -> Saved {
        Saved {
            cpus: arguments.cpus,
            path: arguments.path,
            app_cores: arguments.app_cores.map(core_list),
            kernel_cores: arguments.kernel_cores.map(core_list),
            interrupt_cores: arguments.interrupt_cores.map(core_list),
            locks: arguments.locks.name().to_string(),
        }
    }

    /// Reads and checks a file.
    pub fn read(file: &Path) -> Result<Saved, Usage> {
        let wrong = |what: String| Usage(format!("{}: {what}", file.display()));
        let text = std::fs::read_to_string(file).map_err(|error| wrong(error.to_string()))?;
        let saved: Saved = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        if saved.cpus == 0 || saved.cpus > super::options::MAX_CPUS {
            return Err(wrong(format!("cpus: 1 to {} are possible", super::options::MAX_CPUS)));
        }
        if saved.scheme().is_none() {
            return Err(wrong(format!("locks: there is no scheme {:?}", saved.locks)));
        }
        let lists = [&saved.app_cores, &saved.kernel_cores, &saved.interrupt_cores];
        for list in lists.into_iter().flatten() {
            parse_cores(list).map_err(wrong)?;
        }
        Ok(saved)
    }

    fn scheme(&self) -> Option<LockScheme> {
        LockScheme::ALL.into_iter().find(|scheme| scheme.name() == self.locks)
    }

    /// Makes options ask for it.
    pub fn apply(&self, arguments: &mut Arguments) {
        let set = |list: &Option<String>| list.as_deref().and_then(|list| parse_cores(list).ok());
        arguments.cpus = self.cpus;
        arguments.path = self.path;
        arguments.app_cores = set(&self.app_cores);
        arguments.kernel_cores = set(&self.kernel_cores);
        arguments.interrupt_cores = set(&self.interrupt_cores);
        arguments.locks = self.scheme().unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(text: &str) -> Result<Saved, Usage> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        Saved::read(file.path())
    }

    #[test]
    fn what_is_saved_is_read() {
        let text = r#"{"cpus": 2, "path": "posted", "app_cores": "0", "locks": "giant-clh"}"#;
        let saved = written(text).unwrap();
        assert_eq!(
            serde_json::from_str::<Saved>(&serde_json::to_string(&saved).unwrap()).unwrap(),
            saved
        );
        assert_eq!(saved.scheme(), Some(LockScheme::GiantClh));
    }

    #[test]
    fn what_is_impossible_is_refused() {
        for text in [
            "{}",
            r#"{"cpus": 9, "path": "auto", "locks": "fine"}"#,
            r#"{"cpus": 1, "path": "auto", "locks": "big"}"#,
            r#"{"cpus": 1, "path": "slow", "locks": "fine"}"#,
            r#"{"cpus": 1, "path": "auto", "locks": "fine", "app_cores": "x"}"#,
            r#"{"cpus": 1, "path": "auto", "locks": "fine", "more": 1}"#,
        ] {
            assert!(written(text).is_err(), "{text}");
        }
    }
}
