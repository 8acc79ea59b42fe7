//! Commands to NVMe drives through Linux' own driver: io_uring passthrough on the driver's character devices.
//!
//! A [`DriveRing`] hands NVMe commands to the kernel as they are and gives back what the drive answers; it knows
//! no command. Memory for data belongs to the ring: a command's buffer is the kernel's until its completion
//! has come, whoever has stopped waiting for it. Linux 6.0 is the first that takes both kinds of commands.

#![allow(unsafe_code, reason = "the kernel takes addresses of a command's data")]

use std::fmt;
use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use io_uring::{IoUring, Probe, cqueue, opcode, squeue, types};
use nix::errno::Errno;
use nix::libc;

use crate::Buffer;

/// Bytes of `struct nvme_uring_cmd` (linux/nvme_ioctl.h), and of the space for it in a long entry.
const COMMAND_BYTES: usize = 72;
const SPACE_BYTES: usize = 80;

/// `_IOWR('N', 0x80, struct nvme_uring_cmd)`: an I/O command, at the node of its namespace.
const IO: u32 = code(0x80);
/// `_IOWR('N', 0x82, struct nvme_uring_cmd)`: an admin command, at the node of the controller.
const ADMIN: u32 = code(0x82);

#[expect(clippy::cast_possible_truncation, reason = "request codes have 32 bits")]
const fn code(number: u8) -> u32 {
    nix::request_code_readwrite!(b'N', number, COMMAND_BYTES) as u32
}

/// Longest single wait; a longer timeout is several of these.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// How long a dropped ring waits for the kernel before it leaves the memory to it.
const FAREWELL: Duration = Duration::from_secs(5);

/// A command as NVMe has it, without what the driver fills in: identifier, flags, and where data are. The driver
/// sends dwords 4 and 5 as zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DriveCommand {
    /// The opcode.
    pub opcode: u8,
    /// The namespace; 0 for none.
    pub namespace: u32,
    /// Command dwords 2 and 3.
    pub dwords_2: [u32; 2],
    /// Command dwords 10 to 15.
    pub dwords_10: [u32; 6],
    /// After so long the driver ends the command and resets the controller: a millisecond at least.
    pub timeout: Duration,
}

/// The data of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriveData<'a> {
    /// It has none.
    None,
    /// These, for the drive.
    ToDrive(&'a [u8]),
    /// So many bytes for the host.
    ToHost(u32),
}

/// What node a command goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriveQueue {
    /// The controller's, `/dev/nvmeX`: admin commands.
    Admin,
    /// The namespace's, `/dev/ngXnY`: I/O commands.
    Io,
}

/// A command has ended.
#[derive(Debug)]
pub struct DriveDone<'a> {
    /// What [`DriveRing::submit`] called it.
    pub id: u16,
    /// What the drive says: the status field of a completion without its phase bit, 0 for success. Or why
    /// the kernel has not asked it, or has no answer.
    pub status: io::Result<u16>,
    /// The completion's first two dwords.
    pub result: u64,
    /// The data for the host. They mean something only where the command succeeded.
    pub data: &'a [u8],
}

/// Commands under way, a bounded number at a time.
pub struct DriveRing {
    /// First, so that it is closed before the memory it knows is freed.
    ring: IoUring<squeue::Entry128, cqueue::Entry32>,
    /// A command's identifier is the number of its slot.
    slots: Vec<Slot>,
    free: Vec<u16>,
}

/// A place for one command. It keeps its memory for the next.
#[derive(Debug)]
struct Slot {
    buffer: Buffer,
    under_way: Option<UnderWay>,
}

#[derive(Debug)]
struct UnderWay {
    /// Stays open until the command has ended.
    _node: Arc<File>,
    bytes_to_host: usize,
}

impl DriveRing {
    /// A ring for `depth` commands at a time.
    ///
    /// # Errors
    /// The kernel has no such rings, or forbids them. Of kind `Unsupported`: it is too old for commands in rings.
    pub fn new(depth: u16) -> io::Result<Self> {
        let ring = IoUring::builder().build(depth.into())?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        let is_enough = probe.is_supported(opcode::UringCmd80::CODE)
            && ring.params().is_feature_ext_arg()
            && ring.params().is_feature_nodrop();
        if !is_enough {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let slot = || Slot { buffer: Buffer::new(0), under_way: None };
        let slots = std::iter::repeat_with(slot).take(depth.into()).collect();
        Ok(Self { ring, slots, free: (0..depth).rev().collect() })
    }

    /// How many more commands may be submitted now.
    #[must_use]
    pub fn n_free(&self) -> usize {
        self.free.len()
    }

    /// Hands a command to the kernel and does not wait; its identifier until it has ended, or `None` where as many
    /// are under way as can be.
    ///
    /// `data` must have as many bytes as the command moves. The kernel tells the drive where so many are, and
    /// cannot see what a drive does with a command that says something else; an IOMMU bounds it.
    ///
    /// # Errors
    /// The ring cannot be entered.
    pub fn submit(
        &mut self,
        (node, queue): (&Arc<File>, DriveQueue),
        command: &DriveCommand,
        data: DriveData<'_>,
    ) -> io::Result<Option<u16>> {
        let Some(id) = self.free.pop() else { return Ok(None) };
        let slot = &mut self.slots[usize::from(id)];
        let (length, bytes_to_host) = match data {
            DriveData::None => (0, 0),
            DriveData::ToDrive(bytes) => (bytes.len(), 0),
            DriveData::ToHost(bytes) => (bytes as usize, bytes as usize),
        };
        if slot.buffer.as_slice().len() < length {
            slot.buffer = Buffer::new(length);
        }
        let memory = slot.buffer.as_mut_slice();
        if let DriveData::ToDrive(bytes) = data {
            memory[..length].copy_from_slice(bytes);
        }
        let address =
            if length == 0 { 0 } else { memory.as_mut_ptr().expose_provenance() };
        let space =
            command.space(address as u64, u32::try_from(length).unwrap_or(u32::MAX));
        slot.under_way = Some(UnderWay { _node: Arc::clone(node), bytes_to_host });
        let code = match queue {
            DriveQueue::Admin => ADMIN,
            DriveQueue::Io => IO,
        };
        let entry = opcode::UringCmd80::new(types::Fd(node.as_raw_fd()), code).cmd(space);
        let entry = entry.build().user_data(id.into());
        // SAFETY: the node stays open and the memory allocated and untouched until the command's
        // completion: its slot owns both and is not free before.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        if pushed.is_err() {
            // The ring has an entry for every slot.
            self.slots[usize::from(id)].under_way = None;
            self.free.push(id);
            return Ok(None);
        }
        self.enter(0, Duration::ZERO)?;
        Ok(Some(id))
    }

    /// Waits until a command has ended, or for so long.
    ///
    /// # Errors
    /// The ring cannot be entered.
    pub fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        self.enter(1, timeout)
    }

    fn enter(&mut self, want: usize, timeout: Duration) -> io::Result<()> {
        let timespec = types::Timespec::from(timeout.min(LONGEST_WAIT));
        let args = types::SubmitArgs::new().timespec(&timespec);
        let Err(error) = self.ring.submitter().submit_with_args(want, &args) else {
            return Ok(());
        };
        // Timed out, interrupted, or short of kernel memory: what is queued stays queued.
        let passing = [Errno::ETIME, Errno::EINTR, Errno::EAGAIN, Errno::EBUSY];
        let errno = Errno::from_raw(error.raw_os_error().unwrap_or(0));
        if passing.contains(&errno) { Ok(()) } else { Err(error) }
    }

    /// Passes on all commands that have ended. An identifier may be given to another from then on.
    pub fn reap(&mut self, ended: &mut dyn FnMut(DriveDone<'_>)) {
        loop {
            let Some(entry) = self.ring.completion().next() else { return };
            let Ok(id) = u16::try_from(entry.user_data()) else { continue };
            let Some(slot) = self.slots.get_mut(usize::from(id)) else { continue };
            let Some(UnderWay { bytes_to_host, .. }) = slot.under_way.take() else {
                continue;
            };
            self.free.push(id);
            let [result, _] = *entry.big_cqe();
            let status = status(entry.result());
            let data = &slot.buffer.as_slice()[..bytes_to_host];
            ended(DriveDone { id, status, result, data });
        }
    }

    /// How many commands the kernel has: those under way, less those that were never handed over.
    fn n_with_kernel(&mut self) -> usize {
        let n_busy = self.slots.len() - self.free.len();
        n_busy - self.ring.submission().len()
    }
}

impl fmt::Debug for DriveRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DriveRing")
            .field("depth", &self.slots.len())
            .field("free", &self.free.len())
            .finish_non_exhaustive()
    }
}

impl Drop for DriveRing {
    /// Waits for the kernel to give all memory back. A command cannot be cancelled: after `FAREWELL` the memory
    /// is left to the kernel (a leak is safe, a write into freed memory is not).
    fn drop(&mut self) {
        let start = Instant::now();
        while self.n_with_kernel() > 0 {
            let left = FAREWELL.saturating_sub(start.elapsed());
            if left.is_zero() || self.enter(1, left).is_err() {
                // The nodes are closed: the kernel has references of its own, and a lock on one is to end.
                let slots = std::mem::take(&mut self.slots).into_iter();
                let _left_to_the_kernel =
                    ManuallyDrop::new(slots.map(|slot| slot.buffer).collect::<Vec<_>>());
                return;
            }
            self.reap(&mut |_| ());
        }
    }
}

/// A completion's result: a negative error number, or what the drive says.
fn status(result: i32) -> io::Result<u16> {
    match u16::try_from(result) {
        Ok(status) => Ok(status),
        Err(_) if result < 0 => {
            Err(io::Error::from_raw_os_error(result.saturating_neg()))
        }
        Err(_) => Err(io::ErrorKind::InvalidData.into()),
    }
}

impl DriveCommand {
    /// `struct nvme_uring_cmd` with data at this address, and eight bytes that nobody reads.
    fn space(&self, address: u64, length: u32) -> [u8; SPACE_BYTES] {
        let mut own = [0; SPACE_BYTES];
        let mut put =
            |at: usize, bytes: &[u8]| own[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &[self.opcode]);
        put(4, &self.namespace.to_ne_bytes());
        put(8, &self.dwords_2[0].to_ne_bytes());
        put(12, &self.dwords_2[1].to_ne_bytes());
        put(24, &address.to_ne_bytes());
        put(36, &length.to_ne_bytes());
        for (n, dword) in self.dwords_10.iter().enumerate() {
            put(40 + 4 * n, &dword.to_ne_bytes());
        }
        // 0 would be the driver's own timeout.
        let timeout = u32::try_from(self.timeout.as_millis()).unwrap_or(u32::MAX).max(1);
        put(64, &timeout.to_ne_bytes());
        own
    }
}

/// The identifier of the namespace whose node this is: the number in the node's name is another.
///
/// # Errors
/// The node is not of an NVMe namespace, or the namespace is gone.
pub fn namespace_of(node: &File) -> io::Result<u32> {
    // `_IO('N', 0x40)`: NVME_IOCTL_ID.
    const ID: libc::Ioctl = nix::request_code_none!(b'N', 0x40) as libc::Ioctl;
    // SAFETY: the request takes no argument and the descriptor is open.
    let answer = unsafe { libc::ioctl(node.as_raw_fd(), ID) };
    let id = Errno::result(answer)?;
    u32::try_from(id).map_err(|_| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn null() -> Arc<File> {
        Arc::new(File::options().read(true).write(true).open("/dev/null").unwrap())
    }

    fn command() -> DriveCommand {
        DriveCommand {
            opcode: 0x02,
            namespace: 0x0403_0201,
            dwords_2: [0x1412_1110, 0x2423_2221],
            dwords_10: [0xa0, 0xb0, 0xc0, 0xd0, 0xe0, 0xf0],
            timeout: Duration::from_millis(0x0102),
        }
    }

    /// What linux/nvme_ioctl.h says: `struct nvme_uring_cmd` and the codes of `_IOWR`, on machines that are
    /// little endian.
    #[test]
    #[cfg(target_endian = "little")]
    fn a_command_has_the_kernels_layout() {
        #[rustfmt::skip]
        let expected: [u8; COMMAND_BYTES] = [
            0x02, 0, 0, 0, // opcode, flags, reserved
            0x01, 0x02, 0x03, 0x04, // nsid
            0x10, 0x11, 0x12, 0x14, 0x21, 0x22, 0x23, 0x24, // cdw2, cdw3
            0, 0, 0, 0, 0, 0, 0, 0, // metadata
            0x08, 0x07, 0x06, 0x05, 0x04, 0x03, 0x02, 0x01, // addr
            0, 0, 0, 0, // metadata_len
            0, 0x10, 0, 0, // data_len
            0xa0, 0, 0, 0, 0xb0, 0, 0, 0, 0xc0, 0, 0, 0, // cdw10, cdw11, cdw12
            0xd0, 0, 0, 0, 0xe0, 0, 0, 0, 0xf0, 0, 0, 0, // cdw13, cdw14, cdw15
            0x02, 0x01, 0, 0, // timeout_ms
            0, 0, 0, 0, // reserved
        ];
        let space = command().space(0x0102_0304_0506_0708, 4096);
        assert_eq!(space[..COMMAND_BYTES], expected);
        assert_eq!(space[COMMAND_BYTES..], [0; 8]);
        assert_eq!((IO, ADMIN), (0xc048_4e80, 0xc048_4e82));
    }

    #[test]
    fn a_timeout_is_never_the_drivers_own() {
        for (timeout, expected) in [
            (Duration::ZERO, 1),
            (Duration::from_secs(65), 65_000),
            (Duration::MAX, u32::MAX),
        ] {
            let space = DriveCommand { timeout, ..command() }.space(0, 0);
            assert_eq!(space[64..68], expected.to_ne_bytes());
        }
    }

    #[test]
    fn a_status_is_the_drives_or_an_error_number() {
        assert_eq!(status(0).unwrap(), 0);
        // Do Not Retry, type 1h, code 96h.
        assert_eq!(status(0x4196).unwrap(), 0x4196);
        assert_eq!(status(-4).unwrap_err().raw_os_error(), Some(libc::EINTR));
        assert_eq!(status(0x1_0000).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert!(status(i32::MIN).is_err());
    }

    #[test]
    fn a_node_that_is_not_of_nvme_has_no_namespace() {
        let error = namespace_of(&null()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOTTY), "{error}");
    }

    /// Every command ends and gives its slot back, also where the node takes none.
    #[test]
    fn commands_to_a_node_that_takes_none_end_with_errors() {
        let mut ring = match DriveRing::new(4) {
            Ok(ring) => ring,
            Err(error) => return println!("skipped: no io_uring here: {error}"),
        };
        let node = null();
        for _ in 0..3 {
            let mut ids = Vec::new();
            for data in [
                DriveData::None,
                DriveData::ToHost(4096),
                DriveData::ToDrive(&[7; 5000]),
                DriveData::ToHost(4),
            ] {
                let to = (&node, DriveQueue::Io);
                ids.push(ring.submit(to, &command(), data).unwrap().unwrap());
            }
            let one_more =
                ring.submit((&node, DriveQueue::Admin), &command(), DriveData::None);
            assert_eq!((one_more.unwrap(), ring.n_free()), (None, 0));
            let mut ended = Vec::new();
            while ended.len() < 4 {
                ring.wait(Duration::from_secs(10)).unwrap();
                ring.reap(&mut |done| {
                    // /dev/null takes commands of its own since Linux 6.5, and this is none of those.
                    assert!(
                        done.status.is_err() || done.status.is_ok_and(|own| own == 0)
                    );
                    ended.push(done.id);
                });
            }
            ids.sort_unstable();
            ended.sort_unstable();
            assert_eq!((ended, ring.n_free()), (ids, 4));
        }
    }
}
