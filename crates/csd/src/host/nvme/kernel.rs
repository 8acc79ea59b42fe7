//! A drive of this machine, through Linux' own NVMe driver: on PCIe, or remote and connected with `nvme connect`.
//!
//! `nodes.rs` finds the drive's nodes, `bothends_io` hands commands to them by io_uring. Linux keeps the
//! controller: it goes on when this process ends, and so do the sets of memory ranges that were made on it.
//! Processes of this machine therefore take turns, by a lock on the controller's node, and what one that was
//! killed has left is the next one's to clear away (`Carrier::outlives`).

use std::collections::{HashMap, VecDeque};
use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bothends_io::{
    DriveCommand, DriveData, DriveDone, DriveQueue, DriveRing, namespace_of,
};
use bothends_nvme::host::{Content, Heard};
use bothends_nvme::{Cqe, Sqe, Status};
use nix::errno::Errno;

use super::carrier::{Carrier, late};
use super::nodes::{self, Nodes};
use crate::CsdError;
use crate::words::address::NvmeDrive;

/// Commands under way. One of them is kept for the admin queue.
const DEPTH: u16 = 64;
/// Linux ends a command so long after this host has given it up. It resets the controller then, so it is not to
/// be the first.
const MARGIN: Duration = Duration::from_secs(2);
/// How long a drive that another process uses is left alone.
const RETRY: Duration = Duration::from_secs(2);

/// A drive behind Linux' driver.
#[derive(Debug)]
pub(super) struct Kernel {
    ring: DriveRing,
    /// As given, for messages.
    node: PathBuf,
    controller: Arc<File>,
    /// The nodes of namespaces, by their identifiers.
    namespaces: HashMap<u32, Arc<File>>,
    most_bytes: u32,
    /// I/O commands that ended while an admin command was waited for, with their data.
    early: VecDeque<(Cqe, Vec<u8>)>,
}

impl Kernel {
    /// The drive to which a node belongs.
    pub(super) fn open(drive: &NvmeDrive) -> Result<Self, CsdError> {
        let node = &drive.node;
        let sysfs = Path::new(nodes::SYSFS);
        let (own, folder) = nodes::places(sysfs, node)?;
        let gone = |source| nodes::unusable(node, source);
        let Nodes { controller, namespaces, most_bytes } =
            nodes::around(sysfs, &own, &folder).map_err(gone)?;
        let ring = DriveRing::new(DEPTH).map_err(without_rings)?;
        let controller = open(&controller)?;
        match controller.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let reason = "another process of this machine uses it".to_owned();
                return Err(CsdError::Busy { reason, retry: RETRY });
            }
            Err(TryLockError::Error(source)) => return Err(gone(source)),
        }
        let mut by_id = HashMap::new();
        for path in namespaces {
            let file = open(&path)?;
            let id =
                namespace_of(&file).map_err(|source| nodes::unusable(&path, source))?;
            by_id.insert(id, Arc::new(file));
        }
        Ok(Self {
            ring,
            node: node.clone(),
            controller: Arc::new(controller),
            namespaces: by_id,
            most_bytes,
            early: VecDeque::new(),
        })
    }

    fn submit(
        &mut self,
        to: (&Arc<File>, DriveQueue),
        (entry, content): (Sqe, &Content),
        limit: Duration,
    ) -> Result<Option<u16>, CsdError> {
        let data = match content {
            Content::None => DriveData::None,
            Content::ToController(bytes) => DriveData::ToDrive(bytes),
            Content::ToHost(bytes) => DriveData::ToHost(*bytes),
        };
        let command = command(&entry, limit + MARGIN);
        self.ring.submit(to, &command, data).map_err(CsdError::lost("send a command"))
    }
}

impl Carrier for Kernel {
    fn send(
        &mut self,
        entry: Sqe,
        content: &Content,
        limit: Duration,
    ) -> Result<Option<u16>, CsdError> {
        // An identifier is free for another command once its completion has been passed on.
        if self.ring.n_free() <= 1 || !self.early.is_empty() {
            return Ok(None);
        }
        let id = entry.namespace();
        let Some(node) = self.namespaces.get(&id).map(Arc::clone) else {
            // It comes a moment after the controller.
            let what = format!("Linux has no node /dev/ng… for its namespace {id} yet");
            let source = io::Error::new(io::ErrorKind::NotFound, what);
            return Err(CsdError::LinkLost { doing: "send a command", source });
        };
        self.submit((&node, DriveQueue::Io), (entry, content), limit)
    }

    fn ask(
        &mut self,
        entry: Sqe,
        content: Content,
        (doing, deadline): (&'static str, Instant),
    ) -> Result<(Cqe, Vec<u8>), CsdError> {
        let began = Instant::now();
        let limit = deadline.saturating_duration_since(began);
        let controller = Arc::clone(&self.controller);
        let id =
            self.submit((&controller, DriveQueue::Admin), (entry, &content), limit)?;
        let id = id.ok_or_else(|| late(doing, limit))?;
        loop {
            let (mut done, early) = (None, &mut self.early);
            reap(&mut self.ring, (&self.node, doing), &mut |cqe, data| {
                let ended = (cqe, data.to_vec());
                if cqe.id == id { done = Some(ended) } else { early.push_back(ended) }
            })?;
            if let Some(done) = done {
                return Ok(done);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(late(doing, began.elapsed()));
            }
            self.ring.wait(left).map_err(CsdError::lost(doing))?;
        }
    }

    fn pump(
        &mut self,
        deadline: Instant,
        heard: &mut dyn FnMut(Heard<'_>),
    ) -> Result<(), CsdError> {
        let doing = "wait for a command";
        let mut n_heard = 0;
        for (cqe, data) in self.early.drain(..) {
            n_heard += 1;
            pass(heard, cqe, &data);
        }
        reap(&mut self.ring, (&self.node, doing), &mut |cqe, data| {
            n_heard += 1;
            pass(heard, cqe, data);
        })?;
        let left = deadline.saturating_duration_since(Instant::now());
        if n_heard > 0 || left.is_zero() {
            return Ok(());
        }
        self.ring.wait(left).map_err(CsdError::lost(doing))?;
        let pass = &mut |cqe: Cqe, data: &[u8]| pass(heard, cqe, data);
        reap(&mut self.ring, (&self.node, doing), pass)
    }

    fn set_in_capsule(&mut self, _: u32) {
        // Linux decides.
    }

    fn most_bytes(&self) -> u32 {
        self.most_bytes
    }

    fn outlives(&self) -> bool {
        true
    }
}

/// Says that a command has ended, after its data.
fn pass(heard: &mut dyn FnMut(Heard<'_>), cqe: Cqe, data: &[u8]) {
    if cqe.status.is_success() && !data.is_empty() {
        heard(Heard::Data { id: cqe.id, from: 0, bytes: data });
    }
    heard(Heard::Completion(cqe));
}

/// Passes on the commands that have ended. One that the drive has not answered ends the way.
fn reap(
    ring: &mut DriveRing,
    (node, doing): (&Path, &'static str),
    heard: &mut dyn FnMut(Cqe, &[u8]),
) -> Result<(), CsdError> {
    let mut failed = None;
    ring.reap(&mut |done| match completion(&done, (node, doing)) {
        Ok(cqe) => heard(cqe, done.data),
        Err(error) => {
            failed.get_or_insert(error);
        }
    });
    failed.map_or(Ok(()), Err)
}

/// What the drive says about a command.
fn completion(
    done: &DriveDone<'_>,
    (node, doing): (&Path, &'static str),
) -> Result<Cqe, CsdError> {
    let field =
        done.status.as_ref().map_err(|source| unanswered(source, (node, doing)))?;
    // In a completion the phase bit is below it.
    let status = Status::of_field(field << 1);
    if status.kind == Status::HOST_PATH.kind {
        let source = io::Error::other(format!("Linux says: {status}"));
        return Err(CsdError::LinkLost { doing, source });
    }
    Ok(Cqe { result: done.result, sq_head: 0, sq_id: 0, id: done.id, status })
}

/// Why Linux has no answer.
fn unanswered(source: &io::Error, (node, doing): (&Path, &'static str)) -> CsdError {
    let errno = Errno::from_raw(source.raw_os_error().unwrap_or(0));
    if [Errno::EACCES, Errno::EPERM].contains(&errno) {
        return nodes::unusable(node, errno.into());
    }
    if [Errno::EOPNOTSUPP, Errno::ENOTTY, Errno::ENOSYS].contains(&errno) {
        return too_old();
    }
    let source = if errno == Errno::EINTR {
        let what = "Linux ended the command: the drive is gone, or took too long";
        io::Error::new(io::ErrorKind::TimedOut, what)
    } else {
        errno.into()
    };
    CsdError::LinkLost { doing, source }
}

fn command(entry: &Sqe, timeout: Duration) -> DriveCommand {
    DriveCommand {
        opcode: entry.opcode(),
        namespace: entry.namespace(),
        dwords_2: [entry.dword(2), entry.dword(3)],
        dwords_10: [10, 11, 12, 13, 14, 15].map(|n| entry.dword(n)),
        timeout,
    }
}

fn open(node: &Path) -> Result<File, CsdError> {
    let opened = File::options().read(true).write(true).open(node);
    opened.map_err(|source| nodes::unusable(node, source))
}

/// Why there is no ring for commands.
fn without_rings(source: io::Error) -> CsdError {
    let errno = Errno::from_raw(source.raw_os_error().unwrap_or(0));
    if [Errno::EPERM, Errno::EACCES].contains(&errno) {
        return CsdError::Unfit {
            what:
                "io_uring, which carries commands to Linux' NVMe driver, is forbidden here"
                    .to_owned(),
            remedy: "allow it: sysctl kernel.io_uring_disabled=0, and the system calls of io_uring in a container",
        };
    }
    // No such entries, or no such system calls.
    let is_old = [Errno::EINVAL, Errno::ENOSYS].contains(&errno);
    if is_old || source.kind() == io::ErrorKind::Unsupported {
        return too_old();
    }
    CsdError::LinkLost { doing: "set up a ring for commands", source }
}

fn too_old() -> CsdError {
    CsdError::Unfit {
        what: "this kernel does not accept NVMe commands through io_uring".to_owned(),
        remedy: "use Linux 6.0 or newer, or reach a remote drive without it, by nvme-tcp://HOST:PORT",
    }
}

#[cfg(test)]
mod tests {
    use bothends_core::one_line;
    use bothends_nvme::Data;
    use bothends_nvme::commands::{Execute, Memory};

    use super::*;
    use crate::words::address::{BlockUse, MediaAt};

    fn done(status: io::Result<u16>) -> DriveDone<'static> {
        DriveDone { id: 5, status, result: 1 << 40, data: &[] }
    }

    fn said(status: io::Result<u16>) -> Result<Cqe, String> {
        let at = (Path::new("/dev/ng0n1"), "wait for a command");
        completion(&done(status), at).map_err(|error| one_line(&error))
    }

    #[test]
    fn an_answer_has_the_drives_status_and_all_of_its_result() {
        let cqe = said(Ok(0)).unwrap();
        assert_eq!((cqe.id, cqe.result, cqe.status), (5, 1 << 40, Status::SUCCESS));
        // With Do Not Retry, and with More.
        assert_eq!(said(Ok(0x4196)).unwrap().status, Status::NO_PROGRAM);
        assert_eq!(said(Ok(0x2002)).unwrap().status, Status::INVALID_FIELD);
    }

    #[test]
    fn a_drive_that_is_gone_loses_the_link() {
        let errno = |errno: Errno| Err(errno.into());
        for (status, expected) in [
            (errno(Errno::EINTR), "the drive is gone, or took too long"),
            (errno(Errno::ENODEV), "No such device"),
            (Ok(0x370), "Host Pathing Error"),
        ] {
            let said = said(status).unwrap_err();
            assert!(
                said.starts_with("lost the device") && said.contains(expected),
                "{said}"
            );
        }
        for (status, expected) in [
            (errno(Errno::EACCES), "this user may not use `/dev/ng0n1`; run as root"),
            (errno(Errno::EOPNOTSUPP), "use Linux 6.0 or newer"),
        ] {
            let said = said(status).unwrap_err();
            assert!(said.contains(expected), "{said}");
        }
        for (source, expected) in [
            (io::Error::from(Errno::EPERM), "is forbidden here; allow it"),
            (Errno::ENOSYS.into(), "Linux 6.0"),
            (Errno::EINVAL.into(), "Linux 6.0"),
            (io::ErrorKind::Unsupported.into(), "Linux 6.0"),
        ] {
            let said = one_line(&without_rings(source));
            assert!(said.contains(expected), "{said}");
        }
    }

    #[test]
    fn a_command_takes_what_linux_does_not_fill_in() {
        let execute = Execute {
            program: 1,
            range_set: 2,
            n_ranges: 0,
            data_bytes: 0,
            parameter_1: 0x1111_2222_3333_4444,
            parameter_2: 0x5555_6666_7777_8888,
        };
        let own = command(&execute.entry(3, Data::NONE), Duration::from_secs(62));
        let expected = DriveCommand {
            opcode: 0x01,
            namespace: 3,
            dwords_2: [0x0002_0001, 0],
            dwords_10: [0x3333_4444, 0x1111_2222, 0x7777_8888, 0x5555_6666, 0, 0],
            timeout: Duration::from_secs(62),
        };
        assert_eq!(own, expected);
        let read = Memory::Read { from: 1 << 33, bytes: 4096 };
        let own = command(&read.entry(2, Data::NONE), Duration::ZERO);
        assert_eq!((own.opcode, own.dwords_10), (0x02, [0, 2, 4096, 0, 0, 0]));
    }

    #[test]
    fn a_device_that_is_none_is_refused_in_one_line() {
        for (node, expected) in [
            ("/dev/ng999n1", "there is no `/dev/ng999n1`; connect the drive"),
            (
                "/dev/null",
                "`/dev/null` is not a device of Linux' NVMe driver; name one of",
            ),
        ] {
            let blocks = BlockUse { media: MediaAt::DataRoot, scratch: None };
            let drive = NvmeDrive { node: node.into(), blocks };
            let said = one_line(&Kernel::open(&drive).unwrap_err());
            assert!(said.contains(expected) && !said.contains('\n'), "{said}");
        }
    }
}
