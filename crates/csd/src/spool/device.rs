//! The device's side of a spool directory.
//!
//! It waits for one host, serves it through the common loop, and removes what it made. A result that
//! cannot be written (a full file system) becomes a failed job that says so.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::lane::{Inlet, Outlet};
use super::names::Names;
use super::notice::Notice;
use super::pulse::{Life, Pulse, Watch};
use super::{
    DEVICE_NOTICE, HOST_NOTICE, HOST_PULSE, device_pulse, gone, prepare_directory,
    remove_run, run_dir, sweep_drafts,
};
use crate::device::serving::{DeviceLink, Ended, MAX_UNSENT, Payload, serve_link};
use crate::words::job::{Answer, Busy, Ending};
use crate::words::wire::Message;
use crate::{CsdError, Serve};

/// How long one look for a message or a host takes.
const NAP: Duration = Duration::from_millis(1);
/// How long to wait before a message that could not be written is tried again.
const RETRY: Duration = Duration::from_millis(50);
/// How long a host may take to read that there is no room for it.
const TURN_AWAY: Duration = Duration::from_secs(2);

/// Waits for a host in `dir` and serves it until it is gone or `stop` is set; then removes
/// what it made and has called `serve.close()`. Blocks for that long, in the caller's
/// thread.
///
/// # Errors
/// [`CsdError::Place`] when the directory is missing, not writable or served by another
/// device; [`CsdError::Foreign`] when it is no spool and holds something else, or a file of others has
/// the name of its notice; [`CsdError::Version`] and [`CsdError::Malformed`] as for a connection.
pub fn serve_directory(
    dir: &Path,
    serve: &mut dyn Serve,
    stop: &AtomicBool,
) -> Result<Ended, CsdError> {
    match await_host(dir, stop)? {
        Some(visitor) => visitor.serve(serve, stop),
        None => {
            serve.close();
            Ok(Ended::Stopped)
        }
    }
}

/// A host that has found this device in its directory, and waits for it.
#[derive(Debug)]
pub struct Visitor {
    post: Post,
    run: String,
    watch: Watch,
}

/// Waits for a host in `dir`; `None` once `stop` is set. Blocks for that long, in the caller's thread. Nobody need have
/// room for a host before there is one.
///
/// # Errors
/// Of a directory that cannot be served, as [`serve_directory`].
pub fn await_host(dir: &Path, stop: &AtomicBool) -> Result<Option<Visitor>, CsdError> {
    let mut post = Post::take(dir)?;
    let host = post.host(stop);
    Ok(host.map(|(run, watch)| Visitor { post, run, watch }))
}

impl Visitor {
    /// Serves the host, as [`serve_directory`] does.
    ///
    /// # Errors
    /// As [`serve_directory`].
    pub fn serve(
        mut self,
        serve: &mut dyn Serve,
        stop: &AtomicBool,
    ) -> Result<Ended, CsdError> {
        let run_dir = run_dir(&self.post.dir, &self.run);
        let mut link = SpoolDevice {
            inlet: Inlet::new(run_dir.clone(), "h"),
            outlet: Outlet::new(run_dir.clone(), "d"),
            watch: self.watch,
            pulse: &mut self.post.pulse,
            unsent: VecDeque::new(),
            last_try: Instant::now(),
        };
        let ended = serve_link(&mut link, serve, stop);
        if matches!(ended, Ok(Ended::HostGone)) {
            // The host may have removed them itself; what cannot be removed, the next host
            // tries to.
            remove_run(&run_dir);
            Notice::remove_if(&self.post.dir.join(HOST_NOTICE), &self.run);
        }
        ended
    }

    /// Tells the host that there is no room, and waits a little for it to leave.
    pub fn turn_away(mut self, busy: Busy) {
        let run_dir = run_dir(&self.post.dir, &self.run);
        let until = Instant::now() + TURN_AWAY;
        let mut outlet = Outlet::new(run_dir, "d");
        let message = Message::Busy(busy).encode();
        // The host makes the directory of its run after its notice.
        let mut is_told = false;
        while Instant::now() < until && self.watch.look() != Life::Gone {
            self.post.pulse.beat();
            is_told = is_told || outlet.put(&message, None).is_ok();
            std::thread::sleep(NAP);
        }
    }
}

/// This device's place in the directory: its notice and its pulse, gone when dropped.
#[derive(Debug)]
struct Post {
    dir: PathBuf,
    notice: Notice,
    pulse: Pulse,
}

impl Post {
    fn take(dir: &Path) -> Result<Self, CsdError> {
        prepare_directory(dir)?;
        let failed = CsdError::at("serve", dir.display());
        let notice_path = dir.join(DEVICE_NOTICE);
        let notice = Notice::new(None).map_err(&failed)?;
        let pulse = Pulse::start(device_pulse(dir, &notice.id)).map_err(&failed)?;
        while let Err(error) = notice.place(&notice_path) {
            if error.kind() != std::io::ErrorKind::AlreadyExists {
                return Err(failed(error));
            }
            let Some(other) = Notice::find(&notice_path)? else { continue };
            let pulse_path = device_pulse(dir, &other.id);
            if Watch::over(&pulse_path).judge() == Life::Alive {
                let in_use = std::io::ErrorKind::AddrInUse;
                let what = "another device serves this directory";
                return Err(failed(std::io::Error::new(in_use, what)));
            }
            // A host that still watches it sees that its device is gone.
            drop(std::fs::remove_file(pulse_path));
            Notice::remove(&notice_path, &other.id).map_err(&failed)?;
        }
        sweep_drafts(dir, DEVICE_NOTICE);
        Ok(Self { dir: dir.to_owned(), notice, pulse })
    }

    /// Waits for a host that has found this device: its run, and the watch over it. It may
    /// have died since, which is then the first thing to be noticed.
    fn host(&mut self, stop: &AtomicBool) -> Option<(String, Watch)> {
        let notice_path = self.dir.join(HOST_NOTICE);
        let mut names = Names::default();
        while !stop.load(Ordering::Relaxed) {
            self.pulse.beat();
            if let Some(Notice { id, device, .. }) = Notice::read(&notice_path)
                && device.as_ref() == Some(&self.notice.id)
            {
                let watch = Watch::over(&run_dir(&self.dir, &id).join(HOST_PULSE));
                return Some((id, watch));
            }
            names.refresh(&self.dir);
            std::thread::sleep(NAP);
        }
        None
    }
}

impl Drop for Post {
    fn drop(&mut self) {
        Notice::remove_if(&self.dir.join(DEVICE_NOTICE), &self.notice.id);
    }
}

/// The device's end of a run.
struct SpoolDevice<'a> {
    inlet: Inlet,
    outlet: Outlet,
    watch: Watch,
    pulse: &'a mut Pulse,
    /// Messages that could not be written yet.
    unsent: VecDeque<Vec<u8>>,
    last_try: Instant,
}

impl DeviceLink for SpoolDevice<'_> {
    fn receive(&mut self) -> Result<Option<Message>, CsdError> {
        self.pulse.beat();
        if let Some((message, _)) = self.inlet.take()? {
            return Ok(Some(message));
        }
        match self.watch.look() {
            Life::Gone => Err(gone("wait for the host")),
            Life::Alive | Life::Unsure => Ok(None),
        }
    }

    fn send(
        &mut self,
        message: &Message,
        payload: Option<Payload>,
    ) -> Result<(), CsdError> {
        let mut bytes = message.encode();
        if let Some(payload) = payload {
            match self.outlet.put(&bytes, Some(payload.bytes())) {
                Ok(()) => return Ok(()),
                Err(error) => bytes = unwritten(message, &error).encode(),
            }
        }
        self.unsent.push_back(bytes);
        self.flush();
        Ok(())
    }

    fn is_sending(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Results are files as soon as they are made.
    fn n_unsent(&self) -> usize {
        0
    }

    fn is_crowded(&self) -> bool {
        self.unsent.len() > MAX_UNSENT
    }

    fn wait(&mut self, timeout: Duration) -> Result<(), CsdError> {
        if self.is_sending() && self.last_try.elapsed() >= RETRY {
            self.flush();
        }
        std::thread::sleep(timeout.min(NAP));
        Ok(())
    }
}

impl SpoolDevice<'_> {
    fn flush(&mut self) {
        self.last_try = Instant::now();
        while let Some(message) = self.unsent.front() {
            if self.outlet.put(message, None).is_err() {
                break;
            }
            self.unsent.pop_front();
        }
    }
}

/// What is said of a job whose result could not be written.
fn unwritten(message: &Message, error: &std::io::Error) -> Message {
    let Message::Completed(session, done) = message else { return message.clone() };
    let reason = format!("cannot write the result into the spool directory: {error}");
    let answer = Answer { ending: Ending::Failed { reason }, ..done.clone() };
    Message::Completed(*session, answer)
}
