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
    finish(space.advise(page..page + PAGE, abi::memory::Advice::DontNeed)).unwrap();
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
    space.unpin(page, &frame);
    assert_eq!(space.pin(page).err(), Some(Errno::EBUSY));
}
