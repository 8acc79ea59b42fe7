//! Reading a device's result from shared storage straight into a slot.
//!
//! The only code that opens an extent a completion names. It does not check the bytes (the
//! collect does, by checksum) and does not remove the file (its caller does). On a path
//! that is truly peer-to-peer a later backend reads past host memory here.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::AccelError;
use crate::slot::Slot;

/// Reads `len_bytes` bytes from `offset_bytes` of the file at `path` into the slot's
/// first bytes; blocks until they are there.
///
/// # Errors
/// [`AccelError::ExtentTooLong`], [`AccelError::Extent`] with the reader's own words.
/// What the slot holds is then undefined, but initialised.
pub fn fill_from_file(
    slot: &mut Slot,
    path: &Path,
    offset_bytes: u64,
    len_bytes: u64,
) -> Result<(), AccelError> {
    let len = usize::try_from(len_bytes).ok().filter(|&len| len <= slot.len());
    let Some(len) = len else {
        let (path, slot_bytes) = (path.to_owned(), slot.len());
        return Err(AccelError::ExtentTooLong { path, len_bytes, slot_bytes });
    };
    let failed = |source| AccelError::Extent { path: path.to_owned(), source };
    let file = File::open(path).map_err(failed)?;
    file.read_exact_at(&mut slot[..len], offset_bytes).map_err(failed)
}
