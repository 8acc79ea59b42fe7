//! The spool transport: host and device exchange files in a directory that both can reach.
//!
//! ```text
//! .bothends-spool            the mark of a directory that is a spool: nothing is removed elsewhere
//! hello.json                 the device's notice: version, id
//! device-<id>.pulse          its sign of life
//! host.json                  the notice of the one host that is served: version, run id,
//!                            device id
//! run-<id>/host.pulse        its sign of life
//! run-<id>/h-0000000000 …    the host's messages, each removed by the device
//! run-<id>/d-0000000000 …    the device's messages, each removed by the host; a result's
//!                            file holds the samples from a 4 KiB boundary on
//! ```
//!
//! The messages are those of `wire.rs`; here they are files. Whoever outlives the other
//! removes what is left, and a new host removes what an earlier run left. Files of others stay: one
//! with the name of a notice is refused, not replaced. Spawns nothing:
//! signs of life are given and looked for inside the waiting calls. Read `spool/lane.rs`
//! for the files, `spool/pulse.rs` for the signs of life, `spool/device.rs` for the device.

mod device;
mod lane;
mod names;
mod notice;
mod pulse;

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bothends_io::{
    Direct, IoError, OpenFile, Reader, ReaderConfig, ReaderKind, open_reader,
    read_regular,
};
use twox_hash::XxHash3_64;

use crate::CsdError;
use crate::host::remote::{Link, Remote};
use crate::socket::left_until;
use crate::words::job::PROTOCOL_VERSION;
use crate::words::wire::Message;
use lane::{Extent, Inlet, Outlet};
use names::Names;
use notice::{Notice, is_id};
use pulse::{Life, Pulse, Watch};

pub use device::{Visitor, await_host, serve_directory};

const MARKER: &str = ".bothends-spool";
const MARK: &[u8] = b"a spool of bothends\n";
const DEVICE_NOTICE: &str = "hello.json";
const HOST_NOTICE: &str = "host.json";
const HOST_PULSE: &str = "host.pulse";
const RUN_PREFIX: &str = "run-";

/// First and longest pause between two looks for a file.
const NAPS: [Duration; 2] = [Duration::from_micros(100), Duration::from_millis(1)];

/// The reader of results: slots are its buffers, so its own are small.
const RESULT_READER: ReaderConfig = ReaderConfig {
    kind: ReaderKind::Auto,
    depth: 4,
    buffer_bytes: 4096,
    n_buffers: 4,
    max_record_bytes: 1 << 30,
};

/// A device reached through a shared directory. A result is read from its file straight into
/// the slot, past the page cache where the file system allows it.
pub type Spool = Remote<SpoolLink>;

/// The host's end of a spool directory.
#[derive(Debug)]
pub struct SpoolLink {
    dir: PathBuf,
    run: Option<Run>,
    /// The payload of the message that was received last.
    payload: Option<Extent>,
    /// Made when the first result comes.
    reader: Option<Box<dyn Reader>>,
}

/// A run that a device serves; what it made goes when it is dropped.
#[derive(Debug)]
struct Run {
    dir: PathBuf,
    root: PathBuf,
    id: String,
    device_id: String,
    inlet: Inlet,
    outlet: Outlet,
    pulse: Pulse,
    watch: Watch,
}

impl Spool {
    /// Names the directory; the device is looked for in `hello`, for up to `timeout`.
    ///
    /// # Errors
    /// [`CsdError::Unreachable`] when there is no such directory.
    pub fn connect(dir: &Path, timeout: Duration) -> Result<Self, CsdError> {
        let metadata =
            std::fs::metadata(dir).and_then(|metadata| match metadata.is_dir() {
                true => Ok(()),
                false => Err(io::ErrorKind::NotADirectory.into()),
            });
        metadata.map_err(|source| unreachable(dir, source))?;
        let dir = dir.to_owned();
        let link = SpoolLink { dir, run: None, payload: None, reader: None };
        Ok(Self::over(link, timeout))
    }
}

impl Link for SpoolLink {
    fn greet(&mut self, deadline: Instant) -> Result<(), CsdError> {
        let device = find_device(&self.dir, deadline)?;
        let run = claim(&self.dir, device)?;
        self.run = Some(run);
        Ok(())
    }

    fn send(&mut self, message: &[u8], _deadline: Instant) -> Result<(), CsdError> {
        let run = self.run.as_mut().ok_or_else(|| gone("send before a greeting"))?;
        run.outlet
            .put(message, None)
            .map_err(CsdError::at("write a message into", run.dir.display()))
    }

    fn receive(&mut self, deadline: Instant) -> Result<Option<Message>, CsdError> {
        let run = self.run.as_mut().ok_or_else(|| gone("receive before a greeting"))?;
        let [mut nap, longest_nap] = NAPS;
        loop {
            run.pulse.beat();
            if let Some((message, payload)) = run.inlet.take()? {
                self.payload = payload;
                return Ok(Some(message));
            }
            if run.watch.look() == Life::Gone {
                return Err(gone("wait for a message"));
            }
            let left = left_until(deadline);
            if left.is_zero() {
                return Ok(None);
            }
            std::thread::sleep(nap.min(left));
            nap = longest_nap.min(2 * nap);
        }
    }

    fn take_payload(
        &mut self,
        dst: &mut [u8],
        _deadline: Instant,
    ) -> Result<Result<u64, String>, CsdError> {
        let extent = self.payload.take();
        let Extent { path, offset } =
            extent.ok_or(CsdError::Malformed { what: "a result without a file" })?;
        let read = self.read(&path, offset, dst);
        remove(&path);
        Ok(read.map(|()| XxHash3_64::oneshot(dst)).map_err(|error| error.to_string()))
    }

    fn drop_payload(&mut self, _len: u64, _deadline: Instant) -> Result<(), CsdError> {
        if let Some(Extent { path, .. }) = self.payload.take() {
            remove(&path);
        }
        Ok(())
    }
}

impl SpoolLink {
    fn read(&mut self, path: &Path, offset: u64, dst: &mut [u8]) -> Result<(), IoError> {
        let reader = match &mut self.reader {
            Some(reader) => reader,
            none => none.insert(open_reader(&RESULT_READER)?),
        };
        let file = Arc::new(OpenFile::open(path, Direct::Auto)?);
        reader.read_into(&file, offset, dst)
    }
}

/// A result's file that has been read, or is of no use; the whole run's directory goes at the
/// end.
fn remove(path: &Path) {
    drop(std::fs::remove_file(path));
}

impl Drop for Run {
    fn drop(&mut self) {
        remove_run(&self.dir);
        Notice::remove_if(&self.root.join(HOST_NOTICE), &self.id);
        if self.watch.look() == Life::Gone {
            Notice::remove_if(&self.root.join(DEVICE_NOTICE), &self.device_id);
            drop(std::fs::remove_file(device_pulse(&self.root, &self.device_id)));
        }
    }
}

/// Waits for the notice of a living device that speaks this version.
fn find_device(dir: &Path, deadline: Instant) -> Result<(Notice, Watch), CsdError> {
    let mut watched: Option<(Notice, Watch)> = None;
    let mut names = Names::default();
    loop {
        if let Some(notice) = Notice::read(&dir.join(DEVICE_NOTICE)) {
            let theirs = notice.protocol_version;
            if theirs != PROTOCOL_VERSION {
                return Err(CsdError::Version { ours: PROTOCOL_VERSION, theirs });
            }
            let (found, mut watch) = match watched.take() {
                Some((known, watch)) if known == notice => (known, watch),
                Some(_) | None => {
                    let pulse = device_pulse(dir, &notice.id);
                    (notice, Watch::over(&pulse))
                }
            };
            if watch.look() == Life::Alive {
                return Ok((found, watch));
            }
            watched = Some((found, watch));
        }
        if Instant::now() >= deadline {
            let what = "no living device serves the directory, or it cannot write there";
            return Err(unreachable(dir, io::Error::new(io::ErrorKind::TimedOut, what)));
        }
        names.refresh(dir);
        names.refresh(dir);
        std::thread::sleep(NAPS[1]);
    }
}

/// Makes this host the one that is served: notice first, which only one can place, then the
/// run's own directory and pulse, then away with what earlier runs left.
fn claim(root: &Path, (device, watch): (Notice, Watch)) -> Result<Run, CsdError> {
    let failed = CsdError::at("start a run in", root.display());
    if !has_marker(root) {
        let place = root.display().to_string();
        return Err(CsdError::Foreign { place, remedy: "name one that a device serves" });
    }
    let notice = Notice::new(Some(device.id.clone())).map_err(&failed)?;
    let notice_path = root.join(HOST_NOTICE);
    while let Err(error) = notice.place(&notice_path) {
        if error.kind() != io::ErrorKind::AlreadyExists {
            return Err(failed(error));
        }
        remove_abandoned(root, &notice_path)?;
    }
    let (dir, pulse) = settle(root, &notice)?;
    Ok(Run {
        inlet: Inlet::new(dir.clone(), "d"),
        outlet: Outlet::new(dir.clone(), "h"),
        root: root.to_owned(),
        id: notice.id,
        device_id: device.id,
        dir,
        pulse,
        watch,
    })
}

/// Makes the directory of a run whose notice is placed, and removes what earlier runs left. A host that was stopped for
/// so long that it was taken for dead has lost its place, and what is there is another's.
fn settle(root: &Path, notice: &Notice) -> Result<(PathBuf, Pulse), CsdError> {
    let failed = CsdError::at("start a run in", root.display());
    let dir = run_dir(root, &notice.id);
    std::fs::create_dir(&dir).map_err(&failed)?;
    let pulse = Pulse::start(dir.join(HOST_PULSE)).map_err(&failed)?;
    let placed = Notice::read(&root.join(HOST_NOTICE));
    if placed.is_none_or(|placed| placed.id != notice.id) {
        remove_run(&dir);
        return Err(in_use(root));
    }
    sweep(root, &dir);
    Ok((dir, pulse))
}

fn in_use(root: &Path) -> CsdError {
    let what = "another run uses this directory";
    unreachable(root, io::Error::new(io::ErrorKind::AddrInUse, what))
}

/// Removes the notice of a host that is dead; fails for one that lives, and for a file that is no
/// notice.
fn remove_abandoned(root: &Path, notice_path: &Path) -> Result<(), CsdError> {
    let Some(other) = Notice::find(notice_path)? else { return Ok(()) };
    if Watch::over(&run_dir(root, &other.id).join(HOST_PULSE)).judge() == Life::Alive {
        return Err(in_use(root));
    }
    let failed = CsdError::at("start a run in", root.display());
    Notice::remove(notice_path, &other.id).map_err(failed)
}

/// Removes the directories of earlier runs. The one listing, once per run.
fn sweep(root: &Path, ours: &Path) {
    let entries = std::fs::read_dir(root).into_iter().flatten().flatten();
    for entry in entries {
        if entry.path() != ours {
            remove_run(&entry.path());
        }
    }
    sweep_drafts(root, HOST_NOTICE);
}

/// Removes drafts of a notice whose place is taken: their writers died, or are about to be told.
fn sweep_drafts(root: &Path, notice: &str) {
    for entry in std::fs::read_dir(root).into_iter().flatten().flatten() {
        if entry.file_name().to_str().is_some_and(|name| Notice::is_draft(name, notice)) {
            remove(&entry.path());
        }
    }
}

/// Makes `dir` a spool: it gets the mark, unless it has it. A directory in which there is something
/// else is none and stays as it is.
///
/// # Errors
/// [`CsdError::Foreign`] names what is there; [`CsdError::Place`] when the directory cannot be read or
/// written.
pub fn prepare_directory(dir: &Path) -> Result<(), CsdError> {
    if has_marker(dir) {
        return Ok(());
    }
    let failed = CsdError::at("serve", dir.display());
    for entry in std::fs::read_dir(dir).map_err(&failed)? {
        let name = entry.map_err(&failed)?.file_name();
        if !name.to_str().is_some_and(is_of_a_spool) {
            let place = dir.join(&name).display().to_string();
            let remedy = "name an empty directory for the spool";
            return Err(CsdError::Foreign { place, remedy });
        }
    }
    let marker = dir.join(MARKER);
    let marked = File::create_new(&marker).and_then(|mut it| it.write_all(MARK));
    match marked {
        // Another device does the same; or it is something else.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let place = marker.display().to_string();
            let remedy = "move it away, or name another directory";
            has_marker(dir).then_some(()).ok_or(CsdError::Foreign { place, remedy })
        }
        marked => marked.map_err(failed),
    }
}

fn has_marker(dir: &Path) -> bool {
    let path = dir.join(MARKER);
    let is_file = std::fs::symlink_metadata(&path).is_ok_and(|found| found.is_file());
    is_file && read_regular(&path).is_ok_and(|mark| MARK.starts_with(&mark))
}

/// Whether a spool has entries of this name.
fn is_of_a_spool(name: &str) -> bool {
    let pulse =
        |name: &str| Some(name.strip_prefix("device-")?.split_once('.')?.0.to_owned());
    matches!(name, MARKER | DEVICE_NOTICE | HOST_NOTICE)
        || [DEVICE_NOTICE, HOST_NOTICE]
            .iter()
            .any(|notice| Notice::is_draft(name, notice))
        || name.strip_prefix(RUN_PREFIX).is_some_and(is_id)
        || pulse(name).is_some_and(|id| is_id(&id))
}

/// Removes a directory that was made for a spool, once nobody serves it: what runs have left in
/// it first. What others have put there stays, and then so does the directory.
///
/// # Errors
/// [`CsdError::Foreign`] names what stays; [`CsdError::Place`] when the directory cannot be read
/// or removed.
pub fn remove_directory(dir: &Path) -> Result<(), CsdError> {
    let failed = CsdError::at("remove the directory", dir.display());
    let names = || -> io::Result<Vec<_>> {
        std::fs::read_dir(dir)?.map(|entry| Ok(entry?.file_name())).collect()
    };
    if Notice::read(&dir.join(DEVICE_NOTICE)).is_none() {
        if let Some(host) = Notice::read(&dir.join(HOST_NOTICE)) {
            Notice::remove_if(&dir.join(HOST_NOTICE), &host.id);
        }
        for name in names().map_err(&failed)? {
            remove_run(&dir.join(name));
        }
        sweep_drafts(dir, HOST_NOTICE);
    }
    if has_marker(dir) {
        remove(&dir.join(MARKER));
    }
    let Err(error) = std::fs::remove_dir(dir) else { return Ok(()) };
    match names() {
        Ok(left) if !left.is_empty() => {
            let place = dir.join(&left[0]).display().to_string();
            let remedy = "remove the directory yourself when it may go";
            Err(CsdError::Foreign { place, remedy })
        }
        Ok(_) | Err(_) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Ok(_) | Err(_) => Err(failed(error)),
    }
}

/// Removes what a run has made, and its directory when nothing else is in it: whoever made it
/// may have been killed at any point, so no file's absence says anything. A directory of such
/// a name with other files in it keeps them, and a link is no run.
fn remove_run(dir: &Path) {
    let name = dir.file_name().and_then(|name| name.to_str());
    let has_id = name.and_then(|name| name.strip_prefix(RUN_PREFIX)).is_some_and(is_id);
    if !has_id || !std::fs::symlink_metadata(dir).is_ok_and(|found| found.is_dir()) {
        return;
    }
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_name().to_str().is_some_and(is_of_a_run) {
            remove(&entry.path());
        }
    }
    // What belongs to others stays theirs.
    drop(std::fs::remove_dir(dir));
}

/// Whether a run makes files of this name: its pulse, its messages, and their drafts.
fn is_of_a_run(name: &str) -> bool {
    let is_number =
        |text: &str| text.len() >= 10 && text.bytes().all(|b| b.is_ascii_digit());
    name == HOST_PULSE
        || matches!(name, "host.new" | "h.new" | "d.new")
        || name.strip_prefix("h-").or(name.strip_prefix("d-")).is_some_and(is_number)
}

fn device_pulse(root: &Path, id: &str) -> PathBuf {
    root.join(format!("device-{id}.pulse"))
}

fn run_dir(root: &Path, id: &str) -> PathBuf {
    root.join(format!("{RUN_PREFIX}{id}"))
}

fn unreachable(dir: &Path, source: io::Error) -> CsdError {
    CsdError::Unreachable { address: format!("spool://{}", dir.display()), source }
}

/// The other side gives no sign of life any more.
fn gone(doing: &'static str) -> CsdError {
    let what = "the other side of the spool directory is gone";
    CsdError::LinkLost { doing, source: io::Error::other(what) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stopped between its notice and its first sign of life, it was taken for dead.
    #[test]
    fn a_host_that_has_lost_its_place_leaves_the_run_of_another_alone() {
        let root = tempfile::tempdir().unwrap();
        let [ours, theirs] = [(), ()].map(|()| Notice::new(None).unwrap());
        theirs.place(&root.path().join(HOST_NOTICE)).unwrap();
        let (their_dir, pulse) = settle(root.path(), &theirs).unwrap();
        let error = settle(root.path(), &ours).unwrap_err();
        assert!(matches!(error, CsdError::Unreachable { .. }), "{error}");
        assert!(their_dir.join(HOST_PULSE).exists());
        assert!(!run_dir(root.path(), &ours.id).exists());
        drop(pulse);
    }
}
