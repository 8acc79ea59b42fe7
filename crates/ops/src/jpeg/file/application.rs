//! Segments of applications that Pillow gives up on, before libjpeg sees a byte
//! (`JpegImagePlugin.py`).

use crate::error::SampleFault;
use crate::jpeg::damaged;

/// Whether Pillow can read an application's segment. It gives up on some that are cut short.
pub(crate) fn check_application(marker: u8, contents: &[u8]) -> Result<(), SampleFault> {
    const PHOTOSHOP: &[u8] = b"Photoshop 3.0\0";
    let is_cut_short = match marker {
        0xe0 if contents.starts_with(b"JFIF") => contents.len() < 7,
        0xe2 if contents.starts_with(b"ICC_PROFILE\0") => contents.len() < 14,
        0xed => {
            contents.strip_prefix(PHOTOSHOP).is_some_and(|_| ends_in_a_name(contents))
        }
        0xee if contents.starts_with(b"Adobe") => contents.len() < 7,
        _ => false,
    };
    if is_cut_short {
        Err(damaged("an application's segment is cut short"))
    } else {
        Ok(())
    }
}

/// Whether the resources of Photoshop end where the length of a name should be. Pillow gets over
/// all other ends.
fn ends_in_a_name(contents: &[u8]) -> bool {
    let mut at: usize = 14;
    while contents.get(at..).is_some_and(|rest| rest.starts_with(b"8BIM")) {
        let behind_code = at.saturating_add(6);
        if contents.len() < behind_code {
            return false;
        }
        let Some(&name_len) = contents.get(behind_code) else { return true };
        let behind_name = behind_code.saturating_add(1).saturating_add(name_len.into());
        let behind_name = behind_name.next_multiple_of(2);
        let size = contents.get(behind_name..).and_then(|rest| rest.first_chunk());
        let Some(size) = size else { return false };
        let size = usize::try_from(u32::from_be_bytes(*size)).unwrap_or(usize::MAX);
        let data = behind_name.saturating_add(4);
        let code =
            [contents.get(at.saturating_add(4)), contents.get(at.saturating_add(5))];
        let resolution = contents.get(data..).unwrap_or_default().len().min(size);
        if code == [Some(&0x03), Some(&0xed)] && resolution < 14 {
            return false;
        }
        at = data.saturating_add(size).checked_next_multiple_of(2).unwrap_or(usize::MAX);
    }
    false
}
