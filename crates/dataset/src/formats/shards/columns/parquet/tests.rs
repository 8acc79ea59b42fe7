//! Columns of classes made by hand, and files of the fixtures.

use super::footer::{Chunk, INT32, INT64, Leaf};
use super::*;
use crate::conformance::MemoryStorage;

const FIRST: &[u8] = include_bytes!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../tests/fixtures/shards/parquet/train-00000-of-00002.parquet"
));
const SECOND: &[u8] = include_bytes!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../tests/fixtures/shards/parquet/train-00001-of-00002.parquet"
));

fn refusal(first: &[u8], second: &[u8]) -> String {
    let storage =
        MemoryStorage::new().with("s/a.parquet", first).with("s/b.parquet", second);
    crate::find(&storage, "s").unwrap_err().to_string()
}

/// Zigzag, of a small number.
fn zigzag(number: usize) -> u8 {
    u8::try_from(2 * number).unwrap()
}

/// A data page of version 1.
fn page(n_values: usize, encoding: usize, data: &[u8]) -> Vec<u8> {
    let len = zigzag(data.len());
    let head = [0x15, 0, 0x15, len, 0x15, len, 0x2c, 0x15, zigzag(n_values)];
    let tail = [0x15, zigzag(encoding), 0x15, 6, 0x15, 6, 0, 0];
    [&head[..], &tail, data].concat()
}

/// Reads so many classes of a column with these pages.
fn labels(
    pages: &[Vec<u8>],
    (physical, max_definition): (i64, u32),
    n: usize,
) -> Result<Vec<Option<u32>>, String> {
    let bytes = pages.concat();
    let storage = MemoryStorage::new().with("f", &bytes);
    let mut file = Window::open(&storage, "f", STEP).unwrap();
    let (range, n_values) = (0..bytes.len() as u64, n as u64);
    let chunk = Chunk { range, codec: 0, n_values, has_dictionary: false };
    let mut labels = Labels::new(chunk, Leaf { nth: 0, physical, max_definition });
    let all = (0..n).map(|_| labels.next(&mut file).map_err(|error| error.to_string()));
    all.collect()
}

#[test]
fn absent_classes_and_minus_one_are_no_label() {
    let levels = [2, 0, 0, 0, 3, 0b0000_1101];
    let numbers = [3_i64, -1, 7].map(i64::to_le_bytes).concat();
    let optional = page(4, 0, &[&levels, &numbers[..]].concat());
    let all = labels(&[optional.clone(), page(0, 0, &[0; 4])], (INT64, 1), 4);
    assert_eq!(all.unwrap(), [Some(3), None, None, Some(7)]);
    let more = labels(&[optional], (INT64, 1), 5).unwrap_err();
    assert!(more.contains("fewer values than rows"), "{more}");
    let required = page(2, 0, &[5_i32, 6].map(i32::to_le_bytes).concat());
    assert_eq!(labels(&[required], (INT32, 0), 2).unwrap(), [Some(5), Some(6)]);
}

#[test]
fn columns_of_classes_that_cannot_be_read_are_named() {
    let one = |encoding, data: &[u8]| {
        labels(&[page(1, encoding, data)], (INT64, 0), 1).unwrap_err()
    };
    assert!(one(0, &(1_i64 << 40).to_le_bytes()).contains("the class 1099511627776"));
    assert!(one(0, &[0; 7]).contains("damaged"));
    assert!(one(5, &[0; 8]).contains("the encoding 5"));
    // An index into a dictionary that is not there, and one of too many bits.
    assert!(one(8, &[1, 2, 0]).contains("damaged"));
    assert!(one(8, &[33, 2, 0]).contains("damaged"));
}

#[test]
fn files_that_cannot_be_one_data_set_are_named() {
    let mut other = SECOND.to_vec();
    let at = other.windows(9).rposition(|name| name == b"\"class-2\"").unwrap();
    other[at + 7] = b'9';
    let error = refusal(FIRST, &other);
    assert!(error.starts_with("`/data/s/b.parquet`"), "{error}");
    assert!(error.contains("differ from the 3"), "{error}");
    let storage = MemoryStorage::new()
        .with("s/train-00000-of-00001.parquet", FIRST)
        .with("s/validation.parquet", SECOND);
    let error = crate::find(&storage, "s").unwrap_err().to_string();
    assert!(error.contains("several splits (train, validation)"), "{error}");
    let alone = crate::find(&storage, "s/validation.parquet").unwrap();
    assert_eq!((alone.format, alone.table.n_samples()), (Format::Parquet, 3));
}
