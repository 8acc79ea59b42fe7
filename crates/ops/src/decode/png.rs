//! PNG as Pillow reads it, brought to 8-bit RGB as its `convert("RGB")` does.
//!
//! All colour types and depths, interlaced or not; the default image of an animated file.
//! Alpha and `tRNS` are dropped, gamma and profiles ignored. What makes a file bad is what makes Pillow
//! refuse it: chunks (`png/chunks.rs`), the zlib stream (`inflate.rs`), filters (`png/rows.rs`). The
//! checksums of chunks count up to the first one with image data, and no further.

mod chunks;
mod rows;

use bothends_core::recipe::Size;
use fdeflate::Decompressor;

use self::chunks::{Chunks, Piece};
use self::rows::{Pixels, Rows};
use super::inflate::{End, Sink, inflate};
use crate::decode::room::check_room;
use crate::error::{OpsError, SampleFault};
use crate::image::{Image, check_size};

/// PNG, third edition, §5.2.
const SIGNATURE: &[u8] = b"\x89PNG\r\n\x1a\n";

/// Whether the first bytes are a PNG's.
pub(super) fn recognises(bytes: &[u8]) -> bool {
    bytes.starts_with(SIGNATURE)
}

/// The size of an image, and the bytes that its pixels take. 0 where there is no header (§11.2.1).
pub(super) fn need_bytes(bytes: &[u8]) -> (Size, u64) {
    let Some([w0, w1, w2, w3, h0, h1, h2, h3]) = header(bytes) else {
        return (Size { height: 0, width: 0 }, 0);
    };
    let width = u32::from_be_bytes([w0, w1, w2, w3]);
    let height = u32::from_be_bytes([h0, h1, h2, h3]);
    let n_pixels = u64::from(height).saturating_mul(u64::from(width));
    (Size { height, width }, n_pixels.saturating_mul(3))
}

/// The dimensions in the first `IHDR`: chunks that stand before it are passed over, as in Pillow.
fn header(bytes: &[u8]) -> Option<[u8; 8]> {
    let mut rest = bytes.get(SIGNATURE.len()..)?;
    loop {
        let (len, body) = rest.split_first_chunk::<4>()?;
        if let Some(dimensions) = body.strip_prefix(b"IHDR") {
            return dimensions.first_chunk().copied();
        }
        // The name before the body, and the checksum behind it.
        let next = usize::try_from(u32::from_be_bytes(*len)).ok()?.checked_add(8)?;
        rest = body.get(next..)?;
    }
}

/// Decodes all of `bytes` into `out`.
pub(super) fn decode(bytes: &[u8], out: &mut Image) -> Result<(), OpsError> {
    let chunks = Chunks::open(bytes.get(SIGNATURE.len()..).unwrap_or_default());
    let mut chunks = chunks.map_err(damaged)?;
    let [width, height] = chunks.size();
    let size = check_size(height as usize, width as usize)?;
    // Whoever gave it room has looked at the first header, and the last one counts.
    let (first, need) = need_bytes(bytes);
    if first != size {
        return Err(damaged("it has headers of two sizes").into());
    }
    check_room(size, need)?;
    let pieces = chunks.pieces();
    let pixels = Pixels::of(&chunks).map_err(damaged)?;
    // Before memory is taken: deflate packs at most 1,032 bytes into one.
    let n_packed =
        pieces.iter().fold(0, |n: u64, piece| n.saturating_add(piece.bytes.len() as u64));
    if n_packed.saturating_mul(1032) < pixels.n_bytes() {
        return Err(damaged("it is too short for its size").into());
    }
    let last = match whole(&pieces, &pixels, out.reshape(size, 3)) {
        Some(last) => last,
        None => partly(&pieces, &pixels, out).map_err(damaged)?,
    };
    chunks.read_rest(pieces.get(last)).map_err(damaged)?;
    Ok(())
}

fn damaged(why: &'static str) -> SampleFault {
    SampleFault::Damaged { format: "PNG", why: why.to_owned() }
}

/// Decodes a stream that is sound and as long as the image; `None` for any other. The piece with
/// which the last row was complete.
fn whole(pieces: &[Piece<'_>], pixels: &Pixels, out: &mut [u8]) -> Option<usize> {
    /// What a stream may refer to, and room for what comes next.
    const WINDOW: usize = 1 << 15;
    let mut rows = Rows::new(pixels, out);
    rows.prepare();
    let mut buffer = vec![0; WINDOW.checked_mul(5)?];
    let mut stream = Decompressor::new();
    let (mut filled, mut last) = (0_usize, None);
    for (i, piece) in pieces.iter().enumerate() {
        let is_last = i.checked_add(1) == Some(pieces.len());
        let mut input = piece.bytes;
        while !stream.is_done() && (!input.is_empty() || is_last) {
            let (read, made) = stream.read(input, &mut buffer, filled, is_last).ok()?;
            let end = filled.checked_add(made)?;
            rows.take(&buffer[filled..end]).ok()?;
            last = last.or(rows.are_done().then_some(i));
            if read == 0 && made == 0 && !stream.is_done() {
                return None;
            }
            input = &input[read..];
            filled = end;
            if let Some(first) =
                filled.checked_sub(WINDOW).filter(|first| *first > WINDOW)
            {
                buffer.copy_within(first..filled, 0);
                filled = WINDOW;
            }
        }
    }
    last.filter(|_| stream.is_done() && rows.n_beyond() == 0)
}

/// Decodes what Pillow would make of a stream; the last piece that it would read.
fn partly(
    pieces: &[Piece<'_>],
    pixels: &Pixels,
    out: &mut Image,
) -> Result<usize, &'static str> {
    let mut rows = Rows::new(pixels, out.pixels_mut());
    rows.clear();
    let bytes: Vec<&[u8]> = pieces.iter().map(|piece| piece.bytes).collect();
    let inflated = inflate(&bytes, &mut rows, pixels.n_bytes());
    let [output, end] = inflated.pieces_of_end;
    match inflated.end {
        End::Full => Ok(output),
        // Rows that are missing stay black if the stream's end came with those before.
        End::Stream if rows.are_begun() && output == end => Ok(output),
        End::Stream | End::Input => Err("it ends before its last row"),
        End::Damaged(why) => Err(why),
    }
}
