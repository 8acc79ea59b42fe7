//! Unpacking restores what was packed: trees of files, batches of pixels, lists; after a failed
//! attempt, and from stores that were joined, split, or reduced to a part.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use bothends_core::sample::Encoding;
use bothends_pack::{
    Converter, Destination, Files, Item, Made, OpenStore, PackConfig, PackError, Packed,
    Source, Stored, Unpacked, check_outside, export, pack, unpack, verify,
};
use tempfile::TempDir;

/// Files by path; empty folders end in a slash.
type Tree = BTreeMap<String, Vec<u8>>;

fn plant(root: &Path, files: &[(&str, Vec<u8>)]) {
    for (path, bytes) in files {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

fn tree(root: &Path) -> Tree {
    let mut tree = Tree::new();
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        let entries: Vec<_> = fs::read_dir(root.join(&folder)).unwrap().collect();
        if entries.is_empty() {
            tree.insert(folder.clone(), Vec::new());
        }
        for entry in entries {
            let entry = entry.unwrap();
            let path = format!("{folder}{}", entry.file_name().to_str().unwrap());
            match entry.file_type().unwrap().is_dir() {
                true => folders.push(format!("{path}/")),
                false => drop(tree.insert(path, fs::read(entry.path()).unwrap())),
            }
        }
    }
    tree
}

/// Random-looking bytes.
fn noise(seed: u64, n: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut byte = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[4]
    };
    (0..n).map(|_| byte()).collect()
}

fn photos(root: &Path) {
    plant(
        root,
        &[
            ("ant/1.jpg", noise(1, 5000)),
            ("ant/2.png", noise(2, 4096)),
            ("ant/deep/3.JPEG", noise(3, 1)),
            ("ant/notes.txt", b"ants".to_vec()),
            ("bee \u{2603}/4.jpg", noise(4, 20_000)),
            ("bee \u{2603}/5.jpg", Vec::new()),
            ("bee \u{2603}/.hidden", b"hidden".to_vec()),
            ("LICENSE", noise(5, 9000)),
            ("nothing", Vec::new()),
        ],
    );
    fs::create_dir_all(root.join("ant/empty/also")).unwrap();
}

fn small() -> PackConfig {
    PackConfig { destination: Destination::New, shard_bytes: 16 << 10, n_threads: 2 }
}

fn packed(source: &dyn Source, folder: &Path, config: &PackConfig) -> Packed {
    let mut last = None;
    let packed =
        pack(source, folder, config, &mut |progress| last = Some(progress)).unwrap();
    assert_eq!(last, Some(packed.progress));
    assert_eq!(packed.progress.n_done, packed.progress.n_records);
    let verified = verify(folder, &mut |_| ()).unwrap();
    assert_eq!(verified.damages, []);
    packed
}

fn unpacked(store: &Path, folder: &Path) -> Unpacked {
    unpack(&OpenStore::new(store).unwrap(), folder, 3, &mut |_| ()).unwrap()
}

/// A folder with `data`, next to which other folders are created.
fn with(make: fn(&Path)) -> (TempDir, impl Fn(&str) -> PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().to_owned();
    make(&root.join("data"));
    (folder, move |name| root.join(name))
}

#[test]
fn class_folders_come_back_and_threads_leave_no_trace() {
    let (_folder, at) = with(photos);
    let whole = tree(&at("data"));
    plant(&at("data"), &[(".bothends-index-a.segment", vec![1])]);
    let source = Files::open(&at("data")).unwrap();
    assert_eq!(source.n_records(), 5 + 4 + 1);
    for n_threads in [1, 2, 7] {
        let config = PackConfig { n_threads, ..small() };
        packed(&source, &at(&format!("store{n_threads}")), &config);
    }
    assert_eq!(tree(&at("store1")), tree(&at("store2")));
    assert_eq!(tree(&at("store1")), tree(&at("store7")));
    let result = unpacked(&at("store1"), &at("again"));
    assert_eq!(result.n_partial, 0);
    assert_eq!(tree(&at("again")), whole);
    let store = OpenStore::new(&at("store1")).unwrap();
    assert!(store.manifest().shards.len() > 2, "{:?}", store.manifest());
    assert_eq!(store.manifest().classes, ["ant", "bee \u{2603}"]);
    assert_eq!(store.manifest().encoding, Encoding::Image);
}

fn batches(root: &Path) {
    let batch = |seed: u64, n: usize| {
        let mut batch = noise(seed, n * 3073);
        batch.iter_mut().step_by(3073).for_each(|label| *label %= 10);
        batch
    };
    plant(
        root,
        &[
            ("data_batch_1.bin", batch(1, 7)),
            ("data_batch_2.bin", batch(2, 3)),
            ("test_batch.bin", batch(3, 2)),
            ("batches.meta.txt", b"names".to_vec()),
        ],
    );
}

#[test]
fn batches_of_pixels_come_back_with_their_label_bytes() {
    let (_folder, at) = with(batches);
    let source = Files::open(&at("data")).unwrap();
    assert_eq!(source.n_records(), 10 + 4, "two batches, each with a rest; two files");
    packed(&source, &at("store"), &small());
    unpacked(&at("store"), &at("again"));
    assert_eq!(tree(&at("again")), tree(&at("data")));
    let one = Files::open(&at("data/data_batch_2.bin")).unwrap();
    packed(&one, &at("one"), &small());
    unpacked(&at("one"), &at("one again"));
    let files: Vec<_> = tree(&at("one again")).into_keys().collect();
    assert_eq!(files, ["data_batch_2.bin"]);
}

fn list(root: &Path) {
    let lines = ["a/x.bin", "a/x.bin", "b.bin"]
        .map(|path| format!("{{\"path\": \"{path}\", \"label\": {}}}\n", path.len()));
    plant(
        root,
        &[
            ("a/x.bin", noise(1, 50)),
            ("b.bin", noise(2, 50)),
            ("list.jsonl", lines.concat().into_bytes()),
            ("foreign", vec![1]),
        ],
    );
}

#[test]
fn a_list_comes_back_with_the_files_that_it_names() {
    let (_folder, at) = with(list);
    let source = Files::open(&at("data/list.jsonl")).unwrap();
    packed(&source, &at("store"), &small());
    unpacked(&at("store"), &at("again"));
    let mut whole = tree(&at("data"));
    whole.remove("foreign");
    assert_eq!(tree(&at("again")), whole);
}

/// Samples as a store's index may name them, whatever wrote it.
#[derive(Debug)]
struct Hostile(Vec<(Item, Vec<u8>)>);

fn sample(path: &str, at: u64, len: u32) -> Item {
    Item { path: path.to_owned(), is_sample: true, label: 0, at, len }
}

impl Source for Hostile {
    fn name(&self) -> String {
        "hostile".to_owned()
    }

    fn encoding(&self) -> Encoding {
        Encoding::Opaque
    }

    fn classes(&self) -> Vec<String> {
        Vec::new()
    }

    fn n_records(&self) -> usize {
        self.0.len()
    }

    fn item(&self, number: usize) -> Item {
        self.0[number].0.clone()
    }

    fn make(&self, number: usize, _: &mut Converter) -> Result<Made, PackError> {
        let (item, bytes) = self.0[number].clone();
        Ok(Made::bytes(item, bytes))
    }

    fn original(
        &self,
        number: usize,
        _: &mut Converter,
        out: &mut Vec<u8>,
    ) -> Result<(), PackError> {
        out.clone_from(&self.0[number].1);
        Ok(())
    }
}

#[test]
fn two_records_of_one_name_do_not_overwrite_each_other_silently() {
    let (_folder, at) = with(photos);
    let item = |at, len| sample("a.bin", at, len);
    let same = vec![(item(0, 4), b"0123".to_vec()), (item(0, 4), b"0123".to_vec())];
    let lists = vec![(item(0, 4), b"0123".to_vec()), (item(2, 4), b"2345".to_vec())];
    for (name, records) in [("same", same), ("lists", lists)] {
        packed(&Hostile(records), &at(name), &small());
        let folder = at(&format!("{name}-again"));
        unpacked(&at(name), &folder);
        assert!(b"012345".starts_with(&tree(&folder)["a.bin"]), "{name}");
    }
    let other = vec![(item(0, 4), b"0123".to_vec()), (item(0, 4), b"abcd".to_vec())];
    let within = vec![
        (item(0, 9), b"012345678".to_vec()),
        (item(2, 1), b"2".to_vec()),
        (item(5, 2), b"xy".to_vec()),
    ];
    for (name, records) in [("other", other), ("within", within)] {
        packed(&Hostile(records), &at(name), &small());
        let store = OpenStore::new(&at(name)).unwrap();
        let folder = at(&format!("{name}-again"));
        let error = unpack(&store, &folder, 2, &mut |_| ()).unwrap_err();
        assert!(matches!(error, PackError::Overwritten { .. }), "{name}: {error}");
    }
}

#[test]
fn a_file_that_would_be_all_zeros_is_refused_before_it_is_made() {
    let (_folder, at) = with(photos);
    let far = vec![(sample("a.bin", 1 << 40, 4), b"0123".to_vec())];
    packed(&Hostile(far), &at("store"), &small());
    let store = OpenStore::new(&at("store")).unwrap();
    let error = unpack(&store, &at("again"), 2, &mut |_| ()).unwrap_err();
    let line = error.to_string();
    assert!(line.contains("a.bin` would be 1099511627780 bytes long"), "{line}");
    assert!(!at("again").join("a.bin").exists());
}

#[test]
fn memory_is_taken_only_for_records_that_the_shard_has() {
    let (_folder, at) = with(photos);
    packed(&Files::open(&at("data")).unwrap(), &at("store"), &small());
    let shard = tree(&at("store")).keys().find(|name| name.ends_with(".shard")).cloned();
    let shard = at("store").join(shard.unwrap());
    // Truncated after its index, which says that every record is beyond the end of the file.
    let store = OpenStore::new(&at("store")).unwrap();
    fs::File::options().write(true).open(&shard).unwrap().set_len(4096).unwrap();
    let result = unpack(&store, &at("again"), 2, &mut |_| ()).unwrap();
    assert!(!result.damages.is_empty());
    assert!(result.damages.iter().all(|damage| damage.what.contains("ends before")));
}

/// A source that fails at the record with a given number.
#[derive(Debug)]
struct Failing<'a>(&'a Files, AtomicUsize);

impl Source for Failing<'_> {
    fn name(&self) -> String {
        self.0.name()
    }

    fn encoding(&self) -> Encoding {
        self.0.encoding()
    }

    fn classes(&self) -> Vec<String> {
        self.0.classes()
    }

    fn n_records(&self) -> usize {
        self.0.n_records()
    }

    fn item(&self, number: usize) -> Item {
        self.0.item(number)
    }

    fn make(&self, number: usize, converter: &mut Converter) -> Result<Made, PackError> {
        if number == self.1.load(Ordering::Relaxed) {
            return Err(PackError::Changed { path: "here".into() });
        }
        self.0.make(number, converter)
    }

    fn original(
        &self,
        number: usize,
        converter: &mut Converter,
        out: &mut Vec<u8>,
    ) -> Result<(), PackError> {
        if number == self.1.load(Ordering::Relaxed) {
            return Err(PackError::Changed { path: "here".into() });
        }
        self.0.original(number, converter, out)
    }
}

#[test]
fn an_attempt_that_failed_is_gone_on_with() {
    let (_folder, at) = with(photos);
    let files = Files::open(&at("data")).unwrap();
    packed(&files, &at("whole"), &small());
    for number in 0..files.n_records() {
        let failing = Failing(&files, AtomicUsize::new(number));
        let store = at(&format!("store{number}"));
        let error = pack(&failing, &store, &small(), &mut |_| ()).unwrap_err();
        assert!(matches!(error, PackError::Changed { .. }), "{error}");
        assert!(OpenStore::new(&store).is_err(), "it is not whole");
        let n_shards =
            tree(&store).keys().filter(|name| name.ends_with(".shard")).count();
        let packed = packed(&files, &store, &small());
        assert_eq!(packed.progress.n_found_done > 0, n_shards > 0);
        assert!(packed.progress.n_found_done <= number as u64);
        assert_eq!(tree(&store), tree(&at("whole")), "failed at {number}");
    }
}

#[test]
fn nothing_of_anybody_elses_is_overwritten() {
    let (_folder, at) = with(photos);
    let files = Files::open(&at("data")).unwrap();
    let refusal = |folder: &str| {
        let before = tree(&at(folder));
        let error = pack(&files, &at(folder), &small(), &mut |_| ()).unwrap_err();
        assert_eq!(tree(&at(folder)), before);
        error
    };
    assert!(matches!(refusal("data"), PackError::NotEmpty { .. }));
    plant(&at("numbers"), &[("00000.jpg", vec![1])]);
    assert!(matches!(refusal("numbers"), PackError::NotEmpty { .. }));
    packed(&files, &at("store"), &small());
    assert!(matches!(refusal("store"), PackError::AlreadyStore { .. }));
    // A shard of other data, as left by an attempt to pack them.
    batches(&at("other"));
    packed(&Files::open(&at("other")).unwrap(), &at("mixed"), &small());
    for name in ["store.json", "store.copy.json"] {
        fs::remove_file(at("mixed").join(name)).unwrap();
    }
    assert!(matches!(refusal("mixed"), PackError::OtherShard { .. }));
    let store = OpenStore::new(&at("store")).unwrap();
    let error = unpack(&store, &at("data"), 1, &mut |_| ()).unwrap_err();
    assert!(matches!(error, PackError::NotEmpty { .. }), "{error}");
    assert!(matches!(OpenStore::new(&at("data")), Err(PackError::NotAStore { .. })));
}

#[test]
fn stores_are_joined_and_cut_again_without_a_trace() {
    let (_folder, at) = with(batches);
    for batch in ["data_batch_1.bin", "data_batch_2.bin"] {
        let source = Files::open(&at("data").join(batch)).unwrap();
        packed(&source, &at(batch), &small());
    }
    let stores = ["data_batch_1.bin", "data_batch_2.bin"]
        .map(|batch| OpenStore::new(&at(batch)).unwrap());
    let both = Stored::all(&stores).unwrap();
    packed(&both, &at("both"), &PackConfig { shard_bytes: 1 << 20, ..small() });
    let joined = [OpenStore::new(&at("both")).unwrap()];
    assert_eq!(joined[0].manifest().shards.len(), 1);
    packed(&Stored::all(&joined).unwrap(), &at("cut"), &small());
    assert!(OpenStore::new(&at("cut")).unwrap().manifest().shards.len() > 3);
    for store in ["both", "cut"] {
        let again = at(&format!("{store} again"));
        assert_eq!(unpacked(&at(store), &again).n_partial, 0);
        let (again, data) = (tree(&again), tree(&at("data")));
        assert_eq!(again.len(), 2);
        assert!(again.iter().all(|(path, bytes)| data[path] == *bytes));
    }
    let twice =
        [OpenStore::new(&at("both")).unwrap(), OpenStore::new(&at("cut")).unwrap()];
    let error = Stored::all(&twice).unwrap_err();
    assert!(matches!(error, PackError::SameFile { .. }), "{error}");
}

#[test]
fn a_part_of_a_store_has_its_samples_and_nothing_else() {
    let (_folder, at) = with(photos);
    packed(&Files::open(&at("data")).unwrap(), &at("store"), &small());
    let store = [OpenStore::new(&at("store")).unwrap()];
    packed(&Stored::some(&store, 1..4).unwrap(), &at("part"), &small());
    unpacked(&at("part"), &at("again"));
    let (again, data) = (tree(&at("again")), tree(&at("data")));
    let files: Vec<&String> = again.keys().collect();
    assert_eq!(files, ["ant/2.png", "ant/deep/3.JPEG", "bee \u{2603}/4.jpg"]);
    assert!(again.iter().all(|(path, bytes)| data[path] == *bytes));
    for range in [0..0, 3..6, 5..6] {
        let error = Stored::some(&store, range.clone()).unwrap_err();
        assert!(matches!(error, PackError::NoSuchSamples { .. }), "{range:?}");
    }
    // In a file with several samples, those that are left out are zeros.
    batches(&at("pixels"));
    packed(&Files::open(&at("pixels")).unwrap(), &at("all"), &small());
    let all = [OpenStore::new(&at("all")).unwrap()];
    packed(&Stored::some(&all, 2..3).unwrap(), &at("one"), &small());
    assert_eq!(unpacked(&at("one"), &at("hole")).n_partial, 1);
}

#[test]
fn a_store_is_added_to() {
    let (_folder, at) = with(batches);
    let [first, second] = ["data_batch_1.bin", "data_batch_2.bin"]
        .map(|batch| Files::open(&at("data").join(batch)).unwrap());
    packed(&first, &at("store"), &small());
    let before = tree(&at("store"));
    let append = PackConfig { destination: Destination::Append, ..small() };
    let failing = Failing(&second, AtomicUsize::new(second.n_records() - 1));
    assert!(pack(&failing, &at("store"), &append, &mut |_| ()).is_err());
    assert_eq!(OpenStore::new(&at("store")).unwrap().manifest().n_samples(), Some(7));
    packed(&second, &at("store"), &append);
    let after = tree(&at("store"));
    let is_shard = |(name, _): &(&String, &Vec<u8>)| !name.contains("store");
    assert!(before.iter().filter(is_shard).all(|(name, bytes)| after[name] == *bytes));
    assert_eq!(OpenStore::new(&at("store")).unwrap().manifest().n_samples(), Some(10));
    let error = pack(&second, &at("store"), &append, &mut |_| ()).unwrap_err();
    assert!(matches!(error, PackError::SameFile { .. }), "{error}");
    photos(&at("photos"));
    let photos = Files::open(&at("photos")).unwrap();
    let error = pack(&photos, &at("store"), &append, &mut |_| ()).unwrap_err();
    assert!(matches!(error, PackError::Differ { what: "encoding", .. }), "{error}");
}

/// Packs all but the last record, and returns what the next attempt says after `meanwhile`.
fn gone_on(
    meanwhile: impl FnOnce(&dyn Fn(&str) -> PathBuf),
) -> Result<Packed, PackError> {
    let (_folder, at) = with(photos);
    let source = Files::open(&at("data")).unwrap();
    let failing = Failing(&source, AtomicUsize::new(source.n_records() - 1));
    pack(&failing, &at("store"), &small(), &mut |_| ()).unwrap_err();
    assert!(at("store/00001.shard").exists());
    meanwhile(&at);
    let packed = pack(&source, &at("store"), &small(), &mut |_| ())?;
    assert!(packed.progress.n_found_done > 0);
    assert_eq!(verify(&at("store"), &mut |_| ()).unwrap().damages, []);
    unpacked(&at("store"), &at("again"));
    assert_eq!(tree(&at("again")), tree(&at("data")));
    Ok(packed)
}

#[test]
fn what_an_attempt_has_left_is_looked_at_before_the_next_goes_on() {
    gone_on(|_| ()).unwrap();
    gone_on(|at| fs::remove_file(at("store/00000.index")).unwrap()).unwrap();
    gone_on(|at| fs::write(at("store/00000.index"), "other bytes").unwrap()).unwrap();
    let changed = gone_on(|at| {
        fs::write(at("data/ant/1.jpg"), noise(9, 5000)).unwrap();
        // Times of files are those of the kernel's last tick, which may be the same one still.
        let later = SystemTime::now() + Duration::from_secs(1);
        fs::File::open(at("data/ant/1.jpg")).unwrap().set_modified(later).unwrap();
    });
    let words = changed.unwrap_err().to_string();
    assert!(words.starts_with("`ant/1.jpg` changed after"), "{words}");
    let damaged = gone_on(|at| {
        let mut bytes = fs::read(at("store/00000.shard")).unwrap();
        bytes[4100] ^= 1;
        fs::write(at("store/00000.shard"), bytes).unwrap();
    });
    let words = damaged.unwrap_err().to_string();
    assert!(words.contains("00000.shard` record 0 is damaged since"), "{words}");
    gone_on(|at| fs::remove_file(at("store/00001.shard")).unwrap()).unwrap();
}

#[test]
fn two_do_not_fill_one_folder() {
    let (_folder, at) = with(photos);
    let source = Files::open(&at("data")).unwrap();
    fs::create_dir(at("store")).unwrap();
    let other = fs::File::open(at("store")).unwrap();
    other.lock().unwrap();
    let busy = pack(&source, &at("store"), &small(), &mut |_| ()).unwrap_err();
    assert!(matches!(busy, PackError::Busy { .. }), "{busy}");
    assert!(fs::read_dir(at("store")).unwrap().next().is_none());
    drop(other);
    packed(&source, &at("store"), &small());
    fs::create_dir(at("again")).unwrap();
    let other = fs::File::open(at("again")).unwrap();
    other.lock().unwrap();
    let store = OpenStore::new(&at("store")).unwrap();
    let busy = unpack(&store, &at("again"), 1, &mut |_| ()).unwrap_err();
    assert!(matches!(busy, PackError::Busy { .. }), "{busy}");
}

#[test]
fn a_store_does_not_lie_among_its_own_data() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    fs::create_dir_all(data.join("class")).unwrap();
    std::os::unix::fs::symlink(&data, folder.path().join("link")).unwrap();
    for inside in ["data", "data/store", "data/class/a/b", "link/store"] {
        let error = check_outside(&folder.path().join(inside), &data).unwrap_err();
        assert!(matches!(error, PackError::Inside { .. }), "{inside}: {error}");
    }
    for outside in ["store", "data.store", "a/b/c"] {
        check_outside(&folder.path().join(outside), &data).unwrap();
    }
}

/// The samples of a folder and of a store, written for datadings: the same bytes, and what is read is what was
/// written.
#[test]
fn samples_are_exported_as_they_were() {
    let (_folder, at) = with(photos);
    let files = Files::open(&at("data")).unwrap();
    packed(&files, &at("store"), &small());
    let stores = [OpenStore::new(&at("store")).unwrap()];
    let stored = Stored::all(&stores).unwrap();
    for (source, name) in [(&files as &dyn Source, "files"), (&stored, "stored")] {
        fs::create_dir(at(name)).unwrap();
        let file = at(name).join("train.msgpack");
        let mut n_seen = 0;
        let done = export(source, &file, &mut |_| n_seen += 1).unwrap();
        assert_eq!((done.n_done, done.n_records), (n_seen, n_seen));
        assert!(
            export(source, &file, &mut |_| ())
                .unwrap_err()
                .to_string()
                .contains("exists already")
        );
    }
    assert!(tree(&at("files")) == tree(&at("stored")), "other bytes");
    assert_eq!(tree(&at("files")).len(), 6);
    let again = Files::open(&at("files")).unwrap();
    let samples = |source: &dyn Source| {
        let numbers =
            (0..source.n_records()).filter(|&number| source.item(number).is_sample);
        let read = numbers.map(|number| {
            let mut bytes = Vec::new();
            source.original(number, &mut Converter::default(), &mut bytes).unwrap();
            (source.item(number).label, bytes)
        });
        read.collect::<Vec<_>>()
    };
    assert!(samples(&again) == samples(&files), "other samples");
}

#[test]
fn an_export_that_fails_leaves_no_file_under_its_name() {
    let (_folder, at) = with(photos);
    let files = Files::open(&at("data")).unwrap();
    let failing = Failing(&files, AtomicUsize::new(1));
    let refusal = |source: &dyn Source, name: &str| {
        export(source, &at(name), &mut |_| ()).unwrap_err().to_string()
    };
    assert!(refusal(&failing, "a.msgpack").contains("changed while it was packed"));
    assert!(refusal(&files, "a.zip").contains("name it NAME.msgpack for datadings"));
    assert!(
        refusal(&Hostile(Vec::new()), "a.msgpack")
            .contains("are pixels rather than image files")
    );
    assert!(refusal(&files, "no/a.msgpack").starts_with("cannot write `"));
    fs::write(at("b.msgpack.keys"), "").unwrap();
    assert!(refusal(&files, "b.msgpack").contains("b.msgpack.keys` exists already"));
    let names = fs::read_dir(at("data").parent().unwrap()).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert!(!names.into_iter().any(|name| name.starts_with("a.msgpack")));
}

/// datadings 3.4.7 wrote the same samples (`scripts/golden-shards`).
#[test]
fn an_export_is_what_datadings_writes() {
    let fixtures =
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/shards"));
    let (_folder, at) = with(photos);
    let files = Files::open(&fixtures.join("folder")).unwrap();
    fs::create_dir(at("ours")).unwrap();
    export(&files, &at("ours/train.msgpack"), &mut |_| ()).unwrap();
    let (ours, theirs) = (tree(&at("ours")), tree(&fixtures.join("datadings-of-folder")));
    assert_eq!(ours.len(), 6);
    assert!(ours == theirs, "other bytes");
}
