//! `mmap`, `munmap`, `mprotect`, `mremap`, `brk`, `madvise` and their errors.

use super::*;
use abi::Errno;
use abi::memory::Advice;
use alloc::string::String;
use base::memory::VirtAddr;

#[test]
fn mappings_go_top_down_and_a_free_wish_is_granted() {
    let space = space();
    let first = map_pages(&space, 2, READ_WRITE);
    let second = map_pages(&space, 3, Protection::READ);
    assert_eq!(second + 3 * PAGE, first);
    let wish = |hint| {
        let place = Place::Anywhere { hint, is_low: false };
        space.map(MapRequest { place, ..MapRequest::anonymous(PAGE, READ_WRITE) }).unwrap()
    };
    assert_eq!(wish(0x1234_5000), 0x1234_5000);
    assert_ne!(wish(first), first);
    assert_ne!(wish(0x1000), 0x1000);
    let place = Place::Anywhere { hint: 0, is_low: true };
    let low = space.map(MapRequest { place, ..MapRequest::anonymous(PAGE, READ_WRITE) }).unwrap();
    assert!(low < 1 << 31);
}

#[test]
fn fixed_mappings_replace_and_exclusive_ones_do_not() {
    let space = space();
    let start = map_pages(&space, 4, READ_WRITE);
    write(&space, start + PAGE, b"old");
    map_at(&space, start + PAGE, 1, READ_WRITE);
    assert_eq!(read::<3>(&space, start + PAGE), [0; 3]);
    let place = Place::FixedIfFree(start + 2 * PAGE);
    let request = MapRequest { place, ..MapRequest::anonymous(PAGE, READ_WRITE) };
    assert_eq!(space.map(request), Err(Errno::EEXIST));
    let request = |place| MapRequest { place, ..MapRequest::anonymous(PAGE, READ_WRITE) };
    assert_eq!(space.map(request(Place::Fixed(0))), Err(Errno::EPERM));
    assert_eq!(space.map(request(Place::Fixed(USER_END))), Err(Errno::ENOMEM));
}

#[test]
fn limits_and_absurd_sizes_are_refused() {
    let space = space();
    let huge = MapRequest::anonymous(USER_END + PAGE, READ_WRITE);
    assert_eq!(space.map(huge), Err(Errno::ENOMEM));
    let too_much = MapRequest::anonymous(1 << 40, READ_WRITE);
    assert_eq!(space.map(too_much), Err(Errno::ENOMEM));
    let mut reserved = MapRequest::anonymous(1 << 40, READ_WRITE);
    reserved.flags = AreaFlags::NO_RESERVE;
    assert!(space.map(reserved).is_ok());
    assert!(space.map(MapRequest::anonymous(1 << 40, Protection::empty())).is_ok());
    let total = space.counters().total * PAGE;
    space.set_limits(LimitValues { address_space: total + PAGE, ..LimitValues::default() });
    assert_eq!(space.map(MapRequest::anonymous(2 * PAGE, READ_WRITE)), Err(Errno::ENOMEM));
    assert!(space.map(MapRequest::anonymous(PAGE, READ_WRITE)).is_ok());
}

#[test]
fn unmapping_frees_pages_and_splits() {
    let space = space();
    let start = map_pages(&space, 5, READ_WRITE);
    for page in 0..5 {
        write(&space, start + page * PAGE, b"x");
    }
    space.unmap(start + PAGE..start + 3 * PAGE).unwrap();
    assert_eq!(shape(&space), [(start, 1), (start + 3 * PAGE, 2)]);
    assert_eq!(space.counters().resident, 3);
    assert_eq!(space.counters().total, 3);
    assert_eq!(fault(&space, start + PAGE, Access::READ), Err(FaultSignal::NotMapped));
    assert_eq!(read::<1>(&space, start + 4 * PAGE), *b"x");
}

#[test]
fn rights_change_for_pages_that_are_there_already() {
    let space = space();
    let memory = UserMemory::new(space.clone());
    let start = map_pages(&space, 3, READ_WRITE);
    write(&space, start, b"x");
    space.protect(start..start + PAGE, Protection::READ, false).unwrap();
    assert_eq!(finish(memory.write_bytes(start, b"y")), Err(Errno::EFAULT));
    space.protect(start..start + PAGE, Protection::empty(), false).unwrap();
    assert_eq!(finish(memory.read_bytes(start, &mut [0])), Err(Errno::EFAULT));
    space.protect(start..start + PAGE, READ_WRITE, false).unwrap();
    write(&space, start, b"y");
    assert_eq!(shape(&space), [(start, 3)]);
}

#[test]
fn giving_write_back_does_not_undo_copy_on_write() {
    let parent = space();
    let start = map_pages(&parent, 1, READ_WRITE);
    write(&parent, start, b"old");
    let child = parent.fork().unwrap();
    child.protect(start..start + PAGE, Protection::READ, false).unwrap();
    child.protect(start..start + PAGE, READ_WRITE, false).unwrap();
    write(&child, start, b"new");
    assert_eq!(&read::<3>(&parent, start), b"old");
}

#[test]
fn protection_errors_follow_linux() {
    let space = space();
    let start = map_pages(&space, 2, READ_WRITE);
    let hole = start - 10 * PAGE..start - 9 * PAGE;
    assert_eq!(space.protect(hole, READ_WRITE, false), Err(Errno::ENOMEM));
    let over = start + PAGE..start + 3 * PAGE;
    assert_eq!(space.protect(over, Protection::READ, false), Err(Errno::ENOMEM));
    assert_eq!(shape(&space).len(), 2, "what is mapped before the hole has changed");
    let object = shared_object(1);
    let mut request = MapRequest::anonymous(PAGE, Protection::READ);
    request.backing = Backing::Object { object, first_page: 0 };
    request.flags = AreaFlags::SHARED;
    request.allowed = Protection::READ;
    let file = space.map(request).unwrap();
    assert_eq!(space.protect(file..file + PAGE, READ_WRITE, false), Err(Errno::EACCES));
    assert_eq!(space.protect(file..file + PAGE, Protection::READ, true), Err(Errno::EINVAL));
}

fn remap(
    space: &Arc<AddressSpace>,
    address: u64,
    old: u64,
    new: u64,
    movement: Move,
) -> Result<u64, Errno> {
    space.remap(RemapRequest {
        address,
        old_length: old * PAGE,
        new_length: new * PAGE,
        movement,
        keep_old: false,
        hint: 0,
    })
}

#[test]
fn remapping_shrinks_grows_and_moves_with_contents() {
    let space = space();
    map_at(&space, 0x10_0000, 4, READ_WRITE);
    write(&space, 0x10_0000, b"first");
    write(&space, 0x10_1000, b"second");
    assert_eq!(remap(&space, 0x10_0000, 4, 2, Move::Never), Ok(0x10_0000));
    assert_eq!(remap(&space, 0x10_0000, 2, 3, Move::Never), Ok(0x10_0000));
    assert_eq!(shape(&space), [(0x10_0000, 3)]);
    map_at(&space, 0x10_3000, 1, Protection::READ);
    assert_eq!(remap(&space, 0x10_0000, 3, 5, Move::Never), Err(Errno::ENOMEM));
    let moved = remap(&space, 0x10_0000, 3, 5, Move::Anywhere).unwrap();
    assert_ne!(moved, 0x10_0000);
    assert_eq!(&read::<5>(&space, moved), b"first");
    assert_eq!(&read::<6>(&space, moved + PAGE), b"second");
    assert_eq!(fault(&space, 0x10_0000, Access::READ), Err(FaultSignal::NotMapped));
    assert_eq!(remap(&space, moved, 5, 1, Move::To(0x20_0000)), Ok(0x20_0000));
    assert_eq!(&read::<5>(&space, 0x20_0000), b"first");
    assert_eq!(shape(&space), [(0x10_3000, 1), (0x20_0000, 1)]);
    assert_eq!(space.counters().total, 2);
    assert_eq!(space.counters().resident, 1);
}

#[test]
fn remapping_nothing_of_a_shared_mapping_shows_it_twice() {
    let space = space();
    let start = map_object(&space, &shared_object(2), 2, true);
    write(&space, start + PAGE, b"both");
    let second = remap(&space, start, 0, 2, Move::Anywhere).unwrap();
    assert_eq!(&read::<4>(&space, second + PAGE), b"both");
    write(&space, second + PAGE, b"view");
    assert_eq!(&read::<4>(&space, start + PAGE), b"view");
    let private = map_pages(&space, 1, READ_WRITE);
    assert_eq!(remap(&space, private, 0, 1, Move::Anywhere), Err(Errno::EINVAL));
}

#[test]
fn remapping_can_leave_the_old_range_empty() {
    let space = space();
    map_at(&space, 0x10_0000, 2, READ_WRITE);
    write(&space, 0x10_0000, b"moved");
    let request = RemapRequest {
        address: 0x10_0000,
        old_length: 2 * PAGE,
        new_length: 2 * PAGE,
        movement: Move::Anywhere,
        keep_old: true,
        hint: 0,
    };
    let moved = space.remap(request).unwrap();
    assert_eq!(&read::<5>(&space, moved), b"moved");
    assert_eq!(read::<5>(&space, 0x10_0000), [0; 5]);
}

#[test]
fn remapping_errors_follow_linux() {
    let space = space();
    map_at(&space, 0x10_0000, 2, READ_WRITE);
    map_at(&space, 0x10_2000, 2, Protection::READ);
    assert_eq!(remap(&space, 0x90_0000, 1, 2, Move::Anywhere), Err(Errno::EFAULT));
    assert_eq!(remap(&space, 0x10_0000, 4, 5, Move::Anywhere), Err(Errno::EFAULT));
    assert_eq!(remap(&space, 0x10_0000, 2, 2, Move::To(0x10_1000)), Err(Errno::EINVAL));
    assert_eq!(remap(&space, 0x10_0000, 2, 2, Move::To(USER_END - PAGE)), Err(Errno::EINVAL));
}

#[test]
fn the_break_moves_both_ways_and_stays_when_it_cannot() {
    let space = space();
    space.start_heap(0x10_0000);
    assert_eq!(space.set_break(0), 0x10_0000);
    assert_eq!(space.set_break(0x10_0010), 0x10_0010);
    write(&space, 0x10_0000, b"heap");
    assert_eq!(space.set_break(0x10_3000), 0x10_3000);
    assert_eq!(shape(&space), [(0x10_0000, 3)]);
    map_at(&space, 0x10_5000, 1, READ_WRITE);
    assert_eq!(space.set_break(0x10_6000), 0x10_3000);
    assert_eq!(space.set_break(0x10_0800), 0x10_0800);
    assert_eq!(&read::<4>(&space, 0x10_0000), b"heap");
    space.set_limits(LimitValues { data: 2 * PAGE, ..LimitValues::default() });
    assert_eq!(space.set_break(0x10_4000), 0x10_0800);
    assert_eq!(space.set_break(u64::MAX), 0x10_0800);
}

#[test]
fn dropped_pages_read_zero_or_come_from_the_source_again() {
    let object = shared_object(1);
    object.source.page(0).unwrap().write(0, b"file");
    let space = space();
    let memory = map_pages(&space, 1, READ_WRITE);
    let file = map_object(&space, &object, 1, false);
    write(&space, memory, b"gone");
    write(&space, file, b"gone");
    finish(space.advise(memory..memory + PAGE, Advice::DontNeed)).unwrap();
    finish(space.advise(file..file + PAGE, Advice::DontNeed)).unwrap();
    assert_eq!(read::<4>(&space, memory), [0; 4]);
    assert_eq!(&read::<4>(&space, file), b"file");
}

#[test]
fn advice_is_checked_against_the_area() {
    let space = space();
    let memory = map_pages(&space, 2, READ_WRITE);
    let file = map_object(&space, &shared_object(1), 1, true);
    let advise = |start, pages, advice| finish(space.advise(start..start + pages * PAGE, advice));
    assert_eq!(advise(memory, 1, Advice::Remove), Err(Errno::EINVAL));
    assert_eq!(advise(file, 1, Advice::Free), Err(Errno::EINVAL));
    assert_eq!(space.mark(file..file + PAGE, Advice::WipeOnFork), Err(Errno::EINVAL));
    assert_eq!(advise(memory, 9, Advice::Hint), Err(Errno::ENOMEM));
    assert_eq!(advise(memory, 2, Advice::PopulateWrite), Ok(()));
    assert_eq!(space.residency(memory..memory + 2 * PAGE).unwrap(), [1, 1]);
    write(&space, file, b"x");
    assert_eq!(advise(file, 1, Advice::Remove), Ok(()));
    assert_eq!(read::<1>(&space, file), [0]);
    space.set_locked(memory..memory + PAGE, true, u64::MAX).unwrap();
    assert_eq!(advise(memory, 1, Advice::DontNeed), Err(Errno::EINVAL));
    assert_eq!(advise(memory, 1, Advice::DontNeedLocked), Ok(()));
}

#[test]
fn locking_is_counted_against_its_limit() {
    let space = space();
    let start = map_pages(&space, 4, READ_WRITE);
    assert_eq!(space.set_locked(start..start + 3 * PAGE, true, 2 * PAGE), Err(Errno::ENOMEM));
    assert_eq!(space.set_locked(start..start + 2 * PAGE, true, 2 * PAGE), Ok(()));
    assert_eq!(space.set_locked(start..start + 2 * PAGE, true, 2 * PAGE), Ok(()));
    assert_eq!(space.counters().locked, 2);
    assert_eq!(space.set_locked(start + 3 * PAGE..start + 9 * PAGE, false, 0), Err(Errno::ENOMEM));
    space.set_future_locked(false, false, 0).unwrap();
    space.set_locked(0..USER_END, false, 0).unwrap_err();
    assert_eq!(space.counters().locked, 0);
}

#[test]
fn maps_has_the_lines_of_linux() {
    let space = space();
    space.start_heap(0x60_0000);
    space.set_break(0x60_2000);
    map_at(&space, 0x40_0000, 2, Protection::READ | Protection::EXECUTE);
    let mut request = MapRequest::anonymous(PAGE, Protection::READ);
    request.place = Place::Fixed(0x7000_0000_0000);
    request.backing = Backing::Object { object: shared_object(3), first_page: 2 };
    request.flags = AreaFlags::SHARED;
    space.map(request).unwrap();
    let mut text = Vec::new();
    assert_eq!(space.maps(0, &mut text), Ok(None));
    let text = String::from_utf8(text).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "00400000-00402000 r-xp 00000000 00:00 0 ");
    assert_eq!(lines[1], format_line("00600000-00602000 rw-p 00000000 00:00 0 ", "[heap]"));
    let start = "700000000000-700000001000 r--s 00002000 00:01 ";
    assert!(lines[2].starts_with(start), "{}", lines[2]);
    assert_eq!(lines[2].find("/file"), Some(73));
}

#[test]
fn maps_comes_in_parts_that_make_up_the_whole() {
    let space = space();
    for index in 0..1000 {
        map_at(&space, 0x40_0000 + index * 2 * PAGE, 1, Protection::READ);
    }
    let (mut cursor, mut whole, mut parts) = (Some(0), Vec::new(), 0);
    while let Some(start) = cursor {
        let mut text = Vec::new();
        cursor = space.maps(start, &mut text).unwrap();
        assert!(text.len() < 20_000 && text.ends_with(b"\n"));
        whole.extend(text);
        parts += 1;
    }
    let whole = String::from_utf8(whole).unwrap();
    assert!(parts > 1);
    assert_eq!(whole.lines().count(), 1000);
    for (index, line) in (0..).zip(whole.lines()) {
        let start = 0x40_0000 + index * 2 * PAGE;
        assert!(line.starts_with(&alloc::format!("{start:08x}-")), "{line}");
    }
}

fn format_line(start: &str, name: &str) -> String {
    alloc::format!("{start:<73}{name}")
}

#[test]
fn everything_is_freed_with_the_space() {
    let before = base::memory::reserve::available();
    {
        let space = space();
        let start = map_pages(&space, 300, READ_WRITE);
        for page in 0..300 {
            write(&space, start + page * PAGE, b"x");
        }
        let child = space.fork().unwrap();
        write(&child, start, b"y");
    }
    // Other tests run at the same time and hold frames, but never as many as this one had.
    let after = base::memory::reserve::available();
    assert!(after + 250 > before, "{} frames are lost", before - after);
}

#[test]
fn pages_that_are_written_back_are_protected_in_parts_wherever_they_are_mapped() {
    const PAGES: u64 = 1500;
    let space = space();
    let object = shared_object(PAGES);
    let views = [0, 1].map(|_| map_object(&space, &object, PAGES, true));
    let mut pages = Vec::new();
    for index in 0..PAGES {
        for start in views {
            write(&space, start + index * PAGE, b"x");
        }
        if index % 3 > 0 {
            pages.push(index);
        }
    }
    let (mut from, mut parts) = (0, 1);
    while let Some(next) = space.protect_source_part(object.source.content(), &pages, from) {
        assert!(next > from);
        (from, parts) = (next, parts + 1);
    }
    assert_eq!(parts, 2);
    let inner = space.lock();
    for start in views {
        for index in 0..PAGES {
            let state = inner.table.peek(VirtAddr(start + index * PAGE)).unwrap();
            assert_eq!(state.rights.write, index % 3 == 0, "page {index}");
        }
    }
}
