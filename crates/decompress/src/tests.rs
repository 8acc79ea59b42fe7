//! The same files come out, once, whoever asks; whatever is wrong is named and leaves nothing to believe.

use std::fs;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use bothends_dataset::{Entry, Kind, Version};
use bothends_io::Folder;

use super::*;

/// A tar archive of one image, so that the format is known.
fn archive() -> Vec<u8> {
    let mut bytes = vec![0; 512];
    bytes[..5].copy_from_slice(b"0.jpg");
    let noise = (0..300_000_u32).map(|it| (it.wrapping_mul(2_654_435_761) >> 24) as u8);
    bytes.extend(noise);
    bytes
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut to = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    to.write_all(bytes).unwrap();
    to.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 1).unwrap()
}

struct Case {
    folder: tempfile::TempDir,
}

impl Case {
    fn new(files: &[(&str, &[u8])]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("data")).unwrap();
        let case = Self { folder };
        files.iter().for_each(|(name, bytes)| case.put(name, bytes));
        case
    }

    fn put(&self, name: &str, bytes: &[u8]) {
        fs::write(self.data().0.join(name), bytes).unwrap();
    }

    fn data(&self) -> Folder {
        Folder(self.folder.path().join("data"))
    }

    fn place(&self) -> Place {
        Place::in_cache(&self.folder.path().join("cache"))
    }

    fn decompressed(&self, target: &str) -> Result<Decompressed, DecompressError> {
        let data = Compressed { storage: &self.data(), target };
        decompress(data, &self.place(), &mut |_| ControlFlow::Continue(()))
    }

    /// The entries that there are.
    fn entries(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.folder.path().join("cache/decompressed"));
        entries.into_iter().flatten().flatten().map(|entry| entry.path()).collect()
    }
}

fn names(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap().map(|it| it.unwrap().file_name());
    let mut names: Vec<_> = names.map(|it| it.into_string().unwrap()).collect();
    names.sort_unstable();
    names
}

#[test]
fn shards_come_out_as_they_went_in_by_every_codec() {
    let bytes = archive();
    // Two members, and two frames: writers append.
    let (head, tail) = bytes.split_at(1000);
    let members = [gzip(head), gzip(tail)].concat();
    let frames = [zstd(head), zstd(tail)].concat();
    let case = Case::new(&[
        ("a.tar.gz", &gzip(&bytes)),
        ("b.tgz", &members),
        ("c.tar.zst", &frames),
    ]);
    let made = case.decompressed("").unwrap();
    assert_eq!(names(made.root()), ["a.tar", "b.tar", "c.tar"]);
    for name in names(made.root()) {
        assert!(fs::read(made.root().join(&name)).unwrap() == bytes, "{name}");
    }
    assert_eq!((made.bytes(), made.target()), (3 * bytes.len() as u64, ""));
    let one = case.decompressed("c.tar.zst").unwrap();
    assert_eq!((names(one.root()), one.target()), (vec!["c.tar".to_owned()], "c.tar"));
    assert_eq!(one.path(), one.root().join("c.tar"));
}

#[test]
fn a_block_of_snappy_comes_out_of_an_mds_shard() {
    let index = r#"{"version": 2, "shards": [{"format": "mds", "column_names": ["image"],
        "column_encodings": ["jpeg"], "column_sizes": [null], "samples": 1,
        "raw_data": {"basename": "0.mds"}, "zip_data": {"basename": "0.mds.snappy"}}]}"#;
    let bytes = archive();
    let block = snap::raw::Encoder::new().compress_vec(&bytes).unwrap();
    let case = Case::new(&[("index.json", index.as_bytes()), ("0.mds.snappy", &block)]);
    let made = case.decompressed("").unwrap();
    assert_eq!(names(made.root()), ["0.mds", "index.json"]);
    assert!(fs::read(made.root().join("0.mds")).unwrap() == bytes);
}

#[test]
fn it_is_made_once_and_again_when_a_file_has_changed() {
    let case = Case::new(&[("a.tar.gz", &gzip(&archive()))]);
    let find = || {
        let data = Compressed { storage: &case.data(), target: "" };
        find_decompressed(data, &case.place()).unwrap()
    };
    assert!(find().is_none());
    let first = case.decompressed("").unwrap();
    let inode = |made: &Decompressed| {
        use std::os::unix::fs::MetadataExt;
        fs::metadata(made.root().join("a.tar")).unwrap().ino()
    };
    let again = case.decompressed("").unwrap();
    assert_eq!(inode(&first), inode(&again));
    assert_eq!(find().unwrap().root(), first.root());
    // One more byte, and the file is another.
    case.put("a.tar.gz", &gzip(&[archive(), vec![0]].concat()));
    let changed = case.decompressed("").unwrap();
    assert_ne!(changed.root(), first.root());
    assert!(first.root().exists(), "somebody uses it");
}

#[test]
fn a_file_that_was_cut_in_the_cache_is_not_believed() {
    let case = Case::new(&[("a.tar.gz", &gzip(&archive()))]);
    let made = case.decompressed("").unwrap();
    let path = made.root().join("a.tar");
    drop(made);
    fs::File::options().write(true).open(&path).unwrap().set_len(5).unwrap();
    let made = case.decompressed("").unwrap();
    assert_eq!(fs::metadata(made.root().join("a.tar")).unwrap().len(), 300_512);
}

#[test]
fn what_is_damaged_is_named_and_leaves_nothing_to_believe() {
    let good = gzip(&archive());
    let zstd = zstd(&archive());
    let mut flipped = good.clone();
    flipped[2000] ^= 1;
    for (name, bytes) in [
        ("a.tar.gz", &good[..good.len() - 9]),
        ("a.tar.gz", &flipped[..]),
        ("a.tar.gz", b"x"),
        ("a.tar.zst", &zstd[..zstd.len() - 1]),
        ("a.tar.zst", b"not zstd"),
    ] {
        let case = Case::new(&[(name, bytes), ("b.tar.gz", &good)]);
        let error = case.decompressed("").unwrap_err().to_string();
        let is_named = error.contains(&format!("{name}` cannot be decompressed: "));
        assert!(is_named && error.ends_with("; fetch the file again"), "{error}");
        let [entry] = &case.entries()[..] else { panic!("one entry") };
        assert!(!entry.join("about").exists());
        assert!(!names(&entry.join("data")).iter().any(|name| name.starts_with('.')));
    }
}

/// Shards that were complete when a process was killed are kept; what was not is made again.
#[test]
fn a_run_that_was_cut_short_is_continued() {
    let bytes = gzip(&archive());
    let case = Case::new(&[("a.tar.gz", &bytes), ("b.tar.gz", b"damaged")]);
    case.decompressed("").unwrap_err();
    let [entry] = &case.entries()[..] else { panic!("one entry") };
    let data = entry.join("data");
    fs::write(data.join(".part-b.tar"), b"half").unwrap();
    fs::write(data.join("a.tar"), b"kept").unwrap();
    // The same name and time would be the same files, so the whole is looked for by its entry.
    let storage = case.data();
    let (plan, place) = (Decompression::plan(&storage, "").unwrap(), case.place());
    let compressed = Compressed { storage: &storage, target: "" };
    let entry = place::Entry::of(compressed, &plan, &place).unwrap();
    let job = Job { data: compressed, plan: &plan, entry: &entry };
    job.run(&mut |_| ControlFlow::Continue(())).unwrap_err();
    assert_eq!(names(&data), ["a.tar"]);
    assert_eq!(fs::read(data.join("a.tar")).unwrap(), b"kept");
}

#[test]
fn of_many_at_once_one_makes_it_and_all_have_it() {
    let case =
        Case::new(&[("a.tar.gz", &gzip(&archive())), ("b.tar.zst", &zstd(&archive()))]);
    let (n_made, n_have) = (AtomicU32::new(0), AtomicU32::new(0));
    let count = |progress: &Progress| {
        if progress.stage == Stage::Making && progress.files == (2, 2) {
            n_made.fetch_add(1, Ordering::Relaxed);
        }
        ControlFlow::Continue(())
    };
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let data = case.data();
                let data = Compressed { storage: &data, target: "" };
                let made = decompress(data, &case.place(), &mut |it| count(it)).unwrap();
                assert_eq!(names(made.root()), ["a.tar", "b.tar"]);
                n_have.fetch_add(1, Ordering::Relaxed);
            });
        }
    });
    assert_eq!((n_made.into_inner(), n_have.into_inner()), (1, 8));
}

#[test]
fn what_nobody_uses_makes_room_and_nothing_else_does() {
    let case = Case::new(&[("a.tar.gz", &gzip(&archive()))]);
    let root = case.folder.path().join("cache/decompressed");
    let first = case.decompressed("").unwrap().root().parent().unwrap().to_owned();
    case.put("a.tar.gz", &gzip(b"another"));
    let used = case.decompressed("").unwrap();
    let foreign = root.join("0123456789abcdef-0123456789abcdef");
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("thesis.txt"), b"").unwrap();
    fs::create_dir(root.join("mine")).unwrap();
    case.put("a.tar.gz", &gzip(b"a third"));
    let storage = case.data();
    let plan = Decompression::plan(&storage, "").unwrap();
    let data = Compressed { storage: &storage, target: "" };
    place::Entry::of(data, &plan, &case.place()).unwrap().make_room();
    assert!(!first.exists(), "of files that were others, and not in use");
    assert!(used.root().join("a.tar").exists());
    assert!(foreign.join("thesis.txt").exists() && root.join("mine").exists());
}

#[test]
fn a_folder_that_others_may_write_to_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let case = Case::new(&[("a.tar.gz", &gzip(&archive()))]);
    drop(case.decompressed("").unwrap());
    let [entry] = &case.entries()[..] else { panic!("one entry") };
    fs::set_permissions(entry, fs::Permissions::from_mode(0o777)).unwrap();
    let error = case.decompressed("").unwrap_err();
    assert!(matches!(error, DecompressError::NotOwn { .. }), "{error}");
}

/// Of a storage whose files have no versions.
const NO_VERSIONS: u32 = 77;

/// Files that change while they are read.
#[derive(Debug)]
struct Changing {
    files: Folder,
    n_asked: AtomicU32,
    /// How many reads succeed.
    n_reads: AtomicU32,
}

impl Storage for Changing {
    fn kind(&self, path: &str) -> io::Result<Kind> {
        self.files.kind(path)
    }
    fn list(&self, path: &str) -> io::Result<Vec<Entry>> {
        self.files.list(path)
    }
    fn read(&self, path: &str, offset: u64, dst: &mut [u8]) -> io::Result<()> {
        let left = self.n_reads.fetch_sub(1, Ordering::Relaxed);
        if left == 0 {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "no answer"));
        }
        self.files.read(path, offset, dst)
    }
    fn versions(&self, path: &str) -> io::Result<Option<Vec<Version>>> {
        if self.n_reads.load(Ordering::Relaxed) == NO_VERSIONS {
            return Ok(None);
        }
        let nth = self.n_asked.fetch_add(1, Ordering::Relaxed);
        let versions = self.files.versions(path)?;
        Ok(versions.map(|mut versions| {
            versions.iter_mut().for_each(|it| it.tag = nth.to_string());
            versions
        }))
    }
    fn shown(&self, path: &str) -> String {
        self.files.shown(path)
    }
}

#[test]
fn files_that_change_and_a_store_that_fails_are_told_apart() {
    let case = Case::new(&[("a.tar.gz", &gzip(&archive()))]);
    let errors = [u32::MAX, 0, NO_VERSIONS].map(|n_reads| {
        let (n_asked, n_reads) = (AtomicU32::new(0), AtomicU32::new(n_reads));
        let storage = Changing { files: case.data(), n_asked, n_reads };
        let data = Compressed { storage: &storage, target: "" };
        decompress(data, &case.place(), &mut |_| ControlFlow::Continue(()))
            .unwrap_err()
            .to_string()
    });
    assert!(errors[0].contains("a.tar.gz` changed while"), "{}", errors[0]);
    assert!(
        errors[1].starts_with("cannot read ") && errors[1].ends_with("no answer"),
        "{}",
        errors[1]
    );
    assert!(
        errors[2].contains("nothing tells whether its files have changed"),
        "{}",
        errors[2]
    );
}

/// It is told of when all is there, too, which is where this breaks at the latest.
#[test]
fn what_is_cancelled_is_not_believed_and_the_next_time_completes_it() {
    let case =
        Case::new(&[("a.tar.gz", &gzip(&archive())), ("b.tar.gz", &gzip(&archive()))]);
    let data = case.data();
    let data = Compressed { storage: &data, target: "" };
    let error =
        decompress(data, &case.place(), &mut |_| ControlFlow::Break(())).unwrap_err();
    assert!(matches!(error, DecompressError::Cancelled), "{error}");
    assert!(find_decompressed(data, &case.place()).unwrap().is_none());
    assert_eq!(names(case.decompressed("").unwrap().root()), ["a.tar", "b.tar"]);
}

/// A shard that becomes a thousand times as long is noticed by what is left while it is written.
#[test]
fn some_of_the_disk_is_left_even_where_no_more_is_known_to_be_needed() {
    let left = place::LEFT_BYTES;
    assert!(place::fits(0, left) && !place::fits(0, left - 1) && !place::fits(0, 0));
    assert!(place::fits(9, left + 9) && !place::fits(10, left + 9));
    assert!(!place::fits(u64::MAX, u64::MAX - 1));
}

#[test]
fn where_it_does_not_fit_the_error_says_how_much_is_missing() {
    let case = Case::new(&[("a.tar.gz", &gzip(&archive()))]);
    drop(case.decompressed("").unwrap());
    let storage = case.data();
    let plan = Decompression::plan(&storage, "").unwrap();
    let data = Compressed { storage: &storage, target: "" };
    let entry = place::Entry::of(data, &plan, &case.place()).unwrap();
    entry.check_room(0).unwrap();
    let line = entry.check_room(1 << 60).unwrap_err().to_string();
    let needed = (1_u64 << 40) + 512;
    assert!(line.contains(&format!("and {needed} MiB are needed at least")), "{line}");
}

/// Joined MDS data sets have their shards in folders.
#[test]
fn a_shard_in_a_folder_that_was_replaced_by_one_of_the_same_length_is_noticed() {
    let index = r#"{"version": 2, "shards": [{"format": "mds", "column_names": ["image"],
        "column_encodings": ["jpeg"], "column_sizes": [null], "samples": 1,
        "raw_data": {"basename": "a/0.mds"}, "zip_data": {"basename": "a/0.mds.gz"}}]}"#;
    let case = Case::new(&[("index.json", index.as_bytes()), ("b.mds", b"")]);
    fs::create_dir(case.data().0.join("a")).unwrap();
    let (one, other) = (gzip(b"one"), gzip(b"two"));
    assert_eq!(one.len(), other.len());
    case.put("a/0.mds.gz", &one);
    let first = case.decompressed("").unwrap();
    assert_eq!(fs::read(first.root().join("a/0.mds")).unwrap(), b"one");
    case.put("a/0.mds.gz", &other);
    let second = case.decompressed("").unwrap();
    assert_eq!(fs::read(second.root().join("a/0.mds")).unwrap(), b"two");
}

/// Programs set the time of a file as they like, and that of its inode they do not.
#[test]
fn a_shard_that_says_that_it_is_as_old_as_the_one_it_replaced_is_noticed() {
    // Stored as they are, both have the same length.
    let stored = |last: u8| {
        let none = flate2::Compression::none();
        let mut to = flate2::write::GzEncoder::new(Vec::new(), none);
        to.write_all(&[archive(), vec![last]].concat()).unwrap();
        to.finish().unwrap()
    };
    let (one, other) = (stored(1), stored(2));
    assert_eq!(one.len(), other.len());
    let case = Case::new(&[("a.tar.gz", &one)]);
    let path = case.data().0.join("a.tar.gz");
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    let first = case.decompressed("").unwrap();
    // Longer than the steps of the clock that file systems take times from.
    thread::sleep(Duration::from_millis(20));
    case.put("a.tar.gz", &other);
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.set_modified(modified).unwrap();
    let second = case.decompressed("").unwrap();
    let [first, second] =
        [first, second].map(|made| fs::read(made.root().join("a.tar")).unwrap());
    assert!(first != second);
}

/// The index of LitData is written, and decides what a chunk is.
#[test]
fn another_index_of_the_same_chunks_is_another_data_set() {
    let index = |loader: &str| {
        format!(
            r#"{{"chunks": [{{"filename": "chunk-0-0.zstd.bin", "chunk_size": 1}}],
                "config": {{"compression": "zstd", "item_loader": "{loader}"}}}}"#
        )
    };
    let case = Case::new(&[("chunk-0-0.zstd.bin", &zstd(b"chunk"))]);
    let text = |loader: &str| {
        case.put("index.json", index(loader).as_bytes());
        let made = case.decompressed("").unwrap();
        fs::read_to_string(made.root().join("index.json")).unwrap()
    };
    assert!(text("PyTreeLoader").contains("PyTreeLoader"));
    assert!(text("TokensLoader").contains("TokensLoader"));
}
