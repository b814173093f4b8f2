//! The layers of an overlay, as the options of `mount` name them.
//!
//! ```text
//!  lowerdir=TOP:…:BOTTOM[,upperdir=DIR,workdir=DIR]      a colon of a name is `\:`
//! ```

use crate::metadata::NodeKind;
use crate::mount::{self, Location};
use abi::Errno;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Most lower layers.
const MOST_LOWERS: usize = 500;

/// Options that mean what is done anyway.
const NEUTRAL: [&str; 16] = [
    "index=off",
    "metacopy=off",
    "redirect_dir=off",
    "redirect_dir=nofollow",
    "redirect_dir=follow",
    "nfs_export=off",
    "xino=off",
    "xino=auto",
    "xino=on",
    "uuid=off",
    "uuid=on",
    "uuid=null",
    "uuid=auto",
    "verity=off",
    "volatile",
    "default_permissions",
];

/// Where the layers of an overlay lie.
pub struct Layers {
    /// The lower ones, from the top down.
    pub lowers: Vec<Location>,
    /// The upper one.
    pub upper: Option<Location>,
    /// Their options, each with a comma before it, as `/proc/mounts` shows them.
    pub options: String,
}

/// Checks one option.
///
/// # Errors
/// `EINVAL` for one that is not known, or asks for what is not done.
pub fn check_option(option: &str) -> Result<(), Errno> {
    let has_value = |value: &str| !value.is_empty();
    let is_directory = match option.split_once('=') {
        Some(("lowerdir" | "lowerdir+" | "upperdir" | "workdir", value)) => has_value(value),
        _ => false,
    };
    let is_good = option.is_empty() || is_directory || NEUTRAL.contains(&option);
    if is_good { Ok(()) } else { Err(Errno::EINVAL) }
}

/// The names in a list with colons between them.
fn names(list: &str) -> Vec<String> {
    let mut names = Vec::from([String::new()]);
    let mut characters = list.chars();
    while let Some(character) = characters.next() {
        match (character, names.last_mut()) {
            (':', _) => names.push(String::new()),
            ('\\', Some(name)) => name.extend(characters.next()),
            (other, Some(name)) => name.push(other),
            (_, None) => {}
        }
    }
    names
}

impl Layers {
    /// Those that options name. `find` resolves a path.
    ///
    /// # Errors
    /// `EINVAL` when options are missing, contradict each other, or name an upper layer that is not in memory; `ENOTDIR`;
    /// those of `find`.
    pub fn parse(
        data: &str,
        mut find: impl FnMut(&str) -> Result<Location, Errno>,
    ) -> Result<Layers, Errno> {
        let mut lower_names = Vec::new();
        let (mut upper, mut work, mut options) = (None, None, String::new());
        for option in data.split(',').filter(|option| !option.is_empty()) {
            check_option(option)?;
            match option.split_once('=') {
                Some(("lowerdir", list)) => lower_names = names(list),
                Some(("lowerdir+", name)) => lower_names.push(String::from(name)),
                Some(("upperdir", name)) => upper = Some(name),
                Some(("workdir", name)) => work = Some(name),
                _ => {}
            }
        }
        if lower_names.iter().any(String::is_empty) {
            return Err(Errno::EINVAL);
        }
        let least = if upper.is_some() { 1 } else { 2 };
        if !(least..=MOST_LOWERS).contains(&lower_names.len()) || upper.is_some() != work.is_some()
        {
            // Linux takes a `workdir` alone for a slip and goes on; what it would be for is not known.
            return Err(Errno::EINVAL);
        }
        let mut directory = |name: &str| {
            let location = find(name)?;
            match location.inode.kind() {
                NodeKind::Directory => Ok(location),
                _ => Err(Errno::ENOTDIR),
            }
        };
        let mut lowers = Vec::new();
        options.push_str(",lowerdir=");
        for (index, name) in lower_names.iter().enumerate() {
            lowers.push(directory(name)?);
            let between = if index > 0 { ":" } else { "" };
            options.push_str(&format!("{between}{}", name.replace(':', "\\:")));
        }
        let upper = match (upper, work) {
            (Some(upper), Some(work)) => {
                options.push_str(&format!(",upperdir={upper},workdir={work}"));
                let (upper, work) = (directory(upper)?, directory(work)?);
                check_upper(&upper, &work)?;
                Some(upper)
            }
            _ => None,
        };
        Ok(Layers { lowers, upper, options })
    }
}

/// The upper layer and its work directory lie apart on one mount, in memory.
fn check_upper(upper: &Location, work: &Location) -> Result<(), Errno> {
    let is_one_mount = upper.mount.id() == work.mount.id();
    let contains = |one: &Location, other: &Location| mount::is_below(&one.inode, &other.inode);
    let is_in_memory = ["tmpfs", "ramfs"].contains(&upper.mount.file_system().type_name());
    let is_good = is_one_mount
        && is_in_memory
        && !upper.mount.is_read_only()
        && !contains(upper, work)
        && !contains(work, upper);
    if is_good { Ok(()) } else { Err(Errno::EINVAL) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colons_part_names_and_can_be_escaped() {
        assert_eq!(names("a:b"), ["a", "b"]);
        assert_eq!(names("a\\:b:c\\\\"), ["a:b", "c\\"]);
        assert_eq!(names("a::b"), ["a", "", "b"]);
    }

    #[test]
    fn options_that_ask_for_more_are_refused() {
        assert!(check_option("index=off").is_ok() && check_option("lowerdir=/a").is_ok());
        for option in ["index=on", "metacopy=on", "lowerdir", "upperdir=", "size=1"] {
            assert_eq!(check_option(option), Err(Errno::EINVAL), "{option}");
        }
    }
}
