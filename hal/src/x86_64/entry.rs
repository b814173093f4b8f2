//! Page-table entries of x86-64: how `contract::Entry` is written in 64 bits.
//!
//! Pure functions, used by the hosted machine too. Software bits 0 to 2 live in entry bits 9 to 11, and
//! 3 to 7 in bits 52 to 56. Protection key (59 to 62): 1 for hidden pages, else 0.
//!
//! A page that user mode may not reach at all is not present for the processor, which keeps the kernel
//! off it as well when it copies by the user's translations (`copy_user`); a bit of ours says that it is
//! there.

use crate::contract::{Entry, PageRights, PhysAddr};

pub(crate) const PRESENT: u64 = 1;
pub(crate) const WRITE: u64 = 1 << 1;
pub(crate) const USER: u64 = 1 << 2;
pub(crate) const ACCESSED: u64 = 1 << 5;
pub(crate) const DIRTY: u64 = 1 << 6;
/// Of a leaf that is not `PRESENT`: there is a page nevertheless.
const KEPT: u64 = 1 << 8;
/// Protection key 1, which user mode may not read or write with.
pub(crate) const HIDDEN: u64 = 1 << 59;
/// All bits of the key.
const KEY: u64 = 15 << 59;
pub(crate) const NO_EXECUTE: u64 = 1 << 63;
pub(crate) const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

/// Encodes an entry. A lower table gets write and user rights at most as given, and is always
/// executable: the leaf decides.
#[inline]
pub(crate) fn encode(entry: Entry, leaf: bool) -> u64 {
    let rights = entry.rights;
    let there = if leaf && !rights.user { KEPT } else { PRESENT };
    let mut raw = entry.frame.0 & ADDRESS | there;
    let software = u64::from(entry.software);
    raw |= (software & 7) << 9 | (software >> 3) << 52;
    for (set, bit) in [
        (rights.write, WRITE),
        (rights.user, USER),
        (entry.accessed, ACCESSED),
        (entry.dirty && leaf, DIRTY),
        (leaf && !rights.execute, NO_EXECUTE),
        (leaf && rights.hidden, HIDDEN),
    ] {
        if set {
            raw |= bit;
        }
    }
    raw
}

/// Whether the entry points to anything.
#[inline]
const fn is_there(raw: u64) -> bool {
    raw & (PRESENT | KEPT) != 0
}

/// Decodes an entry; `None` when it points to nothing.
#[inline]
pub(crate) fn decode(raw: u64) -> Option<Entry> {
    if !is_there(raw) {
        return None;
    }
    Some(Entry {
        frame: PhysAddr(raw & ADDRESS),
        rights: PageRights {
            write: raw & WRITE != 0,
            execute: raw & NO_EXECUTE == 0,
            user: raw & USER != 0,
            hidden: raw & KEY == HIDDEN,
        },
        accessed: raw & ACCESSED != 0,
        dirty: raw & DIRTY != 0,
        software: ((raw >> 9 & 7) | (raw >> 52 & 0x1f) << 3) as u8,
    })
}

/// `Contract::entry_frame`.
#[inline]
pub(crate) fn frame(raw: u64) -> Option<PhysAddr> {
    is_there(raw).then_some(PhysAddr(raw & ADDRESS))
}

/// `Contract::shared_entry`.
#[inline]
pub(crate) fn shared(raw: u64, copy_on_write: bool, mark: u8) -> Option<(u64, u64)> {
    const SOFTWARE: u64 = 7 << 9 | 0x1f << 52;
    if !is_there(raw) {
        return None;
    }
    let stays = if copy_on_write && raw & WRITE != 0 {
        raw & !(WRITE | SOFTWARE) | u64::from(mark & 7) << 9
    } else {
        raw
    };
    Some((stays, stays & !DIRTY | ACCESSED))
}

/// `Contract::used_page`.
#[inline]
pub(crate) fn used_page(raw: u64, write: bool) -> Option<PhysAddr> {
    const READ: u64 = PRESENT | USER | ACCESSED;
    let wanted = if write { READ | WRITE | DIRTY } else { READ };
    (raw & (wanted | KEY) == wanted).then_some(PhysAddr(raw & ADDRESS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_leaf_survives_the_round_trip() {
        for bits in 0..64u32 {
            for software in 0..=255u8 {
                let entry = Entry {
                    frame: PhysAddr(0x000a_bcde_f123_4000),
                    rights: PageRights {
                        write: bits & 1 != 0,
                        execute: bits & 2 != 0,
                        user: bits & 4 != 0,
                        hidden: bits & 32 != 0,
                    },
                    accessed: bits & 8 != 0,
                    dirty: bits & 16 != 0,
                    software,
                };
                assert_eq!(decode(encode(entry, true)), Some(entry));
            }
        }
    }

    #[test]
    fn zero_is_not_present() {
        assert_eq!(decode(0), None);
    }

    #[test]
    fn what_the_user_may_not_reach_the_processor_does_not_see() {
        let rights = PageRights { write: true, execute: true, ..PageRights::default() };
        let entry =
            Entry { frame: PhysAddr(0x1000), rights, accessed: true, dirty: true, software: 0 };
        let raw = encode(entry, true);
        assert_eq!(raw & PRESENT, 0);
        assert_eq!((decode(raw), frame(raw)), (Some(entry), Some(entry.frame)));
        assert_eq!(used_page(raw, false), None);
    }

    #[test]
    fn a_table_never_forbids_execution() {
        let entry = Entry {
            frame: PhysAddr(0x1000),
            rights: PageRights { write: true, user: true, ..PageRights::default() },
            accessed: false,
            dirty: false,
            software: 0,
        };
        assert_eq!(encode(entry, false), 0x1000 | PRESENT | WRITE | USER);
    }

    #[test]
    fn a_shared_entry_loses_the_right_to_write_and_its_copy_is_clean() {
        for bits in 0..1_u64 << 12 {
            let raw = 0x1234_5000 | bits | NO_EXECUTE | 5 << 52;
            let Some(before) = decode(raw) else {
                assert_eq!(shared(raw, true, 3), None);
                continue;
            };
            let (stays, copy) = shared(raw, false, 3).unwrap();
            assert_eq!(stays, raw);
            let clean = |entry| Entry { accessed: true, dirty: false, ..entry };
            assert_eq!(decode(copy), Some(clean(before)));
            let (stays, copy) = shared(raw, true, 3).unwrap();
            let mut expected = before;
            if before.rights.write {
                expected.rights.write = false;
                expected.software = 3;
            }
            assert_eq!(decode(stays), Some(expected));
            assert_eq!(decode(copy), Some(clean(expected)));
        }
    }

    #[test]
    fn the_short_ways_agree_with_decoding() {
        for bits in 0..1 << 7 {
            let raw = 0x1234_5000 | bits;
            let decoded = decode(raw);
            assert_eq!(frame(raw), decoded.map(|entry| entry.frame));
            for write in [false, true] {
                let expected = decoded.filter(|entry| {
                    entry.rights.user
                        && entry.accessed
                        && (!write || entry.rights.write && entry.dirty)
                });
                assert_eq!(used_page(raw, write), expected.map(|entry| entry.frame), "{raw:#x}");
            }
        }
    }
}
