//! From the text that names a data set to the files of a format: a URL of a folder, or of one file in a
//! folder.
//!
//! Read `view.rs` for what is done with them.

use std::sync::Arc;

use bothends_dataset::{Kind, Storage as _};

use crate::{Location, Objects, Options, StorageError, View};

/// Whether the text is a URL, and not a path of this machine.
#[must_use]
pub fn is_url(text: &str) -> bool {
    let scheme = text.split_once("://").map_or("", |(scheme, _)| scheme);
    !scheme.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// The URL for messages and for what is written down: without a user and a password.
#[must_use]
pub fn without_secrets(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://").filter(|_| is_url(text)) else {
        return text.to_owned();
    };
    let end = rest.find('/').unwrap_or(rest.len());
    let host = rest[..end].rfind('@').map_or(0, |at| at + 1);
    format!("{scheme}://{}", &rest[host..])
}

/// A view of the objects at `url`, and which file is meant: `""` is all of it. Asks the store where
/// the last part of the URL may be a file.
///
/// # Errors
/// [`StorageError::Address`]; what the store says of that part, other than that it is not there.
pub fn around(url: &str, options: &Options) -> Result<(View, String), StorageError> {
    if let Some((folder, file)) = folder_and_file(url) {
        // What has an extension is most often a file, but a folder may have one.
        let view = start(Location::parse(folder, options)?.open()?)?;
        match view.objects_kind(file)? {
            Some(Kind::File { .. }) => return Ok((view, file.to_owned())),
            Some(Kind::Folder) | None => {}
        }
    }
    Ok((start(Location::parse(url, options)?.open()?)?, String::new()))
}

fn start(objects: Arc<dyn Objects>) -> Result<View, StorageError> {
    let place = objects.shown("");
    View::start(objects)
        .map_err(|error| StorageError::Refused { place, why: error.to_string() })
}

impl View {
    /// What lies at `path`, if anything does.
    fn objects_kind(&self, path: &str) -> Result<Option<Kind>, StorageError> {
        match self.kind(path) {
            Ok(kind) => Ok(Some(kind)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(StorageError::of(&error).unwrap_or_else(|| {
                StorageError::Refused { place: self.shown(path), why: error.to_string() }
            })),
        }
    }
}

impl StorageError {
    /// What the store said, of an error of a [`View`].
    #[must_use]
    pub fn of(error: &std::io::Error) -> Option<Self> {
        error.get_ref()?.downcast_ref::<Self>().cloned()
    }
}

/// The folder of a URL whose last part has an extension, and that part.
fn folder_and_file(url: &str) -> Option<(&str, &str)> {
    let (_, rest) = url.split_once("://")?;
    let (folder, file) = url.rsplit_once('/')?;
    let is_below_host = rest.trim_end_matches('/').contains('/');
    let is_file = file.contains('.') && !file.contains(['?', '#']);
    (is_below_host && is_file).then_some((folder, file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_told_from_paths() {
        for (text, is) in [
            ("s3://bucket/prefix", true),
            ("file:///data", true),
            ("redis://h:1/0?prefix=a", true),
            ("/data/s3://x", false),
            ("data", false),
            ("://x", false),
            ("C:/x", false),
        ] {
            assert_eq!(is_url(text), is, "{text}");
        }
    }

    #[test]
    fn no_password_is_shown() {
        for (text, shown) in [
            ("redis://me:secret@host:6379/0", "redis://host:6379/0"),
            ("s3://bucket/a@b", "s3://bucket/a@b"),
            ("https://u:p@w@host", "https://host"),
            ("/home/me@work/data", "/home/me@work/data"),
        ] {
            assert_eq!(without_secrets(text), shown);
        }
    }

    #[test]
    fn a_url_of_a_file_names_its_folder() {
        let cases = [
            ("s3://b/sets/list.jsonl", Some(("s3://b/sets", "list.jsonl"))),
            ("s3://b/a.tar", Some(("s3://b", "a.tar"))),
            ("s3://bucket.with.dots", None),
            ("s3://b/sets/train", None),
            ("s3://b/sets.v2/", None),
            ("redis://h/0?prefix=a.b", None),
        ];
        for (url, expected) in cases {
            assert_eq!(folder_and_file(url), expected, "{url}");
        }
    }
}
