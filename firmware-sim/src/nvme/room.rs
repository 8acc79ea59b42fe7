//! Where a command's data for the host go: into PDUs after whatever is to be sent, a part at a time, which goes as soon
//! as it is whole where there is a network. So long data are not all in memory at once, and a part leaves while the cache
//! still has it. What a file has as it is goes straight from the page cache to the network, and never enters this process's
//! memory.

use std::fmt::Debug;

use bothends_nvme::Status;
use bothends_nvme::pdu::{DataHead, Digest, Format, Last};

use super::blocks::Extent;

/// Most bytes of data of a PDU: a host that takes PDUs as a whole has them in its cache, and a completion whose time has
/// come waits for no more of another command's data than this.
const PART: u32 = 128 << 10;

/// Fewer bytes are copied: to hand pages of a file to the socket costs two calls of the system.
const FILE_BYTES: u32 = 32 << 10;

/// Where parts of a command's data go before the command has ended.
pub(super) trait Spill: Debug {
    /// Sends `out` if there is much of it, and empties it then. It has whole PDUs.
    ///
    /// # Errors
    /// The host does not take them, or has gone.
    fn spill(&self, out: &mut Vec<u8>) -> Result<(), Status>;

    /// What takes bytes of files, if there is such a thing.
    fn files(&self) -> Option<&dyn FileSpill> {
        None
    }
}

/// Where bytes of a file go.
pub(super) trait FileSpill: Debug {
    /// Sends `out`, which ends with the header of a PDU, and `extent` as its data; empties `out`.
    ///
    /// # Errors
    /// The host does not take them, or has gone; or the file cannot be read, and the host has other bytes in their place.
    fn spill_file(&self, out: &mut Vec<u8>, extent: &Extent) -> Result<(), Status>;
}

/// Whoever gives commands takes all that they say when they have ended.
#[derive(Debug)]
pub(super) struct Keep;

impl Spill for Keep {
    fn spill(&self, _: &mut Vec<u8>) -> Result<(), Status> {
        Ok(())
    }
}

/// Room for the data of a command.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room<'a> {
    /// The command.
    pub(super) id: u16,
    /// So many bytes, or none if it has no data for the host.
    pub(super) bytes: u32,
    pub(super) format: Format,
    pub(super) spill: &'a dyn Spill,
}

impl Room<'_> {
    /// Appends all of it to `out`; `fill` puts there what begins at a byte of it. If that fails, there is nothing of the
    /// part in `out`, though parts before it may have gone: the completion then says that they are of no use.
    pub(super) fn fill(
        self,
        out: &mut Vec<u8>,
        fill: impl FnMut(u32, &mut [u8]) -> Result<(), Status>,
    ) -> Result<(), Status> {
        self.fill_parts(PART, out, fill, |_, _| None)
    }

    /// The same of media: `extent` says which file has so many bytes from a byte on, and `fill` puts there what no file
    /// has.
    pub(super) fn fill_from_files(
        self,
        out: &mut Vec<u8>,
        fill: impl FnMut(u32, &mut [u8]) -> Result<(), Status>,
        extent: impl Fn(u32, u32) -> Option<Extent>,
    ) -> Result<(), Status> {
        self.fill_parts(PART, out, fill, extent)
    }

    fn fill_parts(
        self,
        most: u32,
        out: &mut Vec<u8>,
        mut fill: impl FnMut(u32, &mut [u8]) -> Result<(), Status>,
        extent: impl Fn(u32, u32) -> Option<Extent>,
    ) -> Result<(), Status> {
        // A digest needs the bytes.
        let files = self.spill.files().filter(|_| self.format.data_digest == Digest::Off);
        let mut from = 0;
        while from < self.bytes {
            let begin = out.len();
            let bytes = most.min(self.bytes - from);
            let last = if from + bytes == self.bytes { Last::Yes } else { Last::No };
            let head = DataHead { id: self.id, tag: 0, from, bytes, last };
            self.format.before_data_to_host(head, out);
            let files = files.filter(|_| bytes >= FILE_BYTES);
            if let Some((files, extent)) =
                files.and_then(|to| Some((to, extent(from, bytes)?)))
            {
                files.spill_file(out, &extent)?;
                from += bytes;
                continue;
            }
            let at = out.len();
            out.resize(at + bytes as usize, 0);
            if let Err(status) = fill(from, &mut out[at..]) {
                out.truncate(begin);
                return Err(status);
            }
            self.format.after_data_at(at, out);
            from += bytes;
            self.spill.spill(out)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is the report")]

    use std::cell::Cell;
    use std::io::Write;
    use std::os::unix::fs::FileExt;
    use std::sync::Arc;

    use bothends_nvme::pdu::{Parsed, Pdu, parse};
    use proptest::prelude::*;

    use super::*;

    fn byte(at: usize) -> u8 {
        u8::try_from(at * 7 % 251).unwrap()
    }

    proptest! {
        /// Whatever the parts are, a host finds all bytes, in order, and one end.
        #[test]
        fn parts_are_the_whole(
            bytes in 0_u32..5000,
            part in 1_u32..6000,
            digests in any::<bool>(),
        ) {
            let digest = if digests { Digest::On } else { Digest::Off };
            let format =
                Format { header_digest: digest, data_digest: digest, alignment: 3 };
            let mut out = vec![9];
            let room = Room { id: 5, bytes, format, spill: &Keep };
            room.fill_parts(part, &mut out, |from, to| {
                to.iter_mut().enumerate().for_each(|(at, to)| *to = byte(from as usize + at));
                Ok(())
            }, |_, _| None).unwrap();
            let (mut at, mut found, mut n_last) = (1, Vec::new(), 0);
            while at < out.len() {
                let Parsed::Whole(Pdu::ToHost(own), n) =
                    parse(&out[at..], format, 1 << 20).unwrap() else { panic!("at {at}") };
                prop_assert_eq!((own.head.id, own.head.from as usize), (5, found.len()));
                prop_assert!(own.data.len() <= part as usize && n_last == 0);
                n_last += u32::from(own.head.last == Last::Yes);
                found.extend_from_slice(own.data);
                at += n;
            }
            prop_assert_eq!(n_last, u32::from(bytes > 0));
            prop_assert_eq!(found, (0..bytes as usize).map(byte).collect::<Vec<_>>());
        }
    }

    #[test]
    fn what_is_left_of_a_failure_is_whole_and_not_the_last() {
        let mut out = Vec::new();
        let format = Format::default();
        let room = Room { id: 5, bytes: 100, format, spill: &Keep };
        let failed = room.fill_parts(
            40,
            &mut out,
            |from, _| match from {
                0..80 => Ok(()),
                _ => Err(Status::READ_ERROR),
            },
            |_, _| None,
        );
        assert_eq!(failed, Err(Status::READ_ERROR));
        let mut at = 0;
        for from in [0, 40] {
            let Parsed::Whole(Pdu::ToHost(own), n) =
                parse(&out[at..], format, 1 << 20).unwrap()
            else {
                panic!("at {at}")
            };
            assert_eq!((own.head.from, own.head.last), (from, Last::No));
            at += n;
        }
        assert_eq!(at, out.len());
    }

    /// Counts how often there was something, and takes it.
    #[derive(Debug, Default)]
    struct Taken(Cell<usize>);

    impl Spill for Taken {
        fn spill(&self, out: &mut Vec<u8>) -> Result<(), Status> {
            self.0.set(self.0.get() + usize::from(!out.is_empty()));
            out.clear();
            Ok(())
        }
    }

    /// Has what a network would have.
    #[derive(Debug, Default)]
    struct Network(std::cell::RefCell<Vec<u8>>);

    impl Spill for Network {
        fn spill(&self, out: &mut Vec<u8>) -> Result<(), Status> {
            self.0.borrow_mut().append(out);
            Ok(())
        }

        fn files(&self) -> Option<&dyn FileSpill> {
            Some(self)
        }
    }

    impl FileSpill for Network {
        fn spill_file(&self, out: &mut Vec<u8>, extent: &Extent) -> Result<(), Status> {
            let mut own = self.0.borrow_mut();
            own.append(out);
            let at = own.len();
            own.resize(at + extent.bytes as usize, 0);
            extent.file.read_exact_at(&mut own[at..], extent.from).unwrap();
            Ok(())
        }
    }

    #[test]
    fn what_files_have_and_what_they_have_not_are_one_stream() {
        let bytes = 3 * FILE_BYTES + 100;
        let whole: Vec<u8> = (0..bytes as usize).map(byte).collect();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&whole).unwrap();
        let file = Arc::new(file);
        for digest in [Digest::Off, Digest::On] {
            let network = Network::default();
            let format = Format { data_digest: digest, ..Format::default() };
            let room = Room { id: 5, bytes, format, spill: &network };
            let (n_copied, n_handed) = (Cell::new(0), Cell::new(0));
            let fill = |from: u32, to: &mut [u8]| {
                n_copied.set(n_copied.get() + 1);
                to.copy_from_slice(&whole[from as usize..][..to.len()]);
                Ok(())
            };
            // The second part is in no file as a whole.
            let extent = |from: u32, bytes: u32| {
                let (file, from) = (Arc::clone(&file), u64::from(from));
                n_handed.set(n_handed.get() + 1);
                (from != u64::from(FILE_BYTES)).then_some(Extent { file, from, bytes })
            };
            room.fill_parts(FILE_BYTES, &mut Vec::new(), fill, extent).unwrap();
            // The last part is too small; a digest needs all bytes.
            let expected = if digest == Digest::On { (4, 0) } else { (2, 3) };
            assert_eq!((n_copied.get(), n_handed.get()), expected);
            let own = network.0.borrow();
            let (mut at, mut found) = (0, Vec::new());
            while at < own.len() {
                let Parsed::Whole(Pdu::ToHost(part), n) =
                    parse(&own[at..], format, 1 << 20).unwrap()
                else {
                    panic!("at {at}")
                };
                found.extend_from_slice(part.data);
                at += n;
            }
            assert!(found == whole);
        }
    }

    #[test]
    fn each_part_can_go_as_soon_as_it_is_whole() {
        let (mut out, taken) = (Vec::new(), Taken::default());
        let room = Room { id: 5, bytes: 100, format: Format::default(), spill: &taken };
        room.fill_parts(
            40,
            &mut out,
            |_, to| {
                assert!(to.len() <= 40);
                Ok(())
            },
            |_, _| None,
        )
        .unwrap();
        assert_eq!((taken.0.get(), out.len()), (3, 0));
    }
}
