//! Entries for texts that people and programs write: states, lists, presets, scenarios,
//! options. Read `lib.rs` first.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Duration;

use bothends_core::resume::Resume;
use bothends_dataset::conformance::{self, MemoryStorage};
use bothends_dataset::{Ask, Decompression, FieldPlace, Format, Found, Storage, find_fields};
use bothends_decompress::{Compressed, Place, Progress, decompress, find_decompressed};
use bothends_energy::Profile;
use bothends_firmware_sim::compute::Effort;
use bothends_firmware_sim::config::DeviceConfig;
use bothends_firmware_sim::media::Blocks;
use bothends_firmware_sim::{Demand, Drive};
use bothends_runtime::{Loader, options};
use bothends_simulate::Scenario;
use tempfile::TempDir;

use crate::peers::memory_folder;

/// A state: what is read comes back from what it writes.
pub fn state(bytes: &[u8]) {
    let Ok(json) = std::str::from_utf8(bytes) else { return };
    let Ok(state) = Resume::from_json(json) else { return };
    let written = state.to_json();
    let again = Resume::from_json(&written).expect("just written");
    assert_eq!(again.to_json(), written);
}

/// A list of samples: what is accepted leads to files that are there, inside the root.
pub fn list(bytes: &[u8]) {
    let storage = MemoryStorage::new()
        .with("sets/good.jpg", b"image")
        .with("good.jpg", b"image")
        .with("sets/list.jsonl", bytes);
    if let Ok(found) = bothends_dataset::find(&storage, "sets/list.jsonl") {
        conformance::check(&storage, &found);
    }
}

/// A shard of each kind, and an index of shards: what is accepted leads to bytes that are there.
pub fn shards(bytes: &[u8]) {
    // One sample of a class and an image, and the index that names the shard.
    const INDEX: &[u8] = include_bytes!("../../tests/fixtures/shards/mds/index.json");
    const SHARD: &[u8] =
        include_bytes!("../../tests/fixtures/shards/mds/shard.00000.mds");
    const SAMPLES: &[u8] =
        include_bytes!("../../tests/fixtures/shards/datadings/train.msgpack");
    const ARROW: &[u8] =
        include_bytes!("../../tests/fixtures/shards/arrow/data-00000-of-00002.arrow");
    const ITEMS: &[u8] =
        include_bytes!("../../tests/fixtures/shards/litdata-items/index.json");
    const CHUNK: &[u8] =
        include_bytes!("../../tests/fixtures/shards/litdata-items/chunk-0-0.bin");
    const FOLDERS: [&str; 13] = [
        "tar",
        "tfrecord",
        "mds",
        "index",
        "parquet",
        "arrow",
        "arrow-list",
        "items",
        "items-index",
        "datadings",
        "offsets",
        "hdf5",
        "beton",
    ];
    // What an earlier walk has kept, too.
    drop(Found::kept(Format::WebDataset, bytes));
    let storage = MemoryStorage::new()
        .with("tar/0.tar", bytes)
        .with("tfrecord/0.tfrecord", bytes)
        .with("mds/index.json", INDEX)
        .with("mds/shard.00000.mds", bytes)
        .with("mds/shard.00001.mds", bytes)
        .with("index/index.json", bytes)
        .with("index/shard.00000.mds", SHARD)
        .with("datadings/0.msgpack", bytes)
        .with("offsets/0.msgpack", SAMPLES)
        .with("offsets/0.msgpack.offsets", bytes)
        .with("hdf5/0.h5", bytes)
        .with("beton/0.beton", bytes)
        .with("parquet/0.parquet", bytes)
        .with("arrow/0.arrow", bytes)
        .with("arrow-list/0.arrow", ARROW)
        .with("arrow-list/state.json", bytes)
        .with("items/index.json", ITEMS)
        .with("items/chunk-0-0.bin", bytes)
        .with("items/chunk-0-1.bin", bytes)
        .with("items-index/index.json", bytes)
        .with("items-index/chunk-0-0.bin", CHUNK);
    for folder in FOLDERS {
        drop(Decompression::plan(&storage, folder));
        drop(Decompression::is_needed(&storage, folder));
        if let Ok(found) = bothends_dataset::find(&storage, folder) {
            conformance::check(&storage, &found);
        }
        // All fields that there are, or none.
        let Ok(named) = find_fields(&storage, folder, Ask::Names) else { continue };
        let names = named.names.iter().map(|field| field.name.clone());
        let ask = Ask::Fields(names.take(16).collect());
        let Ok(found) = find_fields(&storage, folder, ask) else { continue };
        for field in found.fields.iter() {
            for row in 0..found.table.n_samples() {
                let FieldPlace::Extent(extent) = field.place(row) else { continue };
                let path = found.table.file_path(extent.file);
                let mut value = vec![0; extent.len as usize];
                storage
                    .read(&path, extent.offset, &mut value)
                    .expect("it lies in its file");
            }
        }
    }
}

/// A compressed shard of each kind. What becomes of it is found again by a second call, and what is refused leaves
/// nothing that a second call takes for complete.
pub fn compressed(bytes: &[u8]) {
    const INDEX: &[u8] = br#"{"version": 2, "shards": [{"format": "mds", "column_names": ["image"],
        "column_encodings": ["jpeg"], "column_sizes": [null], "samples": 1,
        "raw_data": {"basename": "0.mds"}, "zip_data": {"basename": "0.mds.snappy"}}]}"#;
    // Written bytes after which no more is wanted: a few bytes may become gigabytes.
    const MOST_BYTES: u64 = 16 << 20;
    let storage = MemoryStorage::new()
        .with("gzip/0.tar.gz", bytes)
        .with("zstd/0.tar.zst", bytes)
        .with("snappy/index.json", INDEX)
        .with("snappy/0.mds.snappy", bytes)
        .with("tfrecord/0.tfrecord", bytes)
        .with("parquet/0.parquet", bytes)
        .with_versions();
    let Ok(folder) = TempDir::new_in(memory_folder()) else { return };
    let place = Place::in_cache(folder.path());
    // The package that reads Parquet files panics at some damage, which is caught; to libFuzzer that is the end.
    let targets = ["gzip", "zstd", "snappy", "tfrecord", "parquet"];
    let n_targets = targets.len() - usize::from(cfg!(feature = "libfuzzer"));
    for &target in &targets[..n_targets] {
        let data = Compressed { storage: &storage, target };
        let unless_huge = &mut |progress: &Progress| match progress.written_bytes {
            ..=MOST_BYTES => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        };
        let made = decompress(data, &place, unless_huge).map(|made| made.bytes());
        let found = find_decompressed(data, &place);
        let found = found.ok().flatten().map(|found| found.bytes());
        assert_eq!(made.ok(), found, "{target}");
    }
}

/// A device's preset, a scenario and an energy profile, which are all JSON that people write:
/// nothing panics, and what is accepted can be asked for what follows from it.
pub fn preset(bytes: &[u8]) {
    let Ok(json) = std::str::from_utf8(bytes) else { return };
    if let Ok(mut device) = DeviceConfig::from_json("fuzzed", json) {
        let n_units = device.n_units();
        assert!(n_units.is_none_or(|n| n > 0));
        device.set_n_units(2);
        let blocks = Blocks { first: 0, n: 40 };
        let mut drive = Drive::new(device, 1000);
        for demand in [
            Demand::Write(blocks),
            Demand::Read(blocks),
            Demand::ToMemory(vec![blocks], 4096),
            Demand::Execute(Effort { fuel: u64::MAX, cpu_ns: 1, ..Effort::default() }),
        ] {
            drive.take(0, &demand);
        }
        drive.vitals(u64::MAX);
    }
    drop(Profile::from_json("fuzzed", json));
    if let Ok(scenario) = Scenario::from_json("fuzzed", json) {
        assert!(scenario.n_batches() > 0);
        assert!(!scenario.seeds.is_empty());
        let n_devices = scenario.n_devices();
        assert!(n_devices < 1 << 20, "{n_devices} devices of a few bytes");
    }
}

/// A program that calls a loader as it likes, through the doors that C and Python have: the
/// bytes are options, a state, and calls with the numbers of consumers and epochs that they
/// name. Nothing panics, and nothing takes longer than it may.
pub fn loader(bytes: &[u8]) {
    let mut parts = bytes.splitn(3, |byte| *byte == 0);
    let [options_json, state, calls] = [(); 3].map(|()| parts.next().unwrap_or_default());
    if let Ok(json) = std::str::from_utf8(options_json) {
        drop(options(json));
    }
    let Ok(state) = std::str::from_utf8(state) else { return };
    let Some(mut loader) = fixed_loader() else { return };
    let mut deal = None;
    for call in calls.chunks(2).take(8) {
        let number = call.get(1).copied().unwrap_or_default();
        let wild = [0, 1, 2, 3, 7, u32::MAX][usize::from(number % 6)];
        match call[0] % 9 {
            0 => {
                if let Ok(begun) = loader.begin(wild) {
                    deal = Some((begun, wild));
                }
            }
            1 => loader.set_epoch(wild),
            2 => drop(loader.load_state(state)),
            3 => {
                if let Ok(state) = loader.state() {
                    loader.load_state(&state).expect("its own state");
                }
            }
            4 => drop(loader.n_batches(wild)),
            5 => drop(loader.set_rank(wild, u32::from(number))),
            6 => drop(loader.sample(bothends_core::ids::SampleId(wild.into()))),
            7 => {
                // The doors refuse a consumer that is not there, as this one must be.
                if let Some((deal, consumers)) = &deal {
                    drop(deal.poll(wild % consumers, Duration::from_secs(20)));
                }
            }
            _ => {
                if let Some((deal, _)) = &deal {
                    deal.cancel();
                }
            }
        }
    }
}

/// A loader over three small images; `None` where the system has no threads left.
fn fixed_loader() -> Option<Loader> {
    let data = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/stream");
    let json = format!(
        r#"{{"data": {:?}, "recipe": "imagenet-eval", "batch_size": 2, "limit": 3,
            "workers": 1, "last": "pad", "side_index": "off", "memory": 33554432}}"#,
        data.join("photos").display().to_string()
    );
    Loader::open(options(&json).expect("good options")).ok()
}
