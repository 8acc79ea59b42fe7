//! Numbers at places in a file; `None` after its end.

/// Two bytes, little-endian.
pub(super) fn u16_le(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Four bytes, little-endian.
pub(super) fn u32_le(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// What stands from `at` on, at most `len` bytes of it; nothing past the end.
pub(super) fn part(bytes: &[u8], at: usize, len: usize) -> &[u8] {
    let rest = bytes.get(at..).unwrap_or_default();
    rest.get(..len).unwrap_or(rest)
}
