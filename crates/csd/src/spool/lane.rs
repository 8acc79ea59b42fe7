//! One direction of a spool: messages as consecutively numbered files, so that the reader always knows
//! the one name to look for and nobody lists a directory.
//!
//! A file appears completely, by rename, under its number. It holds one message of `wire.rs`. The samples
//! of a finished job start at the next multiple of 4 KiB, and the length of the file is a multiple of 4
//! KiB, as direct reads require. Nothing is synced: a batch is not worth the wait, a crash of the machine
//! ends the run anyway, and the host verifies every checksum. Within one machine, and on shares with
//! close-to-open consistency, a rename makes the bytes visible.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use bothends_io::{open_regular, write_beside};

use super::names::Names;
use crate::CsdError;
use crate::words::job::Ending;
use crate::words::wire::{HEADER_BYTES, Header, Message};

/// Alignment of results, in bytes.
pub(super) const PAGE_BYTES: u64 = 4096;

/// The names of one direction's files.
#[derive(Debug)]
struct Numbered {
    dir: PathBuf,
    prefix: &'static str,
    next: u64,
}

impl Numbered {
    fn path(&self) -> PathBuf {
        self.dir.join(format!("{}-{:010}", self.prefix, self.next))
    }
}

/// Where messages are put.
#[derive(Debug)]
pub(super) struct Outlet(Numbered);

impl Outlet {
    pub(super) fn new(dir: PathBuf, prefix: &'static str) -> Self {
        Self(Numbered { dir, prefix, next: 0 })
    }

    /// Puts a message, and the payload of a finished job behind it. After an error nothing
    /// was put and nothing is left.
    pub(super) fn put(
        &mut self,
        message: &[u8],
        payload: Option<&[u8]>,
    ) -> io::Result<()> {
        let new = self.0.dir.join(format!("{}.new", self.0.prefix));
        write_beside(&new, &self.0.path(), |file| {
            file.write_all_at(message, 0)?;
            let Some(payload) = payload else { return Ok(()) };
            let offset = (message.len() as u64).next_multiple_of(PAGE_BYTES);
            file.set_len(offset + (payload.len() as u64).next_multiple_of(PAGE_BYTES))?;
            file.write_all_at(payload, offset)
        })?;
        self.0.next += 1;
        Ok(())
    }
}

/// Where messages are taken.
#[derive(Debug)]
pub(super) struct Inlet(Numbered, Names);

impl Inlet {
    pub(super) fn new(dir: PathBuf, prefix: &'static str) -> Self {
        Self(Numbered { dir, prefix, next: 0 }, Names::default())
    }

    /// The next message if it is here, and where its payload is, if it has one; does not
    /// wait. The message's file is removed, except one with a payload.
    pub(super) fn take(&mut self) -> Result<Option<(Message, Option<Extent>)>, CsdError> {
        let path = self.0.path();
        let mut file = match open_regular(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.1.refresh(&self.0.dir);
                return Ok(None);
            }
            Err(error) => return Err(CsdError::lost("open a message")(error)),
        };
        let len_bytes = file.metadata().map_err(CsdError::lost("read a message"))?.len();
        let mut header = [0; HEADER_BYTES];
        read_exact(&mut file, &mut header)?;
        let header = Header::decode(&header)?;
        let message_bytes = (HEADER_BYTES + header.body_bytes()) as u64;
        if len_bytes < message_bytes {
            return Err(CsdError::Malformed { what: "a message file that is cut short" });
        }
        let mut body = vec![0; header.body_bytes()];
        read_exact(&mut file, &mut body)?;
        self.0.next += 1;
        let message = Message::decode(&header, &body)?;
        if let Message::Completed(_, answer) = &message
            && let Ending::Done { len, .. } = &answer.ending
        {
            let offset = message_bytes.next_multiple_of(PAGE_BYTES);
            let end = len.checked_next_multiple_of(PAGE_BYTES);
            if end.and_then(|end| end.checked_add(offset)) != Some(len_bytes) {
                return Err(CsdError::Malformed {
                    what: "a result file of a wrong length",
                });
            }
            return Ok(Some((message, Some(Extent { path, offset }))));
        }
        std::fs::remove_file(&path).map_err(CsdError::lost("remove a message"))?;
        Ok(Some((message, None)))
    }
}

/// Where a payload is: in this file from this byte on. Whoever has the value removes the file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) path: PathBuf,
    pub(super) offset: u64,
}

fn read_exact(file: &mut File, dst: &mut [u8]) -> Result<(), CsdError> {
    file.read_exact(dst).map_err(|error| {
        if error.kind() == io::ErrorKind::UnexpectedEof {
            return CsdError::Malformed { what: "a message file that is cut short" };
        }
        CsdError::lost("read a message")(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::job::{Answer, SessionId};
    use bothends_slots::JobId;

    fn done(len: u64) -> Message {
        let (bad, damaged) = (Vec::new(), Vec::new());
        let ending = Ending::Done { len, checksum: 1, bad, damaged };
        let answer = Answer { job: JobId(3), ending, device_ns: 0, lateness_ns: 0 };
        Message::Completed(SessionId(1), answer)
    }

    #[test]
    fn messages_come_in_their_order_and_their_files_go() {
        let dir = tempfile::tempdir().unwrap();
        let mut outlet = Outlet::new(dir.path().into(), "h");
        let mut inlet = Inlet::new(dir.path().into(), "h");
        assert!(inlet.take().unwrap().is_none());
        for message in [Message::Hello, Message::AskStats] {
            outlet.put(&message.encode(), None).unwrap();
        }
        assert_eq!(inlet.take().unwrap(), Some((Message::Hello, None)));
        assert_eq!(inlet.take().unwrap(), Some((Message::AskStats, None)));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_result_is_aligned_and_stays() {
        let dir = tempfile::tempdir().unwrap();
        let mut outlet = Outlet::new(dir.path().into(), "d");
        let mut inlet = Inlet::new(dir.path().into(), "d");
        for len in [0_u64, 1, 4096, 5000] {
            let payload = vec![7; usize::try_from(len).unwrap()];
            outlet.put(&done(len).encode(), Some(&payload)).unwrap();
            let Some((message, Some(Extent { path, offset }))) = inlet.take().unwrap()
            else {
                panic!()
            };
            assert_eq!((message, offset % PAGE_BYTES), (done(len), 0));
            let file = std::fs::read(path).unwrap();
            assert_eq!(file.len() as u64 % PAGE_BYTES, 0);
            let start = usize::try_from(offset).unwrap();
            assert_eq!(&file[start..start + payload.len()], payload);
        }
    }

    #[test]
    fn a_file_cut_short_is_malformed() {
        let dir = tempfile::tempdir().unwrap();
        let whole = [done(5000).encode(), vec![0; 4096 + 8192 - HEADER_BYTES]].concat();
        for cut in [0, HEADER_BYTES - 1, HEADER_BYTES, 4096, 4096 + 5000, whole.len() - 1]
        {
            std::fs::write(dir.path().join("d-0000000000"), &whole[..cut]).unwrap();
            let taken = Inlet::new(dir.path().into(), "d").take();
            assert!(matches!(taken, Err(CsdError::Malformed { .. })), "{cut}: {taken:?}");
        }
    }

    #[test]
    fn a_failed_put_leaves_nothing_and_keeps_its_number() {
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("missing");
        let mut outlet = Outlet::new(missing.clone(), "h");
        assert!(outlet.put(b"x", None).is_err());
        std::fs::create_dir(&missing).unwrap();
        outlet.put(&Message::Hello.encode(), None).unwrap();
        let taken = Inlet::new(missing, "h").take().unwrap();
        assert_eq!(taken, Some((Message::Hello, None)));
    }
}
