//! Files that are named on the command line: read up to a limit, and looked at before there is
//! anything to write; and written. What stands in them is for others to say.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write as _};
use std::path::Path;

use bothends_runtime::replace;

use crate::failed::{Failed, cannot_write};
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

#[cfg(test)]
mod tests {
    use super::*;

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
