//! That vmcache gives memory back to the system: in a process of its own, whose memory is looked at.

#![cfg(target_os = "linux")]

use hedgerow::internals::storage::{DirectIo, Disk, OpenMode, RealDisk};
use hedgerow::internals::tree::Tree;
use hedgerow::internals::types::TreeId;
use hedgerow_bench::vmcache::{VmcacheOptions, VmcachePool};
use hedgerow_sync::primitive::random::{self, SplitMix64};
use std::sync::Arc;

const PAGE_BYTES: usize = 4096;

/// Resident memory of this process, in bytes.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap() * 1024
}

#[test]
fn memory_goes_back_to_the_system() {
    const LIMIT_BYTES: u64 = 8 << 20;
    const RECORDS: u64 = 500_000;
    let directory = tempfile::tempdir().unwrap();
    let disk = RealDisk::new(hedgerow::IoEngine::Auto).unwrap();
    let path = directory.path().join("pages");
    let file = disk.open(&path, OpenMode::CreateNew, DirectIo::WherePossible).unwrap();
    let options = VmcacheOptions {
        memory_limit_bytes: LIMIT_BYTES,
        page_bytes: PAGE_BYTES,
        max_pages: 30_000,
    };
    let before = resident_bytes();
    let pool = VmcachePool::new(&options, file).unwrap();
    let tree: Tree<VmcachePool> = Tree::create(Arc::new(pool), TreeId(7)).unwrap();
    let mut load = tree.bulk_load(100).unwrap();
    for number in 0..RECORDS {
        load.push(&number.to_be_bytes(), &[number as u8; 100]).unwrap();
    }
    load.finish().unwrap();
    let data_bytes = tree.pool().pages() * PAGE_BYTES as u64;
    assert!(data_bytes > 6 * LIMIT_BYTES, "{data_bytes}");
    let mut most = 0;
    let seed = random::seed();
    println!("seed {seed}");
    for round in 0..10 {
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let tree = &tree;
                scope.spawn(move || {
                    let mut random = SplitMix64::new(seed ^ (round * 3 + thread));
                    for _ in 0..500 {
                        let number = random.below(RECORDS);
                        let value = tree.get(&number.to_be_bytes()).unwrap();
                        assert_eq!(value.as_deref(), Some(&[number as u8; 100][..]));
                    }
                });
            }
        });
        most = most.max(resident_bytes());
    }
    let used = most.saturating_sub(before);
    assert!(used < LIMIT_BYTES + (8 << 20), "{used} bytes resident, {data_bytes} of data");
}
