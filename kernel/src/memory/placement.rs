//! Memory policies of areas: on which nodes pages shall lie. There is one node, so they are checked, kept
//! and reported, and decide nothing.

use abi::Errno;
use abi::memory::placement::{
    BIND, DEFAULT, INTERLEAVE, LOCAL, NUMA_BALANCING, PREFERRED, PREFERRED_MANY, RELATIVE_NODES,
    STATIC_NODES,
};
use base::memory::VirtAddr;
use core::ops::Range;

use super::area::{Area, AreaFlags, Backing};
use super::change::Change;
use super::layout::{PAGE, page_floor};
use super::map::{MapRequest, Place};
use super::space::AddressSpace;

/// The nodes that there are, one bit each.
pub const NODES: u64 = 1;
const MODE_FLAGS: u32 = NUMA_BALANCING | RELATIVE_NODES | STATIC_NODES;
/// Bits of the mode and its flags in a word; the nodes follow.
const MODE_BITS: u32 = 16;

/// A memory policy that is not the default.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placement {
    mode: u32,
    nodes: u64,
}

impl Placement {
    /// Checks a mode with its flags and the nodes that go with it (the first 64). `None` is the default.
    ///
    /// # Errors
    /// `EINVAL` for modes and flags that are not there or do not go together, and for nodes that the mode
    /// does not take or that do not exist.
    pub fn new(mode: u32, nodes: u64) -> Result<Option<Placement>, Errno> {
        let flags = Self::check_mode(mode)?;
        let (mode, is_renumbered) = (mode & !MODE_FLAGS, flags & (STATIC_NODES | RELATIVE_NODES));
        let is_empty = nodes == 0;
        let kept = Placement { mode: mode | flags, nodes };
        match mode {
            DEFAULT if is_empty => Ok(None),
            PREFERRED if is_empty && is_renumbered == 0 => {
                Ok(Some(Placement { mode: LOCAL | flags, nodes: 0 }))
            }
            LOCAL if is_empty && is_renumbered == 0 => Ok(Some(kept)),
            DEFAULT | LOCAL => Err(Errno::EINVAL),
            _ if is_empty => Err(Errno::EINVAL),
            // Counted from the first node round and round, any node is the one that there is.
            _ if flags & RELATIVE_NODES != 0 => Ok(Some(kept)),
            _ if nodes & NODES == 0 => Err(Errno::EINVAL),
            _ if flags & STATIC_NODES != 0 => Ok(Some(kept)),
            _ => Ok(Some(Placement { nodes: nodes & NODES, ..kept })),
        }
    }

    /// The flags of a mode; `EINVAL` when there is no such mode, or the flags do not go with it.
    pub fn check_mode(mode: u32) -> Result<u32, Errno> {
        let (flags, plain) = (mode & MODE_FLAGS, mode & !MODE_FLAGS);
        let both = STATIC_NODES | RELATIVE_NODES;
        let is_wrong = plain > PREFERRED_MANY
            || flags & both == both
            || (flags & NUMA_BALANCING != 0 && plain != BIND);
        if is_wrong { Err(Errno::EINVAL) } else { Ok(flags) }
    }

    /// As one word, which is not 0.
    pub fn to_word(self) -> u64 {
        u64::from(self.mode) | self.nodes << MODE_BITS
    }

    /// Of `to_word`; `None` of 0.
    pub fn from_word(word: u64) -> Option<Placement> {
        let mode = (word & ((1 << MODE_BITS) - 1)) as u32;
        (word != 0).then_some(Placement { mode, nodes: word >> MODE_BITS })
    }

    /// The mode with its flags.
    pub fn mode(self) -> u32 {
        self.mode
    }

    /// The nodes that are reported.
    pub fn nodes(self) -> u64 {
        self.nodes
    }

    /// Whether pages come from the nodes in turn.
    pub fn is_interleaved(self) -> bool {
        self.mode & !MODE_FLAGS == INTERLEAVE
    }

    /// Whether one of its nodes can be preferred (`set_mempolicy_home_node`).
    pub fn takes_home(self) -> bool {
        matches!(self.mode & !MODE_FLAGS, BIND | PREFERRED_MANY)
    }
}

impl Change {
    /// Gives areas of `range` a policy. Returns where the rest begins, if one part was not all.
    pub fn place_part(&mut self, range: Range<u64>, placement: Option<Placement>) -> Option<u64> {
        self.space().update_part(range, |area| area.placement = placement)
    }
}

impl AddressSpace {
    /// Whether a range may get a policy by `Change::place_part` (`mbind`).
    ///
    /// # Errors
    /// `EFAULT` when part of it is not mapped, `ENOMEM` with too many areas.
    pub fn check_placement(&self, range: &Range<u64>) -> Result<(), Errno> {
        let inner = self.lock();
        if !inner.areas.is_covered(range.clone()) {
            return Err(Errno::EFAULT);
        }
        inner.check_split(range)
    }

    /// The policy of an address; `EFAULT` when nothing is mapped there.
    pub fn placement_at(&self, address: u64) -> Result<Option<Placement>, Errno> {
        let inner = self.lock();
        inner.areas.find(address).map(|(_, area)| area.placement).ok_or(Errno::EFAULT)
    }

    /// Whether all policies in a range let one node be preferred.
    ///
    /// # Errors
    /// `ENOENT` when there is no policy, `EOPNOTSUPP` when one is of another kind.
    pub fn check_home(&self, range: Range<u64>) -> Result<(), Errno> {
        let inner = self.lock();
        let mut result = Err(Errno::ENOENT);
        for placement in inner.areas.overlapping(range).filter_map(|(_, area)| area.placement) {
            if !placement.takes_home() {
                return Err(Errno::EOPNOTSUPP);
            }
            result = Ok(());
        }
        result
    }

    /// Whether the page of an address is in memory; `EFAULT` when nothing is mapped there.
    pub fn is_present(&self, address: u64) -> Result<bool, Errno> {
        let inner = self.lock();
        inner.areas.find(address).ok_or(Errno::EFAULT)?;
        Ok(inner.table.peek(VirtAddr(page_floor(address))).is_some())
    }

    /// `remap_file_pages`: the mapping that shows other pages of the file which is mapped shared at `range`.
    ///
    /// # Errors
    /// `EINVAL` unless the range is mapped throughout, shared, from one source with equal rights.
    pub fn other_pages(&self, range: Range<u64>, first_page: u64) -> Result<MapRequest, Errno> {
        let request = {
            let inner = self.lock();
            let (_, first) = inner.areas.find(range.start).ok_or(Errno::EINVAL)?;
            let is_alike = |area: &Area| match (&area.backing, &first.backing) {
                (Backing::Object { object, .. }, Backing::Object { object: other, .. }) => {
                    alloc::sync::Arc::ptr_eq(object, other)
                        && area.flags == first.flags
                        && area.protection == first.protection
                }
                _ => false,
            };
            let Backing::Object { object, .. } = &first.backing else { return Err(Errno::EINVAL) };
            let is_refused = first.is_private()
                || first.flags.contains(AreaFlags::SPECIAL)
                || first.attachment.is_some()
                || !inner.areas.is_covered(range.clone())
                || !inner.areas.overlapping(range.clone()).all(|(_, area)| is_alike(area));
            if is_refused {
                return Err(Errno::EINVAL);
            }
            MapRequest {
                place: Place::Fixed(range.start),
                allowed: first.allowed,
                flags: first.flags,
                backing: Backing::Object { object: object.clone(), first_page },
                may_be_low: range.start < super::layout::LOWEST_ADDRESS,
                ..MapRequest::anonymous(range.end - range.start, first.protection)
            }
        };
        debug_assert!(request.length.is_multiple_of(PAGE));
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_take_the_nodes_that_go_with_them() {
        assert_eq!(Placement::new(DEFAULT, 0), Ok(None));
        assert_eq!(Placement::new(DEFAULT, 1), Err(Errno::EINVAL));
        assert_eq!(Placement::new(BIND, 0), Err(Errno::EINVAL));
        assert_eq!(Placement::new(BIND, 2), Err(Errno::EINVAL));
        let bound = Placement::new(BIND, 3).unwrap().unwrap();
        assert_eq!((bound.mode(), bound.nodes()), (BIND, 1));
        assert_eq!(Placement::from_word(bound.to_word()), Some(bound));
        assert_eq!(Placement::new(PREFERRED, 0).unwrap().unwrap().mode(), LOCAL);
        assert_eq!(Placement::new(BIND | STATIC_NODES | RELATIVE_NODES, 1), Err(Errno::EINVAL));
        assert_eq!(Placement::new(6, 1), Err(Errno::EINVAL));
        assert_eq!(Placement::from_word(0), None);
    }
}
