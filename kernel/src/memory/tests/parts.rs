//! Changes of much memory: the parts are bounded, see what empties cost, and what is in motion waits.

use alloc::sync::Weak;

use super::*;

/// How many parts a change has.
fn count(from: u64, mut part: impl FnMut(u64) -> Option<u64>) -> usize {
    let mut parts = 0;
    whole(from, |at| {
        parts += 1;
        part(at)
    });
    parts
}

fn filled(space: &Arc<AddressSpace>, pages: u64) -> Range<u64> {
    let start = map_pages(space, pages, READ_WRITE);
    finish(space.populate(start..start + pages * PAGE));
    start..start + pages * PAGE
}

#[test]
fn each_change_of_much_memory_has_parts() {
    let space = space();
    let many = 8 * PAGES_AT_ONCE;
    let range = filled(&space, many);
    let mut change = finish(space.begin_change());
    let copy = change.begin_copy().unwrap();
    assert!(count(0, |at| change.copy_part(&copy, at).unwrap()) >= 8);
    assert_eq!(copy.resident(), many);
    assert!(count(range.start, |at| change.protect_part(at..range.end, Protection::READ)) >= 8);
    assert_eq!(space.lock().areas.len(), 1);
    let parts = count(range.start, |at| change.unmap_part(at..range.end));
    assert!((8..20).contains(&parts), "{parts}");
    assert_eq!((space.resident(), copy.resident()), (0, many));
}

#[test]
fn many_areas_have_parts_too() {
    let space = space();
    for index in 0..PAGES_AT_ONCE {
        map_at(&space, 0x10_0000 + 2 * index * PAGE, 1, READ_WRITE);
    }
    let range = 0x10_0000..0x10_0000 + 2 * PAGES_AT_ONCE * PAGE;
    let mut change = finish(space.begin_change());
    let copy = change.begin_copy().unwrap();
    let parts = count(0, |at| change.copy_part(&copy, at).unwrap());
    assert!((4..10).contains(&parts), "{parts}");
    assert_eq!(shape(&copy), shape(&space));
    assert!(count(range.start, |at| change.lock_part(at..range.end, true)) >= 4);
    assert!(count(range.start, |at| change.unmap_part(at..range.end)) >= 4);
    assert!(space.is_free(range));
}

#[test]
fn emptiness_costs_nothing() {
    let space = space();
    let pages = (1 << 40) / PAGE;
    let request = MapRequest {
        flags: AreaFlags::NO_RESERVE,
        ..MapRequest::anonymous(pages * PAGE, READ_WRITE)
    };
    let start = space.map(request).unwrap();
    write(&space, start + (1 << 39), b"x");
    let end = start + pages * PAGE;
    assert!(count(start, |at| space.discard_part(at..end)) <= 2);
    assert!(space.is_one_part(start..end));
    assert_eq!(space.present_piece(start..end), Some(start..end));
}

#[test]
fn a_fault_waits_for_the_end_of_a_change_that_takes_its_page() {
    let space = space();
    let pages = 2 * PAGES_AT_ONCE;
    let range = filled(&space, pages);
    let elsewhere = map_pages(&space, 1, READ_WRITE);
    let mut change = finish(space.begin_change());
    let next = change.unmap_part(range.clone()).unwrap();
    let mut waiting = pin!(space.fault(base::memory::VirtAddr(range.start), Access::READ));
    let mut context = Context::from_waker(Waker::noop());
    assert!(waiting.as_mut().poll(&mut context).is_pending());
    assert_eq!(fault(&space, elsewhere, Access::WRITE), Ok(()));
    whole(next, |at| change.unmap_part(at..range.end));
    drop(change);
    assert_eq!(waiting.poll(&mut context), Poll::Ready(Err(FaultSignal::NotMapped)));
}

#[test]
fn one_change_at_a_time() {
    let space = space();
    let first = finish(space.begin_change());
    let mut second = pin!(space.begin_change());
    let mut context = Context::from_waker(Waker::noop());
    assert!(second.as_mut().poll(&mut context).is_pending());
    drop(first);
    assert!(second.poll(&mut context).is_ready());
    drop(finish(space.begin_change()));
}

#[test]
fn a_move_can_be_taken_back() {
    let space = space();
    let pages = 4 * PAGES_AT_ONCE;
    let range = filled(&space, pages);
    write(&space, range.start + 5 * PAGE, b"five");
    let before = shape(&space);
    let mut change = finish(space.begin_change());
    let request = RemapRequest {
        address: range.start,
        old_length: pages * PAGE,
        new_length: 2 * pages * PAGE,
        movement: Move::To(0x50_0000_0000),
        keep_old: false,
        hint: 0,
    };
    let (_, transfer) = change.remap(request).unwrap();
    let transfer = transfer.unwrap();
    let reached = change.move_part(&transfer, range.start).unwrap().unwrap();
    whole(range.start, |at| change.move_part_back(&transfer, at, reached));
    change.give_up_move(&transfer, request.new_length);
    drop(change);
    assert_eq!(shape(&space), before);
    assert_eq!(read(&space, range.start + 5 * PAGE), *b"five");
    assert_eq!(space.resident(), pages);
}

#[test]
fn a_child_that_is_made_loses_what_a_file_loses() {
    let space = space();
    let object = shared_object(4);
    let start = map_object(&space, &object, 4, true);
    write(&space, start, b"x");
    let change = finish(space.begin_change());
    let copy = change.begin_copy().unwrap();
    whole(0, |at| change.copy_part(&copy, at).unwrap());
    let (device, inode) = (object.source.device(), object.source.inode());
    let inode = fs::metadata::InodeId { device, number: inode };
    let lose = |space: &AddressSpace| {
        whole(0, |at| space.drop_source_part(inode, &(0..u64::MAX), at));
    };
    lose(&space);
    space.copies().iter().filter_map(Weak::upgrade).for_each(|copy| lose(&copy));
    assert_eq!((space.resident(), copy.resident()), (0, 0));
    space.forget_copy(&copy);
}

#[test]
fn what_a_file_loses_has_parts() {
    let space = space();
    let pages = 16 * PAGES_AT_ONCE;
    let object = shared_object(pages);
    let inode =
        fs::metadata::InodeId { device: object.source.device(), number: object.source.inode() };
    let start = map_object(&space, &object, pages, true);
    for page in 0..pages {
        write(&space, start + page * PAGE, b"x");
    }
    let private = map_object(&space, &object, 1, false);
    write(&space, private, b"y");
    let lose = |lost: Range<u64>| count(0, |at| space.drop_source_part(inode, &lost, at));
    assert_eq!(lose(pages..u64::MAX), 1);
    assert!((3..10).contains(&lose(8..pages)));
    assert_eq!(space.resident(), 8 + 1);
    // A hole leaves copies, a cut does not.
    lose(0..4);
    assert_eq!(space.resident(), 4 + 1);
    lose(0..u64::MAX);
    assert_eq!(space.resident(), 0);
    // Many mappings of one page.
    for index in 0..PAGES_AT_ONCE {
        let request = MapRequest {
            place: Place::Fixed(0x10_0000 + 2 * index * PAGE),
            flags: AreaFlags::SHARED,
            backing: Backing::Object { object: object.clone(), first_page: 0 },
            ..MapRequest::anonymous(PAGE, READ_WRITE)
        };
        let at = space.map(request).unwrap();
        write(&space, at, b"x");
    }
    assert!((3..10).contains(&lose(0..1)));
    assert_eq!(space.resident(), 0);
}

#[test]
fn areas_beyond_the_limit_are_refused() {
    let space = space();
    let pages = 2 * MOST_AREAS as u64 + 8;
    let start = map_pages(&space, pages, Protection::empty());
    let mut page = start;
    let refused = loop {
        match space.protect(page..page + PAGE, Protection::READ, false) {
            Ok(()) => page += 2 * PAGE,
            Err(error) => break error,
        }
    };
    assert_eq!(refused, Errno::ENOMEM);
    assert!(space.lock().areas.len() <= MOST_AREAS);
    assert_eq!(space.mark(page..page + PAGE, Advice::DontFork), Err(Errno::EAGAIN));
}
