//! Tests of `table`.

use hal::contract::PageRights;
use hal::{Contract, Machine, PAGE_SIZE, VirtAddr};

use super::{Frame, PageTable, ShareMode, frame_counts};

const PAGE: u64 = PAGE_SIZE as u64;
const READ: PageRights = PageRights { write: false, execute: false, user: true, hidden: false };
const WRITE: PageRights = PageRights { write: true, execute: false, user: true, hidden: false };
const START: u64 = 0x40_0000;

fn page(number: u64) -> VirtAddr {
    VirtAddr(START + number * PAGE)
}

fn filled(byte: u8) -> Frame {
    let frame = Frame::zeroed().unwrap();
    frame.write(0, &[byte; PAGE_SIZE]);
    frame
}

fn first_byte(table: &PageTable, number: u64) -> Option<u8> {
    let mut byte = [0];
    (table.copy_out(page(number), &mut byte) == 1).then_some(byte[0])
}

#[test]
fn a_page_is_mapped_replaced_and_taken_away() {
    let mut table = PageTable::new().unwrap();
    assert!(table.map(page(0), filled(1), READ).unwrap().is_none());
    let state = table.peek(page(0)).unwrap();
    assert_eq!((state.references, state.rights, state.dirty), (1, READ, false));
    let replaced = table.map_marked(page(0), filled(2), WRITE, 5).unwrap().unwrap();
    assert!(!replaced.is_shared());
    let mapping = table.lookup(page(0)).unwrap();
    assert_eq!((mapping.rights, mapping.software), (WRITE, 5));
    assert!(mapping.frame.is_shared());
    assert!(table.set_rights(page(0), READ));
    assert_eq!(table.peek(page(0)).map(|state| (state.rights, state.software)), Some((READ, 5)));
    assert!(table.unmap(page(0)).unwrap().is_same(&mapping.frame));
    assert!(table.unmap(page(0)).is_none() && !table.set_rights(page(0), READ));
}

#[test]
fn tables_are_counted_and_one_space_has_no_more_than_its_share() {
    let mut table = PageTable::new().unwrap();
    assert_eq!(table.table_count(), 1);
    assert!(table.map(page(0), filled(1), READ).unwrap().is_none());
    let first = table.table_count();
    assert_eq!(first, Machine::TABLE_LEVELS as usize);
    assert!(table.map(page(1), filled(1), READ).unwrap().is_none());
    assert_eq!(table.table_count(), first);
    // One page in each leaf table, always the same one.
    let frame = filled(7);
    let share = frame_counts().total / 4;
    let refused =
        (1..=share as u64).find(|at| table.map(page(at * 512), frame.clone(), READ).is_err());
    assert!(refused.is_some() && table.table_count() == share);
}

#[test]
fn addresses_beyond_user_space_are_refused() {
    let mut table = PageTable::new().unwrap();
    let beyond = VirtAddr(Machine::USER_END);
    assert!(table.map(beyond, filled(1), READ).is_err());
    assert!(table.map(VirtAddr(!(PAGE - 1)), filled(1), READ).is_err());
    assert!(table.peek(beyond).is_none());
    assert_eq!(table.copy_out(VirtAddr(u64::MAX - 3), &mut [0; 16]), 0);
    table.map(VirtAddr(Machine::USER_END - PAGE), filled(1), READ).unwrap();
    assert_eq!(table.count(VirtAddr(0)..VirtAddr(u64::MAX)), 1);
}

#[test]
fn ranges_cross_tables_and_skip_holes() {
    let mut table = PageTable::new().unwrap();
    let places = [0, 1, 110, 111, 112, 600, 1500, 300_000, 40_000_000];
    for (number, byte) in places.iter().zip(1..) {
        table.map(page(*number), filled(byte), WRITE).unwrap();
    }
    let mut seen = Vec::new();
    table.for_each(page(1)..page(300_000), |at, _| seen.push((at.0 - START) / PAGE));
    assert_eq!(seen, [1, 110, 111, 112, 600, 1500]);
    table.protect_range(page(111)..page(601), READ);
    let writable = |number| table.peek(page(number)).unwrap().rights.write;
    assert_eq!([110, 111, 112, 600, 1500].map(writable), [true, false, false, false, true]);
    assert_eq!(table.unmap_range(page(110)..page(1500)), 4);
    assert_eq!(table.count(VirtAddr(0)..VirtAddr(Machine::USER_END)), 5);
    assert_eq!(table.unmap_range(page(110)..page(1500)), 0);
}

#[test]
fn copies_stop_at_the_first_page_that_does_not_permit() {
    let mut table = PageTable::new().unwrap();
    table.map(page(0), filled(1), WRITE).unwrap();
    table.map(page(1), filled(2), READ).unwrap();
    let kernel_only = PageRights { write: true, execute: false, user: false, hidden: false };
    table.map(page(2), filled(3), kernel_only).unwrap();
    let from = VirtAddr(page(0).0 + 4000);
    let mut bytes = [0; 9000];
    assert_eq!(table.copy_out(from, &mut bytes), 96 + 4096);
    assert!(bytes[..96].iter().all(|byte| *byte == 1));
    assert!(bytes[96..96 + 4096].iter().all(|byte| *byte == 2));
    assert_eq!(table.copy_in(from, &[9; 5000]), 96);
    assert_eq!(table.zero(from, 5000), 96);
    let states = [0, 1].map(|number| table.peek(page(number)).unwrap());
    assert!(states[0].dirty && !states[1].dirty && states[1].accessed);
    let frame = Frame::zeroed().unwrap();
    assert_eq!(table.copy_out_to_frame(VirtAddr(page(1).0 - 3), &frame, 5, 4000), 4000);
    let mut bytes = [9; 6];
    frame.read(4, &mut bytes);
    assert_eq!(bytes, [0, 0, 0, 0, 2, 2]);
    assert_eq!(table.copy_in_from_frame(page(0), &frame, 5, 10), 10);
    assert_eq!(table.compare_exchange_u32(page(0), 0x0200_0000, 7), Some(Ok(0x0200_0000)));
    assert_eq!(table.load_u32(page(0)), Some(7));
    assert_eq!(table.compare_exchange_u32(page(1), 0, 7), None);
    assert_eq!(table.load_u32(page(3)), None);
}

#[test]
fn a_fork_shares_until_somebody_writes() {
    let mut parent = PageTable::new().unwrap();
    let mut child = PageTable::new().unwrap();
    let range = page(0)..page(2000);
    for (number, rights) in [(0, WRITE), (1, READ), (700, WRITE)] {
        parent.map(page(number), filled(number as u8 + 1), rights).unwrap();
    }
    child.map(page(700), filled(99), WRITE).unwrap();
    parent.share_range(&mut child, range.clone(), ShareMode::CopyOnWrite, 1).1.unwrap();
    for table in [&parent, &child] {
        let states = [0, 1, 700].map(|number| table.peek(page(number)).unwrap());
        assert!(states.iter().all(|state| !state.rights.write && state.references == 2));
        assert_eq!(states.map(|state| state.software), [1, 0, 1]);
    }
    assert_eq!(parent.peek(page(700)).unwrap().frame, child.peek(page(700)).unwrap().frame);
    let copy = Frame::uninitialised().unwrap();
    copy.copy_from(&child.lookup(page(0)).unwrap().frame);
    drop(child.map(page(0), copy, WRITE).unwrap());
    assert_eq!(child.copy_in(page(0), &[42]), 1);
    assert_eq!((first_byte(&parent, 0), first_byte(&child, 0)), (Some(1), Some(42)));
    assert_eq!(parent.peek(page(0)).unwrap().references, 1);
    let mut second = PageTable::new().unwrap();
    child.share_range(&mut second, range, ShareMode::Shared, 0).1.unwrap();
    assert_eq!(second.copy_in(page(0), &[43]), 1);
    assert_eq!(first_byte(&child, 0), Some(43));
}

#[test]
fn moved_pages_keep_what_they_are() {
    let mut table = PageTable::new().unwrap();
    for number in [0, 3, 5] {
        table.map_marked(page(number), filled(number as u8 + 1), WRITE, 3).unwrap();
    }
    table.map(page(1003), filled(77), READ).unwrap();
    assert!(table.move_range(page(0)..page(5), page(4)).is_err());
    table.move_range(page(0)..page(5), page(1000)).unwrap();
    assert_eq!([0, 3, 5].map(|number| first_byte(&table, number)), [None, None, Some(6)]);
    assert_eq!([1000, 1003].map(|number| first_byte(&table, number)), [Some(1), Some(4)]);
    assert_eq!(table.peek(page(1003)).map(|state| state.software), Some(3));
}

#[test]
fn written_pages_are_known_when_they_go() {
    let mut table = PageTable::new().unwrap();
    for number in 0..3 {
        table.map(page(number), filled(1), WRITE).unwrap();
    }
    table.copy_in(page(1), &[5]);
    assert_eq!(table.clear_accessed(page(0)..page(9)), 3);
    assert_eq!(table.clear_accessed(page(0)..page(9)), 0);
    let mut drained = Vec::new();
    table.drain_range(page(0)..page(3), |at, frame, dirty| {
        assert!(!frame.is_shared());
        drained.push((at, dirty));
    });
    assert_eq!(drained, [(page(0), false), (page(1), true), (page(2), false)]);
    assert_eq!(table.count(page(0)..page(3)), 0);
}

#[test]
fn only_lost_rights_are_told_to_other_cores() {
    let mut table = PageTable::new().unwrap();
    let generation = |table: &PageTable| table.handle().tlb_generation();
    let start = generation(&table);
    table.map(page(0), filled(1), READ).unwrap();
    table.set_rights(page(0), WRITE);
    assert_eq!(generation(&table), start);
    table.set_rights(page(0), READ);
    assert_eq!(generation(&table), start + 1);
    table.unmap_range(page(0)..page(1));
    assert_eq!(generation(&table), start + 2);
    table.unmap_range(page(0)..page(100));
    assert_eq!(generation(&table), start + 2);
}

/// Other tests use frames at the same time, so the counts are only compared when they stood still.
#[test]
fn a_dropped_table_gives_every_frame_back() {
    let make = || {
        let mut table = PageTable::new().unwrap();
        for number in 0..64 {
            table.map(page(number * 700), filled(1), WRITE).unwrap();
        }
        let mut other = PageTable::new().unwrap();
        let range = page(0)..page(64 * 700);
        table.share_range(&mut other, range, ShareMode::CopyOnWrite, 1).1.unwrap();
    };
    make();
    let balanced = (0..1000).any(|_| {
        let before = frame_counts();
        make();
        frame_counts() == before
    });
    assert!(balanced);
}

#[test]
fn tables_of_empty_ranges_are_given_back() {
    const ALL: core::ops::Range<VirtAddr> = VirtAddr(0)..VirtAddr(Machine::USER_END);
    let mut table = PageTable::new().unwrap();
    table.map(page(0), filled(1), WRITE).unwrap();
    let own = table.table_count();
    let before = frame_counts().free;
    for round in 0..50_u64 {
        // 64 leaf tables, and ranges that have upper tables of their own.
        for at in 0..64 {
            let place = page(((round + 1) << 18) + at * 512);
            table.map(place, filled(2), WRITE).unwrap();
        }
        let range = page((round + 1) << 18)..page(((round + 1) << 18) + 64 * 512);
        table.trim(range.clone(), page(1)..ALL.end);
        assert_eq!(table.count(range.clone()), 64, "tables with pages stay");
        assert_eq!(table.unmap_range(range.clone()), 64);
        table.trim(range, page(1)..ALL.end);
        // Some are kept for the next mapping.
        assert!(table.table_count() <= own + 4, "{} tables", table.table_count());
    }
    assert!(before <= frame_counts().free + 64 + 128);
    assert_eq!(first_byte(&table, 0), Some(1));
    // Its neighbours in the table are still mapped.
    table.map(page(1), filled(3), WRITE).unwrap();
    table.unmap(page(1));
    table.trim(page(1)..page(2), page(1)..page(512));
    assert_eq!(first_byte(&table, 0), Some(1));
    // A table that comes back is empty.
    table.map(page(7 << 18 | 5), filled(9), WRITE).unwrap();
    assert_eq!(table.count(page(7 << 18)..page(8 << 18)), 1);
    table.unmap_range(ALL);
    table.trim(ALL, ALL);
    assert!(table.table_count() <= 1 + 4);
}
