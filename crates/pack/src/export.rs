//! Exporting: the samples of a data set, as they were, in the format of another tool.
//!
//! There is one such format, that of datadings (`datadings`); `upload` writes to remote stores instead of a
//! file; the ending of the new file's name chooses it. Samples are written in the order of the source, by
//! one thread. Nothing is decoded. A file appears under its name when it is complete.

mod datadings;
pub(crate) mod upload;

use std::collections::{HashMap, HashSet};
use std::path::Path;

use bothends_core::sample::Encoding;
use bothends_dataset::is_listed_image;
use bothends_io::replace;
use bothends_storage::{is_url, without_secrets};

use crate::folder::sync;
use crate::record::Item;
use crate::{Converter, PackError, Progress, Source};

/// Writes the samples of `source` to the new file `path`, and what belongs to it next to it; reports progress to
/// `observer`. Everything written is on the disk when this returns.
///
/// # Errors
/// [`PackError::RemoteFile`], [`PackError::NoSuchFormat`], [`PackError::Exists`] and [`PackError::NotImages`] before
/// anything is written; [`PackError`]. Nothing that was written is left then.
pub fn export(
    source: &dyn Source,
    path: &Path,
    observer: &mut dyn FnMut(Progress),
) -> Result<Progress, PackError> {
    if let Some(url) = path.to_str().filter(|path| is_url(path)) {
        return Err(PackError::RemoteFile { url: without_secrets(url) });
    }
    if path.extension().is_none_or(|ending| ending != datadings::ENDING) {
        return Err(PackError::NoSuchFormat { path: path.to_owned() });
    }
    for path in datadings::files(path) {
        if path.symlink_metadata().is_ok() {
            return Err(PackError::Exists { path });
        }
    }
    if source.encoding() != Encoding::Image {
        return Err(PackError::NotImages { source_name: source.name() });
    }
    // What `replace` takes is an error of the system; the one that is told is kept here.
    let (mut failed, mut beside) = (None, Vec::new());
    let written = replace(path, |file| {
        let mut writer = datadings::Writer::new(file);
        let written = samples(source, (path, &mut writer), observer)
            .and_then(|progress| writer.finish(path, &mut beside).map(|()| progress));
        written.map_err(|error| {
            failed = Some(error);
            std::io::ErrorKind::Other.into()
        })
    });
    if written.is_err() {
        // They were not there before, and would refuse the next attempt.
        for path in beside {
            let _ = std::fs::remove_file(path);
        }
    }
    match (written, failed) {
        (Ok(progress), _) => {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            sync(folder.unwrap_or(Path::new(".")))?;
            Ok(progress)
        }
        (Err(_), Some(error)) => Err(error),
        (Err(error), None) => Err(PackError::at("write", path)(error)),
    }
}

/// Writes every sample.
fn samples(
    source: &dyn Source,
    (path, writer): (&Path, &mut datadings::Writer),
    observer: &mut dyn FnMut(Progress),
) -> Result<Progress, PackError> {
    let numbers = || (0..source.n_records()).map(|number| (number, source.item(number)));
    let mut keys = Keys::default();
    let mut progress = Progress::default();
    for (_, item) in numbers().filter(|(_, item)| item.is_sample) {
        progress.n_records += 1;
        *keys.n_in_file.entry(item.path).or_default() += 1;
    }
    let (mut converter, mut bytes) = (Converter::default(), Vec::new());
    for (number, item) in numbers().filter(|(_, item)| item.is_sample) {
        source.original(number, &mut converter, &mut bytes)?;
        let written = writer.write(keys.of(&item, None), &bytes, item.label);
        written.map_err(PackError::at("write", path))?;
        progress.n_done += 1;
        progress.original_bytes += bytes.len() as u64;
        progress.stored_bytes = writer.len();
        observer(progress);
    }
    Ok(progress)
}

/// Names for samples, each its own: the path of a file that is one sample, else with the place in it.
#[derive(Debug, Default)]
struct Keys {
    n_in_file: HashMap<String, u64>,
    given: HashSet<String>,
    /// The number of the next sample that has the place of another one.
    next: HashMap<String, u64>,
    /// Of a place, at least.
    digits: usize,
}

impl Keys {
    /// The name of the next sample. It ends in `ending`, if it is to be the name of an image.
    fn of(&mut self, item: &Item, ending: Option<&str>) -> String {
        let ended = |name: String| match ending {
            Some(ending) if !is_listed_image(&name) => format!("{name}.{ending}"),
            Some(_) | None => name,
        };
        let is_alone = self.n_in_file.get(&item.path).is_some_and(|n| *n == 1);
        let mut key = ended(match is_alone {
            true => item.path.clone(),
            false => self.place(item),
        });
        // A list may name a file twice.
        while !self.given.insert(key.clone()) {
            let place = self.place(item);
            let nth = self.next.entry(place.clone()).or_insert(2);
            key = ended(format!("{place}#{nth}"));
            *nth += 1;
        }
        key
    }

    fn place(&self, Item { path, at, .. }: &Item) -> String {
        format!("{path}@{at:0digits$}", digits = self.digits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data_set(folder: &Path) -> crate::Files {
        let data = folder.join("data/cat");
        std::fs::create_dir_all(&data).unwrap();
        std::fs::write(data.join("1.jpg"), b"ab").unwrap();
        crate::Files::open(&folder.join("data")).unwrap()
    }

    #[test]
    fn a_failed_attempt_does_not_refuse_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let source = data_set(folder.path());
        let path = folder.path().join("new.msgpack");
        for name in ["new.msgpack.md5", "new.msgpack"] {
            // Nothing can take the name of a folder that has something in it.
            let taken = folder.path().join(name);
            let mut take = |_| std::fs::create_dir_all(taken.join("x")).unwrap();
            export(&source, &path, &mut take).unwrap_err();
            std::fs::remove_dir_all(&taken).unwrap();
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "{name}");
        }
        export(&source, &path, &mut |_| ()).unwrap();
        assert!(datadings::files(&path).all(|path| path.is_file()));
    }

    #[test]
    fn a_url_is_no_name_of_a_new_file() {
        let folder = tempfile::tempdir().unwrap();
        let source = data_set(folder.path());
        let url = Path::new("redis://user:secret@host/new.msgpack");
        let line = export(&source, url, &mut |_| ()).unwrap_err().to_string();
        assert!(line.starts_with("`redis://host/new.msgpack` is a URL, and"), "{line}");
    }

    #[test]
    fn every_sample_has_a_key_of_its_own() {
        let mut keys = Keys::default();
        let item = |path: &str, at| {
            let path = path.to_owned();
            Item { path, is_sample: true, label: 0, at, len: 1 }
        };
        keys.n_in_file = [("a/1.jpg".to_owned(), 1), ("0.tar".to_owned(), 3)].into();
        let given = [
            item("a/1.jpg", 0),
            item("0.tar", 512),
            item("0.tar", 9),
            item("0.tar", 9),
            item("0.tar", 9),
        ];
        let given = given.map(|item| keys.of(&item, None));
        let expected = ["a/1.jpg", "0.tar@512", "0.tar@9", "0.tar@9#2", "0.tar@9#3"];
        assert_eq!(given, expected);
        // A list of them is one of images.
        let jpg = Some("jpg");
        for name in ["0.tar@7.jpg", "0.tar@7#2.jpg"] {
            assert_eq!(keys.of(&item("0.tar", 7), jpg), name);
        }
        keys.n_in_file.insert("b/1.JPEG".to_owned(), 1);
        assert_eq!(keys.of(&item("b/1.JPEG", 0), jpg), "b/1.JPEG");
        // Each costs the same, however many there are.
        let n = 100_000;
        (6..n).for_each(|_| drop(keys.of(&item("0.tar", 9), None)));
        assert_eq!(keys.of(&item("0.tar", 9), None), format!("0.tar@9#{}", n - 2));
    }
}
