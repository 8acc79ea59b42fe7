//! Whatever happens to a byte of a store: it is noticed and named, no sample is lost except those
//! whose bytes were hit, and no sample is made from wrong bytes.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};

use bothends_core::blocks::Blocks;
use bothends_core::ids::{EpochIdx, SampleId};
use bothends_core::recipe::Recipe;
use bothends_core::sample::{Extent, SampleKey};
use bothends_dataset::conformance::MemoryStorage;
use bothends_dataset::{Table, find};
use bothends_ops::{Pipeline, Scratch};
use bothends_pack::{
    Files, OpenStore, PackConfig, Stored, is_store, pack, unpack, verify,
};

/// What is done to one file.
#[derive(Debug, Clone, Copy)]
enum Hit {
    Flip {
        at: usize,
        bit: u32,
    },
    /// A page of zeros, as a failing disk leaves it.
    Blank {
        at: usize,
    },
    Cut {
        len: usize,
    },
}

impl Hit {
    /// The damaged file, and the bytes that may differ now.
    fn apply(self, bytes: &mut Vec<u8>) -> Range<usize> {
        let len = bytes.len();
        match self {
            Self::Flip { at, bit } => {
                bytes[at] ^= 1 << bit;
                at..at + 1
            }
            Self::Blank { at } => {
                let range = at / 512 * 512..len.min(at / 512 * 512 + 512);
                bytes[range.clone()].fill(0);
                range
            }
            Self::Cut { len: cut } => {
                bytes.truncate(cut);
                cut..len
            }
        }
    }
}

/// The same numbers in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from((self.0 >> 11) % n as u64).unwrap()
    }

    fn hit(&mut self, len: usize) -> Hit {
        let at = self.below(len);
        match self.below(8) {
            0 => Hit::Cut { len: at },
            1 => Hit::Blank { at },
            bit => Hit::Flip { at, bit: u32::try_from(bit).unwrap() },
        }
    }
}

/// A store of some of the fixtures, with several shards.
struct Packed {
    folder: tempfile::TempDir,
    files: BTreeMap<String, Vec<u8>>,
    open: OpenStore,
    table: Table,
    pipeline: Pipeline,
    samples: Vec<Vec<u8>>,
}

impl Packed {
    fn new() -> Self {
        let fixtures =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/ops");
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        let names = [
            "420-17x33.jpg",
            "420-q100.jpg",
            "444-48x64.jpg",
            "cmyk-noise.jpg",
            "grey-7x9.jpg",
            "420-progressive.jpg",
            "restart-rows.jpg",
            "type2-8bit.png",
            "one-pixel.png",
        ];
        for (nth, name) in names.iter().enumerate() {
            let class = data.join(["ant", "bee"][nth % 2]);
            fs::create_dir_all(&class).unwrap();
            fs::copy(fixtures.join(name), class.join(name)).unwrap();
        }
        fs::write(data.join("notes"), vec![7; 5000]).unwrap();
        fs::create_dir(data.join("ant/empty")).unwrap();
        let store = folder.path().join("store");
        let config = PackConfig { shard_bytes: 24 << 10, ..PackConfig::default() };
        pack(&Files::open(&data).unwrap(), &store, &config, &mut |_| ()).unwrap();
        let file = |entry: fs::DirEntry| {
            let name = entry.file_name().into_string().unwrap();
            (name, fs::read(entry.path()).unwrap())
        };
        let entries = fs::read_dir(&store).unwrap();
        let files: BTreeMap<_, _> = entries.map(|entry| file(entry.unwrap())).collect();
        assert!(files.len() >= 3 * 2 + 2, "several shards: {:?}", files.keys());
        let table = find(&storage(&files), "").unwrap().table;
        let is_blocks = |id: &u64| table.blocks(SampleId(*id)).is_some();
        let n_blocks = (0..table.n_samples()).filter(is_blocks).count();
        assert!((5..=6).contains(&n_blocks), "both kinds of records: {n_blocks}");
        let recipe = Recipe::builtin("imagenet-train").unwrap();
        let shape = recipe.views(table.record_shape().unwrap()).unwrap();
        let pipeline = Pipeline::new(&recipe, shape);
        let open = OpenStore::new(&store).unwrap();
        let mut packed =
            Self { folder, files, open, table, pipeline, samples: Vec::new() };
        packed.samples = (0..packed.table.n_samples())
            .map(|id| packed.sample(&packed.files, SampleId(id)).unwrap())
            .collect();
        packed
    }

    fn store(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    /// The sample as a run makes it, or what is wrong with it.
    fn sample(
        &self,
        files: &BTreeMap<String, Vec<u8>>,
        sample: SampleId,
    ) -> Result<Vec<u8>, String> {
        let key = SampleKey { seed: 5, epoch: EpochIdx(0), sample };
        let choose = |blocks: Blocks<'_>| self.pipeline.groups_for(key, blocks).ok();
        let piece = self.table.piece(sample, choose);
        let bytes = self.bytes(files, piece.extent).ok_or("cannot be read")?;
        let record =
            self.table.record(sample, piece, bytes).map_err(|e| e.to_string())?;
        let mut out = vec![0; self.pipeline.sample_bytes()];
        let made = self.pipeline.run(&mut Scratch::default(), key, record, &mut out);
        made.map(|()| out).map_err(|e| e.to_string())
    }

    fn bytes<'a>(
        &self,
        files: &'a BTreeMap<String, Vec<u8>>,
        extent: Extent,
    ) -> Option<&'a [u8]> {
        let start = usize::try_from(extent.offset).unwrap();
        let file = &files[&self.table.file_path(extent.file)];
        file.get(start..start + extent.len as usize)
    }

    /// The records of a shard whose pages are in the range, and the paths of their files.
    fn records_in(&self, file: &str, hit: &Range<usize>) -> Vec<(usize, String)> {
        let shards = &self.open.manifest().shards;
        let Some(shard) = shards.iter().position(|shard| shard.file() == file) else {
            return Vec::new();
        };
        let index = &self.open.indices()[shard];
        let is_hit = |line: &bothends_dataset::store::Line| {
            let start = usize::try_from(line.offset()).unwrap();
            let end = start + (line.len as usize).next_multiple_of(4096);
            start.max(hit.start) < end.min(hit.end)
        };
        let lines = index.lines().iter().enumerate().filter(|(_, line)| is_hit(line));
        lines.map(|(number, line)| (number, index.name(line.name).to_owned())).collect()
    }

    /// Damages one file, checks everything, and restores it.
    fn suffer(&self, name: &str, hit: Hit) {
        let mut files = self.files.clone();
        let bytes = files.get_mut(name).unwrap();
        let range = hit.apply(bytes);
        if *bytes == self.files[name] {
            return;
        }
        let records = self.records_in(name, &range);
        overwrite(&self.store().join(name), bytes);
        let found = verify(&self.store(), &mut |_| ()).unwrap();
        overwrite(&self.store().join(name), &self.files[name]);
        let case = format!("{name}: {hit:?}: {:?}", found.damages);
        assert!(!found.damages.is_empty(), "goes unnoticed: {case}");
        assert!(found.damages.iter().all(|damage| damage.file == name), "{case}");
        let named = found.damages.into_iter().filter_map(|damage| damage.record);
        assert!(
            named.eq(records
                .into_iter()
                .filter(|(number, _)| { self.has_changed(name, *number, bytes) })),
            "{case}"
        );
        let table = find(&storage(&files), "").unwrap().table;
        assert!(table == self.table, "{case}");
        for id in (0..table.n_samples()).map(SampleId) {
            let extent = table.extent(id);
            if self.bytes(&files, extent) == self.bytes(&self.files, extent) {
                continue;
            }
            let right = &self.samples[usize::try_from(id.0).unwrap()];
            let made = self.sample(&files, id);
            assert!(made.is_err() || made.as_ref() == Ok(right), "{case} {id:?}");
        }
    }

    /// Whether the pages of a record have changed: a blanked page may have been zero.
    fn has_changed(&self, name: &str, number: usize, now: &[u8]) -> bool {
        let shards = &self.open.manifest().shards;
        let shard = shards.iter().position(|shard| shard.file() == name).unwrap();
        let line = self.open.indices()[shard].lines()[number];
        let start = usize::try_from(line.offset()).unwrap();
        let range = start..start + (line.len as usize).next_multiple_of(4096);
        now.get(range.clone()) != self.files[name].get(range)
    }
}

/// A file's new bytes. It is never empty in between: ext4 writes one that was to the disk when it is closed, which
/// took most of the time of these tests.
fn overwrite(path: &Path, bytes: &[u8]) {
    let mut file = File::options().write(true).open(path).unwrap();
    file.write_all(bytes).unwrap();
    file.set_len(bytes.len() as u64).unwrap();
}

fn storage(files: &BTreeMap<String, Vec<u8>>) -> MemoryStorage {
    files.iter().fold(MemoryStorage::new(), |all, (name, bytes)| all.with(name, bytes))
}

#[test]
fn ten_thousand_hits_are_noticed_and_named_and_make_no_wrong_sample() {
    let packed = Packed::new();
    let names: Vec<&String> = packed.files.keys().collect();
    let mut dice = Dice(0x5eed);
    for nth in 0..12_000 {
        // Shards as often as all the short files together.
        let name = loop {
            let name = names[dice.below(names.len())];
            if name.ends_with(".shard") || nth % 2 == 0 {
                break name;
            }
        };
        let hit = dice.hit(packed.files[name].len());
        packed.suffer(name, hit);
    }
    assert_eq!(verify(&packed.store(), &mut |_| ()).unwrap().damages, []);
}

#[test]
fn every_byte_of_what_is_kept_twice_is_noticed() {
    let packed = Packed::new();
    for (name, bytes) in &packed.files {
        let is_short = !name.ends_with(".shard");
        let until = if is_short { bytes.len() } else { 64 };
        for at in 0..until {
            packed.suffer(name, Hit::Flip { at, bit: u32::try_from(at % 8).unwrap() });
        }
    }
}

#[test]
fn what_is_damaged_is_left_out_of_files_and_not_copied() {
    let packed = Packed::new();
    let shard = packed.files.keys().find(|name| name.ends_with(".shard")).unwrap();
    let mut bytes = packed.files[shard].clone();
    bytes[4100] ^= 1;
    fs::write(packed.store().join(shard), bytes).unwrap();
    let to = |name: &str| packed.folder.path().join(name);
    let stores = [OpenStore::new(&packed.store()).unwrap()];
    let unpacked = unpack(&stores[0], &to("again"), 2, &mut |_| ()).unwrap();
    let [damage] = unpacked.damages.as_slice() else { panic!("{unpacked:?}") };
    let said = "00000.shard record 0 (`ant/420-17x33.jpg`): it has a different checksum";
    assert_eq!(damage.to_string(), said);
    assert!(!to("again/ant/420-17x33.jpg").exists());
    let n_records = unpacked.progress.n_records;
    assert!(n_records > 3 && unpacked.progress.n_done == n_records);
    let copied = pack(
        &Stored::all(&stores).unwrap(),
        &to("copy"),
        &PackConfig::default(),
        &mut |_| (),
    );
    let error = copied.unwrap_err().to_string();
    assert!(error.contains("00000.shard` record 0 (`ant/420-17x33.jpg`)"), "{error}");
    assert!(!is_store(&to("copy")));
}
