//! From the text that names a data set to the files of a format: a URL of a folder, or of one file in a
//! folder.
//!
//! Read `view.rs` for what is done with them.

use std::sync::Arc;

use bothends_dataset::{Kind, Storage as _};

use crate::address::{self, without_login};
use crate::{Location, Objects, Options, StorageError, View};

/// Whether the text is a URL, and not a path of this machine.
#[must_use]
pub fn is_url(text: &str) -> bool {
    let scheme = text.split_once("://").map_or("", |(scheme, _)| scheme);
    !scheme.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// The URL for messages and for what is written down: without a login, and of a query with what names
/// the data alone.
#[must_use]
pub fn without_secrets(text: &str) -> String {
    if !is_url(text) {
        return text.to_owned();
    }
    let prefix = address::prefix(text);
    let prefix = prefix.map_or_else(String::new, |prefix| format!("?prefix={prefix}"));
    format!("{}{prefix}", without_login(text))
}

/// A view of the objects at `url`, and which file is meant: `""` is all of it. Asks the store where
/// the last part of the URL may be a file.
///
/// # Errors
/// [`StorageError::Address`]; what the store says of that part, other than that it is not there.
pub fn around(url: &str, options: &Options) -> Result<(View, String), StorageError> {
    let at = Location::parse(url, options)?;
    // What has an extension is most often a file, but a folder may have one.
    let may_be_file = |name: &str| name.contains('.') || is_part(name);
    if let Some((folder, file)) = at.around().filter(|(_, name)| may_be_file(name)) {
        let view = start(folder.open()?)?;
        match view.objects_kind(&file)? {
            Some(Kind::File { .. }) => return Ok((view, file)),
            // It would be a folder, and nobody could say what is in it.
            None if !at.is_listable() => {
                return Err(StorageError::NotFound { place: view.shown(&file) });
            }
            Some(Kind::Folder) | None => {}
        }
    }
    Ok((start(at.open()?)?, String::new()))
}

/// Whether the name ends like that of one file of several: `train-00000-of-00128`.
fn is_part(name: &str) -> bool {
    let Some((start, n)) = name.rsplit_once("-of-") else { return false };
    let nth = start.rsplit_once('-').map_or("", |(_, nth)| nth);
    [nth, n].iter().all(|it| !it.is_empty() && it.bytes().all(|b| b.is_ascii_digit()))
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
            ("redis://:a/b@host/0?prefix=imgs", "redis://host/0?prefix=imgs"),
            ("redis://:s3cr#et@host/0", "redis://host/0"),
            ("redis://:s3cr?et@host:1/0?prefix=a@b", "redis://host:1/0?prefix=a@b"),
            ("redis://:s3cr?prefix=et@host/0", "redis://host/0"),
            ("redis://:s3cr?prefix=et", "redis://"),
            ("redis://me:s3cret", "redis://me"),
            ("redis://[::1]:6379/0?prefix=a", "redis://[::1]:6379/0?prefix=a"),
            ("http://me:pa/ss@host/x", "http://host/x"),
            ("http://host:80/a:b/c", "http://host:80/a:b/c"),
            ("https://host/x?mail=a@b", "https://host/x"),
            ("az://c/p?sig=secret", "az://c/p"),
            ("az://box@account/x", "az://box@account/x"),
            (
                "abfs://box@account.dfs.core.windows.net",
                "abfs://box@account.dfs.core.windows.net",
            ),
            ("az://me:se/cret@box/x", "az://box/x"),
            ("/home/me@work/data", "/home/me@work/data"),
        ] {
            assert_eq!(without_secrets(text), shown);
        }
    }

    #[test]
    fn a_url_of_a_file_is_that_file_in_its_folder() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("list.jsonl"), "{}").unwrap();
        std::fs::create_dir(folder.path().join("set.v2")).unwrap();
        std::fs::write(folder.path().join("set.v2/a.jpg"), "a").unwrap();
        let url = |name| format!("file://{}/{name}", folder.path().display());
        let options = Options::default();
        let (view, target) = around(&url("list.jsonl"), &options).unwrap();
        assert_eq!((&*target, view.list("").unwrap().len()), ("list.jsonl", 2));
        let (view, target) = around(&url("set.v2"), &options).unwrap();
        assert_eq!((&*target, &*view.list("").unwrap()[0].name), ("", "a.jpg"));
        assert!(around("file://no/path", &options).is_err());
        std::fs::write(folder.path().join("t-00000-of-00002"), "").unwrap();
        let (_, target) = around(&url("t-00000-of-00002"), &options).unwrap();
        assert_eq!(target, "t-00000-of-00002");
        for (name, is) in [("of-2", false), ("a-of-2", false), ("a-1-of-2x", false)] {
            assert_eq!(is_part(name), is, "{name}");
        }
    }
}
