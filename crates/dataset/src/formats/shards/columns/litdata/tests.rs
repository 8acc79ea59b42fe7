//! Chunks made by hand: items of several leaves, and indexes that are refused.

use bothends_core::ids::SampleId;

use super::*;
use crate::conformance::{self, MemoryStorage};

/// A chunk of items, each of an image and two numbers.
fn chunk(items: &[(&[u8], i64, i64)]) -> Vec<u8> {
    let mut head = u32::try_from(items.len()).unwrap().to_le_bytes().to_vec();
    let mut data = Vec::new();
    let begin = 4 + 4 * (items.len() + 1);
    head.extend(u32::try_from(begin).unwrap().to_le_bytes());
    for (image, first, second) in items {
        data.extend(u32::try_from(image.len()).unwrap().to_le_bytes());
        data.extend([8_u32, 8].map(u32::to_le_bytes).concat());
        data.extend(*image);
        data.extend([*first, *second].map(i64::to_le_bytes).concat());
        head.extend(u32::try_from(begin + data.len()).unwrap().to_le_bytes());
    }
    [head, data].concat()
}

fn index(formats: &str, names: &str) -> String {
    let spec = format!(r#"[1, {{"type": "builtins.dict", "context": "{names}"}}]"#);
    let spec = serde_json::to_string(&spec.replace('\'', "\\\"")).unwrap();
    format!(
        r#"{{"chunks": [{{"filename": "chunk-0-0.bin", "chunk_size": 2}}], "config": {{
        "compression": null, "encryption": null, "item_loader": "PyTreeLoader",
        "data_format": {formats}, "data_spec": {spec}}}}}"#
    )
}

fn labels(index: &str) -> Result<Vec<i64>, String> {
    let bytes = chunk(&[(b"one", 1, 5), (b"", 2, -1)]);
    let storage = MemoryStorage::new()
        .with("s/index.json", index.as_bytes())
        .with("s/chunk-0-0.bin", &bytes);
    let found = crate::find(&storage, "s").map_err(|error| error.to_string())?;
    conformance::check(&storage, &found);
    assert_eq!((found.format, found.table.extent(SampleId(0)).len), (Format::LitData, 3));
    Ok((0..2).map(|id| found.table.label(SampleId(id)).0).collect())
}

#[test]
fn the_class_is_found_by_its_name_or_as_the_only_number() {
    let formats = r#"["jpeg", "int", "int"]"#;
    assert_eq!(labels(&index(formats, "['image', 'weight', 'label']")).unwrap(), [5, 0]);
    assert_eq!(labels(&index(formats, "['image', 'cls', 'other']")).unwrap(), [1, 2]);
    assert_eq!(labels(&index(formats, "null")).unwrap(), [0, 0], "one of two numbers");
    let one = r#"["bytes", "int", "str"]"#;
    assert_eq!(labels(&index(one, "null")).unwrap(), [1, 2]);
}

#[test]
fn indexes_that_cannot_be_read_are_named() {
    let good = index(r#"["jpeg", "int", "int"]"#, "null");
    let refused = |from: &str, to: &str| labels(&good.replace(from, to)).unwrap_err();
    assert!(refused("encryption\": null", "encryption\": {}").contains("encrypted"));
    assert!(refused("PyTreeLoader", "TokensLoader").contains("TokensLoader"));
    assert!(refused("jpeg", "pil").contains("stored as pil, int, int"));
    assert!(refused("chunk-0", "../chunk-0").contains("leads up"));
    let chunk = r#"{"filename": "chunk-0-0.bin", "chunk_size": 2}"#;
    assert!(refused(chunk, &format!("{chunk}, {chunk}")).contains("listed twice"));
    assert!(refused("chunk_size\": 2", "chunk_size\": 3").contains("the index says 3"));
}
