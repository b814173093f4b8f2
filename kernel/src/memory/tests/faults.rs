//! Demand paging, copy-on-write, signals, the stack.

use super::*;
use abi::Errno;

#[test]
fn a_fresh_page_reads_zero_and_takes_no_memory_until_it_is_written() {
    let space = space();
    let start = map_pages(&space, 4, READ_WRITE);
    assert_eq!(read::<8>(&space, start), [0; 8]);
    assert_eq!(space.counters().resident, 0);
    write(&space, start, b"ferry");
    assert_eq!(&read::<5>(&space, start), b"ferry");
    assert_eq!(space.counters().resident, 1);
    assert_eq!(read::<8>(&space, start + PAGE), [0; 8]);
}

#[test]
fn each_wrong_access_gets_its_signal() {
    let space = space();
    let read_only = map_pages(&space, 1, Protection::READ);
    let nothing = map_pages(&space, 1, Protection::empty());
    assert_eq!(fault(&space, 0, Access::READ), Err(FaultSignal::NotMapped));
    assert_eq!(fault(&space, USER_END, Access::READ), Err(FaultSignal::NotMapped));
    assert_eq!(fault(&space, u64::MAX, Access::WRITE), Err(FaultSignal::NotMapped));
    assert_eq!(fault(&space, read_only, Access::WRITE), Err(FaultSignal::NotPermitted));
    assert_eq!(fault(&space, read_only, Access::EXECUTE), Err(FaultSignal::NotPermitted));
    assert_eq!(fault(&space, nothing, Access::READ), Err(FaultSignal::NotPermitted));
    assert_eq!(FaultSignal::NotMapped.signal_and_code(), (11, 1));
    assert_eq!(FaultSignal::NotPermitted.signal_and_code(), (11, 2));
    assert_eq!(FaultSignal::NoSuchPage.signal_and_code(), (7, 2));
}

#[test]
fn past_the_end_of_a_source_is_a_bus_error() {
    let space = space();
    let start = map_object(&space, &shared_object(2), 4, true);
    assert_eq!(fault(&space, start + PAGE, Access::READ), Ok(()));
    assert_eq!(fault(&space, start + 2 * PAGE, Access::READ), Err(FaultSignal::NoSuchPage));
}

#[test]
fn a_private_mapping_never_changes_its_source() {
    let object = shared_object(2);
    object.source.page(0).unwrap().write(0, b"original");
    let space = space();
    let start = map_object(&space, &object, 2, false);
    assert_eq!(&read::<8>(&space, start), b"original");
    write(&space, start, b"changed!");
    write(&space, start + PAGE, b"direct");
    assert_eq!(&read::<8>(&space, start), b"changed!");
    let mut bytes = [0; 8];
    object.source.page(0).unwrap().read(0, &mut bytes);
    assert_eq!(&bytes, b"original");
    object.source.page(1).unwrap().read(0, &mut bytes);
    assert_eq!(bytes, [0; 8]);
}

#[test]
fn a_shared_mapping_is_seen_by_all_who_map_it() {
    let object = shared_object(1);
    let (first, second) = (space(), space());
    let here = map_object(&first, &object, 1, true);
    let there = map_object(&second, &object, 1, true);
    write(&first, here + 10, b"hello");
    assert_eq!(&read::<5>(&second, there + 10), b"hello");
}

#[test]
fn after_fork_private_pages_part_and_shared_pages_stay() {
    let parent = space();
    let private = map_pages(&parent, 2, READ_WRITE);
    let shared = map_object(&parent, &shared_object(1), 1, true);
    write(&parent, private, b"before");
    write(&parent, shared, b"before");
    let child = parent.fork().unwrap();
    assert_eq!(&read::<6>(&child, private), b"before");
    write(&child, private, b"child!");
    write(&child, shared, b"child!");
    assert_eq!(&read::<6>(&parent, private), b"before");
    assert_eq!(&read::<6>(&parent, shared), b"child!");
    write(&parent, private, b"parent");
    assert_eq!(&read::<6>(&child, private), b"child!");
    assert_eq!(parent.counters().resident, child.counters().resident);
}

#[test]
fn a_page_that_is_nobody_elses_is_not_copied_again() {
    let parent = space();
    let start = map_pages(&parent, 1, READ_WRITE);
    write(&parent, start, b"x");
    let frame = |space: &AddressSpace| {
        space.lock().table.peek(base::memory::VirtAddr(start)).unwrap().frame
    };
    let before = frame(&parent);
    drop(parent.fork().unwrap());
    write(&parent, start, b"y");
    assert_eq!(frame(&parent), before);
}

#[test]
fn forked_areas_obey_their_advice() {
    let parent = space();
    let kept = map_pages(&parent, 1, READ_WRITE);
    let wiped = map_pages(&parent, 1, READ_WRITE | Protection::EXECUTE);
    let hidden = map_pages(&parent, 1, READ_WRITE);
    for address in [kept, wiped, hidden] {
        write(&parent, address, b"x");
    }
    parent.mark(wiped..wiped + PAGE, Advice::WipeOnFork).unwrap();
    parent.mark(hidden..hidden + PAGE, Advice::DontFork).unwrap();
    let child = parent.fork().unwrap();
    assert_eq!(read::<1>(&child, kept), *b"x");
    assert_eq!(read::<1>(&child, wiped), [0]);
    assert_eq!(fault(&child, hidden, Access::READ), Err(FaultSignal::NotMapped));
    assert_eq!(child.counters().resident, 1);
}

#[test]
fn the_stack_grows_within_its_limit_and_keeps_its_guard() {
    let space = space();
    let top = 0x7000_0000_0000;
    let mut request = MapRequest::anonymous(PAGE, READ_WRITE);
    request.place = Place::Fixed(top - PAGE);
    request.flags = AreaFlags::GROWS_DOWN;
    space.map(request).unwrap();
    let limit = space.limits().stack;
    assert_eq!(fault(&space, top - 100 * PAGE, Access::WRITE), Ok(()));
    assert_eq!(shape(&space), [(top - 100 * PAGE, 100)]);
    assert_eq!(fault(&space, top - limit - PAGE, Access::WRITE), Err(FaultSignal::NotMapped));
    map_at(&space, top - 500 * PAGE, 1, READ_WRITE);
    assert_eq!(fault(&space, top - 240 * PAGE, Access::WRITE), Ok(()));
    assert_eq!(fault(&space, top - 250 * PAGE, Access::WRITE), Err(FaultSignal::NotMapped));
}

#[test]
fn a_run_of_writes_brings_pages_in_ahead_but_not_past_the_area() {
    let space = space();
    let start = map_pages(&space, 40, READ_WRITE);
    let mut faults = 0;
    for page in 0..40 {
        let address = start + page * PAGE;
        if space.lock().table.peek(base::memory::VirtAddr(address)).is_none() {
            faults += 1;
            assert_eq!(fault(&space, address, Access::WRITE), Ok(()));
        }
    }
    assert!(faults < 10, "{faults} faults for 40 pages in order");
    assert_eq!(space.counters().resident, 40);
    let scattered = map_pages(&space, 1000, READ_WRITE);
    for page in (0..1000).step_by(100) {
        assert_eq!(fault(&space, scattered + page * PAGE, Access::WRITE), Ok(()));
    }
    assert_eq!(space.counters().resident, 50);
}

#[test]
fn neighbours_that_the_source_has_come_along() {
    let object = shared_object(32);
    for index in [3, 4, 5, 20] {
        object.source.page(index).unwrap();
    }
    let space = space();
    let start = map_object(&space, &object, 32, false);
    assert_eq!(fault(&space, start + 4 * PAGE, Access::READ), Ok(()));
    let is_there =
        |page: u64| space.lock().table.peek(base::memory::VirtAddr(start + page * PAGE)).is_some();
    assert!(is_there(3) && is_there(4) && is_there(5));
    assert!(!is_there(2) && !is_there(6) && !is_there(20));
    write(&space, start + 5 * PAGE, b"private");
    let mut byte = [1];
    object.source.page(5).unwrap().read(0, &mut byte);
    assert_eq!(byte, [0]);
}

#[test]
fn user_memory_refuses_what_the_program_may_not_touch() {
    let space = space();
    let memory = UserMemory::new(space.clone());
    let start = map_pages(&space, 1, Protection::READ);
    let end = start + PAGE;
    assert_eq!(finish(memory.write_bytes(start, b"x")), Err(Errno::EFAULT));
    assert_eq!(finish(memory.read_bytes(end - 1, &mut [0; 2])), Err(Errno::EFAULT));
    assert_eq!(finish(memory.read_value::<u64>(u64::MAX - 3)), Err(Errno::EFAULT));
    assert_eq!(finish(memory.read_value::<u64>(USER_END - 4)), Err(Errno::EFAULT));
    assert_eq!(finish(memory.read_bytes(USER_END, &mut [])), Ok(()));
    assert_eq!(finish(memory.load_u32(start + 1)), Err(Errno::EINVAL));
    assert_eq!(finish(memory.load_u32(start)), Ok(0));
    assert_eq!(finish(memory.compare_exchange_u32(start, 0, 1)), Err(Errno::EFAULT));
}

#[test]
fn strings_are_read_across_pages_up_to_their_end_or_limit() {
    let space = space();
    let memory = UserMemory::new(space.clone());
    let start = map_pages(&space, 2, READ_WRITE);
    let at = start + PAGE - 3;
    write(&space, at, b"abcdef\0");
    assert_eq!(finish(memory.read_string(at, 100)).unwrap(), b"abcdef");
    assert_eq!(finish(memory.read_string(at, 7)).unwrap(), b"abcdef");
    assert_eq!(finish(memory.read_string(at, 6)), Err(Errno::ENAMETOOLONG));
    write(&space, start + 2 * PAGE - 2, b"xy");
    assert_eq!(finish(memory.read_string(start + 2 * PAGE - 2, 100)), Err(Errno::EFAULT));
    let other = map_pages(&space, 1, READ_WRITE);
    write(&space, other, &[b'z'; 3000]);
    assert_eq!(finish(memory.read_string(other, 4096)).unwrap(), [b'z'; 3000]);
}

#[test]
fn a_sink_stops_at_a_missing_page_and_goes_on() {
    use base::io::{Sink, Source};
    let space = space();
    let memory = UserMemory::new(space.clone());
    let start = map_pages(&space, 3, READ_WRITE);
    write(&space, start, b"#");
    let vectors = alloc::vec![
        IoVector { address: start, length: 6 },
        IoVector { address: 0, length: 0 },
        IoVector { address: start + PAGE + 8, length: 4 },
    ];
    let mut sink = memory.sink_vector(vectors.clone()).unwrap();
    assert_eq!(sink.remaining(), 10);
    assert_eq!(sink.write(b"0123456789"), 6);
    assert!(sink.is_stopped());
    finish(sink.fault_in_next()).unwrap();
    assert_eq!(sink.write(b"6789!"), 4);
    assert_eq!((sink.remaining(), sink.is_stopped()), (0, false));
    let mut source = memory.source_vector(vectors).unwrap();
    let mut bytes = [0; 16];
    assert_eq!(source.read(&mut bytes), 10);
    assert_eq!(&bytes[..10], b"0123456789");
    let outside = alloc::vec![IoVector { address: USER_END - 2, length: 4 }];
    assert_eq!(memory.source_vector(outside).err(), Some(Errno::EFAULT));
    let mut unmapped = memory.sink(0x10_0000, 4).unwrap();
    assert_eq!(unmapped.write(b"x"), 0);
    assert_eq!(finish(unmapped.fault_in_next()), Err(Errno::EFAULT));
}

#[test]
fn futex_keys_tell_shared_from_private_words() {
    let parent = space();
    let private = map_pages(&parent, 1, READ_WRITE);
    let shared = map_object(&parent, &shared_object(2), 2, true);
    let child = parent.fork().unwrap();
    let key = |space: &Arc<AddressSpace>, address, is_private| {
        UserMemory::new(space.clone()).futex_key(address, is_private)
    };
    assert_eq!(key(&parent, shared + 4, false), key(&child, shared + 4, false));
    assert_ne!(key(&parent, shared + 4, false), key(&parent, shared + PAGE + 4, false));
    assert_ne!(key(&parent, shared + 4, true), key(&child, shared + 4, true));
    assert_ne!(key(&parent, private, false), key(&child, private, false));
    assert_eq!(key(&parent, private, false), key(&parent, private, true));
    assert_eq!(key(&parent, 0x10_0000, false), Err(Errno::EFAULT));
    assert_eq!(key(&parent, shared + 2, false), Err(Errno::EINVAL));
}
