//! BMP as Pillow reads it (`BmpImagePlugin.py` of Pillow 13): Windows and OS/2 headers, 1 to 32 bits,
//! masks, run lengths.
//!
//! Pillow's peculiarities are kept: a palette that is a grey ramp makes the image grey, whatever its
//! depth; masks are taken only in the orders that are common; alpha is dropped.

use bothends_core::recipe::Size;

use super::bytes::{part, u16_le, u32_le};
use super::samples::{Order, Samples, place};
use crate::decode::room::check_room;
use crate::error::{OpsError, SampleFault};
use crate::image::{Image, check_size};

/// Whether the first bytes are a BMP's.
pub(super) fn recognises(bytes: &[u8]) -> bool {
    bytes.starts_with(b"BM")
}

/// The size of an image, and the bytes that its pixels take.
pub(super) fn need_bytes(bytes: &[u8]) -> (Size, u64) {
    let none = (Size { height: 0, width: 0 }, 0);
    let Ok(header) = Header::of(bytes) else { return none };
    let size = Size { height: header.height, width: header.width };
    let n_pixels = u64::from(size.height).saturating_mul(u64::from(size.width));
    // Run lengths become indices first.
    let pixel_bytes = if header.compression == 0 { 3 } else { 4 };
    (size, n_pixels.saturating_mul(pixel_bytes))
}

/// Decodes all of `bytes` into `out`.
pub(super) fn decode(bytes: &[u8], out: &mut Image) -> Result<(), OpsError> {
    let header = Header::of(bytes)?;
    let size = check_size(header.height as usize, header.width as usize)?;
    check_room(size, need_bytes(bytes).1)?;
    let Pixels { samples, at, has_runs } = header.pixels(bytes)?;
    let order = if header.is_top_down { Order::Down } else { Order::Up };
    let data = bytes.get(at..).unwrap_or_default();
    if has_runs {
        let pixels = runs(bytes, at, &header)?;
        let stride = header.width as usize;
        return Ok(
            place((&pixels, stride), &samples, (size, order), out).map_err(damaged)?
        );
    }
    // Rows are padded to 32 bits.
    let bits = u64::from(header.width).saturating_mul(header.bits.into());
    let stride =
        usize::try_from(bits.div_ceil(32).saturating_mul(4)).unwrap_or(usize::MAX);
    Ok(place((data, stride), &samples, (size, order), out).map_err(damaged)?)
}

fn damaged(why: &'static str) -> SampleFault {
    SampleFault::Damaged { format: "BMP", why: why.to_owned() }
}

fn unsupported(feature: &'static str) -> SampleFault {
    SampleFault::Unsupported { format: "BMP", feature }
}

/// What the two headers say.
#[derive(Debug)]
struct Header {
    /// Where the pixels are said to be, and the length of the second header.
    offset: usize,
    len: usize,
    width: u32,
    height: u32,
    is_top_down: bool,
    bits: u16,
    compression: u32,
    n_colours: usize,
    /// Bytes of a colour of the palette.
    colour_bytes: usize,
}

/// How the pixels are stored, and where.
struct Pixels {
    samples: Samples,
    at: usize,
    has_runs: bool,
}

/// Run lengths of 8 and of 4 bits, and masks.
const RLE8: u32 = 1;
const RLE4: u32 = 2;
const BITFIELDS: u32 = 3;

/// Masks that Pillow knows, of red, green, blue and alpha, and where their bytes are.
const MASKS: [([u32; 4], [usize; 3]); 8] = [
    ([0xff_0000, 0xff00, 0xff, 0], [2, 1, 0]),
    ([0xff00_0000, 0xff_0000, 0xff00, 0], [3, 2, 1]),
    ([0xff00_0000, 0xff00, 0xff, 0], [3, 1, 0]),
    ([0xff00_0000, 0xff_0000, 0xff00, 0xff], [3, 2, 1]),
    ([0xff, 0xff00, 0xff_0000, 0xff00_0000], [0, 1, 2]),
    ([0xff_0000, 0xff00, 0xff, 0xff00_0000], [2, 1, 0]),
    ([0xff00_0000, 0xff00, 0xff, 0xff_0000], [3, 1, 0]),
    ([0; 4], [2, 1, 0]),
];

impl Header {
    fn of(bytes: &[u8]) -> Result<Self, SampleFault> {
        let short = || damaged("its header is cut short");
        let word = |at| u32_le(bytes, at).ok_or_else(short);
        let half = |at| u16_le(bytes, at).ok_or_else(short);
        let index = |word: u32| usize::try_from(word).unwrap_or(usize::MAX);
        let (offset, len) = (index(word(10)?), index(word(14)?));
        if bytes.get(14..len.saturating_add(14)).is_none() {
            return Err(short());
        }
        let mut header = match len {
            12 => Self {
                offset,
                len,
                width: half(18)?.into(),
                height: half(20)?.into(),
                is_top_down: false,
                bits: half(24)?,
                compression: 0,
                n_colours: 0,
                colour_bytes: 3,
            },
            40 | 52 | 56 | 64 | 108 | 124 => {
                let height = word(22)?;
                // Pillow tells by the highest byte.
                let is_top_down = height >> 24 == 0xff;
                Self {
                    offset,
                    len,
                    width: word(18)?,
                    height: if is_top_down { height.wrapping_neg() } else { height },
                    is_top_down,
                    bits: half(28)?,
                    compression: word(30)?,
                    n_colours: index(word(46)?),
                    colour_bytes: 4,
                }
            }
            _ => return Err(damaged("a header of an unknown length")),
        };
        if header.n_colours == 0 {
            header.n_colours =
                1_usize.checked_shl(header.bits.into()).unwrap_or(usize::MAX);
        }
        Ok(header)
    }

    fn pixels(&self, bytes: &[u8]) -> Result<Pixels, SampleFault> {
        if !matches!(self.bits, 1 | 4 | 8 | 16 | 24 | 32) {
            return Err(damaged("a depth other than 1, 4, 8, 16, 24 and 32 bits"));
        }
        let mut behind = self.len.saturating_add(14);
        let mut at = self.offset;
        // Some writers say that the pixels begin where the palette does.
        if at == behind && self.bits <= 8 {
            at = at.saturating_add(self.colour_bytes.saturating_mul(self.n_colours));
        }
        let has_runs = matches!(self.compression, RLE8 | RLE4);
        let samples = match self.compression {
            BITFIELDS if self.bits < 16 => return Err(unsupported("masked indexed")),
            BITFIELDS => {
                let (samples, read) = self.masked(bytes)?;
                behind = behind.saturating_add(read);
                samples
            }
            0 | RLE8 | RLE4 if self.bits <= 8 => {
                let n_bytes = self.colour_bytes.saturating_mul(self.n_colours);
                let palette = part(bytes, behind, n_bytes);
                behind = behind.saturating_add(palette.len());
                self.indexed(palette)?
            }
            0 => match self.bits {
                16 => Samples::Packed16 { green: 5 },
                24 => Samples::Bytes { step: 3, at: [2, 1, 0] },
                _ => Samples::Bytes { step: 4, at: [2, 1, 0] },
            },
            RLE8 | RLE4 => {
                return Err(damaged("run lengths of pixels without a palette"));
            }
            4 | 5 => return Err(unsupported("JPEG- or PNG-compressed")),
            _ => return Err(damaged("an unknown compression")),
        };
        Ok(Pixels { samples, at: if at == 0 { behind } else { at }, has_runs })
    }

    /// Pixels in an order that masks give, and how many bytes of masks follow the header.
    fn masked(&self, bytes: &[u8]) -> Result<(Samples, usize), SampleFault> {
        let mask = |i: usize| {
            u32_le(bytes, i.saturating_mul(4).saturating_add(54))
                .ok_or_else(|| damaged("its masks are cut short"))
        };
        // An alpha mask is part of the longer headers only.
        let alpha = if self.len >= 56 { mask(3)? } else { 0 };
        let masks = [mask(0)?, mask(1)?, mask(2)?, alpha];
        let samples = match (self.bits, masks) {
            (16, [0xf800, 0x7e0, 0x1f, _]) => Some(Samples::Packed16 { green: 6 }),
            (16, [0x7c00, 0x3e0, 0x1f, _]) => Some(Samples::Packed16 { green: 5 }),
            (24, [0xff_0000, 0xff00, 0xff, _]) => {
                Some(Samples::Bytes { step: 3, at: [2, 1, 0] })
            }
            (32, masks) => MASKS
                .iter()
                .find(|(known, _)| *known == masks)
                .map(|(_, at)| Samples::Bytes { step: 4, at: *at }),
            _ => None,
        };
        let read = if self.len >= 52 { 0 } else { 12 };
        Ok((samples.ok_or_else(|| unsupported("unusually masked"))?, read))
    }

    fn indexed(&self, palette: &[u8]) -> Result<Samples, SampleFault> {
        let n = self.n_colours;
        let has_runs = self.compression != 0;
        let n_there = palette.len().checked_div(self.colour_bytes).unwrap_or(0);
        if n > 1 << 16 {
            return Err(damaged("its palette is too long"));
        }
        let colours = || palette.chunks(self.colour_bytes);
        let is_grey = |(i, colour): (usize, &[u8])| {
            let grey = if n == 2 { i.wrapping_neg() } else { i }.to_le_bytes()[0];
            colour.starts_with(&[grey; 3])
        };
        let is_ramp = n_there >= n && colours().enumerate().all(is_grey);
        // A ramp of grey is no palette to Pillow, and its indices are then read as greys: one bit each if
        // there are two, else eight.
        match (is_ramp, n) {
            (true, 1 | 2) if has_runs => {
                Ok(Samples::indexed(8, |i| if i == 0 { [0; 3] } else { [255; 3] }))
            }
            (true, 1 | 2) => Ok(Samples::grey(1)),
            (true, _) => Ok(Samples::grey(8)),
            (false, _) if n_there > 256 => Err(damaged("its palette is too long")),
            (false, _) => {
                let colours: Vec<[u8; 3]> = colours()
                    .filter(|colour| colour.len() == self.colour_bytes)
                    .map(|colour| [colour[2], colour[1], colour[0]])
                    .collect();
                let bits = if has_runs { 8 } else { self.bits.into() };
                Ok(Samples::palette(bits, &colours))
            }
        }
    }
}

/// Indices of all pixels, from run lengths, each in a byte.
fn runs(bytes: &[u8], at: usize, header: &Header) -> Result<Vec<u8>, SampleFault> {
    let width = header.width as usize;
    let room = width.saturating_mul(header.height as usize);
    let mut runs = Runs {
        bytes,
        at,
        is_four: header.compression == RLE4,
        out: Vec::with_capacity(room),
        width,
        room,
        x: 0,
    };
    while runs.out.len() < room && runs.step().is_some() {}
    Ok(runs.out)
}

struct Runs<'a> {
    bytes: &'a [u8],
    at: usize,
    is_four: bool,
    out: Vec<u8>,
    width: usize,
    /// Pixels of the image.
    room: usize,
    x: usize,
}

impl Runs<'_> {
    fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at = self.at.saturating_add(1);
        Some(byte)
    }

    /// One command; `None` at the end.
    fn step(&mut self) -> Option<()> {
        let (n, byte) = (usize::from(self.byte()?), self.byte()?);
        match (n, byte) {
            (0, 0) => {
                self.out.resize(self.out.len().next_multiple_of(self.width), 0);
                self.x = 0;
            }
            (0, 1) => return None,
            (0, 2) => {
                let (right, up) = (usize::from(self.byte()?), usize::from(self.byte()?));
                let n = up.saturating_mul(self.width).saturating_add(right);
                let end = self.out.len().saturating_add(n).min(self.room);
                self.out.resize(end, 0);
                self.x = end.checked_rem(self.width)?;
            }
            (0, n) => return self.literal(n.into()),
            (n, byte) => {
                let n = n.min(self.width.saturating_sub(self.x));
                let pair = if self.is_four { [byte >> 4, byte & 15] } else { [byte; 2] };
                self.out.extend(pair.iter().cycle().take(n));
                self.x = self.x.saturating_add(n);
            }
        }
        Some(())
    }

    fn literal(&mut self, n: usize) -> Option<()> {
        let room = n.min(self.room.saturating_sub(self.out.len()));
        let n_bytes = if self.is_four { room.div_ceil(2) } else { room };
        let literal = part(self.bytes, self.at, n_bytes);
        self.at = self.at.saturating_add(literal.len());
        if self.is_four {
            let halves = literal.iter().flat_map(|byte| [byte >> 4, byte & 15]);
            self.out.extend(halves.take(room));
        } else {
            self.out.extend_from_slice(literal);
        }
        if literal.len() < n_bytes || self.out.len() == self.room {
            return None;
        }
        self.x = self.x.saturating_add(n);
        self.at = self.at.next_multiple_of(2);
        Some(())
    }
}
