//! Pages that the kernel shares with a program.

use abi::Errno;

use super::*;

#[test]
fn a_pinned_page_stays_the_same_frame_over_a_fork() {
    let space = space();
    let rights = Protection::READ | Protection::WRITE;
    let page = space.map(MapRequest::anonymous(PAGE, rights)).unwrap();
    let frame = space.pin(page).unwrap();
    assert_eq!(space.pin(page).err(), Some(Errno::EBUSY));
    write(&space, page, b"before");
    let child = space.fork().unwrap();
    write(&space, page, b"after!");
    let mut bytes = [0; 6];
    frame.read(0, &mut bytes);
    assert_eq!(&bytes, b"after!");
    assert_eq!(&read::<6>(&child, page), b"before");
    write(&child, page, b"child.");
    assert_eq!(&read::<6>(&space, page), b"after!");
    space.unmap(page..page + PAGE).unwrap();
    frame.write(0, b"still");
}

#[test]
fn what_cannot_be_pinned_says_why() {
    let space = space();
    assert_eq!(space.pin(0x10_0000).err(), Some(Errno::EFAULT));
    let page = space.map(MapRequest::anonymous(PAGE, Protection::READ)).unwrap();
    assert_eq!(space.pin(page).err(), Some(Errno::EACCES));
}

#[test]
fn a_page_that_takes_the_place_of_a_pinned_one_is_like_others() {
    let space = space();
    let rights = Protection::READ | Protection::WRITE;
    let page = space.map(MapRequest::anonymous(PAGE, rights)).unwrap();
    let frame = space.pin(page).unwrap();
    finish(space.advise(page..page + PAGE, Advice::DontNeed)).unwrap();
    // Shows the zero page, which everybody has.
    assert_eq!(read::<6>(&space, page), [0; 6]);
    let child = space.fork().unwrap();
    write(&space, page, b"parent");
    write(&child, page, b"child.");
    let mut bytes = [0; 6];
    base::memory::zero_frame().read(0, &mut bytes);
    assert_eq!(bytes, [0; 6]);
    assert_eq!(&read::<6>(&space, page), b"parent");
    assert!(space.pin(page).is_ok());
    space.unpin(&frame);
    assert_eq!(space.pin(page).err(), Some(Errno::EBUSY));
}

#[test]
fn a_pinned_page_that_has_moved_is_pinned_where_it_is() {
    let space = space();
    let rights = Protection::READ | Protection::WRITE;
    let page = space.map(MapRequest::anonymous(PAGE, rights)).unwrap();
    let frame = space.pin(page).unwrap();
    let target = page - 16 * PAGE;
    let request = RemapRequest {
        address: page,
        old_length: PAGE,
        new_length: PAGE,
        movement: Move::To(target),
        keep_old: false,
        hint: 0,
    };
    assert_eq!(space.remap(request), Ok(target));
    let child = space.fork().unwrap();
    frame.write(0, b"kernel");
    assert_eq!(&read::<6>(&space, target), b"kernel");
    assert_eq!(read::<6>(&child, target), [0; 6], "the child has a page of its own");
    space.unpin(&frame);
    assert!(space.pin(target).is_ok());
}

#[test]
fn the_kernel_takes_only_its_own_pages_out() {
    let space = space();
    let frames = [base::memory::Frame::zeroed().unwrap(), base::memory::Frame::zeroed().unwrap()];
    let pages = frames.iter().map(|frame| SharedPage {
        frame: frame.clone(),
        protection: Protection::READ,
        flags: AreaFlags::SHARED,
    });
    let start = space.map_shared(SharedPlace::Near(0), b"[ferry]", pages.collect()).unwrap();
    let own = MapRequest {
        place: Place::Fixed(start),
        ..MapRequest::anonymous(PAGE, Protection::READ | Protection::WRITE)
    };
    assert_eq!(space.map(own), Ok(start));
    write(&space, start, b"own");
    space.unmap_shared(start..start + 2 * PAGE, &[&frames[0], &frames[1]]);
    assert_eq!(&read::<3>(&space, start), b"own");
    assert!(space.is_free(start + PAGE..start + 2 * PAGE));
}
