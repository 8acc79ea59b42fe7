//! Opens regular files below a folder and nothing outside it, whatever the names say.
//!
//! Names come from another machine, and who may write below the folder may put a symbolic link there. The
//! kernel holds a lookup inside (`openat2`, Linux 5.6); an older one is walked down component by component,
//! and then no link is followed. This file does not read.

use std::fs::{File, Metadata};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, OpenHow, ResolveFlag, fcntl, openat, openat2};
use nix::sys::stat::Mode;

use super::regular::{not_regular, open_regular};

/// A rename elsewhere in the tree may interrupt a lookup; the kernel then asks for another try.
const TRIES: u32 = 16;

/// What is done with symbolic links below a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Links {
    /// They are refused.
    Refused,
    /// They are followed as long as they stay below the folder. Needs `openat2`.
    Beneath,
    /// They are followed wherever they lead: for a process that reads for nobody but its own user.
    Followed,
}

/// A symbolic link that stands in the way where none is followed ([`Links::Refused`]). It is inside the
/// [`io::Error`], for whoever knows what helps.
#[derive(Debug, thiserror::Error)]
#[error("{} is a symbolic link, and none is followed here", path.display())]
pub struct RefusedLink {
    /// The link.
    pub path: PathBuf,
}

/// Why a link is not followed.
#[derive(Debug, Clone, Copy)]
enum Unfollowed {
    Refused,
    LeadsOut,
    NoOpenat2,
}

/// A folder below which files are opened. It keeps the folder that it was given: another one that
/// gets its name is not looked at until [`Beneath::renewed`].
#[derive(Debug)]
pub struct Beneath {
    path: PathBuf,
    folder: File,
    links: Links,
    /// Until the kernel says that it has no `openat2`. Stands alone: no other memory is published
    /// through it.
    has_openat2: AtomicBool,
}

/// What is wanted of a file.
#[derive(Debug, Clone, Copy)]
enum Want {
    Contents,
    /// A descriptor that can only be asked what it is of: opens nothing, and waits for nobody.
    Identity,
}

impl Want {
    fn flags(self) -> OFlag {
        OFlag::O_CLOEXEC
            | match self {
                // Without O_NONBLOCK, opening a pipe would wait for its writer.
                Self::Contents => OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY,
                Self::Identity => OFlag::O_PATH,
            }
    }
}

impl Beneath {
    /// The folder at `path`, which may itself be a symbolic link.
    ///
    /// # Errors
    /// The system's: it does not exist, is no folder, or may not be listed.
    pub fn new(path: &Path, links: Links) -> io::Result<Self> {
        let path = path.canonicalize()?;
        // Listing proves that it is a folder and that we may look into it.
        std::fs::read_dir(&path)?;
        let folder = File::open(&path)?;
        Ok(Self { path, folder, links, has_openat2: AtomicBool::new(true) })
    }

    /// The folder's path, without symbolic links.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder that has the path now, where it is another one than this; `None` where it is
    /// this one.
    ///
    /// # Errors
    /// As [`Beneath::new`].
    pub fn renewed(&self) -> io::Result<Option<Self>> {
        let place = |found: &Metadata| (found.dev(), found.ino());
        if place(&std::fs::metadata(&self.path)?) == place(&self.folder.metadata()?) {
            return Ok(None);
        }
        let renewed = Self::new(&self.path, self.links);
        renewed.map(Some).map_err(|error| {
            let is_denied = error.kind() == ErrorKind::PermissionDenied;
            if is_denied { io::Error::new(error.kind(), REPLACED) } else { error }
        })
    }

    /// Opens the regular file at `path` below the folder for reading. Does not wait for anybody but
    /// the file system.
    ///
    /// # Errors
    /// The system's; [`ErrorKind::InvalidInput`] where there is something else, where `path`
    /// leaves the folder, and for a symbolic link that is not followed.
    pub fn open(&self, path: &str) -> io::Result<File> {
        if self.links == Links::Followed {
            is_plain(path)?;
            return open_regular(&self.path.join(path));
        }
        let file = File::from(self.find(path, Want::Contents)?);
        if !file.metadata()?.is_file() {
            return Err(not_regular());
        }
        fcntl(&file, FcntlArg::F_SETFL(OFlag::empty()))?;
        Ok(file)
    }

    /// What lies at `path` below the folder now, found as [`Beneath::open`] finds it.
    ///
    /// # Errors
    /// As [`Beneath::open`].
    pub fn metadata(&self, path: &str) -> io::Result<Metadata> {
        if self.links == Links::Followed {
            is_plain(path)?;
            return std::fs::metadata(self.path.join(path));
        }
        File::from(self.find(path, Want::Identity)?).metadata()
    }

    fn find(&self, path: &str, want: Want) -> io::Result<OwnedFd> {
        is_plain(path)?;
        // It stands alone, see there.
        if !self.has_openat2.load(Ordering::Relaxed) {
            return self.walk(path, want);
        }
        match self.find_at_once(path, want) {
            // Not there, or refused by a sandbox that does not know it. Where it is there and
            // permission is missing, walking says so again.
            Err(Errno::ENOSYS | Errno::EPERM) => {
                let walked = self.walk(path, want)?;
                self.has_openat2.store(false, Ordering::Relaxed);
                Ok(walked)
            }
            Err(Errno::ELOOP) if self.links == Links::Refused => {
                Err(self.link(path, Unfollowed::Refused))
            }
            Err(Errno::EXDEV) => Err(self.link(path, Unfollowed::LeadsOut)),
            Err(Errno::ENXIO) => Err(not_regular()),
            found => Ok(found?),
        }
    }

    fn find_at_once(&self, path: &str, want: Want) -> Result<OwnedFd, Errno> {
        let stay = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS;
        let resolve = match self.links {
            Links::Refused => stay | ResolveFlag::RESOLVE_NO_SYMLINKS,
            Links::Beneath | Links::Followed => stay,
        };
        let how = OpenHow::new().flags(want.flags()).resolve(resolve);
        for _ in 1..TRIES {
            match openat2(&self.folder, path, how) {
                Err(Errno::EAGAIN | Errno::EINTR) => {}
                found => return found,
            }
        }
        openat2(&self.folder, path, how)
    }

    /// Without `openat2`: one component after the other, none of which may be a link.
    fn walk(&self, path: &str, want: Want) -> io::Result<OwnedFd> {
        let (parents, name) = path.rsplit_once('/').unwrap_or(("", path));
        let through = OFlag::O_PATH | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
        let mut folder: Option<OwnedFd> = None;
        let step = |from: Option<&OwnedFd>, name: &str, flags| match from {
            Some(from) => openat(from, name, flags, Mode::empty()),
            None => openat(&self.folder, name, flags, Mode::empty()),
        };
        let why = match self.links {
            Links::Refused => Unfollowed::Refused,
            Links::Beneath | Links::Followed => Unfollowed::NoOpenat2,
        };
        for parent in parents.split('/').filter(|parent| !parent.is_empty()) {
            let next = step(folder.as_ref(), parent, through | OFlag::O_DIRECTORY);
            folder = Some(next.map_err(|errno| self.link_or(path, why, errno))?);
        }
        let found = step(folder.as_ref(), name, want.flags() | OFlag::O_NOFOLLOW);
        let found = found.map_err(|errno| self.link_or(path, why, errno))?;
        // With O_PATH a link is found, not refused.
        let found = File::from(found);
        match found.metadata()?.is_symlink() {
            true => Err(self.link(path, why)),
            false => Ok(found.into()),
        }
    }

    /// The refusal of the first link on the way to `path` if that is what the kernel stopped at, or
    /// what it said.
    fn link_or(&self, path: &str, why: Unfollowed, errno: Errno) -> io::Error {
        // ENOTDIR is the answer to a link where a folder was asked for.
        let is_stopped = matches!(errno, Errno::ENOTDIR | Errno::ELOOP);
        if is_stopped && self.first_link(path).is_some() {
            return self.link(path, why);
        }
        if errno == Errno::ENXIO { not_regular() } else { errno.into() }
    }

    fn link(&self, path: &str, why: Unfollowed) -> io::Error {
        let path = self.first_link(path).unwrap_or_else(|| self.path.join(path));
        let why = match why {
            Unfollowed::Refused => {
                return io::Error::new(ErrorKind::InvalidInput, RefusedLink { path });
            }
            Unfollowed::LeadsOut => OUTSIDE,
            Unfollowed::NoOpenat2 => NO_OPENAT2,
        };
        let words = format!("{} is a symbolic link{why}", path.display());
        io::Error::new(ErrorKind::InvalidInput, words)
    }

    /// For people: what it finds may have changed since.
    fn first_link(&self, path: &str) -> Option<PathBuf> {
        let mut at = self.path.clone();
        path.split('/').find_map(|part| {
            at.push(part);
            std::fs::symlink_metadata(&at)
                .is_ok_and(|f| f.is_symlink())
                .then(|| at.clone())
        })
    }
}

const OUTSIDE: &str =
    " that leads out of the data root; use one that is relative and stays below the root";
const REPLACED: &str = "another folder has this name now, which a confined agent may not \
                        read; restart the agent";
const NO_OPENAT2: &str = ", and this kernel has no openat2, without which none is followed; use Linux 5.6 or later";

/// Names on the way down and nothing else.
fn is_plain(path: &str) -> io::Result<()> {
    let is_plain =
        Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
    if is_plain && !path.is_empty() && !path.ends_with('/') {
        return Ok(());
    }
    Err(io::Error::new(ErrorKind::InvalidInput, "the path leaves the data root"))
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::fs::symlink;

    use super::*;

    /// A root with a file, a folder, and links that stay, leave, and lead round.
    fn tree() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        std::fs::write(root.join("a/b/file"), b"inside").unwrap();
        std::fs::write(dir.path().join("secret"), b"outside").unwrap();
        std::fs::create_dir(dir.path().join("elsewhere")).unwrap();
        std::fs::write(dir.path().join("elsewhere/file"), b"outside").unwrap();
        symlink("b/file", root.join("a/stays")).unwrap();
        symlink("a/b", root.join("folder")).unwrap();
        symlink("../../secret", root.join("a/leaves")).unwrap();
        symlink("/etc/passwd", root.join("absolute")).unwrap();
        symlink("../elsewhere", root.join("out")).unwrap();
        symlink("round", root.join("round")).unwrap();
        dir
    }

    /// With and without `openat2`.
    fn both(root: &Path, links: Links) -> [Beneath; 2] {
        let [new, old] = [(); 2].map(|()| Beneath::new(root, links).unwrap());
        old.has_openat2.store(false, Ordering::Relaxed);
        [new, old]
    }

    fn contents(beneath: &Beneath, path: &str) -> io::Result<String> {
        beneath.metadata(path)?;
        let mut text = String::new();
        beneath.open(path)?.read_to_string(&mut text)?;
        Ok(text)
    }

    #[test]
    fn no_link_is_followed_and_the_refusal_names_it() {
        let dir = tree();
        let root = dir.path().join("root");
        for beneath in both(&root, Links::Refused) {
            assert_eq!(contents(&beneath, "a/b/file").unwrap(), "inside");
            for (path, link) in [
                ("a/stays", "a/stays"),
                ("a/leaves", "a/leaves"),
                ("absolute", "absolute"),
                ("folder/file", "folder"),
                ("out/file", "out"),
                ("round", "round"),
            ] {
                for error in [
                    beneath.open(path).map(drop).unwrap_err(),
                    beneath.metadata(path).map(drop).unwrap_err(),
                ] {
                    let link = root.canonicalize().unwrap().join(link);
                    let words = format!(
                        "{} is a symbolic link, and none is followed here",
                        link.display()
                    );
                    assert_eq!(error.to_string(), words, "{path}");
                    let refused = error.get_ref().unwrap().downcast_ref::<RefusedLink>();
                    assert_eq!(refused.unwrap().path, link, "{path}");
                }
            }
        }
    }

    #[test]
    fn links_that_stay_below_are_followed_where_that_is_asked_for() {
        let dir = tree();
        let [new, old] = both(&dir.path().join("root"), Links::Beneath);
        let found = new.find_at_once("a/b/file", Want::Identity);
        if matches!(found, Err(Errno::ENOSYS | Errno::EPERM)) {
            println!("skipped: this kernel has no openat2");
            return;
        }
        for path in ["a/b/file", "a/stays", "folder/file"] {
            assert_eq!(contents(&new, path).unwrap(), "inside", "{path}");
        }
        for path in ["a/leaves", "absolute", "out/file"] {
            let error = contents(&new, path).unwrap_err().to_string();
            assert!(error.contains("leads out of the data root"), "{path}: {error}");
        }
        contents(&new, "round").unwrap_err();
        // An old kernel cannot hold a link inside.
        assert_eq!(contents(&old, "a/b/file").unwrap(), "inside");
        for path in ["a/stays", "folder/file", "a/leaves"] {
            let error = contents(&old, path).unwrap_err().to_string();
            assert!(error.contains("this kernel has no openat2"), "{path}: {error}");
        }
    }

    #[test]
    fn a_process_of_its_own_users_follows_links_as_that_user_does() {
        let dir = tree();
        let beneath = Beneath::new(&dir.path().join("root"), Links::Followed).unwrap();
        assert_eq!(contents(&beneath, "a/leaves").unwrap(), "outside");
        contents(&beneath, "../secret").unwrap_err();
    }

    #[test]
    fn what_is_no_regular_file_or_no_way_down_is_refused_at_once() {
        let dir = tree();
        let root = dir.path().join("root");
        nix::unistd::mkfifo(&root.join("pipe"), Mode::S_IRWXU).unwrap();
        let _socket =
            std::os::unix::net::UnixListener::bind(root.join("socket")).unwrap();
        for links in [Links::Refused, Links::Beneath, Links::Followed] {
            for beneath in both(&root, links) {
                for path in ["pipe", "socket", "a"] {
                    let error = beneath.open(path).unwrap_err().to_string();
                    assert_eq!(error, "it is not a regular file", "{path}");
                }
                for path in ["", "..", "../secret", "/etc/passwd", "a/../../secret", "a/"]
                {
                    let error = contents(&beneath, path).unwrap_err().to_string();
                    assert_eq!(error, "the path leaves the data root", "{path}");
                }
                let error = beneath.open("a/none").unwrap_err();
                assert_eq!(error.kind(), ErrorKind::NotFound);
                let error = beneath.open("a/b/file/x").unwrap_err();
                assert_eq!(error.kind(), ErrorKind::NotADirectory);
            }
        }
    }

    #[test]
    fn a_folder_in_place_of_another_is_found_when_that_is_asked_for() {
        let dir = tree();
        let root = dir.path().join("root");
        let beneath = Beneath::new(&root, Links::Refused).unwrap();
        assert!(beneath.renewed().unwrap().is_none());
        std::fs::rename(&root, dir.path().join("old")).unwrap();
        beneath.renewed().unwrap_err();
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        std::fs::write(root.join("a/b/file"), b"new").unwrap();
        assert_eq!(contents(&beneath, "a/b/file").unwrap(), "inside");
        let renewed = beneath.renewed().unwrap().unwrap();
        assert_eq!(contents(&renewed, "a/b/file").unwrap(), "new");
    }
}
