//! What is sent on a connection: by its own thread, which may wait for the host, and by those that programs run on,
//! which may not.

use std::io::ErrorKind;
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use bothends_nvme::Status;
use bothends_nvme::layout::pdu;
use nix::sys::sendfile::sendfile;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::socket::{MsgFlags, send};

use crate::nvme::blocks::Extent;
use crate::nvme::room::{FileSpill, Spill};
use crate::nvme::subsystem::Subsystem;

/// How long a host may leave what it is sent in its socket.
const TO_SEND: Duration = Duration::from_secs(30);
/// Once a connection's own thread has sent so many bytes, completions that have become due meanwhile go before the next
/// PDU.
const TURN_BYTES: usize = 128 << 10;
/// More of the same follows at once, so that the system does not send a packet for this alone.
const MORE: MsgFlags = MsgFlags::from_bits_retain(nix::libc::MSG_MORE);
/// No PDU with data is as small, and each without is.
const SMALL_BYTES: usize = 64;

/// One end of a connection.
#[derive(Debug)]
pub(super) struct Writer {
    stream: Arc<TcpStream>,
    /// Its model is told when completions with a modelled time are sent.
    subsystem: Arc<Subsystem>,
    /// Completions that wait to be sent. Whoever has had the turn looks into it again.
    outbox: Mutex<Outbox>,
    turn: Mutex<()>,
    ended: AtomicBool,
}

/// Completions that wait to be sent.
#[derive(Debug, Default)]
struct Outbox {
    bytes: Vec<u8>,
    /// When those with a modelled time were to be sent.
    due: Vec<Instant>,
}

/// Whether something is left to be sent, which nobody else is about to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rest {
    None,
    Some,
}

/// Whether bytes that were sent are those of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FileRead {
    Whole,
    Failed,
}

impl Writer {
    pub(super) fn new(stream: Arc<TcpStream>, subsystem: Arc<Subsystem>) -> Self {
        Self {
            stream,
            subsystem,
            outbox: Mutex::default(),
            turn: Mutex::default(),
            ended: false.into(),
        }
    }

    /// The connection has ended: nobody waits for its programs.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// Ends a connection on which part of a PDU may have been sent: its host would take whatever comes next for the rest.
    fn cut_off(&self) -> Status {
        self.end();
        Status::DATA_TRANSFER_ERROR
    }

    /// Whether the connection has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Sends all there is, and empties `out`, which has whole PDUs. Waits for the host, [`TO_SEND`] in all.
    ///
    /// # Errors
    /// The host does not read, or has gone.
    pub(super) fn flush(&self, out: &mut Vec<u8>) -> std::io::Result<()> {
        let by = Instant::now() + TO_SEND;
        let mut sent = 0;
        loop {
            {
                let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
                let earlier = std::mem::take(&mut *self.outbox());
                self.count(&earlier.due);
                self.write(&earlier.bytes, MsgFlags::empty(), by)?;
                let end = sent + turn_bytes(&out[sent..]);
                self.write(&out[sent..end], MsgFlags::empty(), by)?;
                sent = end;
            }
            if sent == out.len() && self.outbox().bytes.is_empty() {
                out.clear();
                return Ok(());
            }
        }
    }

    /// Puts a completion where the next [`Writer::post`] or [`Writer::flush`] finds it; `due` says when it was to be
    /// sent, if a model says.
    pub(super) fn put(&self, completion: &[u8], due: Option<Instant>) {
        let mut outbox = self.outbox();
        outbox.bytes.extend_from_slice(completion);
        outbox.due.extend(due);
    }

    /// Has completions sent. What the socket has no room for is sent by the connection's own thread, or by whoever posts
    /// next.
    pub(super) fn post(&self) -> Rest {
        loop {
            match self.try_post() {
                // Looked at without the turn: who has come meanwhile leaves it to this thread.
                Some(Rest::None) if !self.outbox().bytes.is_empty() => {}
                Some(rest) => return rest,
                // Who has the turn looks into the outbox again.
                None => return Rest::None,
            }
        }
    }

    /// Sends what is there now, unless another has the turn.
    fn try_post(&self) -> Option<Rest> {
        let _turn = match self.turn.try_lock() {
            Ok(turn) => turn,
            Err(TryLockError::Poisoned(turn)) => turn.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let mut own = std::mem::take(&mut *self.outbox());
        if own.bytes.is_empty() {
            return Some(Rest::None);
        }
        self.count(&std::mem::take(&mut own.due));
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        let n = send(self.stream.as_raw_fd(), &own.bytes, flags).unwrap_or(0);
        if n < own.bytes.len() {
            own.bytes.drain(..n);
            let mut outbox = self.outbox();
            own.bytes.extend_from_slice(&outbox.bytes);
            outbox.bytes = own.bytes;
            return Some(Rest::Some);
        }
        Some(Rest::None)
    }

    /// Completions are sent now that were due then.
    fn count(&self, due: &[Instant]) {
        let timing = self.subsystem.timing().filter(|_| !due.is_empty());
        if let Some(timing) = timing {
            timing.answered(due, Instant::now());
        }
    }

    fn outbox(&self) -> MutexGuard<'_, Outbox> {
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends `out`, which ends with the header of a PDU, and `extent` as its data, within one turn. By the connection's own
    /// thread, which must block SIGPIPE.
    fn send_file(&self, out: &[u8], extent: &Extent) -> std::io::Result<FileRead> {
        let by = Instant::now() + TO_SEND;
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let earlier = std::mem::take(&mut *self.outbox());
        self.count(&earlier.due);
        self.write(&earlier.bytes, MORE, by)?;
        self.write(out, MORE, by)?;
        let mut from = i64::try_from(extent.from).map_err(std::io::Error::other)?;
        let mut left = extent.bytes as usize;
        while left > 0 {
            let step = || sendfile(&self.stream, &extent.file, Some(&mut from), left);
            let Ok(n) = send_some(by, step) else { break };
            left -= n;
        }
        self.copy_rest(extent, left, by)
    }

    /// Sends what is `left` of an extent in the way of any data: the file system may not let files be sent. A header has told
    /// how much comes, so that whatever cannot be read is sent as zeros.
    fn copy_rest(
        &self,
        extent: &Extent,
        left: usize,
        by: Instant,
    ) -> std::io::Result<FileRead> {
        let mut rest = vec![0; left];
        let from = extent.from + u64::from(extent.bytes) - left as u64;
        let read = extent.file.read_exact_at(&mut rest, from);
        self.write(&rest, MsgFlags::empty(), by)?;
        Ok(if read.is_ok() { FileRead::Whole } else { FileRead::Failed })
    }

    fn write(
        &self,
        mut bytes: &[u8],
        flags: MsgFlags,
        by: Instant,
    ) -> std::io::Result<()> {
        let flags = flags | MsgFlags::MSG_NOSIGNAL;
        while !bytes.is_empty() {
            let n = send_some(by, || send(self.stream.as_raw_fd(), bytes, flags))?;
            bytes = &bytes[n..];
        }
        Ok(())
    }
}

/// Sends something by `step`, which may have nothing sent for a while.
fn send_some(
    by: Instant,
    mut step: impl FnMut() -> nix::Result<usize>,
) -> std::io::Result<usize> {
    loop {
        if Instant::now() > by {
            return Err(ErrorKind::TimedOut.into());
        }
        match step().map_err(std::io::Error::from) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(n) => return Ok(n),
            Err(e) if is_pause(&e) => {}
            Err(e) => return Err(e),
        }
    }
}

impl Spill for Writer {
    /// A turn's worth is much.
    fn spill(&self, out: &mut Vec<u8>) -> Result<(), Status> {
        if out.len() < TURN_BYTES {
            return Ok(());
        }
        self.flush(out).map_err(|_| self.cut_off())
    }

    fn files(&self) -> Option<&dyn FileSpill> {
        Some(self)
    }
}

impl FileSpill for Writer {
    fn spill_file(&self, out: &mut Vec<u8>, extent: &Extent) -> Result<(), Status> {
        let sent = self.send_file(out, extent);
        out.clear();
        match sent {
            Ok(FileRead::Whole) => Ok(()),
            Ok(FileRead::Failed) => Err(Status::READ_ERROR),
            Err(_) => Err(self.cut_off()),
        }
    }
}

/// Bytes of so many PDUs at the beginning of `out` that they have [`TURN_BYTES`], or of all, with the small ones behind
/// them: a completion goes with its data.
fn turn_bytes(out: &[u8]) -> usize {
    let mut end = 0;
    while let Some(head) = out.get(end..).and_then(|rest| rest.first_chunk()) {
        let n = pdu::PLEN.get(head) as usize;
        if end >= TURN_BYTES && n > SMALL_BYTES {
            break;
        }
        end = end.saturating_add(n.max(pdu::BYTES));
    }
    end.min(out.len())
}

/// A socket whose host has gone sends SIGPIPE to the thread that has a file sent there, and no flag prevents it. Programs
/// in other languages that have this device within them may not ignore the signal.
pub(super) fn block_sigpipe() {
    let mut own = SigSet::empty();
    own.add(Signal::SIGPIPE);
    let _ = own.thread_block();
}

/// Whether it may go on later.
pub(super) fn is_pause(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is the report")]

    use std::io::Read;
    use std::net::TcpListener;

    use bothends_nvme::pdu::{DataHead, Format, Last};

    use super::*;
    use crate::nvme::blocks::BlockMedia;
    use crate::nvme::subsystem::SubsystemConfig;

    /// Both ends of a connection; the media are of no use.
    fn connected() -> (Writer, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let stream = Arc::new(listener.accept().unwrap().0);
        let image = tempfile::NamedTempFile::new().unwrap();
        image.as_file().set_len(4096).unwrap();
        let subsystem = Subsystem::new(SubsystemConfig {
            name: String::new(),
            serial: String::new(),
            media: BlockMedia::open(image.path()).unwrap(),
            memory_bytes: 4096,
            programs: Vec::new(),
        });
        (Writer::new(stream, Arc::new(subsystem)), host)
    }

    #[test]
    fn a_file_that_turns_out_too_short_costs_its_command_alone() {
        let (writer, mut host) = connected();
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[7; 5000], 0).unwrap();
        let extent = Extent { file: Arc::new(file), from: 1000, bytes: 8192 };
        let mut out = b"header".to_vec();
        let sent = writer.spill_file(&mut out, &extent);
        assert_eq!((sent, out.len()), (Err(Status::READ_ERROR), 0));
        assert!(!writer.has_ended());
        data(10, &mut out);
        let next = out.clone();
        writer.flush(&mut out).unwrap();
        let mut arrived = vec![0; 6 + 8192 + next.len()];
        host.read_exact(&mut arrived).unwrap();
        assert!(arrived.starts_with(b"header") && arrived.ends_with(&next));
        assert!(arrived[6..4006].iter().all(|byte| *byte == 7));
    }

    #[test]
    fn a_host_that_has_gone_ends_its_connection() {
        let (writer, host) = connected();
        drop(host);
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 20).unwrap();
        let extent = Extent { file: Arc::new(file), from: 0, bytes: 1 << 20 };
        let deadline = Instant::now() + Duration::from_secs(20);
        // The system may take some of it before it learns that nobody is there.
        while writer.spill_file(&mut vec![1], &extent).is_ok() {
            assert!(Instant::now() < deadline, "a host that has gone is not noticed");
        }
        assert!(writer.has_ended());
    }

    fn data(bytes: u32, out: &mut Vec<u8>) {
        let head = DataHead { id: 1, tag: 0, from: 0, bytes, last: Last::Yes };
        Format::default().before_data_to_host(head, out);
        out.resize(out.len() + bytes as usize, 7);
    }

    #[test]
    fn a_thread_that_sends_files_does_not_take_sigpipe() {
        let mask = std::thread::spawn(|| {
            block_sigpipe();
            SigSet::thread_get_mask()
        });
        assert!(mask.join().unwrap().unwrap().contains(Signal::SIGPIPE));
    }

    #[test]
    fn a_turn_ends_between_pdus_and_with_the_completion_of_its_data() {
        assert_eq!(turn_bytes(&[]), 0);
        let mut out = Vec::new();
        for bytes in [100 << 10, 100 << 10] {
            data(bytes, &mut out);
        }
        let entry = bothends_nvme::Cqe {
            result: 0,
            sq_head: 0,
            sq_id: 1,
            id: 1,
            status: Status::SUCCESS,
        };
        Format::default().response(&entry, &mut out);
        let first = out.len();
        assert_eq!(turn_bytes(&out), first, "all");
        data(1 << 20, &mut out);
        assert_eq!(turn_bytes(&out), first);
        assert_eq!(turn_bytes(&out[first..]), out.len() - first, "one is a turn");
    }
}
