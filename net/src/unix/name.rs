//! Names of local sockets: a path stands for the inode that `bind` made, an abstract name for itself.

use super::UnixSocket;
use crate::socket::Kind;
use abi::Errno;
use abi::socket::{AF_UNIX, UNIX_PATH_OFFSET};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use base::heap::tree;
use base::sync::{Mutex, rank};
use core::any::Any;

/// What identifies an inode: device and number.
pub type InodeKey = (u64, u64);

/// How many names `bind` can choose itself.
const AUTOMATIC_NAMES: u32 = 1 << 20;

/// Where a message or a connection goes.
#[derive(Clone, Debug)]
pub enum Target {
    /// The socket that is bound to an inode.
    Inode(InodeKey),
    /// The socket with an abstract name, which begins with a zero byte.
    Abstract(Vec<u8>),
}

/// The name of a socket.
pub struct Name {
    /// As `sun_path` has it: a path with its final zero, or an abstract name.
    pub path: Vec<u8>,
    /// The inode of a path, and what keeps it from being used for something else.
    pub inode: Option<(InodeKey, Arc<dyn Any + Send + Sync>)>,
}

impl Name {
    /// As `struct sockaddr_un`.
    pub fn to_address(&self) -> Vec<u8> {
        let mut address = unnamed();
        address.extend_from_slice(&self.path);
        address
    }
}

/// The address of a socket without a name.
pub fn unnamed() -> Vec<u8> {
    let mut address = Vec::with_capacity(UNIX_PATH_OFFSET + 14);
    address.extend_from_slice(&(AF_UNIX as u16).to_ne_bytes());
    address
}

struct Names {
    inodes: BTreeMap<InodeKey, Weak<UnixSocket>>,
    abstracts: BTreeMap<(Kind, Vec<u8>), Weak<UnixSocket>>,
    all: BTreeMap<u64, Weak<UnixSocket>>,
    next_automatic: u32,
}

static NAMES: Mutex<Names> = Mutex::new(
    &rank::SOCKET_NAMES,
    Names {
        inodes: BTreeMap::new(),
        abstracts: BTreeMap::new(),
        all: BTreeMap::new(),
        next_automatic: 0,
    },
);

/// The socket at a target: `ECONNREFUSED` when there is none, `EPROTOTYPE` when it is of another kind.
pub(super) fn find(target: &Target, kind: Kind) -> Result<Arc<UnixSocket>, Errno> {
    let found = {
        let names = NAMES.lock();
        match target {
            Target::Inode(key) => names.inodes.get(key).and_then(Weak::upgrade),
            Target::Abstract(path) => {
                names.abstracts.get(&(kind, path.clone())).and_then(Weak::upgrade)
            }
        }
    };
    let socket = found.ok_or(Errno::ECONNREFUSED)?;
    if socket.kind == kind { Ok(socket) } else { Err(Errno::EPROTOTYPE) }
}

/// Gives a socket its name. `EINVAL` when it has one, `EADDRINUSE` when the name is taken.
pub(super) fn bind(socket: &Arc<UnixSocket>, name: Name) -> Result<(), Errno> {
    let mut names = NAMES.lock();
    if socket.name.get().is_some() {
        return Err(Errno::EINVAL);
    }
    let weak = Arc::downgrade(socket);
    match &name.inode {
        Some((key, _)) => {
            tree::insert(&mut names.inodes, *key, weak);
        }
        None => {
            let key = (socket.kind, name.path.clone());
            if names.abstracts.contains_key(&key) {
                return Err(Errno::EADDRINUSE);
            }
            tree::insert(&mut names.abstracts, key, weak);
        }
    }
    socket.name.call_once(|| Arc::new(name));
    Ok(())
}

/// Gives a socket a free abstract name of five hexadecimal digits, unless it has a name.
pub(super) fn bind_automatically(socket: &Arc<UnixSocket>) -> Result<(), Errno> {
    let mut names = NAMES.lock();
    if socket.name.get().is_some() {
        return Ok(());
    }
    for _ in 0..AUTOMATIC_NAMES {
        let number = names.next_automatic;
        names.next_automatic = (number + 1) % AUTOMATIC_NAMES;
        let path = format!("\0{number:05x}").into_bytes();
        let key = (socket.kind, path.clone());
        if !names.abstracts.contains_key(&key) {
            tree::insert(&mut names.abstracts, key, Arc::downgrade(socket));
            socket.name.call_once(|| Arc::new(Name { path, inode: None }));
            return Ok(());
        }
    }
    Err(Errno::ENOSPC)
}

/// A new socket is there.
pub(super) fn add(socket: &Arc<UnixSocket>) {
    tree::insert(&mut NAMES.lock().all, socket.number, Arc::downgrade(socket));
}

/// A socket is gone, and its name with it.
pub(super) fn remove(socket: &UnixSocket) {
    let mut names = NAMES.lock();
    let listed = names.all.remove(&socket.number);
    // A connection shares the name of the socket that took it.
    let is_own = |weak: &Weak<UnixSocket>| core::ptr::eq(weak.as_ptr(), socket);
    let named = match socket.name.get().map(|name| (&name.inode, &name.path)) {
        Some((Some((key, _)), _)) if names.inodes.get(key).is_some_and(is_own) => {
            names.inodes.remove(key)
        }
        Some((None, path)) => {
            let key = (socket.kind, path.clone());
            if names.abstracts.get(&key).is_some_and(is_own) {
                names.abstracts.remove(&key)
            } else {
                None
            }
        }
        _ => None,
    };
    drop(names);
    drop((listed, named));
}

/// All sockets, oldest first.
pub(super) fn all() -> Vec<Arc<UnixSocket>> {
    NAMES.lock().all.values().filter_map(Weak::upgrade).collect()
}
