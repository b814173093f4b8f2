//! `add_key`, `request_key` and `keyctl`.

use abi::Errno;
use abi::fs::PATH_MAX;
use alloc::vec::Vec;

use crate::call::{Call, SysResult};
use crate::memory::PAGE;
use crate::process::Capability;
use crate::process::keys::{self, Found, Kind, Lookup, NewKey, Wish, lookup, rights, store};

const GET_KEYRING_ID: i32 = 0;
const JOIN_SESSION: i32 = 1;
const UPDATE: i32 = 2;
const REVOKE: i32 = 3;
const CHOWN: i32 = 4;
const SETPERM: i32 = 5;
const DESCRIBE: i32 = 6;
const CLEAR: i32 = 7;
const LINK: i32 = 8;
const UNLINK: i32 = 9;
const SEARCH: i32 = 10;
const READ: i32 = 11;
const INSTANTIATE: i32 = 12;
const NEGATE: i32 = 13;
const SET_DESTINATION: i32 = 14;
const SET_TIMEOUT: i32 = 15;
const ASSUME_AUTHORITY: i32 = 16;
const GET_SECURITY: i32 = 17;
const SESSION_TO_PARENT: i32 = 18;
const REJECT: i32 = 19;
const INVALIDATE: i32 = 21;
const RESTRICT: i32 = 29;
const MOVE: i32 = 30;
const CAPABILITIES: i32 = 31;

/// Most bytes of content that a call takes.
const LONGEST_CONTENT: u64 = (1 << 20) - 1;
/// Most bytes of the content of a key.
const LONGEST_KEY: usize = 32767;
/// Bytes of the name of a kind, with its zero.
const KIND_SIZE: usize = 32;
/// `KEYCTL_MOVE`: not in place of another.
const EXCLUSIVELY: u32 = 1;
/// No change of where requested keys go.
const NO_CHANGE: i32 = -1;
/// What there is: rights by possession, keys made invalid, restricted and moved.
const ABILITIES: [u8; 2] = [0x01 | 0x20 | 0x40 | 0x80, 0];

fn good(right: u32) -> Lookup {
    Lookup { wish: Wish::Good, right }
}

fn made(right: u32) -> Lookup {
    Lookup { wish: Wish::Make, right }
}

fn any(right: u32) -> Lookup {
    Lookup { wish: Wish::Any, right }
}

fn number(key: i32) -> SysResult {
    Ok(u64::from(key.unsigned_abs()))
}

/// A string; `EINVAL` when it is too long.
async fn string(call: &Call, index: usize, size: usize) -> Result<Vec<u8>, Errno> {
    call.user().read_string(call.argument(index), size).await.map_err(|error| match error {
        Errno::ENAMETOOLONG => Errno::EINVAL,
        error => error,
    })
}

async fn kind_name(call: &Call, index: usize) -> Result<Vec<u8>, Errno> {
    let name = string(call, index, KIND_SIZE).await?;
    match name.first() {
        None => Err(Errno::EINVAL),
        Some(b'.') => Err(Errno::EPERM),
        Some(_) => Ok(name),
    }
}

async fn content(call: &Call, address: u64, length: u64) -> Result<Vec<u8>, Errno> {
    let length = usize::try_from(length).map_err(|_| Errno::EINVAL)?;
    if length == 0 { Ok(Vec::new()) } else { call.user().read_vector(address, length).await }
}

/// Checks content for a kind.
fn check_content(kind: Kind, content: &[u8]) -> Result<(), Errno> {
    let fits = match kind {
        Kind::Keyring => content.is_empty(),
        Kind::User | Kind::Logon => (1..=LONGEST_KEY).contains(&content.len()),
    };
    if fits { Ok(()) } else { Err(Errno::EINVAL) }
}

/// `add_key(type, description, content, length, keyring)`
pub async fn add_key(call: &Call) -> SysResult {
    let length = call.argument(3);
    if length > LONGEST_CONTENT {
        return Err(Errno::EINVAL);
    }
    let kind = kind_name(call, 0).await?;
    let description =
        if call.argument(1) == 0 { Vec::new() } else { string(call, 1, PATH_MAX).await? };
    if description.first() == Some(&b'.') && kind.starts_with(b"keyring") {
        return Err(Errno::EPERM);
    }
    let content = content(call, call.argument(2), length).await?;
    let ring = lookup(&call.thread, call.int(4), made(rights::WRITE))?;
    let kind = Kind::of_name(&kind).ok_or(Errno::ENODEV)?;
    let who = call.thread.credentials();
    let mut keys = store();
    keys.ring(ring.number)?;
    check_content(kind, &content)?;
    if description.is_empty() {
        return Err(Errno::EINVAL);
    }
    if kind != Kind::Keyring
        && let Some(known) = keys.linked(ring.number, kind, &description)
    {
        let key = keys.get(known)?;
        if key.check() != Err(Errno::EKEYREVOKED) {
            if !keys.permits(key, &who, ring.is_possessed, rights::WRITE) {
                return Err(Errno::EACCES);
            }
            keys.update(known, content)?;
            return number(known);
        }
    }
    if keys.ring(ring.number)?.is_restricted {
        return Err(Errno::EPERM);
    }
    let (user, group) = (who.user.file, who.group.file);
    let rights = kind.first_rights();
    let new = NewKey { kind, description, user, group, rights, content, is_counted: true };
    let made = keys.make(new)?;
    if let Err(error) = keys.link(ring.number, made) {
        keys.discard(made);
        return Err(error);
    }
    number(made)
}

/// `request_key(type, description, information, keyring)`
pub async fn request_key(call: &Call) -> SysResult {
    let kind = kind_name(call, 0).await?;
    let description = string(call, 1, PATH_MAX).await?;
    if call.argument(2) != 0 {
        string(call, 2, PAGE as usize).await?;
    }
    let destination = match call.int(3) {
        0 => None,
        id => Some(lookup(&call.thread, id, made(rights::WRITE))?),
    };
    let kind = Kind::of_name(&kind).ok_or(Errno::ENOKEY)?;
    let found = keys::request(&call.thread, kind, &description)?;
    if let Some(ring) = destination {
        store().link(ring.number, found)?;
    }
    number(found)
}

/// `keyctl(operation, ...)`
pub async fn keyctl(call: &Call) -> SysResult {
    let id = call.int(1);
    let find = |id, how| lookup(&call.thread, id, how);
    match call.int(0) {
        GET_KEYRING_ID => {
            let wish = if call.int(2) != 0 { Wish::Make } else { Wish::Good };
            number(find(id, Lookup { wish, right: rights::SEARCH })?.number)
        }
        JOIN_SESSION => join_session(call).await,
        UPDATE => update(call).await,
        REVOKE => {
            let found = match find(id, good(rights::WRITE)) {
                Err(Errno::EACCES) => find(id, good(rights::SET_ATTRIBUTES))?,
                found => found?,
            };
            store().revoke(found.number).map(|()| 0)
        }
        CHOWN => chown(call),
        SETPERM => set_rights(call),
        DESCRIBE => describe(call).await,
        CLEAR => {
            let ring = find(id, made(rights::WRITE))?;
            store().clear(ring.number).map(|()| 0)
        }
        LINK => {
            let ring = find(call.int(2), made(rights::WRITE))?;
            let key = find(id, made(rights::LINK))?;
            store().link(ring.number, key.number).map(|()| 0)
        }
        UNLINK => {
            let ring = find(call.int(2), good(rights::WRITE))?;
            let key = find(id, Lookup { wish: Wish::Any, right: 0 })?;
            store().unlink(ring.number, key.number).map(|()| 0)
        }
        SEARCH => search(call).await,
        READ => read(call).await,
        // Nobody instantiates keys, since none are made on request.
        INSTANTIATE if call.argument(3) > LONGEST_CONTENT => Err(Errno::EINVAL),
        REJECT if !(1..4095).contains(&call.unsigned(3)) => Err(Errno::EINVAL),
        INSTANTIATE | NEGATE | REJECT | SESSION_TO_PARENT => Err(Errno::EPERM),
        SET_DESTINATION => set_destination(call),
        SET_TIMEOUT => {
            let found = find(id, any(rights::SET_ATTRIBUTES))?;
            let seconds = u64::from(call.unsigned(2));
            let expiry_ns = base::time::wall_ns().saturating_add(seconds * 1_000_000_000);
            store().get_mut(found.number)?.expires_ns = (seconds > 0).then_some(expiry_ns);
            Ok(0)
        }
        ASSUME_AUTHORITY if id < 0 => Err(Errno::EINVAL),
        ASSUME_AUTHORITY => {
            if id == 0 {
                Ok(0)
            } else {
                Err(Errno::ENOKEY)
            }
        }
        GET_SECURITY => {
            find(id, any(rights::VIEW))?;
            if call.argument(2) != 0 && call.argument(3) > 0 {
                call.user().write_value(call.argument(2), &0_u8).await?;
            }
            Ok(1)
        }
        INVALIDATE => {
            let found = find(id, good(rights::SEARCH))?;
            store().invalidate(found.number).map(|()| 0)
        }
        RESTRICT => restrict(call).await,
        MOVE => move_key(call),
        CAPABILITIES => {
            let length = usize::try_from(call.argument(2)).unwrap_or(usize::MAX);
            let known = ABILITIES.get(..length.min(ABILITIES.len())).unwrap_or_default();
            call.user().write_bytes(call.argument(1), known).await?;
            if let Some(rest) = length.checked_sub(ABILITIES.len()).filter(|rest| *rest > 0) {
                let at = call.argument(1).wrapping_add(ABILITIES.len() as u64);
                call.user().write_zeros(at, rest as u64).await?;
            }
            Ok(ABILITIES.len() as u64)
        }
        _ => Err(Errno::EOPNOTSUPP),
    }
}

async fn join_session(call: &Call) -> SysResult {
    if call.argument(1) == 0 {
        return number(keys::join_session(&call.thread, None)?);
    }
    let name = string(call, 1, PATH_MAX).await?;
    if name.first() == Some(&b'.') {
        return Err(Errno::EPERM);
    }
    number(keys::join_session(&call.thread, Some(&name))?)
}

async fn update(call: &Call) -> SysResult {
    let length = call.argument(3);
    if length > PAGE {
        return Err(Errno::EINVAL);
    }
    let content = content(call, call.argument(2), length).await?;
    let found = lookup(&call.thread, call.int(1), good(rights::WRITE))?;
    let mut keys = store();
    let kind = keys.get(found.number)?.kind;
    if kind == Kind::Keyring {
        return Err(Errno::EOPNOTSUPP);
    }
    check_content(kind, &content)?;
    keys.update(found.number, content).map(|()| 0)
}

fn chown(call: &Call) -> SysResult {
    let (user, group) = (call.unsigned(2), call.unsigned(3));
    if user == u32::MAX && group == u32::MAX {
        return Ok(0);
    }
    let found = lookup(&call.thread, call.int(1), any(rights::SET_ATTRIBUTES))?;
    let who = call.thread.credentials();
    let mut keys = store();
    let key = keys.get_mut(found.number)?;
    if !who.is_capable(Capability::Administer) {
        let in_group = who.group.file == group || who.groups.contains(&group);
        let keeps_user = user == u32::MAX || user == key.user;
        let keeps_group = group == u32::MAX || group == key.group || in_group;
        if !keeps_user || !keeps_group {
            return Err(Errno::EACCES);
        }
    }
    if user != u32::MAX {
        keys.give_to(found.number, user)?;
    }
    if group != u32::MAX {
        keys.get_mut(found.number)?.group = group;
    }
    Ok(0)
}

fn set_rights(call: &Call) -> SysResult {
    let wanted = call.unsigned(2);
    if wanted & !rights::ALL != 0 {
        return Err(Errno::EINVAL);
    }
    let found = lookup(&call.thread, call.int(1), any(rights::SET_ATTRIBUTES))?;
    let who = call.thread.credentials();
    let mut keys = store();
    let key = keys.get_mut(found.number)?;
    if !who.is_capable(Capability::Administer) && key.user != who.user.file {
        return Err(Errno::EACCES);
    }
    key.rights = wanted;
    Ok(0)
}

/// Writes an answer if there is room for all of it; gives its length.
async fn give(call: &Call, answer: &[u8]) -> SysResult {
    let (address, room) = (call.argument(2), call.argument(3));
    if address != 0 && room >= answer.len() as u64 {
        call.user().write_bytes(address, answer).await?;
    }
    Ok(answer.len() as u64)
}

async fn describe(call: &Call) -> SysResult {
    let found = lookup(&call.thread, call.int(1), any(rights::VIEW))?;
    let mut text = {
        let keys = store();
        let key = keys.get(found.number)?;
        let (user, group) = (key.user.cast_signed(), key.group.cast_signed());
        let head = alloc::format!("{};{user};{group};{:08x};", key.kind.name(), key.rights);
        let mut text = head.into_bytes();
        text.extend_from_slice(&key.description);
        text
    };
    text.push(0);
    give(call, &text).await
}

async fn search(call: &Call) -> SysResult {
    let kind = kind_name(call, 2).await?;
    let description = string(call, 3, PATH_MAX).await?;
    let ring = lookup(&call.thread, call.int(1), good(rights::SEARCH))?;
    let destination = match call.int(4) {
        0 => None,
        id => Some(lookup(&call.thread, id, made(rights::WRITE))?),
    };
    let kind = Kind::of_name(&kind).ok_or(Errno::ENOKEY)?;
    let found = keys::search(&call.thread, ring, kind, &description)?;
    if let Some(destination) = destination {
        let who = call.thread.credentials();
        let mut keys = store();
        let key = keys.get(found)?;
        if !keys.permits(key, &who, ring.is_possessed, rights::LINK) {
            return Err(Errno::EACCES);
        }
        keys.link(destination.number, found)?;
    }
    number(found)
}

async fn read(call: &Call) -> SysResult {
    let found = lookup(&call.thread, call.int(1), good(0))?;
    let who = call.thread.credentials();
    let answer = {
        let keys = store();
        let key = keys.get(found.number)?;
        // Who possesses it and may find it may read it too.
        if !keys.permits(key, &who, found.is_possessed, rights::READ) && !found.is_possessed {
            return Err(Errno::EACCES);
        }
        match key.kind {
            Kind::User => key.content.clone(),
            Kind::Logon => return Err(Errno::EOPNOTSUPP),
            Kind::Keyring => key.links.iter().flat_map(|link| link.to_ne_bytes()).collect(),
        }
    };
    give(call, &answer).await
}

fn set_destination(call: &Call) -> SysResult {
    let wanted = call.int(1);
    let old = call.thread.credentials();
    let before = u64::from(old.keys.destination.unsigned_abs());
    match wanted {
        NO_CHANGE => return Ok(before),
        // Those of the thread and of the process are made for it.
        1 | 2 => drop(lookup(&call.thread, -wanted, made(0))?),
        0 | 3..=5 | 7 => {}
        _ => return Err(Errno::EINVAL),
    }
    let mut new = (*call.thread.credentials()).clone();
    new.keys.destination = wanted;
    call.thread.set_credentials(new);
    Ok(before)
}

async fn restrict(call: &Call) -> SysResult {
    let found = lookup(&call.thread, call.int(1), good(rights::SET_ATTRIBUTES))?;
    if call.argument(2) == 0 {
        if call.argument(3) != 0 {
            return Err(Errno::EINVAL);
        }
    } else {
        kind_name(call, 2).await?;
        if call.argument(3) == 0 {
            return Err(Errno::EINVAL);
        }
        string(call, 3, PAGE as usize).await?;
        // No kind of key here restricts keyrings.
        return Err(Errno::ENOENT);
    }
    let mut keys = store();
    if keys.ring(found.number)?.is_restricted {
        return Err(Errno::EEXIST);
    }
    keys.get_mut(found.number)?.is_restricted = true;
    Ok(0)
}

fn move_key(call: &Call) -> SysResult {
    let flags = call.unsigned(4);
    if flags & !EXCLUSIVELY != 0 {
        return Err(Errno::EINVAL);
    }
    let find = |index, how| lookup(&call.thread, call.int(index), how);
    let Found { number: key, .. } = find(1, made(rights::LINK))?;
    let Found { number: from, .. } = find(2, good(rights::WRITE))?;
    let Found { number: to, .. } = find(3, made(rights::WRITE))?;
    let mut keys = store();
    keys.ring(from)?;
    keys.ring(to)?;
    if from == to {
        return Ok(0);
    }
    if !keys.ring(from)?.links.contains(&key) {
        return Err(Errno::ENOENT);
    }
    let moved = keys.get(key)?;
    let is_taken = keys.linked(to, moved.kind, &moved.description).is_some();
    if is_taken && flags & EXCLUSIVELY != 0 {
        return Err(Errno::EEXIST);
    }
    keys.link(to, key)?;
    keys.unlink(from, key).map(|()| 0)
}
