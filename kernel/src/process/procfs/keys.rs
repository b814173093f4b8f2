//! `/proc/keys` and `/proc/key-users`.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use abi::Errno;
use fs::Identity;
use fs::pseudo::{Content, Entry};

use super::{Text, put};
use crate::process::keys::{self, Key, Kind, rights};
use crate::process::{Tid, table};

struct List;

/// The keys that the reader may see.
pub(super) fn list(number: u64) -> Entry {
    Entry::file(number, Arc::new(List))
}

/// What each user has.
pub(super) fn users(number: u64) -> Entry {
    Entry::file(number, Arc::new(usage))
}

/// How long a key is good, as `keyctl` shows it.
fn time_left(key: &Key) -> String {
    let Some(expiry_ns) = key.expires_ns else { return String::from("perm") };
    let left = expiry_ns.saturating_sub(base::time::wall_ns()).div_ceil(1_000_000_000);
    match left {
        0 => String::from("expd"),
        1..60 => alloc::format!("{left}s"),
        60..3600 => alloc::format!("{}m", left / 60),
        3600..86400 => alloc::format!("{}h", left / 3600),
        86400..604_800 => alloc::format!("{}d", left / 86400),
        _ => alloc::format!("{}w", left / 604_800),
    }
}

fn line(text: &mut Text, number: i32, key: &Key) {
    let flag = |is_set: bool, letter: char| if is_set { letter } else { '-' };
    let left = time_left(key);
    put!(*text, "{number:08x} I{}-", flag(key.is_revoked, 'R'));
    put!(*text, "{}--{} ", flag(key.is_counted(), 'Q'), flag(key.is_invalid, 'i'));
    put!(*text, "{:5} {left:>4} {:08x} ", key.uses, key.rights);
    put!(*text, "{:5} {:5} ", key.user, key.group.cast_signed());
    put!(*text, "{:<9} ", key.kind.name());
    text.bytes(&key.description);
    match key.kind {
        Kind::Keyring if key.links.is_empty() => put!(*text, ": empty\n"),
        Kind::Keyring => put!(*text, ": {}\n", key.links.len()),
        Kind::User | Kind::Logon => put!(*text, ": {}\n", key.content.len()),
    }
}

impl Content for List {
    fn generate(&self, opener: &Identity) -> Result<Vec<u8>, Errno> {
        let mut text = Text::default();
        let Some(thread) = table::thread(Tid(opener.thread)) else { return Ok(text.0) };
        let who = thread.credentials();
        let keys = keys::store();
        for (number, key) in keys.all() {
            let is_possessed = keys.is_possessed(number, &who);
            if keys.permits(key, &who, is_possessed, rights::VIEW) {
                line(&mut text, number, key);
            }
        }
        drop(keys);
        Ok(text.0)
    }
}

fn usage() -> Result<Vec<u8>, Errno> {
    let mut text = Text::default();
    for (user, usage) in keys::store().usage() {
        let (most_keys, most_bytes) = keys::LIMITS.of_user(user);
        put!(text, "{user:5}: {:5} {}/{} ", usage.all, usage.all, usage.all);
        put!(text, "{}/{most_keys} {}/{most_bytes}\n", usage.keys, usage.bytes);
    }
    Ok(text.0)
}
