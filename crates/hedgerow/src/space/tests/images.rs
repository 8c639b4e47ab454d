//! Slots for images of many lengths: what each costs of the room, where a batch begins, and how long a file gets in which
//! they are written again and again.

use super::*;
use hedgerow_sync::primitive::atomic::Ordering::Relaxed;

const PAGE: u32 = 4096;
const UNIT: u32 = 512;

fn new_zones() -> Zones {
    Zones::create(Geometry::from_sizes(PAGE, UNIT, 2 << 20).unwrap())
}

/// Allocates, and makes the file longer as is wanted.
fn allocate(zones: &mut Zones, lens: &[u32]) -> Vec<(usize, u64)> {
    let mut out = Vec::new();
    loop {
        match zones.allocate_images(lens, Growth::Allowed, &mut out) {
            Ok(()) => return out,
            Err(Want::Grow { units, .. }) => zones.grown(units),
            Err(want) => panic!("{want:?}"),
        }
    }
}

/// Images as they are of leaves that were filled at random: half of a page to all of it.
fn some_lens(random: &mut SplitMix64, count: usize) -> Vec<u32> {
    (0..count).map(|_| UNIT * (5 + random.below(4) as u32)).collect()
}

fn any_lens(random: &mut SplitMix64, count: usize) -> Vec<u32> {
    (0..count).map(|_| UNIT * (1 + random.below(8) as u32)).collect()
}

/// A page that is dirty was let in for the room of a whole one, whatever gaps there are.
#[test]
fn an_image_of_any_length_costs_the_room_of_a_page_at_most() {
    let mut random = SplitMix64::new(11);
    for (page, unit) in [(4096, 512), (8192, 512), (8192, 4096), (65536, 1024)] {
        let mut zones = Zones::create(Geometry::from_sizes(page, unit, 2 << 20).unwrap());
        zones.grown(4 * u64::from(zones.geometry().units_per_zone()));
        let room = zones.room();
        let mut held: Vec<(u32, u64)> = Vec::new();
        for round in 0..600 {
            let count = 1 + random.below(40) as usize;
            let of = u64::from(page / unit);
            let lens: Vec<u32> = (0..count).map(|_| unit * (1 + random.below(of) as u32)).collect();
            let before = room.load(Relaxed);
            let mut out = Vec::new();
            match zones.allocate_images(&lens, Growth::Refused, &mut out) {
                Ok(()) => {
                    let after = room.load(Relaxed);
                    assert!(after + count as u64 >= before, "{page}: {before} {count} {after}");
                    let mut named: Vec<usize> = out.iter().map(|&(index, _)| index).collect();
                    named.sort_unstable();
                    assert!(named.into_iter().eq(0..count), "each has a place");
                    held.extend(out.iter().map(|&(index, offset)| (lens[index], offset)));
                }
                Err(_) => {
                    assert!(
                        before < count as u64,
                        "{page}: there was room for {before}, not {count}"
                    );
                    assert_eq!(room.load(Relaxed), before, "all or nothing");
                }
            }
            let least = if round % 100 < 50 { 0 } else { held.len() as u64 / 2 };
            for _ in 0..least.max(random.below(held.len() as u64 / 3 + 1)) {
                let (len, offset) = held.swap_remove(random.below(held.len() as u64) as usize);
                zones.give_back(offset, len);
            }
            zones.verify().unwrap();
        }
        for (len, offset) in held {
            zones.give_back(offset, len);
        }
        let pages = 4 * (2 << 20) / u64::from(page);
        assert_eq!(room.load(Relaxed), pages);
    }
}

#[test]
fn slots_do_not_overlap_and_those_of_a_batch_are_neighbours_in_a_free_zone() {
    let mut random = SplitMix64::new(12);
    let mut zones = new_zones();
    let lens = any_lens(&mut random, 200);
    let places = allocate(&mut zones, &lens);
    let mut end = places[0].1;
    for (order, &(index, offset)) in places.iter().enumerate() {
        assert_eq!((index, offset), (order, end));
        end += u64::from(lens[index]);
    }
    // The next batch begins with a block, as far as that costs no room.
    let lens = some_lens(&mut random, 100);
    let first = allocate(&mut zones, &lens)[0].1;
    assert_eq!(first, end.next_multiple_of(4096));
    zones.verify().unwrap();
}

#[test]
fn a_gap_that_is_too_short_for_the_next_image_gets_one_that_fits() {
    let mut zones = new_zones();
    let before = allocate(&mut zones, &[8, 5, 8, 3, 8, 8].map(|units| units * UNIT));
    zones.give_back(before[1].1, 5 * UNIT);
    zones.give_back(before[3].1, 3 * UNIT);
    let end = before[5].1 + u64::from(8 * UNIT);
    // As if the file were opened: the zone is filled from its beginning again.
    zones.close_heads();
    let after = allocate(&mut zones, &[8, 7, 3, 5, 2].map(|units| units * UNIT));
    let gap = |index: usize| before[index].1;
    assert_eq!(after[..2], [(3, gap(1)), (2, gap(3))]);
    assert_eq!(after[2], (0, end));
}

/// What hours of overwriting at random do to a file: nothing more than gaps that are being filled.
#[test]
fn a_file_that_is_overwritten_at_random_stays_near_to_its_images() {
    let mut random = SplitMix64::new(13);
    let mut zones = new_zones();
    let mut images: Vec<(u32, u64)> = Vec::new();
    let write =
        |zones: &mut Zones, lens: Vec<u32>, mut put: Box<dyn FnMut(usize, (u32, u64)) + '_>| {
            for (batch, lens) in lens.chunks(64).enumerate() {
                for (index, offset) in allocate(zones, lens) {
                    put(batch * 64 + index, (lens[index], offset));
                }
            }
        };
    let pages = 8000;
    let lens = some_lens(&mut random, pages);
    images.resize(pages, (0, 0));
    write(&mut zones, lens, Box::new(|index, image| images[index] = image));
    let mut longest: f64 = 0.0;
    for checkpoint in 0..120 {
        let mut dirty: Vec<usize> =
            (0..1000).map(|_| random.below(pages as u64) as usize).collect();
        dirty.sort_unstable();
        dirty.dedup();
        let lens = some_lens(&mut random, dirty.len());
        let mut old = Vec::new();
        write(
            &mut zones,
            lens,
            Box::new(|index, image| old.push(std::mem::replace(&mut images[dirty[index]], image))),
        );
        // When the checkpoint is durable, and not before.
        for (len, offset) in old {
            zones.give_back(offset, len);
        }
        let report = zones.report();
        if checkpoint >= 20 {
            longest = longest.max(report.file_bytes as f64 / report.used_bytes as f64);
        }
    }
    zones.verify().unwrap();
    println!("file over images: {longest:.3}");
    assert!(longest < 1.35, "{longest}");
}
