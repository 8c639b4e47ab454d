//! The model of the disk, without mounting anything: what reads see, and what cuts leave.
//!
//! Each test tries many seeds, so that what a cut may leave is met in all its kinds. Single-threaded.

use super::*;

const LEN_BYTES: u64 = 1 << 20;
const UNIT_BYTES: usize = 512;
const SEEDS: u64 = 300;

fn device() -> (Device, u64) {
    let device = Device::default();
    let number = device.create(LEN_BYTES, UNIT_BYTES as u64);
    (device, number)
}

/// Cuts the power at once.
fn cut(device: &Device, number: u64, seed: u64) -> (u64, Survived) {
    device.cut(number, 0, &mut Dice::new(seed)).unwrap().unwrap()
}

/// All that cuts of an image leave of its first so many bytes.
fn cuts(device: &Device, number: u64, len_bytes: usize) -> Vec<Vec<u8>> {
    let left = |seed| device.read(cut(device, number, seed).0, 0, len_bytes).unwrap();
    (0..SEEDS).map(left).collect()
}

#[test]
fn reads_see_the_newest_write() {
    let (device, disk) = device();
    device.write(disk, 4000, &[1; 5000]).unwrap();
    device.flush(disk).unwrap();
    device.write(disk, 4090, &[2; 10]).unwrap();
    let bytes = device.read(disk, 3999, 5002).unwrap();
    assert_eq!((bytes[0], bytes[1], bytes[5000], bytes[5001]), (0, 1, 1, 0));
    assert!(bytes[91..101].iter().all(|byte| *byte == 2) && (bytes[90], bytes[101]) == (1, 1));
    assert_eq!(device.counts(disk).unwrap().flushes, 1);
}

#[test]
fn nothing_is_outside_of_an_image() {
    let (device, disk) = device();
    assert_eq!(device.write(disk, LEN_BYTES - 1, &[1; 2]), Err(Refused::Outside));
    assert_eq!(device.read(disk, u64::MAX, 2), Err(Refused::Outside));
    assert_eq!(device.len_bytes(disk), Ok(LEN_BYTES));
    device.remove(disk);
    assert_eq!(device.flush(disk), Err(Refused::Outside));
}

#[test]
fn a_cut_keeps_all_that_was_flushed() {
    let (device, disk) = device();
    device.write(disk, 0, &[1; 3000]).unwrap();
    device.flush(disk).unwrap();
    assert!(cuts(&device, disk, 3000).iter().all(|bytes| bytes[..] == [1; 3000]));
}

#[test]
fn a_cut_keeps_any_subset_of_what_was_not_flushed() {
    let (device, disk) = device();
    for n in 0..3 {
        device.write(disk, 512 * n, &[n as u8 + 1; UNIT_BYTES]).unwrap();
    }
    let mut seen = [false; 8];
    for bytes in cuts(&device, disk, 3 * UNIT_BYTES) {
        let mut which = 0;
        for (n, sector) in bytes.chunks(UNIT_BYTES).enumerate() {
            let is_there = sector[0] == n as u8 + 1;
            assert!(is_there || sector[0] == 0);
            assert!(sector.iter().all(|byte| *byte == sector[0]), "a sector is torn");
            which |= usize::from(is_there) << n;
        }
        seen[which] = true;
    }
    assert_eq!(seen, [true; 8]);
}

#[test]
fn a_write_of_several_sectors_is_torn_between_them() {
    let (device, disk) = device();
    device.write(disk, 256, &[1; 2048]).unwrap();
    let (mut torn, mut out_of_order) = (0, 0);
    for bytes in cuts(&device, disk, 256 + 2048) {
        let units: Vec<&[u8]> = bytes[256..].split_at(256).1.chunks(UNIT_BYTES).collect();
        assert!(units.iter().all(|unit| unit.iter().all(|byte| *byte == unit[0])));
        let there: Vec<bool> = units.iter().map(|unit| unit[0] == 1).collect();
        torn += u32::from(there.contains(&true) && there.contains(&false));
        out_of_order += u32::from(there.windows(2).any(|pair| pair == [false, true]));
    }
    assert!(torn > 0 && out_of_order > 0, "{torn} {out_of_order}");
}

#[test]
fn what_is_written_after_a_cut_goes_nowhere() {
    let (device, disk) = device();
    let (after, survived) = cut(&device, disk, 7);
    assert_eq!(survived, Survived { pending: 0, there: 0, torn: 0 });
    device.write(disk, 0, &[1; 512]).unwrap();
    device.flush(disk).unwrap();
    assert_eq!(device.read(disk, 0, 1), Ok(vec![1]));
    assert_eq!(device.read(after, 0, 1), Ok(vec![0]));
}

#[test]
fn a_cut_waits_for_writes_that_are_pending() {
    let (device, disk) = device();
    let mut dice = Dice::new(1);
    device.write(disk, 0, &[1]).unwrap();
    assert_eq!(device.cut(disk, 2, &mut dice), Ok(None));
    device.write(disk, 1, &[1]).unwrap();
    assert!(device.cut(disk, 2, &mut dice).unwrap().is_some());
}

#[test]
fn a_copy_has_what_is_durable() {
    let (device, disk) = device();
    device.write(disk, 0, &[1]).unwrap();
    device.flush(disk).unwrap();
    device.write(disk, 1, &[1]).unwrap();
    let copy = device.copy(disk).unwrap();
    assert_eq!(device.read(copy, 0, 2), Ok(vec![1, 0]));
}

#[test]
fn a_flush_that_lies_makes_nothing_durable() {
    let (device, disk) = device();
    device.write(disk, 0, &[1; 512]).unwrap();
    device.settle(disk, true).unwrap();
    device.write(disk, 512, &[1; 512]).unwrap();
    device.flush(disk).unwrap();
    let left = cuts(&device, disk, 1024);
    assert!(left.iter().all(|bytes| bytes[0] == 1));
    assert!(left.iter().any(|bytes| bytes[512] == 0) && left.iter().any(|bytes| bytes[512] == 1));
    // What comes after it lies, too.
    let (after, _) = cut(&device, disk, 1);
    device.write(after, 1024, &[1]).unwrap();
    device.flush(after).unwrap();
    assert!(cuts(&device, after, 1025).iter().any(|bytes| bytes[1024] == 0));
}

#[test]
fn a_write_that_fails_is_not_read_and_may_survive() {
    let (device, disk) = device();
    device.fail(disk, Faults { writes: Fails::Once, ..Faults::default() }).unwrap();
    assert_eq!(device.write(disk, 0, &[1; 512]), Err(Refused::Failed));
    device.write(disk, 512, &[1; 512]).unwrap();
    assert_eq!(device.read(disk, 0, 1), Ok(vec![0]));
    assert!(cuts(&device, disk, 1).iter().any(|bytes| bytes[0] == 1));
    // The cut has ended the failures, and a flush forgets the write that failed.
    device.flush(disk).unwrap();
    let left = cuts(&device, disk, 1024);
    assert!(left.iter().all(|bytes| bytes[0] == 0 && bytes[512] == 1));
    assert_eq!(device.counts(disk), Ok(Counts { flushes: 1, failed: 1 }));
}

#[test]
fn flushes_fail_once_or_always() {
    let (device, disk) = device();
    device.fail(disk, Faults { flushes: Fails::Always, ..Faults::default() }).unwrap();
    device.write(disk, 0, &[1; 512]).unwrap();
    assert_eq!(device.flush(disk), Err(Refused::Failed));
    assert_eq!(device.flush(disk), Err(Refused::Failed));
    device.fail(disk, Faults { flushes: Fails::Once, ..Faults::default() }).unwrap();
    assert_eq!(device.flush(disk), Err(Refused::Failed));
    device.flush(disk).unwrap();
    assert!(cuts(&device, disk, 1).iter().all(|bytes| bytes[0] == 1));
}

#[test]
fn a_flush_that_fails_can_lose_what_was_pending_though_it_is_read() {
    let (device, disk) = device();
    let flushes = Fails::Once;
    device.fail(disk, Faults { flushes, drops_pending: true, ..Faults::default() }).unwrap();
    device.write(disk, 0, &[1; 512]).unwrap();
    assert_eq!(device.flush(disk), Err(Refused::Failed));
    device.write(disk, 512, &[2; 512]).unwrap();
    device.flush(disk).unwrap();
    assert_eq!(device.read(disk, 0, 1), Ok(vec![1]));
    assert_eq!(device.read(disk, 512, 1), Ok(vec![2]));
    assert!(cuts(&device, disk, 1024).iter().all(|bytes| (bytes[0], bytes[512]) == (0, 2)));
}
