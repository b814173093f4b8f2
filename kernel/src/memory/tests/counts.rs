//! The sizes of an address space, which are kept up to date: after anything they are what a count would give.

use super::*;

/// What a count of all areas and pages gives.
fn counted(space: &AddressSpace) -> Counters {
    let inner = space.lock();
    let mut counters = Counters {
        total_peak: inner.total_peak,
        resident_peak: inner.resident_peak,
        tables: inner.table.table_count() as u64,
        ..Counters::default()
    };
    let zero = inner.zero_address();
    for (start, area) in inner.areas.iter() {
        let pages = (area.end - start) / PAGE;
        counters.total += pages;
        if area.flags.contains(AreaFlags::GROWS_DOWN) {
            counters.stack += pages;
        } else if area.is_private() && area.protection.contains(Protection::WRITE) {
            counters.data += pages;
        } else if area.protection.contains(Protection::EXECUTE) {
            counters.text += pages;
        }
        counters.locked += if area.flags.contains(AreaFlags::LOCKED) { pages } else { 0 };
        let range = base::memory::VirtAddr(start)..base::memory::VirtAddr(area.end);
        inner.table.for_each(range, |_, state| {
            let is_counted = state.frame != zero;
            counters.resident += u64::from(is_counted);
            counters.resident_shared += u64::from(is_counted && !area.is_private());
        });
    }
    counters
}

/// A number below `below`; the same ones in each run.
fn draw(seed: &mut u64, below: u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 33) % below
}

#[test]
fn sizes_are_what_a_count_gives() {
    const PAGES: u64 = 64;
    const BASE: u64 = 0x4000_0000;
    let object = shared_object(PAGES);
    let mut space = space();
    let mut seed = 7;
    let mut seen = Counters::default();
    for _ in 0..1500 {
        let start = draw(&mut seed, PAGES);
        let pages = 1 + draw(&mut seed, PAGES - start);
        let range = BASE + start * PAGE..BASE + (start + pages) * PAGE;
        let protection = [Protection::READ, READ_WRITE, READ_WRITE | Protection::EXECUTE]
            [draw(&mut seed, 3) as usize];
        match draw(&mut seed, 10) {
            kind @ 0..=2 => {
                space.unmap(range.clone()).unwrap();
                let mut request = MapRequest {
                    place: Place::Fixed(range.start),
                    ..MapRequest::anonymous(pages * PAGE, protection)
                };
                request.flags.set(AreaFlags::SHARED, kind == 1);
                request.flags.set(AreaFlags::GROWS_DOWN, kind == 0 && pages.is_multiple_of(5));
                if kind > 0 {
                    request.backing = Backing::Object { object: object.clone(), first_page: start };
                }
                space.map(request).unwrap();
            }
            3 => space.unmap(range).unwrap(),
            4 => _ = space.protect(range, protection, false),
            5 => _ = space.set_locked(range, pages.is_multiple_of(2), u64::MAX),
            6 => _ = finish(space.advise(range, Advice::DontNeed)),
            7 => {
                let _ = space.remap(RemapRequest {
                    address: range.start,
                    old_length: pages * PAGE,
                    new_length: (1 + draw(&mut seed, 2 * pages)) * PAGE,
                    movement: Move::Anywhere,
                    keep_old: false,
                    hint: 0,
                });
            }
            8 if pages.is_multiple_of(4) => space = space.fork().unwrap(),
            _ => {
                for page in range.step_by(PAGE as usize) {
                    let write = pages.is_multiple_of(2);
                    let _ = fault(&space, page, Access { write, execute: false });
                }
            }
        }
        let now = space.counters();
        assert_eq!(now, counted(&space));
        seen.resident_shared = seen.resident_shared.max(now.resident_shared);
        seen.stack = seen.stack.max(now.stack);
        seen.text = seen.text.max(now.text);
        seen.locked = seen.locked.max(now.locked);
    }
    assert!(seen.resident_shared > 8 && seen.stack > 0 && seen.text > 0 && seen.locked > 0);
    space.unmap(0..USER_END).unwrap();
    assert_eq!(space.counters(), counted(&space));
    assert_eq!(space.counters().resident_shared, 0);
}
