//! Plain lists: a `.jsonl` file with one `{"path": "a/b.jpg", "label": 3}` per line.
//!
//! Paths are relative to the folder of the list. Blank lines and other keys are ignored, and a file may
//! appear in several lines. Records are images if the name of any listed file says so, and opaque
//! otherwise. The listed files are not opened, but their lengths are queried. An image that does not
//! exist is a record without bytes: whoever reads it finds a bad sample.

use std::io::ErrorKind;

use bothends_core::ids::SampleId;
use bothends_core::sample::{Encoding, Extent};
use serde::Deserialize;

use crate::error::DatasetError;
use crate::formats::class_folders::is_image;
use crate::formats::{Format, Found};
use crate::path;
use crate::storage::{Kind, Storage, kind, read};
use crate::table::TableBuilder;

/// Longest list that is read, in bytes: about ten million lines.
const MAX_LIST_BYTES: u64 = 1 << 30;

/// What the user hears where not all of the files exist.
const MISSING: &str =
    "some files that the list names do not exist; each of them is a bad sample";

/// Whether the path's name is that of a list.
pub(crate) fn is_list(path: &str) -> bool {
    path.rsplit_once('.').is_some_and(|(_, ext)| ext.eq_ignore_ascii_case("jsonl"))
}

/// Whether a file of this name makes the records of its list images.
#[must_use]
pub fn is_listed_image(name: &str) -> bool {
    let is_gif = |(_, ending): (&str, &str)| ending.eq_ignore_ascii_case("gif");
    is_image(name) || name.rsplit_once('.').is_some_and(is_gif)
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    path: std::borrow::Cow<'a, str>,
    label: u32,
}

/// Reads the list at `target`.
pub(crate) fn parse(storage: &dyn Storage, target: &str) -> Result<Found, DatasetError> {
    let text = text(storage, target)?;
    let (folder, _) = path::split(target);
    let mut samples = Vec::new();
    let mut first_missing = None;
    for (line, json) in (1..).zip(text.split(|&byte| byte == b'\n')) {
        if json.trim_ascii().is_empty() {
            continue;
        }
        let wrong = |why| DatasetError::Line { path: storage.shown(target), line, why };
        let (sample, missing) = sample(storage, folder, json).map_err(wrong)?;
        first_missing = first_missing.or(missing.map(wrong));
        samples.push(sample);
    }
    if samples.is_empty() {
        return Err(DatasetError::Empty { path: storage.shown(target) });
    }
    let encoding = match samples.iter().any(|sample| is_listed_image(&sample.path)) {
        true => Encoding::Image,
        false => Encoding::Opaque,
    };
    let note = first_missing.as_ref().map(|_| MISSING);
    // Where none exists, they are elsewhere. Opaque records must all have one length.
    let is_none = samples.iter().all(|sample| sample.len.is_none());
    if let Some(error) = first_missing
        && (is_none || encoding == Encoding::Opaque)
    {
        return Err(error);
    }
    let mut builder = TableBuilder::new(encoding);
    builder.whole_files();
    let mut missing = None;
    for (id, sample) in (0..).zip(&samples) {
        let file = builder.file(&sample.path)?;
        let len = sample.len.unwrap_or_else(|| {
            missing.get_or_insert(SampleId(id));
            0
        });
        builder.sample(Extent { file, offset: 0, len }, sample.label);
    }
    Ok(Found { missing, ..Found::new(Format::List, builder.build()?, 0, note) })
}

fn text(storage: &dyn Storage, target: &str) -> Result<Vec<u8>, DatasetError> {
    let Kind::File { len } = kind(storage, target)? else {
        return Err(DatasetError::Unrecognised { path: storage.shown(target) });
    };
    let too_long = || DatasetError::ListTooLong {
        path: storage.shown(target),
        len_bytes: len,
        max: MAX_LIST_BYTES,
    };
    let len = usize::try_from(len).map_err(|_| too_long())?;
    if len as u64 > MAX_LIST_BYTES {
        return Err(too_long());
    }
    let mut text = vec![0; len];
    read(storage, target, 0, &mut text)?;
    Ok(text)
}

/// A line, checked.
struct Sample {
    path: String,
    /// `None` where there is no such file.
    len: Option<u32>,
    label: u32,
}

/// What a line means; and why there is no such file, if there is none.
fn sample(
    storage: &dyn Storage,
    folder: &str,
    json: &[u8],
) -> Result<(Sample, Option<String>), String> {
    let line: Line<'_> = serde_json::from_slice(json).map_err(|error| {
        format!("{error}; expected {{\"path\": \"a/b.jpg\", \"label\": 3}}")
    })?;
    let relative = line.path.strip_prefix("./").unwrap_or(&line.path);
    path::check(relative).map_err(|why| {
        format!("the path {:?} {why}; paths are relative to the list's folder", line.path)
    })?;
    let path = path::join(folder, relative);
    let shown = || storage.shown(&path);
    let (len, missing) = match storage.kind(&path) {
        Ok(Kind::File { len }) => {
            let too_long = |_| format!("`{}` is longer than 4 GiB", shown());
            (Some(u32::try_from(len).map_err(too_long)?), None)
        }
        Ok(Kind::Folder) => {
            return Err(format!("`{}` is a folder; list its files", shown()));
        }
        Err(error) => {
            let why = format!("cannot open `{}`: {error}", shown());
            let kinds = [ErrorKind::NotFound, ErrorKind::NotADirectory];
            if !kinds.contains(&error.kind()) {
                return Err(why);
            }
            (None, Some(why))
        }
    };
    Ok((Sample { path, len, label: line.label }, missing))
}

#[cfg(test)]
mod tests {
    use bothends_core::ids::Label;
    use bothends_core::sample::FileIdx;

    use super::*;
    use crate::RecordShape;
    use crate::conformance::{self, MemoryStorage};

    fn find(list: &str) -> Result<Found, DatasetError> {
        let storage = MemoryStorage::new()
            .with("sets/a/b.jpg", b"0123")
            .with("sets/c.bin", b"01")
            .with("sets/ä.jpg", b"0")
            .with("sets/list.jsonl", list.as_bytes());
        let found = crate::find(&storage, "sets/list.jsonl")?;
        conformance::check(&storage, &found);
        Ok(found)
    }

    #[test]
    fn lines_keep_their_order_and_their_labels() {
        let found = find(
            "{\"path\": \"a/b.jpg\", \"label\": 7}\n\n\
             {\"label\": 0, \"path\": \"./\\u00e4.jpg\", \"split\": \"train\"}\r\n\
             {\"path\": \"a/b.jpg\", \"label\": 4294967295}",
        )
        .unwrap();
        assert_eq!(found.table.n_samples(), 3);
        assert_eq!(found.table.file_path(FileIdx(1)), "sets/ä.jpg");
        assert_eq!(found.table.label(SampleId(2)), Label(4_294_967_295));
        assert_eq!(found.table.extent(SampleId(0)).len, 4);
        assert_eq!(found.table.encoding(), Encoding::Image);
    }

    #[test]
    fn a_list_without_an_image_is_opaque() {
        let found = find("{\"path\": \"c.bin\", \"label\": 1}\n").unwrap();
        let shape = found.table.record_shape().unwrap();
        assert_eq!(shape, RecordShape::Opaque { len_bytes: 2 });
        for (name, is) in [("a.gif", true), ("s.tar@09.JPG", true), ("s.tar@09", false)] {
            assert_eq!(is_listed_image(name), is, "{name}");
        }
    }

    #[test]
    fn a_broken_line_is_named_by_its_number() {
        let good = "{\"path\": \"a/b.jpg\", \"label\": 7}\n";
        let cases = [
            ("{\"path\": \"a/b.jpg\"", "EOF while parsing"),
            ("{\"path\": \"a/b.jpg\"}", "missing field `label`"),
            ("{\"path\": \"a/b.jpg\", \"label\": -1}", "invalid value: integer `-1`"),
            ("{\"path\": \"a/b.jpg\", \"label\": \"cat\"}", "invalid type: string"),
            ("{\"path\": \"a/b.jpg\", \"label\": 4294967296}", "4294967296"),
            ("{\"path\": \"/etc/passwd\", \"label\": 0}", "is absolute"),
            ("{\"path\": \"../x.jpg\", \"label\": 0}", "leads up"),
            ("{\"path\": \"a\", \"label\": 0}", "is a folder"),
            ("a/b.jpg 7", "expected value"),
            ("\u{feff}{}", "expected value"),
        ];
        for (line, expected) in cases {
            let error = find(&format!("{good}\n{line}\n")).unwrap_err().to_string();
            assert!(error.starts_with("`/data/sets/list.jsonl` line 3: "), "{error}");
            assert!(error.contains(expected), "{error}");
        }
    }

    /// Of a million images, one may have been removed.
    #[test]
    fn an_image_that_does_not_exist_is_a_record_without_bytes() {
        let storage = MemoryStorage::new()
            .with("sets/a/b.jpg", b"0123")
            .with("sets/c.bin", b"01")
            .with("sets/list.jsonl", b"");
        let find = |paths: &[&str]| {
            let line = |path| format!("{{\"path\": \"{path}\", \"label\": 3}}\n");
            let list: String = paths.iter().map(line).collect();
            let storage = storage.clone().with("sets/list.jsonl", list.as_bytes());
            crate::find(&storage, "sets/list.jsonl")
        };
        let found = find(&["a/b.jpg", "a/gone.jpg", "a/b.jpg"]).unwrap();
        conformance::check(&storage, &found);
        let (table, gone) = (&found.table, SampleId(1));
        assert_eq!((found.note, found.missing), (Some(MISSING), Some(gone)));
        assert_eq!((table.n_samples(), table.extent(gone).len), (3, 0));
        assert_eq!(table.file_path(table.extent(gone).file), "sets/a/gone.jpg");
        assert_eq!(table.label(gone), Label(3));
        assert_eq!(find(&["a/b.jpg"]).unwrap().note, None);
        // They are all elsewhere; and records that are not images have one length.
        for (paths, line) in
            [(&["x/b.jpg", "x/c.jpg"][..], 1), (&["c.bin", "gone.bin", "gone.bin"], 2)]
        {
            let error = find(paths).unwrap_err().to_string();
            let start =
                format!("`/data/sets/list.jsonl` line {line}: cannot open `/data");
            assert!(error.starts_with(&start), "{error}");
        }
    }

    #[test]
    fn an_empty_list_is_refused() {
        assert!(find("\n  \n").unwrap_err().to_string().contains("is empty"));
    }
}
