//! Open files: a bounded cache of a data set's, past the page cache where possible.
//!
//! It does not read (readers do) and does not list (`list` does).

pub(crate) mod beneath;
pub(crate) mod drive;
pub(crate) mod regular;
pub(crate) mod roots;
pub(crate) mod space;

use std::collections::{HashMap, VecDeque};
use std::fs::{File, Metadata};
use std::io::{self, IoSliceMut};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bothends_core::sample::FileIdx;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, PosixFadviseAdvice, fcntl, posix_fadvise};
use rustix::fs::{AtFlags, StatxFlags};
use rustix::io::{ReadWriteFlags, preadv2};

use self::regular::{is_out_of_files, open_flagged, will_need};
use self::roots::Roots;
use crate::{ALIGNMENT, IoError};

/// Whether reads go past the page cache (O_DIRECT).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direct {
    /// Where the file system allows it: right for data larger than memory.
    Auto,
    /// Never: right for data that stays in the page cache from epoch to epoch.
    Off,
}

/// A regular file that is open for reading.
#[derive(Debug)]
pub struct OpenFile {
    file: File,
    path: PathBuf,
    /// Length in bytes and time of the last change in nanoseconds since 1970, when opened.
    age: (u64, i128),
    /// When its inode was last changed, in nanoseconds since 1970, when opened.
    changed_ns: i128,
    /// What reads begin and end at multiples of, in bytes; 1 without O_DIRECT. Stands alone:
    /// no other memory is published through it.
    block: AtomicUsize,
}

impl OpenFile {
    /// Opens `path`; blocks on the file system.
    ///
    /// # Errors
    /// [`IoError::Missing`], [`IoError::Unreadable`], [`IoError::NotAFile`],
    /// [`IoError::Failed`].
    pub fn open(path: &Path, direct: Direct) -> Result<Self, IoError> {
        let failed = |source| IoError::at(path, "open", source);
        if direct == Direct::Auto {
            match open_flagged(path, OFlag::O_DIRECT) {
                Ok(file) => return Self::of(file, path, Direct::Auto),
                // The file system has no O_DIRECT, or it is a folder.
                Err(error) if is_invalid(&error) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        let file = open_flagged(path, OFlag::empty()).map_err(failed)?;
        // What is read is asked for as it is needed, in no order: nothing is to be read ahead.
        // Where that cannot be said, it costs time only.
        let _ = posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_RANDOM);
        Self::of(file, path, Direct::Off)
    }

    fn of(file: File, path: &Path, direct: Direct) -> Result<Self, IoError> {
        let metadata = file.metadata().map_err(|e| IoError::at(path, "open", e))?;
        if !metadata.is_file() {
            return Err(IoError::NotAFile { path: path.to_owned() });
        }
        let (age, changed_ns) = times(&metadata);
        let block = match direct {
            Direct::Auto => direct_block(&file),
            Direct::Off => 1,
        };
        let block = AtomicUsize::new(block);
        Ok(Self { file, path: path.to_owned(), age, changed_ns, block })
    }

    /// Whether reads go past the page cache now.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.block() > 1
    }

    /// What reads begin and end at multiples of now, in memory and in the file, in bytes: 1, or a
    /// power of two of at most [`ALIGNMENT`].
    #[must_use]
    pub fn block(&self) -> usize {
        self.block.load(Ordering::Relaxed)
    }

    /// Its length in bytes and the time of its last change, in nanoseconds since 1970, as they
    /// were when it was opened.
    #[must_use]
    pub fn age(&self) -> (u64, i128) {
        self.age
    }

    /// When its inode was last changed, in nanoseconds since 1970, as it was when it was opened: at
    /// each change of its contents, and no program can set it back.
    #[must_use]
    pub fn changed_ns(&self) -> i128 {
        self.changed_ns
    }

    /// The file that is open as `file`, opened once more, whether or not it has a name. Needs
    /// `/proc`.
    ///
    /// # Errors
    /// As [`OpenFile::open`].
    pub fn again(file: &File, direct: Direct) -> Result<Self, IoError> {
        let number = file.as_raw_fd();
        Self::open(Path::new(&format!("/proc/self/fd/{number}")), direct)
    }

    /// The path it was opened by.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads exactly as many bytes as `bytes` has, through the page cache, on the calling thread: for a
    /// file that was opened with [`Direct::Off`].
    ///
    /// # Errors
    /// What the system says; `UnexpectedEof` where the file ends before.
    pub fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(bytes, offset)
    }

    /// Fills `bytes` from `offset` on with what the page cache has, and says whether it has all of them: does
    /// not wait for the disk (RWF_NOWAIT, preadv2(2)). What is wrong otherwise is for an ordinary read to
    /// say; `bytes` may then be filled in part.
    pub fn read_cached(&self, bytes: &mut [u8], offset: u64) -> bool {
        !self.is_direct() && matches!(read_nowait(&self.file, bytes, offset), Ok(true))
    }

    /// Whether length, age and time of change are still those of its opening. Asks the file system.
    #[must_use]
    pub fn is_unchanged(&self) -> bool {
        let now = self.file.metadata().map(|now| times(&now));
        now.is_ok_and(|now| now == (self.age, self.changed_ns))
    }

    /// Has `len` bytes from `offset` brought into the page cache, without waiting for them.
    pub fn will_need(&self, offset: u64, len: u64) {
        will_need(&self.file, offset, len);
    }

    /// The file itself.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Reads through the page cache from now on, also for those who share the file: some
    /// file systems take O_DIRECT at opening and refuse it at reading.
    pub(crate) fn go_buffered(&self) -> io::Result<()> {
        clear_direct(&self.file)?;
        self.block.store(1, Ordering::Relaxed);
        Ok(())
    }
}

/// Length in bytes and time of the last change of the contents, and of the inode, in nanoseconds since 1970.
fn times(metadata: &Metadata) -> ((u64, i128), i128) {
    let ns = |seconds: i64, ns: i64| i128::from(seconds) * 1_000_000_000 + i128::from(ns);
    let age = (metadata.len(), ns(metadata.mtime(), metadata.mtime_nsec()));
    (age, ns(metadata.ctime(), metadata.ctime_nsec()))
}

/// Whether the page cache had all of `bytes`, which may be filled in part.
fn read_nowait(file: &File, bytes: &mut [u8], offset: u64) -> rustix::io::Result<bool> {
    let (n_bytes, mut parts) = (bytes.len(), [IoSliceMut::new(bytes)]);
    let read = preadv2(file, &mut parts, offset, ReadWriteFlags::NOWAIT)?;
    Ok(read == n_bytes)
}

/// Fills `bytes` from `offset` of a small file on, if the page cache has them; else they are on their way there, and
/// `false` is returned. Where the file system cannot tell, it waits for the disk.
pub fn read_cached(file: &File, bytes: &mut [u8], offset: u64) -> bool {
    match read_nowait(file, bytes, offset) {
        Ok(true) => true,
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {
            file.read_exact_at(bytes, offset).is_ok()
        }
        Ok(false) | Err(_) => {
            will_need(file, offset, bytes.len() as u64);
            false
        }
    }
}

/// What O_DIRECT reads of a file begin and end at multiples of, in memory and in the file: often
/// the disk's sectors of 512 bytes, so that less is read than is thrown away. [`ALIGNMENT`]
/// where the kernel does not say (before 6.1, and many file systems).
fn direct_block(file: &File) -> usize {
    let told = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
    let Ok(told) = told else { return ALIGNMENT };
    let [memory, offset] =
        [told.stx_dio_mem_align, told.stx_dio_offset_align].map(|n| n as usize);
    let block = memory.max(offset);
    let is_told = told.stx_mask & StatxFlags::DIOALIGN.bits() != 0;
    let is_sound = offset > 0 && block.is_power_of_two() && block <= ALIGNMENT;
    // One byte would mean the page cache.
    if is_told && is_sound { block.max(2) } else { ALIGNMENT }
}

/// Makes reads and writes of an open file go through the page cache.
pub(crate) fn clear_direct(file: &File) -> io::Result<()> {
    let flags = OFlag::from_bits_retain(fcntl(file, FcntlArg::F_GETFL)?);
    fcntl(file, FcntlArg::F_SETFL(flags - OFlag::O_DIRECT))?;
    Ok(())
}

/// Whether the system said EINVAL: what O_DIRECT answers where it is not supported.
pub(crate) fn is_invalid(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::EINVAL as i32)
}

/// The files of a data set, by their number in the extent table. At most `max_open` stay
/// open here; a reader keeps the ones it reads from open for as long as it needs them.
/// Shared by all threads; no lock is held while a file is opened.
#[derive(Debug)]
pub struct Files {
    roots: Roots,
    max_open: usize,
    /// Auto until this file system refuses O_DIRECT once; then nobody tries again.
    /// Stands alone: no other memory is published through it.
    try_direct: AtomicBool,
    cache: Mutex<Cache>,
}

#[derive(Debug, Default)]
struct Cache {
    files: HashMap<FileIdx, Arc<OpenFile>>,
    /// Oldest first.
    order: VecDeque<FileIdx>,
}

impl Files {
    /// The files below `roots`. At least one stays open.
    #[must_use]
    pub fn new(roots: impl Into<Roots>, max_open: usize, direct: Direct) -> Self {
        Self {
            roots: roots.into(),
            max_open: max_open.max(1),
            try_direct: AtomicBool::new(direct == Direct::Auto),
            cache: Mutex::default(),
        }
    }

    /// The file, if it is open.
    #[must_use]
    pub fn opened(&self, file: FileIdx) -> Option<Arc<OpenFile>> {
        self.cache().files.get(&file).map(Arc::clone)
    }

    /// The file, opened now or before; blocks on the file system in the first case, and
    /// only then asks for its path relative to the root.
    ///
    /// # Errors
    /// As [`OpenFile::open`].
    pub fn open(
        &self,
        file: FileIdx,
        path: impl FnOnce() -> String,
    ) -> Result<Arc<OpenFile>, IoError> {
        if let Some(open) = self.opened(file) {
            return Ok(open);
        }
        let path = self.roots.path(&path());
        let direct = match self.try_direct.load(Ordering::Relaxed) {
            true => Direct::Auto,
            false => Direct::Off,
        };
        let mut opened = OpenFile::open(&path, direct);
        if let Err(IoError::Failed { source, .. }) = &opened
            && is_out_of_files(source)
        {
            // Others of ours may be closed for it.
            self.close();
            opened = OpenFile::open(&path, direct);
        }
        let open = Arc::new(opened?);
        if direct == Direct::Auto && !open.is_direct() {
            self.try_direct.store(false, Ordering::Relaxed);
        }
        let mut cache = self.cache();
        if cache.files.insert(file, Arc::clone(&open)).is_none() {
            cache.order.push_back(file);
        }
        if cache.order.len() > self.max_open
            && let Some(oldest) = cache.order.pop_front()
        {
            cache.files.remove(&oldest);
        }
        Ok(open)
    }

    /// Closes the file, so that the next one who asks for it opens it again.
    pub fn forget(&self, file: FileIdx) {
        let mut cache = self.cache();
        cache.files.remove(&file);
        cache.order.retain(|open| *open != file);
    }

    /// Closes what nobody reads from.
    pub fn close(&self) {
        *self.cache() = Cache::default();
    }

    /// Whether files are opened to be read past the page cache.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.try_direct.load(Ordering::Relaxed)
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn at_most_so_many_files_stay_open_and_the_oldest_goes_first() {
        let folder = tempfile::tempdir().unwrap();
        for n in 0..4 {
            std::fs::write(folder.path().join(format!("{n}")), [n]).unwrap();
        }
        let files = Files::new(folder.path(), 2, Direct::Auto);
        let open = |n: u32| files.open(FileIdx(n), || n.to_string());
        let first = open(0).unwrap();
        assert!(Arc::ptr_eq(&first, &open(0).unwrap()));
        open(1).unwrap();
        open(2).unwrap();
        assert_eq!(files.cache().files.len(), 2);
        assert!(!Arc::ptr_eq(&first, &open(0).unwrap()));
        let error = open(7).unwrap_err();
        assert!(matches!(&error, IoError::Missing { path } if path.ends_with("7")));
    }

    /// A file that is kept open is changed in place, and its age restored.
    #[test]
    fn a_file_knows_whether_it_has_changed_since_it_was_opened() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, b"before").unwrap();
        let open = OpenFile::open(&path, Direct::Off).unwrap();
        assert!(open.is_unchanged());
        let age = std::fs::metadata(&path).unwrap().modified().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(50));
        std::fs::write(&path, b"after!").unwrap();
        File::options().write(true).open(&path).unwrap().set_modified(age).unwrap();
        assert!(
            !open.is_unchanged()
                && OpenFile::open(&path, Direct::Off).unwrap().is_unchanged()
        );
    }

    #[test]
    fn what_was_just_written_is_in_the_page_cache() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"0123456789").unwrap();
        let mut bytes = [0; 4];
        assert!(read_cached(&file, &mut bytes, 3) && &bytes == b"3456");
        assert!(!read_cached(&file, &mut bytes, 8), "it ends before");
    }

    #[test]
    fn a_pipe_is_refused_without_waiting_and_reads_may_wait() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        std::fs::write(folder.path().join("file"), [1]).unwrap();
        for direct in [Direct::Auto, Direct::Off] {
            let refused = OpenFile::open(&pipe, direct).unwrap_err();
            assert!(matches!(refused, IoError::NotAFile { .. }), "{refused}");
            let open = OpenFile::open(&folder.path().join("file"), direct).unwrap();
            let flags = fcntl(open.file(), FcntlArg::F_GETFL).unwrap();
            assert!(!OFlag::from_bits_retain(flags).contains(OFlag::O_NONBLOCK));
        }
    }

    #[test]
    fn only_what_is_in_the_page_cache_is_read_without_waiting() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let bytes: Vec<u8> = (0..9000_u32).map(|n| n.to_le_bytes()[0]).collect();
        std::fs::write(&path, &bytes).unwrap();
        let open = OpenFile::open(&path, Direct::Off).unwrap();
        let mut part = [0; 5000];
        if !open.read_cached(&mut part, 7) {
            println!("skipped: this file system cannot be read without waiting");
            return;
        }
        assert_eq!(part, bytes[7..5007]);
        assert!(!open.read_cached(&mut part, 4001), "it ends before");
        open.file().sync_all().unwrap();
        let drop = PosixFadviseAdvice::POSIX_FADV_DONTNEED;
        posix_fadvise(open.file(), 0, 0, drop).unwrap();
        if open.read_cached(&mut part, 7) {
            println!("skipped in part: this file system keeps what it need not");
        } else {
            open.read_exact_at(&mut part, 7).unwrap();
            assert!(open.read_cached(&mut part, 7));
        }
        let direct = OpenFile::open(&path, Direct::Auto).unwrap();
        assert!(!direct.is_direct() || !direct.read_cached(&mut part, 0));
    }

    #[test]
    fn a_direct_read_of_one_block_is_taken() {
        use std::os::unix::fs::FileExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let bytes: Vec<u8> = (0..24).flat_map(|n| [n; 512]).collect();
        std::fs::write(&path, &bytes).unwrap();
        let open = OpenFile::open(&path, Direct::Auto).unwrap();
        if !open.is_direct() {
            println!("skipped: this file system has no O_DIRECT");
            return;
        }
        let block = open.block();
        assert!(block.is_power_of_two() && block <= ALIGNMENT, "{block}");
        let mut buffer = crate::Buffer::new(ALIGNMENT);
        let read = &mut buffer.as_mut_slice()[block % ALIGNMENT..][..block];
        open.file().read_exact_at(read, block as u64).unwrap();
        assert_eq!(*read, bytes[block..2 * block]);
    }

    #[test]
    fn a_file_that_went_buffered_reads_at_any_offset() {
        use std::os::unix::fs::FileExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, [7; 5000]).unwrap();
        let open = OpenFile::open(&path, Direct::Auto).unwrap();
        if !open.is_direct() {
            println!("skipped: this file system has no O_DIRECT");
            return;
        }
        let mut odd = [0; 3];
        assert!(is_invalid(&open.file().read_at(&mut odd, 1).unwrap_err()));
        open.go_buffered().unwrap();
        assert!(!open.is_direct());
        open.file().read_exact_at(&mut odd, 1).unwrap();
        assert_eq!(odd, [7; 3]);
    }
}
