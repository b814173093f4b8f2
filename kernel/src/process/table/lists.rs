//! Lists of processes in the tree: the children of one, the members of a group. They are linked by
//! number inside the table.

use alloc::sync::Arc;

use super::Tree;
use crate::process::Process;
use crate::process::ids::Pid;

/// Neighbours in a list of processes; 0 for none.
#[derive(Clone, Copy, Default)]
pub(super) struct Link {
    previous: i32,
    next: i32,
}

/// Ends of a list of processes; 0 for none.
#[derive(Clone, Copy, Default)]
pub(super) struct Members {
    pub(super) first: i32,
    last: i32,
}

/// Which of the lists of a node.
#[derive(Clone, Copy)]
pub(super) enum List {
    Siblings,
    Group,
}

impl Tree {
    fn link_mut(&mut self, list: List, number: i32) -> Option<&mut Link> {
        let node = self.node_mut(number)?;
        Some(match list {
            List::Siblings => &mut node.siblings,
            List::Group => &mut node.group_members,
        })
    }

    fn members_mut(&mut self, list: List, owner: i32) -> Option<&mut Members> {
        match list {
            List::Siblings => Some(&mut self.node_mut(owner)?.children),
            List::Group => self.slot_mut(owner)?.group.as_mut(),
        }
    }

    /// Puts a process at the end of a list of `owner`.
    pub(super) fn append(&mut self, list: List, owner: i32, number: i32) {
        let Some(members) = self.members_mut(list, owner) else { return };
        let last = core::mem::replace(&mut members.last, number);
        if last == 0 {
            members.first = number;
        } else if let Some(link) = self.link_mut(list, last) {
            link.next = number;
        }
        if let Some(link) = self.link_mut(list, number) {
            *link = Link { previous: last, next: 0 };
        }
    }

    /// Takes a process out of a list of `owner`.
    pub(super) fn unlink(&mut self, list: List, owner: i32, number: i32) {
        let Some(link) = self.link_mut(list, number) else { return };
        let Link { previous, next } = core::mem::take(link);
        if previous != 0 {
            if let Some(link) = self.link_mut(list, previous) {
                link.next = next;
            }
        } else if let Some(members) = self.members_mut(list, owner) {
            members.first = next;
        }
        if next != 0 {
            if let Some(link) = self.link_mut(list, next) {
                link.previous = previous;
            }
        } else if let Some(members) = self.members_mut(list, owner) {
            members.last = previous;
        }
    }

    /// The children of a process, oldest first.
    pub(in crate::process) fn children(&self, parent: Pid) -> Iter<'_> {
        let first = self.node(parent.0).map_or(0, |node| node.children.first);
        Iter { tree: self, list: List::Siblings, next: first }
    }

    /// The members of a group.
    pub(in crate::process) fn group(&self, group: Pid) -> Iter<'_> {
        let first =
            self.slot(group.0).and_then(|slot| slot.group).map_or(0, |members| members.first);
        Iter { tree: self, list: List::Group, next: first }
    }
}

/// Walks a list of processes; yields each with whether it is a zombie.
pub(in crate::process) struct Iter<'a> {
    tree: &'a Tree,
    list: List,
    next: i32,
}

impl<'a> Iterator for Iter<'a> {
    type Item = (&'a Arc<Process>, bool);

    fn next(&mut self) -> Option<Self::Item> {
        let node = self.tree.node(self.next)?;
        self.next = match self.list {
            List::Siblings => node.siblings.next,
            List::Group => node.group_members.next,
        };
        Some((&node.process, node.is_zombie))
    }
}
