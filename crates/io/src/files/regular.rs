//! Opens regular files and nothing else: opening a pipe waits for its writer, and opening a device may do
//! anything.
//!
//! Names come from lists that may be old, or from another machine, so what is behind a name is checked
//! after it is open. This file does not read; `files` adds what readers need.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, PosixFadviseAdvice, fcntl, posix_fadvise};
use nix::sys::statfs::{
    FUSE_SUPER_MAGIC, FsType, MSDOS_SUPER_MAGIC, SMB_SUPER_MAGIC, fstatfs,
};
use nix::unistd::geteuid;

/// Opens a regular file for reading. Does not wait for anybody but the file system.
///
/// # Errors
/// The system's; [`ErrorKind::InvalidInput`] where there is something else, or a folder.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let file = open_flagged(path, OFlag::empty())?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(not_regular()),
    }
}

/// Opens a regular file for reading that is this user's own, and that nobody else may write: the name
/// itself may not be a symbolic link.
///
/// # Errors
/// As [`open_regular`]; [`ErrorKind::PermissionDenied`] for a file of others.
pub fn open_own(path: &Path) -> io::Result<File> {
    own(open_flagged(path, OFlag::O_NOFOLLOW)?)
}

/// Opens a file that is there to be locked, or makes it. It may be written, since a file system on the network locks
/// only such files.
///
/// # Errors
/// As [`open_own`].
pub fn open_lock(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    // As in `open_flagged`; locks do not mind.
    options.custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits());
    own(options.open(path)?)
}

/// The file, if it is regular and this user's own.
fn own(file: File) -> io::Result<File> {
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(not_regular());
    }
    let why = "it belongs to another user, or others can write to it";
    match belongs_to_user(&found) {
        true => Ok(file),
        false => Err(io::Error::new(ErrorKind::PermissionDenied, why)),
    }
}

/// Whether the folder is this user's own, and nobody else may write to it; a symbolic link is not.
///
/// # Errors
/// What the system says.
pub fn is_own_folder(path: &Path) -> io::Result<bool> {
    let found = std::fs::symlink_metadata(path)?;
    Ok(found.is_dir() && belongs_to_user(&found))
}

pub(crate) fn belongs_to_user(found: &Metadata) -> bool {
    found.uid() == geteuid().as_raw() && found.mode() & 0o022 == 0
}

/// Whether a file keeps its inode number as long as it exists. Some file systems assign another one to a
/// file that has not been used for a while.
#[must_use]
pub fn keeps_its_number(file: &File) -> bool {
    let found = fstatfs(file).map(|found| found.filesystem_type());
    found.is_ok_and(|kind| !RENUMBERING.contains(&kind))
}

/// Including those that run outside the kernel (`sshfs`, clients of object stores), and Windows shares
/// under the numbers of both protocols.
const RENUMBERING: [FsType; 5] = [
    FUSE_SUPER_MAGIC,
    MSDOS_SUPER_MAGIC,
    SMB_SUPER_MAGIC,
    FsType(0xff53_4d42),
    FsType(0xfe53_4d42),
];

/// Has the kernel bring `len` bytes from `offset` of a file into the page cache, without waiting for
/// them. Advice: a file system that takes none reads as before.
pub fn will_need(file: &File, offset: u64, len: u64) {
    if let (Ok(offset), Ok(len)) = (i64::try_from(offset), i64::try_from(len)) {
        let advice = PosixFadviseAdvice::POSIX_FADV_WILLNEED;
        let _ = posix_fadvise(file, offset, len, advice);
    }
}

/// All of a regular file.
///
/// # Errors
/// As [`open_regular`].
pub fn read_regular(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut open_regular(path)?, &mut bytes)?;
    Ok(bytes)
}

/// Whether it is the machine that failed and not the file: what is out of memory or of open files,
/// a disk that does not answer, a right that is missing. Such an error says nothing about what
/// the file holds, and may be gone at the next attempt.
#[must_use]
pub fn is_of_machine(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw);
    errno.is_some_and(|errno| MACHINE.contains(&errno))
}

const MACHINE: [Errno; 10] = [
    Errno::EMFILE,
    Errno::ENFILE,
    Errno::ENOMEM,
    Errno::EIO,
    Errno::ESTALE,
    Errno::EACCES,
    Errno::EPERM,
    Errno::EINTR,
    Errno::EAGAIN,
    Errno::ETIMEDOUT,
];

/// Whether no more files can be opened.
pub(crate) fn is_out_of_files(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw);
    matches!(errno, Some(Errno::EMFILE | Errno::ENFILE))
}

/// Opens whatever it is with these flags, at once.
pub(crate) fn open_flagged(path: &Path, flags: OFlag) -> io::Result<File> {
    // Without O_NONBLOCK, opening a pipe would wait for its writer. It goes at once: where
    // a file system cannot read without waiting, io_uring would take it at its word and
    // fail with EAGAIN. std adds O_CLOEXEC.
    let at_first = (flags | OFlag::O_NONBLOCK).bits();
    let opened = OpenOptions::new().read(true).custom_flags(at_first).open(path);
    let file = opened.map_err(|error| match error.raw_os_error() {
        // What a socket answers.
        Some(errno) if errno == Errno::ENXIO as i32 => not_regular(),
        _ => error,
    })?;
    fcntl(&file, FcntlArg::F_SETFL(flags))?;
    Ok(file)
}

pub(super) fn not_regular() -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, "it is not a regular file")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileExt, PermissionsExt};

    use super::*;

    #[test]
    fn files_of_a_local_file_system_keep_their_numbers() {
        assert!(keeps_its_number(&File::open("/proc/self/stat").unwrap()));
        assert!(keeps_its_number(&tempfile::tempfile().unwrap()));
    }

    #[test]
    fn a_file_that_others_may_have_written_is_not_ones_own() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, b"0123").unwrap();
        let allow = |mode| {
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&file, mode).unwrap();
        };
        allow(0o644);
        open_own(&file).unwrap();
        for mode in [0o664, 0o646] {
            allow(mode);
            assert!(open_own(&file).unwrap_err().to_string().contains("others"));
        }
        allow(0o600);
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        open_own(&link).unwrap_err();
        open_own(folder.path()).unwrap_err();
        if !geteuid().is_root() {
            open_own(Path::new("/etc/passwd")).unwrap_err();
        }
    }

    #[test]
    fn pipes_sockets_folders_and_devices_are_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let socket = folder.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let zeros = Path::new("/dev/zero");
        for path in [&*pipe, &*socket, folder.path(), zeros] {
            let error = open_regular(path).unwrap_err();
            assert_eq!(
                error.to_string(),
                "it is not a regular file",
                "{}",
                path.display()
            );
        }
        let file = folder.path().join("file");
        std::fs::write(&file, b"0123").unwrap();
        let mut bytes = [0; 2];
        open_regular(&file).unwrap().read_exact_at(&mut bytes, 1).unwrap();
        assert_eq!(
            (&bytes, read_regular(&file).unwrap().as_slice()),
            (b"12", &b"0123"[..])
        );
    }
}
