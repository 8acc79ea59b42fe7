//! A TUN device: a network interface whose packets a program reads and writes.
#![allow(
    unsafe_code,
    reason = "the device is made by an ioctl that no safe package offers"
)]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

use nix::fcntl::OFlag;

/// Where the kernel offers TUN devices.
pub(crate) const PATH: &str = "/dev/net/tun";

/// `struct ifreq` of `<linux/if.h>` as far as TUNSETIFF reads it: name, flags, and the rest of its union.
#[repr(C)]
struct Request {
    name: [u8; 16],
    flags: i16,
    rest: [u8; 22],
}

/// IP packets without Ethernet (IFF_TUN) and without four bytes in front of each (IFF_NO_PI).
const TUN_WITHOUT_HEADER: i16 = 0x0001 | 0x1000;

// `_IOW('T', 202, int)` in <linux/if_tun.h>, which takes a pointer to an `ifreq` all the same.
nix::ioctl_write_ptr_bad!(
    /// Names the device of an open `/dev/net/tun`.
    tunsetiff,
    nix::request_code_write!(b'T', 202, size_of::<i32>()),
    Request
);

/// Makes the interface `name` in this thread's network namespace. It exists as long as the file is
/// open; reads and writes of one packet each do not block.
///
/// # Errors
/// If there is no `/dev/net/tun`, or this process may not make a device.
pub(crate) fn open(name: &str) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags((OFlag::O_NONBLOCK | OFlag::O_CLOEXEC).bits())
        .open(PATH)?;
    let mut request = Request { name: [0; 16], flags: TUN_WITHOUT_HEADER, rest: [0; 22] };
    // One zero stays at the end.
    for (to, from) in request.name[..15].iter_mut().zip(name.bytes()) {
        *to = from;
    }
    // SAFETY: `request` has the size and layout of an `ifreq` and outlives the call.
    unsafe { tunsetiff(file.as_raw_fd(), &raw const request) }?;
    Ok(file)
}
