//! `preprocess_batch_v1` as the device's own program, and as a module that a host loads: the same bytes.
#![allow(clippy::print_stderr, reason = "it says what the work of both was")]

use std::path::Path;

use bothends_core::recipe::{Recipe, RecordShape};
use bothends_nvme::preprocess::{Head, Item, Kind, Parameters, Part, RESULTS};

use super::super::super::super::memory::Memory;
use super::super::super::batch::Batches;
use super::*;

#[path = "../../../../../tests/nvme/built.rs"]
mod built;

/// Where samples begin in range 3.
const SAMPLES_AT: u32 = 4096;

/// All images of the fixtures, one that ends too early, and nothing.
fn images() -> Vec<Vec<u8>> {
    let fixtures =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/stream/photos");
    let mut own = Vec::new();
    below(Path::new(fixtures), &mut own);
    assert!(own.len() > 10, "{}", own.len());
    let short = own[0][..own[0].len() / 2].to_vec();
    own.extend([short, Vec::new()]);
    own
}

fn below(folder: &Path, own: &mut Vec<Vec<u8>>) {
    let mut all: Vec<_> =
        folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    all.sort();
    for path in all {
        if path.is_dir() {
            below(&path, own);
        } else {
            own.push(std::fs::read(path).unwrap());
        }
    }
}

/// Records, the table, and room for the results.
fn batch(images: &[Vec<u8>]) -> (Parameters, [Vec<u8>; 3]) {
    let recipe = Recipe::builtin("imagenet-train").unwrap();
    let sample_bytes = recipe.views(RecordShape::Image).unwrap().len();
    let sample_bytes = u32::try_from(sample_bytes).unwrap();
    let json = recipe.to_json();
    let recipe_bytes = u32::try_from(json.len()).unwrap();
    let head = Head {
        kind: Kind::Image,
        n_items: u32::try_from(images.len()).unwrap(),
        sample_bytes,
        seed: 77,
        epoch: 3,
        recipe_hash: recipe.hash(),
        recipe: Part { at: 96, bytes: recipe_bytes },
        items_at: 96 + recipe_bytes,
        results_at: 0,
    };
    let mut table = [head.bytes().to_vec(), json.into_bytes()].concat();
    let mut records = Vec::new();
    for (n, image) in (0..).zip(images) {
        let record = Part {
            at: u32::try_from(records.len()).unwrap(),
            bytes: u32::try_from(image.len()).unwrap(),
        };
        records.extend_from_slice(image);
        let item = Item {
            sample: u64::from(n),
            record,
            out_at: SAMPLES_AT + n * sample_bytes,
            checksum: None,
            groups: None,
        };
        table.extend(item.bytes());
    }
    let results = (SAMPLES_AT + head.n_items * sample_bytes) as usize;
    (head.parameters(), [records, table, vec![0xdd; results]])
}

#[test]
fn a_batch_has_the_same_bytes_from_a_loaded_program() {
    let Some(module) = built::module_of("preprocess") else { return };
    let (Parameters(parameter_1, parameter_2), parts) = batch(&images());
    let (mut from, mut all) = (0, Vec::new());
    for part in &parts {
        let bytes = u32::try_from(part.len().next_multiple_of(4)).unwrap();
        all.push(MemoryRange { nsid: 2, from, bytes });
        from += u64::from(bytes);
    }
    let memory = Arc::new(Memory::new(usize::try_from(from).unwrap()));
    let ranges = Ranges { memory, all: all.into() };
    let run = |program: &dyn Program| {
        for (n, part) in (1..).zip(&parts) {
            ranges.write(n, 0, part).unwrap();
        }
        let ranges = &ranges;
        let stop = Stop::default();
        let call = Call { ranges, parameter_1, parameter_2, data: &[], stop };
        let done = program.run(&call);
        let mut results = parts[RESULTS - 1].clone();
        ranges.read(RESULTS, 0, &mut results).unwrap();
        (done.unwrap(), results)
    };
    let native = run(&Batches::new(1));
    let wasm = Wasm::new(Limits::DEFAULT).unwrap();
    let loaded = wasm.prepare(&module, 1).unwrap();
    let first = run(&*loaded);
    assert_eq!(native.0.value, first.0.value);
    assert!(native.1 == first.1, "native and loaded program differ");
    assert!(first.1[SAMPLES_AT as usize..].iter().any(|byte| *byte != 0));
    assert_eq!(run(&*loaded).0, first.0, "fuel differs from run to run");
    eprintln!("{:?} and {:?} for {} items", native.0.work, first.0.work, first.0.value);
}
