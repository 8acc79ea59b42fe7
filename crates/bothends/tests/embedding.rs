//! What a program that embeds the library says by name. It depends on this crate alone, so every type that it
//! meets in a signature or a public field has to be exported here.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use bothends::ids::Label;
use bothends::order::{Order, OrderConfig, Repeats};
use bothends::recipe::Recipe;
use bothends::setting::Setting;
use bothends::{
    Batch, CacheSize, Consumer, ErrorKind, FetchBounds, FieldColumn, FieldKind, Gpus,
    Insecure, JoinLabels, Loader, MemoryBudget, MixStop, MixedData, MixedSource, Number,
    Polled, Ranks, Registration, Replacement, RunConfig, RuntimeError, Step, Usage,
    options, options_among,
};
use bothends_samples::{GenerateConfig, generate};
use serde_json::json;
use tempfile::TempDir;

fn images(n_images: u32) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let config = GenerateConfig { n_images, n_classes: 2, seed: 1 };
    generate(folder.path(), &config, &mut |_, _| {}).unwrap();
    folder
}

fn shards() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    root.join("tests/fixtures/shards/fields-mds")
}

/// A configuration whose every choice is written out, over two data sets.
fn by_hand(one: &Path, other: &Path) -> RunConfig {
    let source = |name: &str, data: &Path| MixedSource {
        name: name.to_owned(),
        data: data.to_owned(),
        weight: 1.0,
    };
    let mix = MixedData {
        sources: vec![source("one", one), source("other", other)],
        stop: MixStop::All,
        replacement: Replacement::Without,
        labels: JoinLabels::Offset,
    };
    let mut config = RunConfig::mixed(mix, Recipe::builtin("imagenet-eval").unwrap());
    config.batch_size = 4;
    config.memory = MemoryBudget::Total(64 << 20);
    config.insecure = Insecure::Refused;
    config.gpus = Gpus::default();
    config.read.cache_size = CacheSize::Off;
    config.read.fetch = FetchBounds { requests: Some(8), ..FetchBounds::default() };
    (config.tls, config.job) = (None, None);
    config.names =
        |setting| if setting == Setting::Seed { "luck" } else { setting.key() };
    config
}

#[test]
fn a_configuration_can_be_written_by_hand() {
    let (one, other) = (images(6), images(6));
    let mut loader = Loader::open(by_hand(one.path(), other.path())).unwrap();
    let deal = loader.begin(1).unwrap();
    let labels: Vec<_> = deal.batches(0).flat_map(labels_of).collect();
    assert!((0..4).all(|class| labels.contains(&Label(class))), "{labels:?}");
    assert_eq!(loader.sources().unwrap().of(bothends::ids::SampleId(0)), 0);
}

fn labels_of(batch: Result<Batch, RuntimeError>) -> Vec<Label> {
    batch.unwrap().rows().iter().map(|row| row.label).collect()
}

#[derive(Debug, Default)]
struct Training {
    n_samples: u32,
}

impl Consumer for Training {
    fn take(&mut self, batch: Batch) -> Result<Step, RuntimeError> {
        self.n_samples += batch.n_valid();
        assert!(batch.bytes().as_ptr().addr().is_multiple_of(4096));
        Ok(Step { stall_ns: 0, busy_ns: 1 })
    }
}

#[test]
fn a_consumer_of_ones_own_is_fed() {
    let images = images(10);
    let config = json!({
        "data": images.path(), "recipe": "imagenet-eval", "batch_size": 4, "last": "pad",
    });
    let mut loader = Loader::open(options(&config.to_string()).unwrap()).unwrap();
    let mut training = Training::default();
    let usage: Usage = loader.feed(&mut training).unwrap();
    assert_eq!((training.n_samples, usage.n_steps), (10, 3));
    let ranks = OrderConfig {
        n_records: 10,
        rank: 0,
        world: 1,
        repeats: Repeats::SameOnRanks,
        skip: 0,
    };
    let order: Order = loader.order(ranks, &[3, 1, 2], vec![2, 3]).unwrap();
    assert_eq!(order.n_batches(), 2);
}

#[test]
fn ranks_of_one_machine_are_counted() {
    let (images, places) = (images(6), tempfile::tempdir().unwrap());
    let temp = places.path().display().to_string();
    let variable = |name: &str| match name {
        "TMPDIR" => Some(temp.clone()),
        "MASTER_ADDR" => Some("node1".to_owned()),
        "MASTER_PORT" => Some("29500".to_owned()),
        _ => None,
    };
    let (ranks, registration): (Ranks, Option<Registration>) =
        Ranks::here(variable, None);
    assert!(ranks.n() == 1 && registration.is_some());
    let config =
        json!({"data": images.path(), "recipe": "imagenet-eval", "batch_size": 2});
    let config = options_among(&config.to_string(), ranks).unwrap();
    let loader = Loader::open(config).unwrap();
    assert_eq!(loader.n_samples(), 6);
    // Nobody counts it any more.
    drop((loader, registration));
    assert_eq!(std::fs::read_dir(places.path()).unwrap().count(), 0);
}

#[test]
fn a_kind_tells_what_to_do_about_an_error() {
    for (config, kind) in [
        (json!({"data": "/no/where", "recipe": "raw"}), ErrorKind::Data),
        (json!({"data": "/no/where", "recipe": "rwa"}), ErrorKind::Options),
    ] {
        let opened = options(&config.to_string()).and_then(Loader::open);
        assert_eq!(opened.unwrap_err().kind(), kind, "{config}");
    }
}

/// The numbers of a row's field.
fn numbers(field: &FieldColumn, row: usize) -> Vec<f64> {
    let values = field.value(row).chunks_exact(4);
    let values = values.map(|value| value.try_into().unwrap());
    if field.kind() == FieldKind::Numbers(Number::F32) {
        return values.map(|value| f32::from_le_bytes(value).into()).collect();
    }
    assert_eq!(field.kind(), FieldKind::Numbers(Number::I32));
    values.map(|value| i32::from_le_bytes(value).into()).collect()
}

#[test]
fn fields_say_what_they_are() {
    let config = json!({
        "data": shards(), "recipe": "imagenet-eval", "batch_size": 7, "shuffle": false,
        "fields": ["caption", "score", "size"],
    });
    let mut loader = Loader::open(options(&config.to_string()).unwrap()).unwrap();
    let deal = loader.begin(1).unwrap();
    // Whoever has nothing else to do waits without end.
    let Polled::Batch(batch) = deal.poll(0, Duration::MAX).unwrap() else {
        panic!("no batch");
    };
    let [caption, score, size] = batch.fields() else { panic!("{:?}", batch.fields()) };
    assert_eq!(caption.kind(), FieldKind::Text);
    for row in 0..7_u8 {
        // As scripts/golden-shards wrote them.
        assert_eq!(numbers(score, row.into()), [f64::from(row) / 4.0]);
        assert_eq!(numbers(size, row.into())[0], f64::from(row));
    }
}
