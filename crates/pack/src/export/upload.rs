//! Uploading: the samples of a data set, as they were, as objects of a remote store.
//!
//! An object has the name of the file that is the sample, or of the file that the sample lies in and its place there.
//! Where the store keeps no labels, a list of all samples is written last; what that lists is an image by its name. An upload that was interrupted is begun
//! again: what is there with the same length and label is left out.

use std::sync::Arc;

use bothends_core::sample::Encoding;
use bothends_ops::decode;
use bothends_storage::{Location, Missing, Options, Put, Upload, Uploaded, Uploader};

use super::Keys;
use crate::{Converter, PackError, Progress, Source};

/// The list of samples, for stores that keep no labels.
pub const LIST: &str = "samples.jsonl";

/// Digits of a sample's place in its file, so that names sort as places do.
const DIGITS: usize = 13;

/// The store at `url`, to be written to. Connects to nothing yet.
///
/// # Errors
/// [`PackError::Storage`]: the URL names nothing that can be written to.
pub fn write_to(url: &str) -> Result<Arc<dyn Put>, PackError> {
    Ok(Location::parse(url, &Options::from_environment())?.open_to_write()?)
}

/// Writes every sample of `source` that is not there, or counts them; reports progress to `observer`. Blocks on the
/// source and on the network.
///
/// # Errors
/// [`PackError`]: what was written until then stays, and the next attempt goes on.
pub fn upload(
    source: &dyn Source,
    to: &Arc<dyn Put>,
    missing: Missing,
    observer: &mut dyn FnMut(Progress),
) -> Result<Uploaded, PackError> {
    let numbers = || (0..source.n_records()).map(|number| (number, source.item(number)));
    let mut keys = Keys { digits: DIGITS, ..Keys::default() };
    let mut progress = Progress::default();
    for (_, item) in numbers().filter(|(_, item)| item.is_sample) {
        progress.n_records += 1;
        *keys.n_in_file.entry(item.path).or_default() += 1;
    }
    let place = to.shown("");
    let started = Uploader::start(Arc::clone(to), missing);
    let uploader = started.map_err(PackError::at("upload to", place.as_ref()))?;
    let (mut converter, mut list) = (Converter::default(), Vec::new());
    for (number, item) in numbers().filter(|(_, item)| item.is_sample) {
        let mut bytes = Vec::with_capacity(item.len as usize);
        source.original(number, &mut converter, &mut bytes)?;
        progress.original_bytes += bytes.len() as u64;
        let is_image = source.encoding() == Encoding::Image && !to.keeps_labels();
        let ending = if is_image { decode::ending(&bytes) } else { None };
        let object = keys.of(&item, ending);
        if !to.keeps_labels() {
            list.extend(line(&object, item.label).as_bytes());
        }
        let upload = Upload { object, bytes: bytes.into(), label: Some(item.label) };
        if !uploader.add(upload) {
            break;
        }
        let Uploaded { written, written_bytes, found } = uploader.so_far();
        (progress.n_done, progress.n_found_done) = (written + found, found);
        progress.stored_bytes = written_bytes;
        observer(progress);
    }
    if to.keeps_labels() {
        return Ok(uploader.finish()?);
    }
    let list = Upload { object: LIST.to_owned(), bytes: list.into(), label: None };
    Ok(uploader.finish_with(list)?)
}

/// A line of the list.
fn line(path: &str, label: u32) -> String {
    let escaped = path.chars().map(|letter| match letter {
        '"' | '\\' => format!("\\{letter}"),
        letter if letter.is_ascii_control() => format!("\\u{:04x}", u32::from(letter)),
        letter => letter.to_string(),
    });
    format!("{{\"path\": \"{}\", \"label\": {label}}}\n", escaped.collect::<String>())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn data_set(folder: &Path) -> crate::Files {
        for (name, bytes) in
            [("cat/1.jpg", "ab"), ("cat/2.jpg", "cde"), ("dog/1.jpg", "f")]
        {
            let path = folder.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
        }
        crate::Files::open(folder).unwrap()
    }

    #[test]
    fn names_are_json() {
        let expected = "{\"path\": \"a\\\"\\\\\\u000a\u{e4}\", \"label\": 3}\n";
        assert_eq!(line("a\"\\\n\u{e4}", 3), expected);
    }

    #[test]
    fn a_store_that_cannot_be_reached_is_told_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let source = data_set(folder.path());
        // Nobody listens on a port that was just given back.
        let at =
            std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let url = format!("cql://me:s3cret@{at}/set/images");
        let to =
            Location::parse(&url, &Options::default()).unwrap().open_to_write().unwrap();
        assert_eq!(to.shown(""), format!("cql://{at}/set/images"));
        let error = upload(&source, &to, Missing::Written, &mut |_| ()).unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with(&format!("cannot reach {at} for ")), "{text}");
        assert!(!text.contains("s3cret"), "{text}");
    }
}
