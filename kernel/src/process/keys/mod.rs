//! Keys and keyrings (`add_key`, `keyctl`): small secrets that threads and users share by name.
//!
//! ```text
//! credentials ── Anchors: thread, process, session ──> keyring ──> key, keyring ──> …
//! user ──> _uid.N, _uid_ses.N
//! ```
//!
//! One lock (`STORE`) guards all keys. A key lives as long as an anchor or a keyring refers to it. Whoever
//! finds a key through keyrings of its own *possesses* it, and has the rights of possessors besides those of
//! its owner, group or others. What keys and links take counts against the quota of their owner.
//!
//! Types are `user`, `logon` and `keyring`. Left out: keys that a program in user mode makes on request, so
//! a key that is not there is not there; types with cryptography; watching keys.

mod search;

use abi::Errno;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use base::heap::tree;
use base::sync::{Mutex, MutexGuard, rank};
use core::sync::atomic::{AtomicU64, Ordering};

pub use search::{Found, Lookup, Wish, join_session, lookup, request, search};

/// Rights, as each of possessor, owner, group and others has them.
pub mod rights {
    /// See that it is there, and its attributes.
    pub const VIEW: u32 = 0x01;
    /// Read its content.
    pub const READ: u32 = 0x02;
    /// Change its content.
    pub const WRITE: u32 = 0x04;
    /// Find it, and look through it.
    pub const SEARCH: u32 = 0x08;
    /// Link it to keyrings.
    pub const LINK: u32 = 0x10;
    /// Change its attributes.
    pub const SET_ATTRIBUTES: u32 = 0x20;
    /// All of them, for all.
    pub const ALL: u32 = 0x3f3f_3f3f;
}

/// Rights of a new keyring of a thread or process.
const OWN_RING: u32 = 0x3f01_0000;
/// Rights of a new session without a name.
const SESSION_RING: u32 = 0x3f03_0000;
/// Rights of a new session with a name.
const NAMED_SESSION_RING: u32 = 0x3f13_0000;
/// Rights of the keyrings of a user.
const USER_RING: u32 = 0x1f3f_0000;

/// Bytes of quota that a link takes.
const LINK_BYTES: u64 = 4;
/// Keyrings in keyrings that a search looks through.
const DEEPEST: usize = 6;

/// `/proc/sys/kernel/keys`: most keys and bytes of an ordinary user and of the superuser.
pub struct Limits {
    /// Keys.
    pub keys: AtomicU64,
    /// Bytes of content, names and links.
    pub bytes: AtomicU64,
    /// Keys of the superuser.
    pub root_keys: AtomicU64,
    /// Bytes of the superuser.
    pub root_bytes: AtomicU64,
}

/// The limits in force.
pub static LIMITS: Limits = Limits {
    keys: AtomicU64::new(200),
    bytes: AtomicU64::new(20_000),
    root_keys: AtomicU64::new(1_000_000),
    root_bytes: AtomicU64::new(25_000_000),
};

impl Limits {
    /// Most keys and bytes of a user.
    pub fn of_user(&self, user: u32) -> (u64, u64) {
        let (keys, bytes) = match user {
            0 => (&self.root_keys, &self.root_bytes),
            _ => (&self.keys, &self.bytes),
        };
        (keys.load(Ordering::Relaxed), bytes.load(Ordering::Relaxed))
    }
}

/// What a key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Bytes.
    User,
    /// Bytes that no program can read.
    Logon,
    /// Links to other keys.
    Keyring,
}

impl Kind {
    /// The kind of a name.
    pub fn of_name(name: &[u8]) -> Option<Kind> {
        [Kind::User, Kind::Logon, Kind::Keyring]
            .into_iter()
            .find(|kind| kind.name().as_bytes() == name)
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::User => "user",
            Kind::Logon => "logon",
            Kind::Keyring => "keyring",
        }
    }

    /// Rights of a key of this kind that `add_key` makes.
    pub const fn first_rights(self) -> u32 {
        match self {
            Kind::Logon => 0x3d01_0000,
            Kind::User | Kind::Keyring => 0x3f01_0000,
        }
    }
}

/// A key.
#[derive(Debug)]
pub struct Key {
    /// What it is.
    pub kind: Kind,
    /// Its name.
    pub description: Vec<u8>,
    /// Owner.
    pub user: u32,
    /// Group.
    pub group: u32,
    /// Rights.
    pub rights: u32,
    /// Content of a key that is no keyring.
    pub content: Vec<u8>,
    /// What a keyring links to.
    pub links: Vec<i32>,
    /// Anchors and keyrings that refer to it.
    pub uses: u32,
    /// It was revoked.
    pub is_revoked: bool,
    /// It was made invalid: it is found no more.
    pub is_invalid: bool,
    /// A keyring that takes no more links.
    pub is_restricted: bool,
    /// When it expires, on the wall clock.
    pub expires_ns: Option<u64>,
    is_counted: bool,
}

impl Key {
    /// `EKEYREVOKED`, `EKEYEXPIRED` or `ENOKEY` when it is not good any more.
    pub fn check(&self) -> Result<(), Errno> {
        if self.is_invalid {
            return Err(Errno::ENOKEY);
        }
        if self.is_revoked {
            return Err(Errno::EKEYREVOKED);
        }
        if self.expires_ns.is_some_and(|expiry| expiry <= base::time::wall_ns()) {
            return Err(Errno::EKEYEXPIRED);
        }
        Ok(())
    }

    /// Whether it counts against the quota of its owner.
    pub fn is_counted(&self) -> bool {
        self.is_counted
    }

    /// Bytes of quota that it takes.
    fn bytes(&self) -> u64 {
        (self.description.len() + 1 + self.content.len()) as u64
            + self.links.len() as u64 * LINK_BYTES
    }
}

/// What one user has.
#[derive(Clone, Copy, Default, Debug)]
pub struct Usage {
    /// Keys, those that do not count included.
    pub all: u64,
    /// Keys that count.
    pub keys: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// All keys.
pub struct Store {
    keys: BTreeMap<i32, Key>,
    usage: BTreeMap<u32, Usage>,
    /// The two keyrings of each user who has asked for them.
    users: BTreeMap<u32, [i32; 2]>,
}

static STORE: Mutex<Store> = Mutex::new(
    &rank::KEYS,
    Store { keys: BTreeMap::new(), usage: BTreeMap::new(), users: BTreeMap::new() },
);

/// The keys, locked.
pub fn store() -> MutexGuard<'static, Store> {
    STORE.lock()
}

/// A reference to a key from outside of the keyrings.
#[derive(Clone, Debug)]
pub struct Anchor(Arc<Held>);

#[derive(Debug)]
struct Held(i32);

impl Drop for Held {
    fn drop(&mut self) {
        store().release(self.0);
    }
}

impl Anchor {
    /// Number of the key.
    pub fn number(&self) -> i32 {
        self.0.0
    }
}

/// Where the keyrings of a thread begin.
#[derive(Clone, Default, Debug)]
pub struct Anchors {
    /// Its own.
    pub thread: Option<Anchor>,
    /// That of its process.
    pub process: Option<Anchor>,
    /// That of its session, which children inherit.
    pub session: Option<Anchor>,
    /// Where requested keys go by default.
    pub destination: i32,
}

impl Anchors {
    /// What a child or a new program keeps: the session; a new thread the process as well.
    pub fn inherit(&self, stays_in_process: bool) -> Anchors {
        Anchors {
            thread: None,
            process: self.process.clone().filter(|_| stays_in_process),
            session: self.session.clone(),
            destination: self.destination,
        }
    }
}

/// A key to be made.
pub struct NewKey {
    /// What it is.
    pub kind: Kind,
    /// Its name.
    pub description: Vec<u8>,
    /// Owner.
    pub user: u32,
    /// Group.
    pub group: u32,
    /// Rights.
    pub rights: u32,
    /// Content.
    pub content: Vec<u8>,
    /// It counts against the quota of its owner.
    pub is_counted: bool,
}

impl Store {
    /// The key of a number. `ENOKEY` when there is none.
    pub fn get(&self, number: i32) -> Result<&Key, Errno> {
        self.keys.get(&number).ok_or(Errno::ENOKEY)
    }

    /// The same, to be changed; not what its quota depends on.
    pub fn get_mut(&mut self, number: i32) -> Result<&mut Key, Errno> {
        self.keys.get_mut(&number).ok_or(Errno::ENOKEY)
    }

    /// The keyring of a number. `ENOTDIR` when it is none.
    pub fn ring(&self, number: i32) -> Result<&Key, Errno> {
        let key = self.get(number)?;
        if key.kind == Kind::Keyring { Ok(key) } else { Err(Errno::ENOTDIR) }
    }

    /// All keys with their numbers.
    pub fn all(&self) -> impl Iterator<Item = (i32, &Key)> {
        self.keys.iter().map(|(number, key)| (*number, key))
    }

    /// What each user has.
    pub fn usage(&self) -> impl Iterator<Item = (u32, Usage)> {
        self.usage.iter().map(|(user, usage)| (*user, *usage)).filter(|(_, usage)| usage.all > 0)
    }

    /// Room for `keys` and `bytes` of a user. `EDQUOT` when there is none.
    fn reserve(&mut self, user: u32, keys: u64, bytes: u64) -> Result<(), Errno> {
        let usage = tree::get_or_insert(&mut self.usage, user, Usage::default);
        let (most_keys, most_bytes) = LIMITS.of_user(user);
        if usage.keys + keys > most_keys || usage.bytes.saturating_add(bytes) > most_bytes {
            return Err(Errno::EDQUOT);
        }
        usage.keys += keys;
        usage.bytes += bytes;
        Ok(())
    }

    fn give_back(&mut self, user: u32, keys: u64, bytes: u64) {
        if let Some(usage) = self.usage.get_mut(&user) {
            usage.keys = usage.keys.saturating_sub(keys);
            usage.bytes = usage.bytes.saturating_sub(bytes);
        }
    }

    /// Makes a key that nobody refers to yet: the caller links or anchors it at once.
    ///
    /// # Errors
    /// `EINVAL` for a name that the kind does not take, `EDQUOT`.
    pub fn make(&mut self, new: NewKey) -> Result<i32, Errno> {
        let NewKey { kind, description, user, group, rights, content, is_counted } = new;
        let colon = description.iter().position(|byte| *byte == b':');
        if description.is_empty() || (kind == Kind::Logon && colon.is_none_or(|at| at == 0)) {
            return Err(Errno::EINVAL);
        }
        let key = Key {
            kind,
            description,
            user,
            group,
            rights,
            content,
            links: Vec::new(),
            uses: 0,
            is_revoked: false,
            is_invalid: false,
            is_restricted: false,
            expires_ns: None,
            is_counted,
        };
        if is_counted {
            self.reserve(user, 1, key.bytes())?;
        }
        let number = loop {
            let number = (base::random::next_u64() >> 34) as i32;
            if number > 2 && !self.keys.contains_key(&number) {
                break number;
            }
        };
        tree::get_or_insert(&mut self.usage, user, Usage::default).all += 1;
        tree::insert(&mut self.keys, number, key);
        Ok(number)
    }

    /// A reference from outside.
    pub fn anchor(&mut self, number: i32) -> Anchor {
        if let Some(key) = self.keys.get_mut(&number) {
            key.uses += 1;
        }
        Anchor(Arc::new(Held(number)))
    }

    /// One reference less; keys that nobody refers to end.
    fn release(&mut self, number: i32) {
        let mut released = Vec::new();
        released.push(number);
        while let Some(number) = released.pop() {
            let Some(key) = self.keys.get_mut(&number) else { continue };
            key.uses = key.uses.saturating_sub(1);
            if key.uses == 0
                && let Some(key) = self.keys.remove(&number)
            {
                self.forget(&key);
                released.extend(&key.links);
            }
        }
    }

    /// The key has ended: its owner has it no more.
    fn forget(&mut self, key: &Key) {
        if key.is_counted {
            self.give_back(key.user, 1, key.bytes());
        }
        if let Some(usage) = self.usage.get_mut(&key.user) {
            usage.all = usage.all.saturating_sub(1);
        }
    }

    /// Drops a new key that was not linked after all.
    pub fn discard(&mut self, number: i32) {
        if self.keys.get(&number).is_some_and(|key| key.uses == 0)
            && let Some(key) = self.keys.remove(&number)
        {
            self.forget(&key);
        }
    }

    /// The link of a keyring to a key of this kind and name.
    pub fn linked(&self, ring: i32, kind: Kind, description: &[u8]) -> Option<i32> {
        let ring = self.keys.get(&ring)?;
        ring.links.iter().copied().find(|link| {
            self.keys.get(link).is_some_and(|key| {
                key.kind == kind && key.description == description && !key.is_invalid
            })
        })
    }

    /// Links a key to a keyring, in place of one of the same kind and name.
    ///
    /// # Errors
    /// `ENOTDIR`, `EKEYREVOKED`, `EPERM` for a restricted keyring, `EDEADLK` for a cycle, `ELOOP` when keyrings are
    /// too deep, `EDQUOT`, `ENOMEM`.
    pub fn link(&mut self, ring: i32, key: i32) -> Result<(), Errno> {
        let target = self.ring(ring)?;
        target.check()?;
        if target.is_restricted {
            return Err(Errno::EPERM);
        }
        let (owner, is_counted) = (target.user, target.is_counted);
        let linked = self.get(key)?;
        if linked.kind == Kind::Keyring {
            self.check_cycle(ring, key)?;
        }
        let linked = self.get(key)?;
        let former = self.linked(ring, linked.kind, &linked.description);
        if former == Some(key) {
            return Ok(());
        }
        if former.is_none() && is_counted {
            self.reserve(owner, 0, LINK_BYTES)?;
        }
        let target = self.get_mut(ring)?;
        if target.links.try_reserve(1).is_err() {
            return Err(Errno::ENOMEM);
        }
        match former.and_then(|former| target.links.iter_mut().find(|link| **link == former)) {
            Some(place) => *place = key,
            None => target.links.push(key),
        }
        self.get_mut(key)?.uses += 1;
        if let Some(former) = former {
            self.release(former);
        }
        Ok(())
    }

    /// `EDEADLK` when `ring` can be reached from `from`, `ELOOP` when that is too deep to say.
    fn check_cycle(&self, ring: i32, from: i32) -> Result<(), Errno> {
        let mut waiting = Vec::new();
        waiting.push((from, 0));
        while let Some((number, depth)) = waiting.pop() {
            if number == ring {
                return Err(Errno::EDEADLK);
            }
            if depth >= DEEPEST {
                return Err(Errno::ELOOP);
            }
            if let Some(key) = self.keys.get(&number) {
                let rings = key.links.iter().filter(|link| self.ring(**link).is_ok());
                waiting.extend(rings.map(|link| (*link, depth + 1)));
            }
        }
        Ok(())
    }

    /// Takes a link away. `ENOENT` when there is none.
    pub fn unlink(&mut self, ring: i32, key: i32) -> Result<(), Errno> {
        self.ring(ring)?;
        let target = self.get_mut(ring)?;
        let place = target.links.iter().position(|link| *link == key).ok_or(Errno::ENOENT)?;
        target.links.remove(place);
        let (owner, is_counted) = (target.user, target.is_counted);
        if is_counted {
            self.give_back(owner, 0, LINK_BYTES);
        }
        self.release(key);
        Ok(())
    }

    /// Takes all links of a keyring away. `ENOTDIR` when it is none.
    pub fn clear(&mut self, ring: i32) -> Result<(), Errno> {
        self.ring(ring)?;
        let target = self.get_mut(ring)?;
        let links = core::mem::take(&mut target.links);
        let (owner, is_counted) = (target.user, target.is_counted);
        if is_counted {
            self.give_back(owner, 0, links.len() as u64 * LINK_BYTES);
        }
        links.into_iter().for_each(|link| self.release(link));
        Ok(())
    }

    /// Gives a key new content. `EDQUOT` when its owner has no room for it.
    pub fn update(&mut self, number: i32, content: Vec<u8>) -> Result<(), Errno> {
        let key = self.get(number)?;
        let (owner, before, is_counted) = (key.user, key.content.len() as u64, key.is_counted);
        let after = content.len() as u64;
        if is_counted {
            if after > before {
                self.reserve(owner, 0, after - before)?;
            } else {
                self.give_back(owner, 0, before - after);
            }
        }
        let key = self.get_mut(number)?;
        key.content = content;
        key.expires_ns = None;
        Ok(())
    }

    /// Gives a key to another user. `EDQUOT` when that one has no room for it.
    pub fn give_to(&mut self, number: i32, user: u32) -> Result<(), Errno> {
        let key = self.get(number)?;
        let (owner, bytes, is_counted) = (key.user, key.bytes(), key.is_counted);
        if owner == user {
            return Ok(());
        }
        if is_counted {
            self.reserve(user, 1, bytes)?;
            self.give_back(owner, 1, bytes);
        }
        if let Some(usage) = self.usage.get_mut(&owner) {
            usage.all = usage.all.saturating_sub(1);
        }
        tree::get_or_insert(&mut self.usage, user, Usage::default).all += 1;
        self.get_mut(number)?.user = user;
        Ok(())
    }

    /// Revokes a key: its content is gone, and whoever finds it is told.
    pub fn revoke(&mut self, number: i32) -> Result<(), Errno> {
        let key = self.get_mut(number)?;
        key.is_revoked = true;
        match key.kind {
            Kind::Keyring => self.clear(number),
            _ => self.update(number, Vec::new()),
        }
    }

    /// Makes a key invalid: it leaves all keyrings.
    pub fn invalidate(&mut self, number: i32) -> Result<(), Errno> {
        self.get_mut(number)?.is_invalid = true;
        let rings: Vec<i32> = self
            .keys
            .iter()
            .filter(|(_, key)| key.links.contains(&number))
            .map(|(ring, _)| *ring)
            .collect();
        rings.into_iter().try_for_each(|ring| self.unlink(ring, number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(kind: Kind, name: &[u8], content: &[u8]) -> NewKey {
        NewKey {
            kind,
            description: name.to_vec(),
            user: 77_777,
            group: 0,
            rights: kind.first_rights(),
            content: content.to_vec(),
            is_counted: true,
        }
    }

    fn empty() -> Store {
        Store { keys: BTreeMap::new(), usage: BTreeMap::new(), users: BTreeMap::new() }
    }

    #[test]
    fn what_ends_gives_its_quota_back() {
        let mut store = empty();
        let ring = store.make(new(Kind::Keyring, b"ring", b"")).unwrap();
        store.get_mut(ring).unwrap().uses = 1;
        let inner = store.make(new(Kind::Keyring, b"inner", b"")).unwrap();
        let key = store.make(new(Kind::User, b"key", b"12345")).unwrap();
        store.link(inner, key).unwrap();
        store.link(ring, inner).unwrap();
        assert_eq!(store.usage[&77_777].keys, 3);
        assert_eq!(store.usage[&77_777].bytes, 5 + 6 + 4 + 5 + 8);
        assert_eq!(store.link(inner, ring), Err(Errno::EDEADLK));
        store.release(ring);
        assert!(store.keys.is_empty());
        assert_eq!((store.usage[&77_777].keys, store.usage[&77_777].bytes), (0, 0));
    }

    #[test]
    fn a_link_replaces_its_namesake() {
        let mut store = empty();
        let ring = store.make(new(Kind::Keyring, b"ring", b"")).unwrap();
        store.get_mut(ring).unwrap().uses = 1;
        let first = store.make(new(Kind::User, b"key", b"1")).unwrap();
        store.link(ring, first).unwrap();
        let second = store.make(new(Kind::User, b"key", b"2")).unwrap();
        store.link(ring, second).unwrap();
        assert_eq!(store.ring(ring).unwrap().links, [second]);
        assert!(store.get(first).is_err());
        store.unlink(ring, second).unwrap();
        assert_eq!(store.unlink(ring, second), Err(Errno::ENOENT));
    }
}
