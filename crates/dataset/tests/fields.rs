//! Fields of shards that the programs people use have written (`scripts/golden-shards`): what was written
//! comes back, sample by sample; what cannot be had is named.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::Path;

use bothends_dataset::conformance::{MemoryStorage, check};
use bothends_dataset::{
    Ask, Field, FieldKind, FieldPlace, Fields, Found, JoinLabels, Number, Storage, Table,
    find, find_fields,
};

const N: usize = 7;

fn stored(folder: &str) -> MemoryStorage {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/shards");
    let files = fs::read_dir(Path::new(path).join(folder)).unwrap();
    files.fold(MemoryStorage::new(), |storage, entry| {
        let path = entry.unwrap().path();
        let to = format!("{folder}/{}", path.file_name().unwrap().to_str().unwrap());
        storage.with(&to, &fs::read(&path).unwrap())
    })
}

fn ask(names: &[&str]) -> Ask {
    Ask::Fields(names.iter().map(|name| (*name).to_owned()).collect())
}

fn values(storage: &MemoryStorage, found: &Found, field: &Field) -> Vec<Vec<u8>> {
    let value = |row| match field.place(row) {
        FieldPlace::Value(value) => value.to_vec(),
        FieldPlace::Extent(extent) => {
            let mut bytes = vec![0; extent.len as usize];
            let path = found.table.file_path(extent.file);
            storage.read(&path, extent.offset, &mut bytes).unwrap();
            bytes
        }
    };
    (0..found.table.n_samples()).map(value).collect()
}

/// What the field is, its shape, and its values.
fn field(folder: &str, name: &str) -> (FieldKind, Option<Vec<u32>>, Vec<Vec<u8>>) {
    let storage = stored(folder);
    let found = find_fields(&storage, folder, ask(&[name])).unwrap();
    check(&storage, &found);
    let plain = find(&storage, folder).unwrap();
    assert_eq!(found.table, plain.table, "fields change nothing else");
    assert!(plain.fields.is_empty() && plain.names.is_empty());
    let field = found.fields.iter().next().unwrap();
    let shape = field.shape().map(<[u32]>::to_vec);
    (field.kind(), shape, values(&storage, &found, field))
}

/// Formats differ in where they keep a value: in memory, or in its file.
#[test]
fn fields_of_data_sets_that_are_joined_stay_with_their_samples() {
    let folders = ["fields-arrow", "fields-parquet", "fields-arrow"];
    let names = ["a", "b", "c"];
    let found = folders
        .map(|folder| find_fields(&stored(folder), folder, ask(&["caption"])).unwrap());
    // As with a limit: not all samples of the first are taken.
    let tables: Vec<_> = found.iter().map(|found| found.table.clone()).collect();
    let tables = [tables[0].clone().first(3), tables[1].clone(), tables[2].clone()];
    let tables: Vec<_> = names.into_iter().zip(&tables).collect();
    let joined = Table::joined(&tables, JoinLabels::Keep).unwrap();
    let parts = tables.iter().zip(&found);
    let parts: Vec<_> =
        parts.map(|((name, table), found)| (*name, &found.fields, *table)).collect();
    let fields = Fields::joined(&parts).unwrap();
    let field = fields.iter().next().unwrap();
    let rows = (0..3).map(|nth| (0, nth)).chain((0..N).map(|nth| (1, nth)));
    let rows = rows.chain((0..N).map(|nth| (2, nth)));
    for (row, (source, nth)) in (0..).zip(rows) {
        let value = match field.place(row) {
            FieldPlace::Value(value) => value.to_vec(),
            FieldPlace::Extent(extent) => {
                let path = joined.file_path(extent.file);
                let path = path.strip_prefix(&format!("{}/", names[source])).unwrap();
                let mut bytes = vec![0; extent.len as usize];
                let storage = stored(folders[source]);
                storage.read(path, extent.offset, &mut bytes).unwrap();
                bytes
            }
        };
        assert_eq!(value, caption(nth).into_bytes(), "row {row}");
    }
    assert!(field.place(joined.n_samples()).is_empty());
}

/// Symptom: a shard with a column twice and a later one without it are as many values as samples.
#[test]
fn each_shard_has_the_fields_of_its_own_samples() {
    let shard = |n_captions: usize| {
        let sizes = [3_u32].into_iter().chain(vec![1; n_captions]);
        let mut sample: Vec<u8> = sizes.flat_map(u32::to_le_bytes).collect();
        sample.extend(b"img");
        sample.resize(sample.len() + n_captions, b'a');
        let end = 12 + u32::try_from(sample.len()).unwrap();
        [&[1, 12, end].map(u32::to_le_bytes).concat()[..], &sample].concat()
    };
    let described = |name: &str, n_captions: usize| {
        let list = |first: &str, other: &str| {
            let all =
                [first.to_owned()].into_iter().chain(vec![other.to_owned(); n_captions]);
            all.collect::<Vec<_>>().join(",")
        };
        let (names, encodings) =
            (list("\"image\"", "\"caption\""), list("\"jpeg\"", "\"str\""));
        format!(
            r#"{{"format":"mds","column_names":[{names}],"column_encodings":[{encodings}],
                "column_sizes":[{}],"samples":1,"compression":null,"hashes":[],"version":2,
                "raw_data":{{"basename":"{name}","bytes":0,"hashes":{{}}}},"zip_data":null}}"#,
            list("null", "null")
        )
    };
    let refusal = |first: usize, second: usize| {
        let shards = [described("0.mds", first), described("1.mds", second)].join(",");
        let index = format!(r#"{{"version":2,"shards":[{shards}]}}"#);
        let storage = MemoryStorage::new().with("d/index.json", index.as_bytes());
        let storage = storage.with("d/0.mds", &shard(first));
        let storage = storage.with("d/1.mds", &shard(second));
        find_fields(&storage, "d", ask(&["caption"]))
            .map(|_| ())
            .map_err(|e| e.to_string())
    };
    assert_eq!(refusal(1, 1), Ok(()));
    for (first, second, parts) in [
        (2, 0, ["0.mds", "sample 0 has the field `caption` twice"]),
        (1, 0, ["1.mds", "sample 1 has no field `caption`"]),
    ] {
        let line = refusal(first, second).unwrap_err();
        assert!(parts.iter().all(|part| line.contains(part)), "{line}");
    }
}

fn of_each<T: AsRef<[u8]>>(value: impl Fn(usize) -> T) -> Vec<Vec<u8>> {
    (0..N).map(|nth| value(nth).as_ref().to_vec()).collect()
}

fn caption(nth: usize) -> String {
    format!("număr {nth}").repeat(nth % 3)
}

fn mask(nth: usize) -> Vec<u8> {
    vec![u8::try_from(nth).unwrap(); 10 * nth + 1]
}

/// -1, 0, … as `scripts/golden-shards` counts.
fn tags(nth: usize) -> impl Iterator<Item = i32> {
    (0..nth).map(|tag| i32::try_from(tag).unwrap() - 1)
}

#[allow(clippy::cast_precision_loss, reason = "small numbers")]
fn small(nth: usize) -> f32 {
    nth as f32
}

const I64: FieldKind = FieldKind::Numbers(Number::I64);
const F32: FieldKind = FieldKind::Numbers(Number::F32);

#[test]
fn text_and_bytes_of_every_format_are_those_that_were_written() {
    for (folder, name) in [
        ("fields-tar", "txt"),
        ("fields-mds", "caption"),
        ("fields-tfrecord", "caption:text"),
        ("fields-parquet", "caption"),
        ("fields-arrow", "caption"),
    ] {
        let expected = (FieldKind::Text, None, of_each(caption));
        assert_eq!(field(folder, name), expected, "{folder}");
    }
    for (folder, name) in [
        ("fields-tar", "mask.bin"),
        ("fields-mds", "mask"),
        ("fields-mds", "thumb"),
        ("fields-tfrecord", "mask"),
        ("fields-parquet", "mask"),
        ("fields-parquet", "depth"),
        ("fields-arrow", "mask"),
        ("fields-arrow", "depth"),
    ] {
        let expected = (FieldKind::Bytes, None, of_each(mask));
        assert_eq!(field(folder, name), expected, "{folder} {name}");
    }
}

#[test]
fn single_numbers_have_the_types_that_were_written() {
    let one = Some(Vec::new());
    let i64s = |value: fn(i64) -> i64| {
        let of = |nth| value(i64::try_from(nth).unwrap()).to_le_bytes();
        (I64, one.clone(), of_each(of))
    };
    assert_eq!(field("fields-tar", "index"), i64s(|nth| -nth));
    let labels = [0_i64, 0, 0, 1, 1, 2, 2];
    let labels = (I64, one.clone(), of_each(|nth| labels[nth].to_le_bytes()));
    for (folder, name) in [
        ("fields-tar", "cls"),
        ("fields-mds", "label"),
        ("fields-tfrecord", "label"),
        ("fields-parquet", "label"),
        ("fields-arrow", "label"),
    ] {
        assert_eq!(field(folder, name), labels, "{folder}");
    }
    let f32s = (F32, one.clone(), of_each(|nth| (small(nth) / 4.0).to_le_bytes()));
    assert_eq!(field("fields-mds", "score"), f32s);
    assert_eq!(field("fields-tfrecord", "score"), f32s);
    let u8s = of_each(|nth| [u8::try_from(200 + nth).unwrap()]);
    let u8s = (FieldKind::Numbers(Number::U8), one.clone(), u8s);
    for folder in ["fields-mds", "fields-parquet", "fields-arrow"] {
        assert_eq!(field(folder, "small"), u8s, "{folder}");
    }
    let number = |number| (FieldKind::Numbers(number), one.clone());
    for folder in ["fields-parquet", "fields-arrow"] {
        let low = of_each(|nth| (-i16::try_from(nth).unwrap()).to_le_bytes());
        let (kind, shape) = number(Number::I16);
        assert_eq!(field(folder, "low"), (kind, shape, low), "{folder}");
        let sharp = of_each(|nth| [u8::from(nth % 3 == 1)]);
        let (kind, shape) = number(Number::Bool);
        assert_eq!(field(folder, "is_sharp"), (kind, shape, sharp), "{folder}");
        let score = of_each(|nth| (f64::from(small(nth)) / 4.0).to_le_bytes());
        let (kind, shape) = number(Number::F64);
        assert_eq!(field(folder, "score"), (kind, shape, score), "{folder}");
    }
}

#[test]
fn lists_are_arrays_where_all_are_as_long_and_ragged_else() {
    let size = of_each(|nth| i32::try_from(nth).unwrap().to_le_bytes().repeat(6));
    let i32s = FieldKind::Numbers(Number::I32);
    assert_eq!(field("fields-mds", "size"), (i32s, Some(vec![2, 3]), size));
    let size = of_each(|nth| [nth as u64, 3].map(u64::to_le_bytes).concat());
    assert_eq!(field("fields-tfrecord", "size"), (I64, Some(vec![2]), size));
    let size = of_each(|nth| [small(nth), 3.0].map(f32::to_le_bytes).concat());
    assert_eq!(field("fields-arrow", "size"), (F32, Some(vec![2]), size));
    let ragged = of_each(|nth| tags(nth).flat_map(i32::to_le_bytes).collect::<Vec<_>>());
    assert_eq!(field("fields-arrow", "tags"), (i32s, None, ragged));
    let ragged = of_each(|nth| {
        let tags = [7].into_iter().chain(tags(nth));
        tags.map(i64::from).flat_map(i64::to_le_bytes).collect::<Vec<_>>()
    });
    assert_eq!(field("fields-tfrecord", "tags"), (I64, None, ragged));
    let boxes = of_each(|nth| {
        let of = (0..nth % 4).flat_map(|_| [small(nth) + 0.5, 1.0, 2.0, 3.0]);
        [0.25].into_iter().chain(of).flat_map(f32::to_le_bytes).collect::<Vec<_>>()
    });
    assert_eq!(field("fields-tfrecord", "boxes"), (F32, None, boxes));
}

#[test]
fn several_fields_come_in_the_order_in_which_they_are_asked_for_and_all_are_listed() {
    let storage = stored("fields-mds");
    let found = find_fields(&storage, "fields-mds", ask(&["score", "caption"])).unwrap();
    let names: Vec<_> = found.fields.iter().map(|field| field.name()).collect();
    assert_eq!(names, ["score", "caption"]);
    assert!(found.fields.memory_bytes() <= N * (4 + 16), "extents and numbers");
    let found = find_fields(&storage, "fields-mds", Ask::Names).unwrap();
    let listed = found.names.iter().map(|it| format!("{}: {}", it.name, it.kind));
    let expected = [
        "about: text",
        "boxes: bytes",
        "caption: text",
        "image: bytes",
        "label: int64",
        "mask: bytes",
        "score: float32",
        "size: int32",
        "small: uint8",
        "thumb: bytes",
    ];
    assert_eq!(listed.collect::<Vec<_>>(), expected);
    assert!(found.fields.is_empty());
}

#[test]
fn fields_that_cannot_be_had_are_named() {
    let refusal = |folder: &str, names: &[&str]| {
        let folder = folder.to_owned();
        find_fields(&stored(&folder), &folder, ask(names)).unwrap_err().to_string()
    };
    for (line, parts) in [
        (
            refusal("fields-tar", &["text"]),
            &["no field `text`", "txt (text)", "cls (int64)"][..],
        ),
        (refusal("fields-parquet", &["tags"]), &["no field `tags`", "caption (text)"]),
        (refusal("fields-mds", &["a", "a"]), &["`a` is requested twice"]),
        (refusal("fields-mds", &[""]), &["has no name"]),
        (
            refusal("fields-mds", &["label:text"]),
            &["`label` is int64", "leave `:text` out"],
        ),
        (refusal("datadings", &["caption"]), &["`caption`", "datadings are not read"]),
    ] {
        assert!(parts.iter().all(|part| line.contains(part)), "{line}");
    }
    let member = |name: &str, bytes: &[u8]| {
        let mut header = vec![0; 512];
        header[..name.len()].copy_from_slice(name.as_bytes());
        let len = format!("{:011o}", bytes.len());
        header[124..135].copy_from_slice(len.as_bytes());
        header[148..156].fill(b' ');
        header[156] = b'0';
        let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        header.extend(bytes);
        header.resize(header.len().next_multiple_of(512), 0);
        header
    };
    let tar = |members: &[(&str, &[u8])]| {
        let members = members.iter().map(|(name, bytes)| member(name, bytes));
        let bytes = members.collect::<Vec<_>>().concat();
        MemoryStorage::new().with("s/0.tar", &bytes)
    };
    let two: [(&str, &[u8]); 3] = [("0.jpg", b"x"), ("0.txt", b"a"), ("1.jpg", b"y")];
    let line = find_fields(&tar(&two), "s", ask(&["txt"])).unwrap_err().to_string();
    assert!(line.contains("sample `1`") && line.contains("no field `txt`"), "{line}");
    let odd: [(&str, &[u8]); 2] = [("0.jpg", b"x"), ("0.index", b"one")];
    let line = find_fields(&tar(&odd), "s", ask(&["index"])).unwrap_err().to_string();
    assert!(line.contains("\"one\", not a whole number"), "{line}");
    // A class that is a word: the label is text.
    let word: [(&str, &[u8]); 2] = [("0.jpg", b"x"), ("0.cls", b"dog")];
    assert!(find(&tar(&word), "s").is_err());
    let storage = tar(&word);
    let found = find_fields(&storage, "s", ask(&["cls:text"])).unwrap();
    let field = found.fields.iter().next().unwrap();
    assert_eq!(values(&storage, &found, field), [b"dog".to_vec()]);
}
