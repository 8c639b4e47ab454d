//! vmcache by itself: limits, failures, and pages that come and go.

#![cfg(target_os = "linux")]

use hedgerow::internals::error::{ErrorKind, Signal};
use hedgerow::internals::page::{Access, ExclusivePage, Frames, Pages, PoolSession, SharedPage};
use hedgerow::internals::storage::{DirectIo, Disk, File, OpenMode};
use hedgerow::internals::types::{Epoch, PageId, TreeId};
use hedgerow_bench::vmcache::{VmcacheOptions, VmcachePool};
use hedgerow_testing::RamDisk;
use std::path::Path;
use std::sync::Arc;

const PAGE_BYTES: usize = 4096;
const PLACES: usize = 64;

fn ram_file() -> Arc<dyn File> {
    RamDisk::new().open(Path::new("pages"), OpenMode::CreateNew, DirectIo::Never).unwrap()
}

/// A pool of [`PLACES`] places for `max_pages` pages.
fn pool(file: Arc<dyn File>, max_pages: usize) -> VmcachePool {
    let mut options =
        VmcacheOptions { memory_limit_bytes: 1 << 30, page_bytes: PAGE_BYTES, max_pages };
    let (metadata, _) = options.divide().unwrap();
    let places = (PLACES * (PAGE_BYTES + 8)) as u64;
    options.memory_limit_bytes = metadata.total_bytes() - metadata.clock_bytes + places;
    let pool = VmcachePool::new(&options, file).unwrap();
    assert_eq!(pool.places() as usize, PLACES);
    options.memory_limit_bytes -= 1;
    let kind = options.divide().unwrap_err();
    assert_eq!(kind.kind(), ErrorKind::InvalidOption, "one byte less is too little");
    pool
}

/// A new page whose last bytes are its id.
fn fresh(pool: &VmcachePool) -> Result<PageId, hedgerow::Error> {
    let mut session = pool.session();
    session.reserve(1)?;
    let mut page = session.take(TreeId(7), Epoch(1)).expect("one is reserved");
    let id = page.id();
    page.write(Epoch(1))[PAGE_BYTES - 4..].copy_from_slice(&id.0.to_le_bytes());
    Ok(id)
}

fn tail(pool: &VmcachePool, id: PageId) -> u32 {
    let mut session = pool.session();
    session.fault(id, Access::Point).unwrap();
    let page = SharedPage::wait(pool, id, &mut || true).expect("it is pinned");
    let bytes = page.bytes()[PAGE_BYTES - 4..].try_into().expect("four bytes");
    u32::from_le_bytes(bytes)
}

#[test]
fn pages_come_back_as_they_were() {
    let pool = pool(ram_file(), 1000);
    let ids: Vec<PageId> = (0..600).map(|_| fresh(&pool).unwrap()).collect();
    assert!(ids.iter().all(|&id| tail(&pool, id) == id.0));
    let counts = pool.counts();
    assert!(counts.faults >= 536 && counts.pages_written >= 536, "{counts:?}");
    // Once more, and nothing is dirty any more.
    assert!(ids.iter().rev().all(|&id| tail(&pool, id) == id.0));
    let again = pool.counts();
    assert!(again.pages_written <= counts.pages_written + PLACES as u64, "{again:?}");
    // Writing everything leaves pages where they are.
    let id = fresh(&pool).unwrap();
    let before = pool.counts();
    pool.write_all().unwrap();
    assert!(pool.counts().pages_written > before.pages_written);
    assert_eq!(pool.counts().evictions, before.evictions);
    assert!(pool.translate(id).is_some() && tail(&pool, id) == id.0);
    let written = pool.counts().pages_written;
    pool.write_all().unwrap();
    assert_eq!(pool.counts().pages_written, written, "nothing is dirty any more");
    // Several at a time, some of which are there.
    let mut session = pool.session();
    session.prefetch(&ids[100..116], Access::Scan).unwrap();
    let before = pool.counts().faults;
    let resident = ids[100..116].iter().filter(|id| pool.translate(**id).is_some()).count();
    assert_eq!(resident, 16);
    assert!(ids[100..116].iter().all(|&id| tail(&pool, id) == id.0));
    assert_eq!(pool.counts().faults, before);
}

#[test]
fn a_page_that_cannot_be_read_is_an_error_and_costs_no_place() {
    let file = ram_file();
    let pool = pool(file.clone(), 1000);
    let ids: Vec<PageId> = (0..300).map(|_| fresh(&pool).unwrap()).collect();
    let absent: Vec<PageId> =
        ids.iter().copied().filter(|id| pool.translate(*id).is_none()).collect();
    let (lost, kept) = absent.split_at(absent.len() / 2);
    // What is no image of the page in its place, for the first half.
    let image = vec![0; PAGE_BYTES];
    for id in lost {
        file.write_at(u64::from(id.0) * PAGE_BYTES as u64, &image).unwrap();
    }
    assert!(lost.len() > PLACES, "more failures than places");
    for &id in lost {
        let mut session = pool.session();
        let error = session.fault(id, Access::Point).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Corrupted { .. }), "{error}");
        assert!(pool.translate(id).is_none());
    }
    // Prefetches say nothing of it, and leave such pages out.
    pool.session().prefetch(&lost[..8], Access::Point).unwrap();
    assert!(lost[..8].iter().all(|id| pool.translate(*id).is_none()));
    assert!(kept.iter().all(|&id| tail(&pool, id) == id.0));
}

#[test]
fn a_freed_page_is_not_found_and_its_id_comes_again() {
    let pool = pool(ram_file(), 1000);
    let ids: Vec<PageId> = (0..200).map(|_| fresh(&pool).unwrap()).collect();
    for &id in &ids {
        let mut session = pool.session();
        session.fault(id, Access::Point).unwrap();
        let page = ExclusivePage::wait(&pool, id, &mut || true).expect("it is pinned");
        pool.free(page, Epoch(1));
        let error = session.fault(id, Access::Point).unwrap_err();
        assert_eq!(error.signal(), Some(Signal::PageFreed));
    }
    assert_eq!(pool.pages(), 0);
    let mut again: Vec<PageId> = (0..200).map(|_| fresh(&pool).unwrap()).collect();
    again.sort();
    assert_eq!(again, ids);
    assert!(again.iter().all(|&id| tail(&pool, id) == id.0));
    let never = PageId(ids[199].0 + 100);
    let error = pool.session().fault(never, Access::Point).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Corrupted { .. }), "{error}");
}

#[test]
fn there_are_as_many_pages_as_there_can_be_and_no_more() {
    let pool = pool(ram_file(), 500);
    let mut made = 0;
    let error = loop {
        match fresh(&pool) {
            Ok(_) => made += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::DiskFull);
    assert!(made >= 500, "{made}");
    assert_eq!(pool.pages(), made);
}
