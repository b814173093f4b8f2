//! Finding keys: the names of a thread's own keyrings, possession, rights, and search by name.

use abi::Errno;
use alloc::format;
use alloc::vec::Vec;
use base::heap::tree;

use super::{
    Anchor, DEEPEST, Key, Kind, NAMED_SESSION_RING, NewKey, OWN_RING, SESSION_RING, Store,
    USER_RING, rights, store,
};
use crate::process::credentials::Credentials;
use crate::process::thread::Thread;

const THREAD: i32 = -1;
const PROCESS: i32 = -2;
const SESSION: i32 = -3;
const USER: i32 = -4;
const USER_SESSION: i32 = -5;
const GROUP: i32 = -6;
/// What an instantiating program has; there is none.
const REQUEST: i32 = -7;
const REQUESTOR: i32 = -8;

/// How a key is looked up.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// It must be good.
    Good,
    /// It must be good; one of the thread's own keyrings is made when it is missing.
    Make,
    /// It may be revoked or expired when no right is asked for.
    Any,
}

/// What a key is wanted for.
#[derive(Clone, Copy)]
pub struct Lookup {
    /// How.
    pub wish: Wish,
    /// One of `rights`; 0 for none.
    pub right: u32,
}

/// A key that was found.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// Its number.
    pub number: i32,
    /// The thread possesses it.
    pub is_possessed: bool,
}

fn own(name: Vec<u8>, user: u32, group: u32, rights: u32, is_counted: bool) -> NewKey {
    let (kind, content) = (Kind::Keyring, Vec::new());
    NewKey { kind, description: name, user, group, rights, content, is_counted }
}

impl Store {
    /// Whether who acts so has a right, or all of several.
    pub fn permits(&self, key: &Key, who: &Credentials, is_possessed: bool, right: u32) -> bool {
        let in_group = |group| who.group.file == group || who.groups.contains(&group);
        let mut granted = if key.user == who.user.file {
            key.rights >> 16
        } else if key.rights & 0xff00 != 0 && in_group(key.group) {
            key.rights >> 8
        } else {
            key.rights
        };
        if is_possessed {
            granted |= key.rights >> 24;
        }
        granted & right == right
    }

    /// The two keyrings of a user, the own one and that of sessions, made when they are missing.
    fn of_user(&mut self, user: u32) -> Result<[i32; 2], Errno> {
        if let Some(rings) = self.users.get(&user) {
            return Ok(*rings);
        }
        let name = format!("_uid.{user}").into_bytes();
        let ring = self.make(own(name, user, u32::MAX, USER_RING, true))?;
        let name = format!("_uid_ses.{user}").into_bytes();
        let session = match self.make(own(name, user, u32::MAX, USER_RING, true)) {
            Ok(session) => session,
            Err(error) => {
                self.discard(ring);
                return Err(error);
            }
        };
        // They stay for good, as if the user were logged in.
        for number in [ring, session] {
            if let Some(key) = self.keys.get_mut(&number) {
                key.uses += 1;
            }
        }
        tree::insert(&mut self.users, user, [ring, session]);
        self.link(session, ring)?;
        Ok([ring, session])
    }

    /// Where a search of all that a thread has begins.
    fn roots(&self, who: &Credentials) -> Vec<i32> {
        let anchors = &who.keys;
        let own = [&anchors.thread, &anchors.process, &anchors.session];
        let mut roots: Vec<i32> = own.into_iter().flatten().map(Anchor::number).collect();
        if anchors.session.is_none()
            && let Some([_, session]) = self.users.get(&who.user.real)
        {
            roots.push(*session);
        }
        roots
    }

    /// Looks through keyrings for the first key that fits; whether they are possessed decides about
    /// rights. An error says what stood in the way of one that would fit: `ENOKEY` when nothing did.
    fn find(
        &self,
        roots: &[i32],
        who: &Credentials,
        is_possessed: bool,
        fits: impl Fn(i32, &Key) -> bool,
        checks: bool,
    ) -> Result<i32, Errno> {
        let mut refusal = Errno::ENOKEY;
        let mut waiting: Vec<(i32, usize)> = roots.iter().rev().map(|root| (*root, 0)).collect();
        while let Some((number, depth)) = waiting.pop() {
            let Some(key) = self.keys.get(&number) else { continue };
            if fits(number, key) {
                match key.check() {
                    Err(error) if checks => refusal = error,
                    _ if self.permits(key, who, is_possessed, rights::SEARCH) => {
                        return Ok(number);
                    }
                    _ => refusal = Errno::EACCES,
                }
            }
            let may_enter = key.kind == Kind::Keyring
                && depth <= DEEPEST
                && key.check().is_ok()
                && self.permits(key, who, is_possessed, rights::SEARCH);
            if may_enter {
                waiting.extend(key.links.iter().rev().map(|link| (*link, depth + 1)));
            }
        }
        Err(refusal)
    }

    /// Whether a thread with these credentials finds the key through its own keyrings.
    pub fn is_possessed(&self, number: i32, who: &Credentials) -> bool {
        self.find(&self.roots(who), who, true, |other, _| other == number, false).is_ok()
    }
}

/// Gives the thread a new keyring of its own.
fn install(thread: &Thread, which: i32) -> Result<(), Errno> {
    let mut new = (*thread.credentials()).clone();
    let (name, rights): (&[u8], u32) = match which {
        THREAD => (b"_tid", OWN_RING),
        PROCESS => (b"_pid", OWN_RING),
        _ => (b"_ses", SESSION_RING),
    };
    let mut keys = store();
    let ring = own(name.to_vec(), new.user.real, new.group.real, rights, which == SESSION);
    let number = keys.make(ring)?;
    let anchor = Some(keys.anchor(number));
    drop(keys);
    match which {
        THREAD => new.keys.thread = anchor,
        PROCESS => new.keys.process = anchor,
        _ => new.keys.session = anchor,
    }
    thread.set_credentials(new);
    Ok(())
}

/// The thread's session becomes that of its user.
fn install_user_session(thread: &Thread) -> Result<(), Errno> {
    let mut new = (*thread.credentials()).clone();
    let mut keys = store();
    let [_, session] = keys.of_user(new.user.real)?;
    new.keys.session = Some(keys.anchor(session));
    drop(keys);
    thread.set_credentials(new);
    Ok(())
}

/// The number of one of the thread's own keyrings, which is made if the wish says so.
fn own_ring(thread: &Thread, name: i32, makes: bool) -> Result<i32, Errno> {
    let credentials = thread.credentials();
    let anchor = match name {
        THREAD => &credentials.keys.thread,
        PROCESS => &credentials.keys.process,
        SESSION => &credentials.keys.session,
        USER | USER_SESSION => {
            let [own, session] = store().of_user(credentials.user.real)?;
            return Ok(if name == USER { own } else { session });
        }
        REQUEST | REQUESTOR => return Err(Errno::ENOKEY),
        _ => return Err(Errno::EINVAL),
    };
    let known = anchor.as_ref().map(Anchor::number);
    if name == SESSION {
        let users = store().users.get(&credentials.user.real).map(|[_, session]| *session);
        match known {
            // A session of one's own, before anything is put into that of all sessions of the user.
            Some(number) if !(makes && Some(number) == users) => return Ok(number),
            _ if makes => install(thread, SESSION)?,
            _ => install_user_session(thread)?,
        }
    } else {
        match known {
            Some(number) => return Ok(number),
            None if makes => install(thread, name)?,
            None => return Err(Errno::ENOKEY),
        }
    }
    own_ring(thread, name, false)
}

/// The key of a number, or the thread's own keyring of a negative one.
///
/// # Errors
/// `EINVAL` for no number at all, `ENOKEY`, `EKEYREVOKED`, `EKEYEXPIRED`, `EACCES`, `EDQUOT`.
pub fn lookup(thread: &Thread, id: i32, how: Lookup) -> Result<Found, Errno> {
    let found = if (GROUP..0).contains(&id) || matches!(id, REQUEST | REQUESTOR) {
        if id == GROUP {
            return Err(Errno::EINVAL);
        }
        Found { number: own_ring(thread, id, how.wish == Wish::Make)?, is_possessed: true }
    } else if id < 1 {
        return Err(Errno::EINVAL);
    } else {
        let credentials = thread.credentials();
        let keys = store();
        keys.get(id)?;
        Found { number: id, is_possessed: keys.is_possessed(id, &credentials) }
    };
    let credentials = thread.credentials();
    let keys = store();
    let key = keys.get(found.number)?;
    if how.wish != Wish::Any || how.right != 0 {
        key.check()?;
    }
    if !keys.permits(key, &credentials, found.is_possessed, how.right) {
        return Err(Errno::EACCES);
    }
    Ok(found)
}

/// `KEYCTL_SEARCH`: the key of a kind and name in a keyring that was found.
pub fn search(thread: &Thread, ring: Found, kind: Kind, name: &[u8]) -> Result<i32, Errno> {
    let credentials = thread.credentials();
    let keys = store();
    keys.ring(ring.number)?;
    let fits = |_: i32, key: &Key| key.kind == kind && key.description == name;
    keys.find(&[ring.number], &credentials, ring.is_possessed, fits, true)
}

/// `request_key`: the key of a kind and name in any of the thread's keyrings.
pub fn request(thread: &Thread, kind: Kind, name: &[u8]) -> Result<i32, Errno> {
    let credentials = thread.credentials();
    let keys = store();
    let fits = |_: i32, key: &Key| key.kind == kind && key.description == name;
    keys.find(&keys.roots(&credentials), &credentials, true, fits, true)
}

/// `KEYCTL_JOIN_SESSION_KEYRING`: a new session, or the one of that name.
pub fn join_session(thread: &Thread, name: Option<&[u8]>) -> Result<i32, Errno> {
    let Some(name) = name else {
        install(thread, SESSION)?;
        return own_ring(thread, SESSION, false);
    };
    let mut new = (*thread.credentials()).clone();
    let mut keys = store();
    let known = keys.all().find(|(_, key)| {
        key.kind == Kind::Keyring
            && key.description == name
            && key.check().is_ok()
            && keys.permits(key, &new, false, rights::SEARCH)
    });
    let number = match known.map(|(number, _)| number) {
        Some(number) => number,
        None => {
            let (user, group) = (new.user.real, new.group.real);
            keys.make(own(name.to_vec(), user, group, NAMED_SESSION_RING, true))?
        }
    };
    new.keys.session = Some(keys.anchor(number));
    drop(keys);
    thread.set_credentials(new);
    Ok(number)
}
