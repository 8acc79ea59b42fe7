//! Segments of several processes, damage, changed files and bounds.

use bothends_core::blocks::{Colour, Component, GroupLengths, RowLengths, write_profile};
use bothends_core::recipe::Size;

use super::known::MANY_STALE;
use super::*;

/// A cache of at most so many bytes of the data at `root`.
fn cache(root: &Path, limit_bytes: u64) -> BlockCache {
    let data = root.join("data");
    std::fs::create_dir_all(&data).unwrap();
    let cache = Cache { root: root.join("blocks"), limit_bytes };
    BlockCache::open(&data, cache, Direct::Off).unwrap()
}

fn name(n: u64) -> Name {
    Name::exactly(n, (n, 5), 6)
}

/// Keeps record `n`: one row group of so many bytes.
fn keep(cache: &BlockCache, n: u64, n_bytes: usize) -> Keeping {
    let mut profile = Vec::new();
    let component = Component { h: 1, v: 1, table: 0 };
    write_profile(Colour::Grey, &[component], &[[3; 64]], &mut profile);
    let lengths = GroupLengths::new(&[n_bytes]).unwrap();
    let size = Size { height: 16, width: 8 };
    let head = lengths.head(size, 0, RowLengths::Narrow).unwrap();
    let groups = vec![u8::try_from(n % 251).unwrap(); n_bytes];
    let blocks = NewBlocks { profile: &profile, head: &head, groups: &groups };
    cache.keep(name(n), &blocks)
}

/// Whether record `n` is found, as it was kept.
fn is_found(cache: &BlockCache, n: u64) -> bool {
    let Some(found) = cache.find(name(n)) else { return false };
    let blocks = found.outline.blocks().unwrap();
    assert_eq!(blocks.head().n_groups(), 1);
    let n_bytes = usize::try_from(blocks.head().bytes_of(0..1).end).unwrap();
    // Opened by its number: the file may have no name.
    let mut bytes = vec![0; n_bytes];
    let file = std::fs::File::open(found.file.path()).unwrap();
    file.read_exact_at(&mut bytes, found.offset).unwrap();
    bytes.iter().all(|&byte| u64::from(byte) == n % 251)
}

fn segments(cache: &BlockCache) -> Vec<PathBuf> {
    let listed = std::fs::read_dir(&cache.folder.path).into_iter().flatten();
    let paths = listed.map(|entry| entry.unwrap().path());
    let mut paths: Vec<_> =
        paths.filter(|path| Kind::Blocks.is_segment(&name_of(path).unwrap())).collect();
    paths.sort();
    paths
}

#[test]
fn what_is_kept_is_found_at_once_and_by_the_next_process() {
    let root = tempfile::tempdir().unwrap();
    let first = cache(root.path(), 1 << 30);
    assert!(!is_found(&first, 7));
    assert_eq!(keep(&first, 7, 510), Keeping::Kept);
    assert_eq!(keep(&first, 8, 255), Keeping::Kept);
    assert!(first.has(name(7)) && first.find(name(7)).is_some());
    assert!(segments(&first).is_empty(), "it grows without a name");
    drop(first);
    let next = cache(root.path(), 1 << 30);
    assert!(next.has(name(7)) && next.has(name(8)) && !next.has(name(9)));
    assert!(next.find(Name::exactly(7, (7, 5), 7)).is_none(), "changed since");
    assert_eq!((next.stats().records, segments(&next).len()), (2, 1));
}

#[test]
fn two_processes_add_to_one_cache_and_neither_removes_what_both_have() {
    let root = tempfile::tempdir().unwrap();
    let [a, b] = [cache(root.path(), 1 << 30), cache(root.path(), 1 << 30)];
    for n in 0..40 {
        keep(&a, n, 255);
        keep(&b, n + 20, 255);
    }
    for cache in [a, b] {
        cache.publish(&mut cache.growing());
        for _ in 0..3 {
            cache.tidy();
        }
        assert!(cache.has(name(1)) || cache.has(name(59)));
    }
    let third = cache(root.path(), 1 << 30);
    assert!((0..60).all(|n| third.has(name(n))), "{:?}", third.stats());
}

#[test]
fn the_bound_holds_and_a_full_cache_takes_no_more() {
    let root = tempfile::tempdir().unwrap();
    let limit = 200_000;
    let caches = [cache(root.path(), limit), cache(root.path(), limit)];
    let kept = (0..100).filter(|n| keep(&caches[0], *n, 10_200) == Keeping::Kept);
    assert!((10..20).contains(&kept.count()));
    assert!(caches[0].stats().off.unwrap().contains("full"));
    assert!(!caches[0].takes_more());
    // Another one that began before that was there.
    for n in 0..100 {
        keep(&caches[1], n + 1000, 10_200);
    }
    drop(caches);
    let after = cache(root.path(), limit);
    let on_disk: u64 =
        segments(&after).iter().map(|path| path.metadata().unwrap().len()).sum();
    assert!(on_disk <= limit && on_disk > limit / 2, "{on_disk}");
    assert!((0..10).all(|n| after.has(name(n))));
}

#[test]
fn a_damaged_record_is_forgotten_and_its_segment_removed() {
    let root = tempfile::tempdir().unwrap();
    let first = cache(root.path(), 1 << 30);
    keep(&first, 1, 255);
    keep(&first, 2, 255);
    drop(first);
    let second = cache(root.path(), 1 << 30);
    second.forget(name(1));
    assert!(!second.has(name(1)) && second.has(name(2)));
    assert!(segments(&second).is_empty());
    keep(&second, 1, 255);
    drop(second);
    let third = cache(root.path(), 1 << 30);
    assert!(third.has(name(1)) && !third.has(name(2)));
    assert_eq!(third.stats().damaged, 0);
}

#[test]
fn what_another_has_published_is_found_without_the_end_of_an_epoch() {
    let root = tempfile::tempdir().unwrap();
    let [first, second] = [(); 2].map(|()| cache(root.path(), 1 << 30));
    keep(&first, 1, 255);
    // It publishes what it has.
    drop(first);
    assert!(!second.has(name(1)));
    second.catch_up();
    assert!(second.has(name(1)));
    keep(&second, 2, 255);
    second.catch_up();
    assert!(second.has(name(2)), "its own growing segment stays");
}

#[test]
fn a_segment_of_outdated_records_goes() {
    let root = tempfile::tempdir().unwrap();
    let first = cache(root.path(), 1 << 30);
    for n in 0..2 * MANY_STALE {
        keep(&first, n, 255);
    }
    drop(first);
    let second = cache(root.path(), 1 << 30);
    (0..2 * MANY_STALE).for_each(|n| drop(second.find(Name::exactly(n, (n, 6), 6))));
    second.tidy();
    assert!(segments(&second).is_empty());
    assert_eq!((second.stats().records, second.stats().bytes), (0, 0));
}

#[test]
fn a_broken_segment_and_those_of_others_are_not_read() {
    let root = tempfile::tempdir().unwrap();
    let first = cache(root.path(), 1 << 30);
    keep(&first, 1, 255);
    drop(first);
    let known = || cache(root.path(), 1 << 30).has(name(1));
    let path = segments(&cache(root.path(), 1 << 30)).pop().unwrap();
    let whole = std::fs::read(&path).unwrap();
    for end in [0, 10, 64, 200, whole.len() - 1] {
        std::fs::write(&path, &whole[..end]).unwrap();
        assert!(!known(), "{end} bytes");
    }
    std::fs::write(&path, &whole).unwrap();
    assert!(known());
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    std::fs::set_permissions(&path, mode).unwrap();
    assert!(!known(), "others can write to it");
}

#[test]
fn where_nothing_can_be_written_a_reason_is_given() {
    let root = tempfile::tempdir().unwrap();
    let cache = cache(root.path(), 1 << 30);
    std::fs::write(root.path().join("blocks"), "a file, no folder").unwrap();
    assert_eq!(keep(&cache, 1, 255), Keeping::Stopped);
    let why = cache.stats().off.unwrap();
    assert!(why.contains("cannot be written") && !why.contains('\n'), "{why}");
    assert!(!cache.has(name(1)));
    assert_eq!(cache.hindrance(Setting::key), Some(why));
}

#[test]
fn what_hinders_shows_before_anything_is_kept() {
    let root = tempfile::tempdir().unwrap();
    assert_eq!(cache(root.path(), 1 << 30).hindrance(Setting::key), None);
    // Nobody has so large a disk.
    let large = cache(root.path(), 1 << 60);
    let why = large.hindrance(Setting::key).unwrap();
    assert!(why.contains("must be free"), "{why}");
    assert!(why.ends_with("a smaller size (cache_size), or another disk"), "{why}");
    let why = large.hindrance(|_| "").unwrap();
    assert!(why.ends_with("give it a smaller size, or another disk"), "{why}");
    let missing = IoError::Missing { path: "/proc/x/blocks".into() };
    let why = unwritten(&missing);
    assert!(why.contains("`/proc/x/blocks` cannot be made; name"), "{why}");
}
