//! WebP as Pillow reads it: the first image of a file.
//!
//! Pillow uses libwebp's animation decoder, which accepts a file only if all its chunks, up to the length
//! that it claims, are whole and in order; they are read here. The images in them are decoded by
//! `webp/lossy.rs` and `webp/lossless.rs`. What an image does not cover of its canvas is black.

mod lossless;
mod lossy;

use bothends_core::recipe::Size;

use super::bytes::{part, u16_le, u32_le};
use crate::decode::room::check_room;
use crate::error::{OpsError, SampleFault};
use crate::image::{Image, check_size};

/// Whether the first bytes are a WebP's.
pub(super) fn recognises(bytes: &[u8]) -> bool {
    bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP")
}

/// The size of an image, and the bytes that decoding it takes: planes of whole macroblocks or colours with
/// alpha, and those of the canvas.
pub(super) fn need_bytes(bytes: &[u8]) -> (Size, u64) {
    let [width, height] = Container::open(bytes).map_or([0; 2], |file| file.canvas);
    let [columns, rows] =
        [width, height].map(|side| u64::from(side).next_multiple_of(16));
    let need = columns.saturating_mul(rows).saturating_mul(12);
    (Size { height, width }, need)
}

/// Decodes the first image of `bytes` into `out`.
pub(super) fn decode(bytes: &[u8], out: &mut Image) -> Result<(), OpsError> {
    let damaged =
        |why: &str| SampleFault::Damaged { format: "WebP", why: why.to_owned() };
    let file = Container::open(bytes).map_err(damaged)?;
    let [width, height] = file.canvas.map(|pixels| pixels as usize);
    let size = check_size(height, width)?;
    check_room(size, need_bytes(bytes).1)?;
    let Some(frame) = file.first else { return Err(damaged("it has no image").into()) };
    let [left, top, frame_width, frame_height] =
        frame.place.map(|pixels| pixels as usize);
    let pixels = frame.pixels([frame_width, frame_height]).map_err(damaged)?;
    let canvas = out.reshape(size, 3);
    canvas.fill(0);
    let rows = canvas.chunks_exact_mut(width.saturating_mul(3)).skip(top);
    for (y, row) in rows.take(frame_height).enumerate() {
        let row = row.as_chunks_mut::<3>().0;
        let end = left.saturating_add(frame_width);
        if let Some(row) = row.get_mut(left..end) {
            pixels.row(y, row);
        }
    }
    Ok(())
}

const TRUNCATED: &str = "it ends before the length that it claims";
const WRONG: &str = "a chunk that does not belong where it is";

/// The flags of an extended file (WebP Container Specification, "Extended File Format").
const ANIMATION: u8 = 2;
const ALPHA: u8 = 16;
const KNOWN: u8 = 0x3e;

/// An image of a file.
#[derive(Debug, Clone, Copy)]
struct Frame<'a> {
    /// Left, top, width, height.
    place: [u32; 4],
    /// The chunk of the image, and that of its alpha; both with their heads.
    image: &'a [u8],
    alpha: &'a [u8],
}

/// What was decoded of an image.
enum Pixels {
    Lossy(lossy::Planes),
    /// Rows of this length, alpha in the highest byte and blue in the lowest.
    Lossless(usize, Vec<u32>),
}

impl Pixels {
    /// Makes RGB of row `y`.
    fn row(&self, y: usize, out: &mut [[u8; 3]]) {
        match self {
            Self::Lossy(planes) => planes.row(y, out),
            Self::Lossless(width, pixels) => {
                let row = pixels.chunks(*width).nth(y).unwrap_or_default();
                for (pixel, stored) in out.iter_mut().zip(row) {
                    let [blue, green, red, _] = stored.to_le_bytes();
                    *pixel = [red, green, blue];
                }
            }
        }
    }
}

impl Frame<'_> {
    /// Decodes it.
    fn pixels(&self, sides: [usize; 2]) -> Result<Pixels, &'static str> {
        // libwebp also reads the byte that makes a chunk's length even.
        let data = self.image.get(8..).unwrap_or_default();
        if self.image.starts_with(b"VP8L") {
            return Ok(Pixels::Lossless(sides[0], lossless::decode(data, sides)?));
        }
        if !self.alpha.is_empty() {
            check_alpha(self.alpha, sides)?;
        }
        Ok(Pixels::Lossy(lossy::decode(data)?))
    }
}

/// Decodes the chunk of alpha, because a file with damaged alpha is refused (WebP Container
/// Specification, "Alpha").
fn check_alpha(chunk: &[u8], sides: [usize; 2]) -> Result<(), &'static str> {
    const DAMAGED: &str = "its alpha is damaged";
    let len = u32_le(chunk, 4).and_then(|len| usize::try_from(len).ok());
    let data = len.and_then(|len| chunk.get(8..)?.get(..len));
    let Some([kind, data @ ..]) = data.filter(|data| data.len() > 1) else {
        return Err(DAMAGED);
    };
    // Reserved bits, preprocessing, filtering, compression.
    match (kind >> 4, kind & 3) {
        (0 | 1, 0) if data.len() >= sides[0].saturating_mul(sides[1]) => Ok(()),
        (0 | 1, 1) => lossless::alpha(data, sides).map_err(|_| DAMAGED),
        _ => Err(DAMAGED),
    }
}

/// A file's chunks, read as libwebp's `demux.c` does.
struct Container<'a> {
    bytes: &'a [u8],
    at: usize,
    flags: u8,
    canvas: [u32; 2],
    first: Option<Frame<'a>>,
    n_frames: usize,
}

impl<'a> Container<'a> {
    fn open(bytes: &'a [u8]) -> Result<Self, &'static str> {
        let len = u32_le(bytes, 4).and_then(|len| usize::try_from(len).ok());
        let end = len.and_then(|len| len.checked_add(8)).ok_or(TRUNCATED)?;
        // What comes after that length does not count.
        let bytes = bytes.get(..end).ok_or(TRUNCATED)?;
        let (canvas, first) = ([0; 2], None);
        let mut file = Self { bytes, at: 12, flags: 0, canvas, first, n_frames: 0 };
        match file.kind() {
            Some(b"VP8X") => file.extended()?,
            Some(b"VP8 " | b"VP8L") => {
                let frame = file.frame()?;
                file.canvas = [frame.place[2], frame.place[3]];
                file.first = Some(Frame { alpha: &[], ..frame });
            }
            _ => return Err(WRONG),
        }
        Ok(file)
    }

    fn kind(&self) -> Option<&'a [u8; 4]> {
        self.bytes.get(self.at..)?.first_chunk()
    }

    /// The next chunk with its head, padded to an even length.
    fn chunk(&mut self) -> Result<&'a [u8], &'static str> {
        let len = u32_le(self.bytes, self.at.saturating_add(4)).ok_or(TRUNCATED)?;
        let len =
            usize::try_from(len).ok().and_then(|len| len.checked_next_multiple_of(2));
        let len = len.and_then(|len| len.checked_add(8)).ok_or(TRUNCATED)?;
        let chunk = self.bytes.get(self.at..).and_then(|rest| rest.get(..len));
        self.at = self.at.saturating_add(len);
        chunk.ok_or(TRUNCATED)
    }

    fn extended(&mut self) -> Result<(), &'static str> {
        let head = self.chunk()?;
        let body = head.get(8..).and_then(|body| body.first_chunk::<10>());
        let &[flags, _, _, _, w0, w1, w2, h0, h1, h2] = body.ok_or(TRUNCATED)?;
        self.flags = flags;
        self.canvas = [[w0, w1, w2, 0], [h0, h1, h2, 0]]
            .map(|side| u32::from_le_bytes(side).saturating_add(1));
        if flags & !KNOWN != 0 {
            return Err("an unknown flag");
        }
        let is_animated = flags & ANIMATION != 0;
        let mut is_announced = false;
        // A chunk must follow, and then others up to the end.
        loop {
            match self.kind().ok_or(TRUNCATED)? {
                b"VP8X" => return Err(WRONG),
                b"ALPH" | b"VP8 " | b"VP8L" if is_announced || is_animated => {
                    return Err(WRONG);
                }
                b"ALPH" | b"VP8 " | b"VP8L" => {
                    let mut frame = self.frame()?;
                    if flags & ALPHA == 0 {
                        frame.alpha = &[];
                    }
                    if self.n_frames > 0 || frame.place[2..] != self.canvas {
                        return Err("an image that is not as large as its canvas");
                    }
                    self.n_frames = 1;
                    self.first = Some(frame);
                }
                b"ANIM" => {
                    let chunk = self.chunk()?;
                    if chunk.len() < 14 {
                        return Err(WRONG);
                    }
                    is_announced = true;
                }
                b"ANMF" if !is_announced => return Err(WRONG),
                b"ANMF" => self.animation_frame(is_animated.then_some(()))?,
                _ => drop(self.chunk()?),
            }
            if self.at >= self.bytes.len() {
                return Ok(());
            }
        }
    }

    fn animation_frame(&mut self, kept: Option<()>) -> Result<(), &'static str> {
        let at = self.at;
        let chunk = self.chunk()?;
        let end = self.at;
        let word =
            |i: usize| u32_le(chunk, i).map(|word| (word & 0xff_ffff).wrapping_mul(2));
        let (Some(left), Some(top), 24..) = (word(8), word(11), chunk.len()) else {
            return Err(WRONG);
        };
        // The sides that it states do not count, only their product.
        let side = |i: usize| u32_le(chunk, i).map(|side| u64::from(side & 0xff_ffff));
        let sides = [side(14), side(17)].map(|side| side.unwrap_or(0).saturating_add(1));
        if sides[0].saturating_mul(sides[1]) > u32::MAX.into() {
            return Err(WRONG);
        }
        self.at = at.saturating_add(24);
        let mut frame = self.frame()?;
        // It does not count then, and what is in it is passed over.
        if frame.image.is_empty() {
            return Ok(());
        }
        if self.at > end {
            return Err(WRONG);
        }
        if kept.is_none() {
            return Ok(());
        }
        let fits = |from: u32, len: u32, most: u32| {
            from.checked_add(len).is_some_and(|end| end <= most)
        };
        let [_, _, width, height] = frame.place;
        if !fits(left, width, self.canvas[0]) || !fits(top, height, self.canvas[1]) {
            return Err("an image outside its canvas");
        }
        frame.place[..2].copy_from_slice(&[left, top]);
        self.first = self.first.or(Some(frame));
        self.n_frames = self.n_frames.saturating_add(1);
        Ok(())
    }

    /// The chunks of one image, of which there may be none; ends before a chunk that is of another.
    fn frame(&mut self) -> Result<Frame<'a>, &'static str> {
        let (mut image, mut alpha): (&[u8], &[u8]) = (&[], &[]);
        let mut sides = [0; 2];
        loop {
            match self.kind() {
                Some(b"ALPH") if alpha.is_empty() => {
                    // It must come before the image.
                    if !image.is_empty() {
                        return Err(WRONG);
                    }
                    alpha = self.chunk()?;
                }
                Some(b"VP8L") if !alpha.is_empty() => return Err(WRONG),
                Some(kind @ (b"VP8 " | b"VP8L")) if image.is_empty() => {
                    image = self.chunk()?;
                    let sizes =
                        if kind == b"VP8 " { lossy(image) } else { lossless(image) };
                    sides = sizes.ok_or("the head of its image is wrong")?;
                }
                // Whatever it is, it must be whole.
                Some(_) => {
                    let at = self.at;
                    self.chunk()?;
                    self.at = at;
                    break;
                }
                None => return Err(TRUNCATED),
            }
            if self.at >= self.bytes.len() {
                break;
            }
        }
        if image.is_empty() && !alpha.is_empty() {
            return Err("it has alpha but no image");
        }
        Ok(Frame { place: [0, 0, sides[0], sides[1]], image, alpha })
    }
}

/// Width and height of a lossy image (RFC 6386 §9.1), if its head is that of a key frame.
fn lossy(chunk: &[u8]) -> Option<[u32; 2]> {
    let tag = u32_le(chunk, 8)? & 0xff_ffff;
    let sides = [14, 16].map(|at| u16_le(chunk, at).map(|side| u32::from(side) & 0x3fff));
    let [Some(width @ 1..), Some(height @ 1..)] = sides else { return None };
    let is_key = tag & 1 == 0 && tag >> 1 & 7 <= 3 && tag >> 4 & 1 == 1;
    let len = u32_le(chunk, 4)?;
    let is_whole = part(chunk, 11, 3) == b"\x9d\x01\x2a" && tag >> 5 < len;
    (is_key && is_whole).then_some([width, height])
}

/// Width and height of a lossless image (WebP Lossless Bitstream, "RIFF Header").
fn lossless(chunk: &[u8]) -> Option<[u32; 2]> {
    let bits = u32_le(chunk, 9)?;
    let sides = [bits, bits >> 14].map(|side| (side & 0x3fff).saturating_add(1));
    (chunk.get(8) == Some(&0x2f) && bits >> 29 == 0).then_some(sides)
}
