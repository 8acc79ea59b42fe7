//! A batch in memory is what the host makes, and whatever else is in memory gets an answer.
#![allow(clippy::unwrap_used, reason = "a panic is the report")]

use std::cell::Cell;

use bothends_core::ids::{EpochIdx, SampleId};
use bothends_core::recipe::{Recipe, RecordShape};
use bothends_core::sample::{Encoding, Record, SampleKey};
use bothends_nvme::Status;
use bothends_nvme::preprocess::{
    Head, Item, Kind, Made, Outcome, Parameters, Part, RECORDS, RESULTS, Results, TABLE,
};
use bothends_ops::{Pipeline, Scratch};
use bothends_preprocess::{Bench, Memory, Shared, run};
use bothends_samples::{GenerateConfig, generate};
use twox_hash::XxHash3_64;

const SEED: u64 = 77;
const EPOCH: u32 = 3;

/// Three ranges in slices, and how many samples may be made.
struct Ranges<'a> {
    records: &'a [u8],
    table: &'a [u8],
    results: &'a mut [u8],
    n_left: Cell<u32>,
}

impl Ranges<'_> {
    fn range(&self, n: usize) -> Result<&[u8], Status> {
        match n {
            RECORDS => Ok(self.records),
            TABLE => Ok(self.table),
            RESULTS => Ok(self.results),
            _ => Err(Status::INVALID_FIELD),
        }
    }
}

impl Memory for Ranges<'_> {
    fn range_bytes(&self, n: usize) -> Result<u32, Status> {
        self.range(n).map(|range| u32::try_from(range.len()).unwrap())
    }

    fn read(&self, n: usize, at: u32, to: &mut [u8]) -> Result<(), Status> {
        let part = self.range(n)?.get(at as usize..).and_then(|own| own.get(..to.len()));
        to.copy_from_slice(part.ok_or(Status::INVALID_FIELD)?);
        Ok(())
    }

    fn write(&mut self, n: usize, at: u32, from: &[u8]) -> Result<(), Status> {
        assert_eq!(n, RESULTS);
        let part = self.results.get_mut(at as usize..);
        let part = part.and_then(|own| own.get_mut(..from.len()));
        part.ok_or(Status::INVALID_FIELD)?.copy_from_slice(from);
        Ok(())
    }

    fn check(&self) -> Result<(), Status> {
        let left = self.n_left.get().checked_sub(1).ok_or(Status::ABORT_REQUESTED)?;
        self.n_left.set(left);
        Ok(())
    }
}

/// Three ranges, as a host fills them.
struct Batch {
    head: Head,
    items: Vec<Item>,
    recipe: Recipe,
    records: Vec<u8>,
}

fn images(n_images: u32) -> Vec<Vec<u8>> {
    let folder = tempfile::tempdir().unwrap();
    let config = GenerateConfig { n_images, n_classes: 1, seed: 5 };
    generate(folder.path(), &config, &mut |_, _| {}).unwrap();
    let class = folder.path().read_dir().unwrap().flatten();
    let class = class.map(|entry| entry.path()).find(|path| path.is_dir()).unwrap();
    let mut files: Vec<_> =
        class.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

fn pipeline(recipe: &Recipe) -> Pipeline {
    Pipeline::new(recipe, recipe.views(RecordShape::Image).unwrap())
}

impl Batch {
    fn of(images: &[Vec<u8>]) -> Self {
        Self::with(Recipe::builtin("imagenet-train").unwrap(), images)
    }

    fn with(recipe: Recipe, images: &[Vec<u8>]) -> Self {
        let sample_bytes = u32::try_from(pipeline(&recipe).sample_bytes()).unwrap();
        let (mut records, mut items) = (Vec::new(), Vec::new());
        let n_items = u32::try_from(images.len()).unwrap();
        let samples_at = 4096;
        for (n, image) in (0..).zip(images) {
            let at = u32::try_from(records.len()).unwrap();
            records.extend_from_slice(image);
            records.resize(records.len().next_multiple_of(4096), 0xee);
            let bytes = u32::try_from(image.len()).unwrap();
            items.push(Item {
                sample: u64::from(n) + 10,
                record: Part { at, bytes },
                out_at: samples_at + n * sample_bytes,
                checksum: Some(XxHash3_64::oneshot(image)),
                groups: None,
            });
        }
        let bytes = u32::try_from(recipe.to_json().len()).unwrap();
        let head = Head {
            kind: Kind::Image,
            n_items,
            sample_bytes,
            seed: SEED,
            epoch: EPOCH,
            recipe_hash: recipe.hash(),
            recipe: Part { at: 96, bytes },
            items_at: 96 + bytes,
            results_at: 16,
        };
        Self { head, items, recipe, records }
    }

    fn table(&self) -> Vec<u8> {
        let mut table = self.head.bytes().to_vec();
        table.extend_from_slice(self.recipe.to_json().as_bytes());
        table.extend(self.items.iter().flat_map(Item::bytes));
        table
    }

    fn run(&self) -> Result<Vec<u8>, Status> {
        self.run_with(&self.table(), self.head.parameters())
    }

    fn run_with(&self, table: &[u8], parameters: Parameters) -> Result<Vec<u8>, Status> {
        let bytes = 4096 + self.head.sample_bytes as usize * self.items.len();
        let mut results = vec![0xdd; bytes];
        let mut ranges = self.ranges(table, &mut results);
        let mut bench = Bench::new(&Shared::default());
        let done = run(&mut bench, parameters, &mut ranges)?;
        assert_eq!(done.n_items as usize, self.items.len());
        Ok(results)
    }

    fn ranges<'a>(&'a self, table: &'a [u8], results: &'a mut [u8]) -> Ranges<'a> {
        Ranges { records: &self.records, table, results, n_left: Cell::new(u32::MAX) }
    }

    fn made(&self, results: &[u8], n: u32) -> Made {
        Made::read(self.head.made(n).unwrap().of(results).unwrap()).unwrap()
    }

    fn sample<'a>(&self, results: &'a [u8], n: usize) -> &'a [u8] {
        let part = Part { at: self.items[n].out_at, bytes: self.head.sample_bytes };
        part.of(results).unwrap()
    }
}

#[test]
fn a_batch_is_what_the_host_makes() {
    let images = images(5);
    let batch = Batch::of(&images);
    let results = batch.run().unwrap();
    let (pipeline, mut scratch) = (pipeline(&batch.recipe), Scratch::default());
    for (n, (image, item)) in images.iter().zip(&batch.items).enumerate() {
        let key = SampleKey {
            seed: SEED,
            epoch: EpochIdx(EPOCH),
            sample: SampleId(item.sample),
        };
        let mut expected = vec![0; batch.head.sample_bytes as usize];
        let record = Record::new(image, Encoding::Image);
        pipeline.run(&mut scratch, key, record, &mut expected).unwrap();
        assert!(batch.sample(&results, n) == expected, "sample {n}");
        let made = batch.made(&results, u32::try_from(n).unwrap());
        assert_eq!((made.outcome, made.pixels), (Outcome::Made, scratch.source_pixels()));
    }
    let sum = Results::read(&results[16..]).unwrap();
    assert_eq!((sum.n_items, sum.n_failed), (5, 0));
    assert_eq!(sum.checksum, XxHash3_64::oneshot(&results[4096..]));
    let answers_end = 16 + Results::BYTES + 5 * Made::BYTES;
    let is_untouched = |own: &[u8]| own.iter().all(|byte| *byte == 0xdd);
    assert!(is_untouched(&results[..16]) && is_untouched(&results[answers_end..4096]));
    let coded: usize = images.iter().map(Vec::len).sum();
    assert_eq!(sum.coded_bytes, coded as u64);
}

/// A model charges a decoder for coded images alone.
#[test]
fn records_that_are_no_coded_images_are_counted_apart() {
    let mut batch = Batch::of(&images(3));
    let coded: u64 = batch.items.iter().map(|item| u64::from(item.record.bytes)).sum();
    let done = |batch: &Batch| {
        let table = batch.table();
        let mut results = vec![0; 4096 + batch.head.sample_bytes as usize * 3];
        let mut ranges = batch.ranges(&table, &mut results);
        run(&mut Bench::new(&Shared::default()), batch.head.parameters(), &mut ranges)
            .unwrap()
    };
    let images = done(&batch);
    assert_eq!((images.bytes, images.coded_bytes), (0, coded));
    assert!(images.pixels > 0);

    let sample_bytes = 3 * 32 * 32;
    for (kind, name) in [
        (Kind::Opaque, "raw"),
        (Kind::Planar { channels: 3, height: 32, width: 32 }, "cifar10-train"),
    ] {
        batch.recipe = Recipe::builtin(name).unwrap();
        let bytes = u32::try_from(batch.recipe.to_json().len()).unwrap();
        let recipe = Part { at: 96, bytes };
        let (items_at, recipe_hash) = (96 + bytes, batch.recipe.hash());
        batch.head =
            Head { kind, sample_bytes, recipe, items_at, recipe_hash, ..batch.head };
        for (nth, item) in (0..).zip(&mut batch.items) {
            item.record.bytes = sample_bytes;
            item.out_at = 4096 + nth * sample_bytes;
            item.checksum = None;
        }
        let records = done(&batch);
        let bytes = u64::from(3 * sample_bytes);
        assert_eq!((records.bytes, records.coded_bytes), (bytes, 0), "{name}");
        assert_eq!(records.pixels, 0, "{name}");
    }
}

#[test]
fn an_execution_ends_before_the_first_item_for_which_it_may_not_go_on() {
    let batch = Batch::of(&images(3));
    let bytes = 4096 + batch.head.sample_bytes as usize * 3;
    let mut results = vec![0xdd; bytes];
    let table = batch.table();
    let mut ranges = batch.ranges(&table, &mut results);
    ranges.n_left = Cell::new(2);
    let mut bench = Bench::new(&Shared::default());
    let ended = run(&mut bench, batch.head.parameters(), &mut ranges);
    assert_eq!(ended.unwrap_err(), Status::ABORT_REQUESTED);
    let whole = batch.run().unwrap();
    for n in 0..3 {
        let is_made = batch.sample(&results, n) == batch.sample(&whole, n);
        assert_eq!(is_made, n < 2, "sample {n}");
    }
    assert!(results[..4096].iter().all(|byte| *byte == 0xdd), "there is no answer");
}

#[test]
fn a_bad_item_costs_its_own_sample() {
    let mut batch = Batch::of(&images(6));
    let whole = batch.run().unwrap();
    let at = batch.items[1].record.at as usize;
    batch.records[at..at + 2].fill(0);
    batch.items[1].checksum = None;
    batch.items[2].record.at = u32::MAX;
    batch.items[3].checksum = Some(1);
    batch.items[4].record.bytes /= 2;
    batch.items[4].checksum = None;
    let results = batch.run().unwrap();
    let outcomes: Vec<Outcome> =
        (0..6).map(|n| batch.made(&results, n).outcome).collect();
    let expected = [
        Outcome::Made,
        Outcome::Bad,
        Outcome::Wrong,
        Outcome::Bad,
        outcomes[4],
        Outcome::Made,
    ];
    assert_eq!(outcomes, expected);
    for n in [1, 2, 3] {
        assert!(batch.sample(&results, n).iter().all(|byte| *byte == 0), "sample {n}");
    }
    for n in [0, 5] {
        assert!(batch.sample(&results, n) == batch.sample(&whole, n), "sample {n}");
    }
    let sum = Results::read(&results[16..]).unwrap();
    assert_eq!(sum.checksum, XxHash3_64::oneshot(&results[4096..]));
    // A place beyond the range is nobody's to write, and no other item's loss.
    batch.items[0].out_at = u32::MAX - 5;
    let results = batch.run().unwrap();
    assert_eq!(batch.made(&results, 0).outcome, Outcome::Wrong);
    assert_eq!(batch.made(&results, 5).outcome, Outcome::Made);
}

/// A recipe gives the shorter side alone, so a thin image grows beyond what a device makes: the host makes it.
#[test]
fn a_thin_image_that_grows_too_large_is_left_to_the_host() {
    let recipe = |more: &str| {
        let json = format!(
            r#"{{"name": "r", "version": 1, "ops": [{{"op": "decode"}}, {{"op": "resize", "size": 2732{more}}},
                {{"op": "center_crop", "size": 8}}]}}"#
        );
        Recipe::from_json(&json).unwrap()
    };
    let image = |width: usize| {
        let head = format!("P6\n{width} 1\n255\n");
        [head.as_bytes(), &vec![9; 3 * width]].concat()
    };
    // 171,667,952 pixels, and 59,710,592.
    let batch = Batch::with(recipe(""), &[image(23), image(8)]);
    let results = batch.run().unwrap();
    let outcomes = [0, 1].map(|n| batch.made(&results, n).outcome);
    assert_eq!(outcomes, [Outcome::Beyond, Outcome::Made]);
    let key = SampleKey { seed: SEED, epoch: EpochIdx(EPOCH), sample: SampleId(10) };
    let mut out = vec![0; 8 * 8 * 3];
    let mut run = |recipe: &Recipe, image: &[u8]| {
        let record = Record::new(image, Encoding::Image);
        pipeline(recipe).run(&mut Scratch::default(), key, record, &mut out)
    };
    run(&recipe(""), &image(23)).unwrap();
    // With a longest side, there is nothing left of the other.
    let thin = run(&recipe(r#", "max_size": 2733"#), &image(3000)).unwrap_err();
    let line = thin.to_string();
    assert!(line.starts_with("resizing makes this image one of 0x2733 pixels"), "{line}");
}

#[test]
fn a_table_that_is_none_is_refused() {
    let batch = Batch::of(&images(2));
    let (table, parameters) = (batch.table(), batch.head.parameters());
    for len in [0, 1, 95, 96, table.len() - 1] {
        assert_eq!(
            batch.run_with(&table[..len], parameters).unwrap_err(),
            Status::INVALID_FIELD,
            "{len} bytes"
        );
    }
    let Parameters(one, two) = parameters;
    for other in
        [Parameters(one + 1, two), Parameters(one | 1 << 33, two), Parameters(one, 0)]
    {
        assert_eq!(batch.run_with(&table, other).unwrap_err(), Status::INVALID_FIELD);
    }
    let with = |change: &dyn Fn(&mut Head)| {
        let mut head = batch.head;
        change(&mut head);
        let changed = Batch {
            head,
            items: batch.items.clone(),
            recipe: batch.recipe.clone(),
            records: batch.records.clone(),
        };
        changed.run_with(&changed.table(), head.parameters()).unwrap_err()
    };
    assert_eq!(with(&|head| head.recipe_hash ^= 1), Status::PROGRAM_DATA);
    assert_eq!(with(&|head| head.sample_bytes -= 1), Status::PROGRAM_DATA);
    assert_eq!(with(&|head| head.recipe.bytes -= 1), Status::PROGRAM_DATA);
    assert_eq!(with(&|head| head.recipe.at = u32::MAX), Status::INVALID_FIELD);
    assert_eq!(with(&|head| head.items_at = u32::MAX), Status::INVALID_FIELD);
    assert_eq!(with(&|head| head.results_at = u32::MAX), Status::INVALID_FIELD);
    assert_eq!(with(&|head| head.n_items = u32::MAX), Status::INVALID_FIELD);
    let planes = Kind::Planar { channels: 0, height: 0, width: 0 };
    assert_eq!(with(&|head| head.kind = planes), Status::PROGRAM_DATA);
}

/// Whatever one byte of the table is, there is an answer.
#[test]
fn any_byte_may_be_wrong() {
    let batch = Batch::of(&images(1));
    let table = batch.table();
    let mut bench = Bench::new(&Shared::default());
    let mut results = vec![0; 4096 + batch.head.sample_bytes as usize];
    for at in (0..96).chain(table.len() - Item::BYTES..table.len()) {
        {
            let value = 0xff;
            let mut table = table.clone();
            table[at] = value;
            let parameters = batch.head.parameters();
            let mut ranges = batch.ranges(&table, &mut results);
            if let Ok(done) = run(&mut bench, parameters, &mut ranges) {
                assert_eq!(done.n_items, 1, "byte {at} is {value}");
            }
        }
    }
}
