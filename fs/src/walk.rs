//! From a path to a location.
//!
//! A `Walker` goes along a path one component at a time. `to_last` takes it to the directory that
//! holds the last component and stops there, because creating, removing and opening treat the last
//! one each in their own way; `follow` lets it go on through a symbolic link in that place.
//! Symbolic links before the last component, mounts, `..` at the root, search permission, and the
//! limits on names and links are handled here, with the errors and their precedence of Linux.

use crate::identity::Identity;
use crate::inode::LinkTarget;
use crate::metadata::{NodeKind, Wanted};
use crate::mount::Location;
use crate::protected;
use crate::tree;
use abi::Errno;
use abi::capability::Capability;
use abi::fs::mount::MS_NOSYMFOLLOW;
use abi::fs::{NAME_MAX, PATH_MAX};
use alloc::borrow::Cow;
use alloc::vec::Vec;

/// Most symbolic links that one walk follows.
pub const LINK_LIMIT: usize = 40;

/// From where and on whose behalf paths are resolved.
#[derive(Clone, Copy)]
pub struct Lookup<'a> {
    /// What `/` means.
    pub root: &'a Location,
    /// Where relative paths start.
    pub start: &'a Location,
    /// Who asks.
    pub identity: &'a Identity,
}

/// Restrictions of `openat2`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resolve {
    /// Do not leave the tree below the start.
    pub beneath: bool,
    /// Treat the start as the root.
    pub in_root: bool,
    /// Do not cross mounts.
    pub no_crossing: bool,
    /// Follow no symbolic link.
    pub no_links: bool,
    /// Follow no link that leads straight to a place.
    pub no_magic_links: bool,
}

/// The last component of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Last {
    /// There is none: the walker stands on the result (`/`).
    Here,
    /// `.`
    Dot,
    /// `..`
    DotDot,
    /// A name in the directory on which the walker stands.
    Name,
}

/// A walk along one path.
pub struct Walker<'a> {
    lookup: Lookup<'a>,
    resolve: Resolve,
    at: Location,
    path: Cow<'a, [u8]>,
    position: usize,
    last_end: usize,
    links: usize,
}

impl<'a> Walker<'a> {
    /// A walker at the start of a path. `ENOENT` for the empty path, `ENAMETOOLONG` for one that does
    /// not fit `PATH_MAX`, `ENOTDIR` when a relative path starts at something else than a directory.
    pub fn new(lookup: Lookup<'a>, path: &'a [u8]) -> Result<Walker<'a>, Errno> {
        Walker::restricted(lookup, path, Resolve::default())
    }

    /// As `new`, with the restrictions of `openat2`.
    pub fn restricted(
        lookup: Lookup<'a>,
        path: &'a [u8],
        resolve: Resolve,
    ) -> Result<Walker<'a>, Errno> {
        if path.is_empty() {
            return Err(Errno::ENOENT);
        }
        if path.len() >= PATH_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        let is_absolute = path.first() == Some(&b'/');
        if is_absolute && resolve.beneath {
            return Err(Errno::EXDEV);
        }
        let lookup = if resolve.in_root { Lookup { root: lookup.start, ..lookup } } else { lookup };
        let at = if is_absolute { lookup.root } else { lookup.start }.clone();
        if at.inode.kind() != NodeKind::Directory {
            return Err(Errno::ENOTDIR);
        }
        let path = Cow::Borrowed(path);
        Ok(Walker { lookup, resolve, at, path, position: 0, last_end: 0, links: 0 })
    }

    /// Where the walker stands.
    pub fn at(&self) -> &Location {
        &self.at
    }

    /// Ends the walk where the walker stands.
    pub fn into_location(self) -> Location {
        self.at
    }

    /// The last component, after `to_last`.
    pub fn last_name(&self) -> &[u8] {
        self.path.get(self.position..self.last_end).unwrap_or(&[])
    }

    /// Whether slashes follow the last component, so that it must be a directory.
    pub fn has_trailing_slash(&self) -> bool {
        self.last_end < self.path.len()
    }

    /// Goes on to the directory that holds the last component.
    pub fn to_last(&mut self) -> Result<Last, Errno> {
        loop {
            self.position += count_slashes(self.path.get(self.position..).unwrap_or(&[]));
            let rest = self.path.get(self.position..).unwrap_or(&[]);
            if rest.is_empty() {
                self.last_end = self.position;
                return Ok(Last::Here);
            }
            let length = rest.iter().position(|&byte| byte == b'/').unwrap_or(rest.len());
            let after = rest.get(length..).unwrap_or(&[]);
            let is_last = count_slashes(after) == after.len();
            self.last_end = self.position + length;
            self.check_search()?;
            let kind = match rest.get(..length) {
                Some(b".") => Last::Dot,
                Some(b"..") => Last::DotDot,
                _ => Last::Name,
            };
            if is_last {
                return Ok(kind);
            }
            match kind {
                Last::DotDot => self.go_up()?,
                Last::Name => {
                    let child = self.look_up_last()?;
                    if child.inode.kind() == NodeKind::Symlink {
                        self.follow(&child)?;
                        continue;
                    }
                    if child.inode.kind() != NodeKind::Directory {
                        return Err(Errno::ENOTDIR);
                    }
                    self.at = child;
                }
                Last::Dot | Last::Here => {}
            }
            self.position = self.last_end;
        }
    }

    /// Looks the last component up, and goes down into what is mounted there. `ENOENT` when there is
    /// no such name. The walker stays.
    pub fn look_up_last(&self) -> Result<Location, Errno> {
        let name = self.last_name();
        if name.len() > NAME_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        let inode = self.at.inode.lookup(name)?;
        let found = Location { mount: self.at.mount.clone(), inode }.descend();
        self.check_crossing(&found)?;
        Ok(found)
    }

    /// Goes on through the symbolic link that the last component is; `to_last` comes next.
    pub fn follow(&mut self, link: &Location) -> Result<(), Errno> {
        self.links += 1;
        let is_ignored = link.mount.flags() & MS_NOSYMFOLLOW != 0;
        if self.links > LINK_LIMIT || self.resolve.no_links || is_ignored {
            return Err(Errno::ELOOP);
        }
        let rest = self.path.get(self.last_end..).unwrap_or(&[]);
        if count_slashes(rest) == rest.len() {
            let directory = self.at.inode.permissions();
            protected::check_link(&directory, &link.inode.permissions(), self.lookup.identity)?;
        }
        match link.inode.follow_link(self.lookup.identity)? {
            LinkTarget::Place(place) => {
                if self.resolve.no_magic_links {
                    return Err(Errno::ELOOP);
                }
                if self.resolve.beneath || self.resolve.in_root {
                    return Err(Errno::EXDEV);
                }
                self.check_crossing(&place)?;
                self.path = Cow::Owned(Vec::from(rest));
                self.at = place;
                if !self.path.is_empty() && self.at.inode.kind() != NodeKind::Directory {
                    return Err(Errno::ENOTDIR);
                }
            }
            LinkTarget::Path(target) => {
                if target.is_empty() {
                    return Err(Errno::ENOENT);
                }
                if target.first() == Some(&b'/') {
                    if self.resolve.beneath {
                        return Err(Errno::EXDEV);
                    }
                    self.check_crossing(self.lookup.root)?;
                    self.at = self.lookup.root.clone();
                }
                let mut path = target;
                path.extend_from_slice(rest);
                self.path = Cow::Owned(path);
            }
        }
        self.position = 0;
        Ok(())
    }

    /// Goes up one directory.
    pub fn go_up(&mut self) -> Result<(), Errno> {
        if self.resolve.beneath && self.at.is_same(self.lookup.start) {
            return Err(Errno::EXDEV);
        }
        let up = self.at.parent_within(self.lookup.root);
        self.check_crossing(&up)?;
        self.at = up;
        Ok(())
    }

    /// `EXDEV` when the walk must stay on its mount and `next` is on another one.
    fn check_crossing(&self, next: &Location) -> Result<(), Errno> {
        let leaves = self.resolve.no_crossing && next.mount.id() != self.at.mount.id();
        if leaves { Err(Errno::EXDEV) } else { Ok(()) }
    }

    fn check_search(&self) -> Result<(), Errno> {
        let inode = &self.at.inode;
        if inode.kind() != NodeKind::Directory {
            return Err(Errno::ENOTDIR);
        }
        let identity = self.lookup.identity;
        if identity.is_capable(Capability::OverrideSearch) {
            return Ok(());
        }
        tree::check(inode, identity, Wanted::EXECUTE)
    }
}

fn count_slashes(bytes: &[u8]) -> usize {
    bytes.iter().take_while(|&&byte| byte == b'/').count()
}

/// Resolves a whole path. A symbolic link in the last place is followed when `follow` or when slashes
/// stand behind it.
pub fn resolve(lookup: Lookup<'_>, path: &[u8], follow: bool) -> Result<Location, Errno> {
    resolve_restricted(lookup, path, follow, Resolve::default())
}

/// As `resolve`, with the restrictions of `openat2`.
pub fn resolve_restricted(
    lookup: Lookup<'_>,
    path: &[u8],
    follow: bool,
    restrictions: Resolve,
) -> Result<Location, Errno> {
    let mut walker = Walker::restricted(lookup, path, restrictions)?;
    loop {
        match walker.to_last()? {
            Last::Here | Last::Dot => return Ok(walker.into_location()),
            Last::DotDot => {
                walker.go_up()?;
                return Ok(walker.into_location());
            }
            Last::Name => {}
        }
        let found = walker.look_up_last()?;
        let must_be_directory = walker.has_trailing_slash();
        match found.inode.kind() {
            NodeKind::Symlink if follow || must_be_directory => walker.follow(&found)?,
            NodeKind::Directory => return Ok(found),
            _ if must_be_directory => return Err(Errno::ENOTDIR),
            _ => return Ok(found),
        }
    }
}

#[cfg(test)]
#[path = "walk_tests.rs"]
mod tests;
