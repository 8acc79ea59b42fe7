//! Reading a device's result from shared storage straight into a slot.
//!
//! The only code that opens an extent a completion names. It does not check the bytes (the
//! collect does, by checksum) and does not remove the file (its caller does). A path that
//! is truly peer-to-peer will go past host memory from here.

use std::path::Path;
use std::sync::Arc;

use bothends_io::{Direct, OpenFile, Reader};

use crate::AccelError;
use crate::slot::Slot;

/// Fills the slot's first `len_bytes` bytes from `offset_bytes` of the file at `path`, past
/// the page cache and without a copy where the file system allows it. Blocks until the
/// bytes are there.
///
/// # Errors
/// [`AccelError::ExtentTooLong`] before anything is opened; [`AccelError::Extent`] with the
/// reader's own words. The slot's bytes are then of no use, but the slot is.
pub fn fill_from_file(
    slot: &mut Slot,
    reader: &mut dyn Reader,
    path: &Path,
    offset_bytes: u64,
    len_bytes: u64,
) -> Result<(), AccelError> {
    let slot_bytes = slot.len();
    let len = usize::try_from(len_bytes).ok().filter(|&len| len <= slot_bytes);
    let Some(len) = len else {
        let path = path.to_owned();
        return Err(AccelError::ExtentTooLong { path, len_bytes, slot_bytes });
    };
    let failed = |source| AccelError::Extent { path: path.to_owned(), source };
    let file = Arc::new(OpenFile::open(path, Direct::Auto).map_err(failed)?);
    reader.read_into(&file, offset_bytes, &mut slot[..len]).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Ring, RingConfig};
    use bothends_io::{ReaderConfig, ReaderKind, open_reader};
    use std::time::Duration;

    const SLOT_BYTES: usize = 40_000;

    /// A slot, both readers, and a file of `n_bytes` bytes that differ from page to page.
    fn scene(n_bytes: usize) -> (Slot, Vec<Box<dyn Reader>>, tempfile::NamedTempFile) {
        let ring = Ring::new(RingConfig { n_slots: 1, slot_bytes: SLOT_BYTES }).unwrap();
        let readers = [ReaderKind::Pread, ReaderKind::Auto].map(|kind| {
            open_reader(&ReaderConfig { kind, ..ReaderConfig::default() }).unwrap()
        });
        // Beside the test program: /tmp may be memory, which has no O_DIRECT.
        let program = std::env::current_exe().unwrap();
        let file = tempfile::NamedTempFile::new_in(program.parent().unwrap()).unwrap();
        std::fs::write(file.path(), content(n_bytes)).unwrap();
        (ring.take(Duration::ZERO).unwrap(), readers.into(), file)
    }

    fn content(n_bytes: usize) -> Vec<u8> {
        (0..=250).cycle().take(n_bytes).collect()
    }

    #[test]
    fn an_extent_lands_in_the_slot() {
        let (mut slot, readers, file) = scene(65_536);
        let expected = content(65_536);
        for mut reader in readers {
            for (offset, len) in
                [(0, 40_000), (4096, 36_864), (4096, 1), (12_289, 77), (0, 0)]
            {
                slot.fill(0xEE);
                let (offset_bytes, len_bytes) = (offset as u64, len as u64);
                fill_from_file(
                    &mut slot,
                    &mut *reader,
                    file.path(),
                    offset_bytes,
                    len_bytes,
                )
                .unwrap();
                assert_eq!(slot[..len], expected[offset..offset + len], "{reader:?}");
                assert!(slot[len..].iter().all(|&byte| byte == 0xEE), "wrote beyond");
            }
        }
    }

    #[test]
    fn an_extent_that_does_not_fit_is_refused_before_it_is_opened() {
        let (mut slot, mut readers, _file) = scene(1);
        let path = Path::new("/no/such/file");
        for len_bytes in [SLOT_BYTES as u64 + 1, u64::MAX] {
            let error = fill_from_file(&mut slot, &mut *readers[0], path, 0, len_bytes)
                .unwrap_err();
            assert!(matches!(error, AccelError::ExtentTooLong { .. }), "{error}");
        }
    }

    #[test]
    fn a_missing_or_short_file_is_an_error_with_its_path() {
        let (mut slot, readers, file) = scene(5000);
        for mut reader in readers {
            for (path, offset) in [(Path::new("/no/such/file"), 0), (file.path(), 4096)] {
                let error = fill_from_file(&mut slot, &mut *reader, path, offset, 4096)
                    .unwrap_err();
                let named = path.display().to_string();
                assert!(matches!(error, AccelError::Extent { .. }), "{error}");
                assert!(error.to_string().contains(&named), "{error}");
            }
        }
    }
}
