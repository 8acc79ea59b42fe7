//! Where files of a folder lie, and how much more fits there, according to the kernel.
//!
//! Asks, and decides nothing: the caches do.

use std::io;
use std::path::Path;

use nix::sys::statfs::statfs;
use nix::sys::statvfs::statvfs;

/// What a file system keeps its files on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Medium {
    /// A disk of this machine, as far as is known.
    Disk,
    /// Another machine, or a program that may ask one (FUSE).
    Network,
    /// The memory of this machine.
    Memory,
}

/// What the folder at `path` is kept on; blocks on the file system.
///
/// # Errors
/// The system's.
pub fn medium(path: &Path) -> io::Result<Medium> {
    let kind = statfs(path)?.filesystem_type().0;
    // A type is 32 bits wide, and the field that holds it has another width and sign on each
    // architecture.
    #[expect(clippy::cast_possible_truncation, reason = "a type is 32 bits wide")]
    #[expect(clippy::cast_sign_loss, reason = "a type has no sign")]
    let kind = kind as u32;
    Ok(medium_of(kind))
}

/// The medium of a type of file system, as statfs(2) and the programs that implement them number it.
fn medium_of(kind: u32) -> Medium {
    match kind {
        // tmpfs, ramfs
        0x0102_1994 | 0x8584_58f6 => Medium::Memory,
        // nfs, cifs, smb2, smb, ceph, afs and its kernel client, coda, ncp, 9p, lustre, gpfs,
        // beegfs, gfs2, ocfs2, orangefs, vboxsf, panfs, wekafs, fuse
        0x6969 | 0xff53_4d42 | 0xfe53_4d42 | 0x517b | 0x00c3_6400 | 0x5346_414f
        | 0x6b41_4653 | 0x7375_7245 | 0x564c | 0x0102_1997 | 0x0bd0_0bd0
        | 0x4750_4653 | 0x1983_0326 | 0x0116_1970 | 0x7461_636f | 0x2003_0528
        | 0x786f_4256 | 0xaad7_aaea | 0x7765_6b61 | 0x6573_5546 => Medium::Network,
        _ => Medium::Disk,
    }
}

/// Bytes that this user may still write on the file system of the folder at `path`, quotas apart.
///
/// # Errors
/// The system's.
pub fn free_bytes(path: &Path) -> io::Result<u64> {
    let found = statvfs(path)?;
    Ok(found.blocks_available().saturating_mul(found.fragment_size()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_says_what_it_is_kept_on_and_what_fits() {
        let folder = tempfile::tempdir().unwrap();
        assert_ne!(medium(folder.path()).unwrap(), Medium::Network);
        assert!(free_bytes(folder.path()).unwrap() > 0);
        assert!(medium(&folder.path().join("missing")).is_err());
        assert!(free_bytes(&folder.path().join("missing")).is_err());
        assert_eq!(medium_of(0x6969), Medium::Network);
        assert_eq!(medium_of(0xef53), Medium::Disk, "ext4");
        assert_eq!(
            medium(Path::new("/dev/shm")).ok().unwrap_or(Medium::Memory),
            Medium::Memory
        );
    }
}
