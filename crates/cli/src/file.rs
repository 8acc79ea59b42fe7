//! Files that are named on the command line: read up to a limit, and looked at before there is
//! anything to write; and written. What stands in them is for others to say.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write as _};
use std::path::{Path, PathBuf};

use bothends_runtime::replace;

use crate::failed::{Failed, cannot_write, wrong};
use crate::say;

/// The bytes of a file, if there are at most `most` of them: a path may lead to a device that
/// never ends.
pub(crate) fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let bytes = head(path, most + 1)?;
    if bytes.len() as u64 > most {
        let why = format!("it has more than {most} bytes, the most that is read");
        return Err(io::Error::new(ErrorKind::FileTooLarge, why));
    }
    Ok(bytes)
}

/// At most the first `most` bytes.
pub(crate) fn head(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Writes a result; `-` is standard output.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), Failed> {
    if path == Path::new("-") {
        say::line(text);
        return Ok(());
    }
    write_whole(path, text).map_err(|error| cannot_write(path, &error))
}

/// Writes a temporary file and renames it, so that a full disk leaves no partial file, and the previous
/// one stays. Anything but a regular file, such as a pipe, is written to directly.
fn write_whole(path: &Path, text: &str) -> io::Result<()> {
    // Where a link leads; a rename would replace the link.
    let place = match fs::canonicalize(path) {
        Ok(place) => place,
        Err(_) if path.is_symlink() => return fs::write(path, text),
        Err(_) => path.to_owned(),
    };
    if fs::metadata(&place).is_ok_and(|there| !there.is_file()) {
        return fs::write(place, text);
    }
    replace(&place, |mut file| {
        if let Ok(there) = fs::metadata(&place) {
            file.set_permissions(there.permissions())?;
        }
        file.write_all(text.as_bytes())
    })
}

/// Whether a file could be written here now. What is there stays as it is.
pub(crate) fn check_writable(path: &Path) -> Result<(), Failed> {
    let checked = match fs::metadata(path) {
        Ok(there) if there.is_dir() => Err(ErrorKind::IsADirectory.into()),
        Ok(there) if there.is_file() => {
            OpenOptions::new().append(true).open(path).map(drop)
        }
        // To open and close a pipe would tell its reader that all is said.
        Ok(_) => Ok(()),
        Err(_) => match File::create_new(path) {
            Ok(_) => fs::remove_file(path),
            // A link that leads to no file yet.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error),
        },
    };
    checked.map_err(|error| cannot_write(path, &error))
}

/// Whether each of these, a flag and the path it was given, names a file of its own: of two results in
/// one file, the last is left. To be asked before any is opened.
pub(crate) fn check_distinct(named: &[(&str, Option<&Path>)]) -> Result<(), Failed> {
    let mut before: Vec<(PathBuf, String)> = Vec::new();
    for (flag, path) in named {
        let Some((path, place)) = path.and_then(|path| Some((path, place(path)?))) else {
            continue;
        };
        let second = format!("{flag} {}", path.display());
        if let Some((_, first)) = before.iter().find(|(other, _)| *other == place) {
            return Err(wrong(format!(
                "`{first}` and `{second}` are one file, and one would overwrite the other; give \
                 each a file of its own"
            )));
        }
        before.push((place, second));
    }
    Ok(())
}

/// Whether standard output takes one of these results, and the table is to stay out of it.
///
/// # Errors
/// It would take two: nothing that reads it could tell them apart.
pub(crate) fn printed(named: &[(&str, Option<&Path>)]) -> Result<Printed, Failed> {
    let mut printed = named.iter().filter(|(_, path)| *path == Some(Path::new("-")));
    match (printed.next(), printed.next()) {
        (Some((first, _)), Some((second, _))) => Err(wrong(format!(
            "`{first} -` and `{second} -` would both be written to standard output; give one of them a file"
        ))),
        (Some(_), None) => Ok(Printed::Result),
        (None, _) => Ok(Printed::Table),
    }
}

/// What a command writes to standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Printed {
    /// What a program reads.
    Result,
    /// What people read.
    Table,
}

/// The file that is meant, by whatever path. `None` for what takes several results one after another:
/// standard output, a device, a pipe; and for a URL.
fn place(path: &Path) -> Option<PathBuf> {
    let is_stream = path == Path::new("-")
        || path.to_string_lossy().contains("://")
        || ["/dev", "/dev/fd"].map(Path::new).map(Some).contains(&path.parent())
        || fs::metadata(path).is_ok_and(|there| !there.is_file());
    if is_stream {
        return None;
    }
    let new = || {
        let (folder, name) = (path.parent()?, path.file_name()?);
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        Some(fs::canonicalize(folder).ok()?.join(name))
    };
    Some(fs::canonicalize(path).ok().or_else(new).unwrap_or_else(|| path.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_file_for_two_results_is_refused_by_whatever_path() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("real")).unwrap();
        fs::write(at("old"), "old").unwrap();
        std::os::unix::fs::symlink("real", at("link")).unwrap();
        std::os::unix::fs::symlink("old", at("again")).unwrap();
        let check = |first: &Path, second: &Path| {
            check_distinct(&[("--json", Some(first)), ("--trace", Some(second))])
        };
        for (first, second) in [
            ("new", "new"),
            ("new", "./new"),
            ("real/new", "link/new"),
            ("old", "again"),
            ("nowhere/new", "nowhere/new"),
        ] {
            let (first, second) = (at(first), at(second));
            let Err(Failed::Arguments(why)) = check(&first, &second) else {
                panic!("{first:?} and {second:?} are one file")
            };
            for named in ["--json", "--trace"].map(str::to_owned) {
                assert!(why.contains(&format!("`{named} ")), "{why}");
            }
            assert!(why.contains(&*first.to_string_lossy()), "{why}");
        }
        check(&at("new"), &at("real/new")).unwrap();
        for stream in ["-", "/dev/null", "/dev/stdout", "http://collector:4318"] {
            check(Path::new(stream), Path::new(stream)).unwrap();
        }
        check(Path::new("here"), &std::env::current_dir().unwrap().join("here"))
            .unwrap_err();
    }

    #[test]
    fn standard_output_takes_one_result_and_then_no_table() {
        let at = Path::new;
        let of = |json, report| {
            printed(&[("--json", json), ("--report", report), ("--trace", None)])
        };
        assert_eq!(of(None, Some(at("x.html"))).unwrap(), Printed::Table);
        assert_eq!(of(None, Some(at("-"))).unwrap(), Printed::Result);
        assert_eq!(of(Some(at("-")), Some(at("x"))).unwrap(), Printed::Result);
        let Err(Failed::Arguments(why)) = of(Some(at("-")), Some(at("-"))) else {
            panic!("two documents are none")
        };
        assert!(why.starts_with("`--json -` and `--report -` would both"), "{why}");
    }

    #[test]
    fn a_file_without_end_is_refused_and_a_full_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("four");
        fs::write(&path, "four").unwrap();
        assert_eq!(read(&path, 4).unwrap(), b"four");
        for (path, most) in [(path.as_path(), 3), (Path::new("/dev/zero"), 1000)] {
            let kind = read(path, most).unwrap_err().kind();
            assert_eq!(kind, ErrorKind::FileTooLarge, "{path:?}");
        }
    }

    #[test]
    fn a_file_is_replaced_whole_and_a_link_stays() {
        use std::os::unix::fs::MetadataExt as _;
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&file, "old").unwrap();
        std::os::unix::fs::symlink("file", &link).unwrap();
        let before = fs::metadata(&file).unwrap().ino();
        assert!(write(&link, "new").is_ok());
        assert_eq!(fs::read(&file).unwrap(), b"new");
        assert!(link.is_symlink());
        // Another file in its place: whoever reads the old one sees all of it.
        assert_ne!(fs::metadata(&file).unwrap().ino(), before);
        assert!(write(Path::new("/dev/null"), "gone").is_ok());
        let full = write(Path::new("/dev/full"), "no room");
        assert!(matches!(full, Err(Failed::Run(_))));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "nothing beside");
    }

    #[test]
    fn looking_whether_a_file_can_be_written_leaves_no_trace() {
        let folder = tempfile::tempdir().unwrap();
        let (new, old) = (folder.path().join("new"), folder.path().join("old"));
        fs::write(&old, "old").unwrap();
        for path in [&new, &old, &"/dev/null".into()] {
            check_writable(path).unwrap();
        }
        assert!(!new.exists());
        assert_eq!(fs::read(&old).unwrap(), b"old");
        for path in [folder.path(), &folder.path().join("nowhere/new")] {
            let Failed::Run(error) = check_writable(path).unwrap_err() else {
                panic!("a place to write is no argument that makes no sense")
            };
            assert!(error.to_string().contains(&*path.to_string_lossy()), "{error}");
        }
    }
}
