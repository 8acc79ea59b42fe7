//! The first image of a GIF as Pillow reads it (`GifImagePlugin.py`, `GifDecode.c`).
//!
//! Around an image that does not cover the screen lies the transparent colour, if there is one, else
//! colour 0: Pillow makes no transparent pixels of its first image's RGB.

use bothends_core::recipe::Size;

use super::bytes::{part, u16_le};
use super::samples::Samples;
use crate::decode::room::check_room;
use crate::error::{OpsError, SampleFault};
use crate::image::{Image, check_size};

/// Whether the first bytes are a GIF's.
pub(super) fn recognises(bytes: &[u8]) -> bool {
    bytes.starts_with(b"GIF87a") || bytes.starts_with(b"GIF89a")
}

/// The size of an image, and the bytes that its pixels take.
pub(super) fn need_bytes(bytes: &[u8]) -> (Size, u64) {
    let size = Reader::open(bytes).map_or([0; 2], |reader| reader.size);
    let [width, height] = size.map(u32::from);
    // Indices, and then colours.
    let need = u64::from(width).saturating_mul(height.into()).saturating_mul(4);
    (Size { height, width }, need)
}

/// Decodes the first image of `bytes` into `out`.
pub(super) fn decode(bytes: &[u8], out: &mut Image) -> Result<(), OpsError> {
    let mut reader = Reader::open(bytes).map_err(damaged)?;
    let [width, height] = reader.size.map(usize::from);
    let size = check_size(height, width)?;
    check_room(size, need_bytes(bytes).1)?;
    let around = reader.transparent.unwrap_or(0);
    let mut indices = vec![around; width.saturating_mul(height)];
    let [left, top, frame_width, frame_height] = reader.frame.map(usize::from);
    if frame_width == 0 || frame_height == 0 {
        return Err(damaged("its image has no pixels").into());
    }
    let target = Target {
        indices: &mut indices,
        width,
        left,
        top,
        size: [frame_width, frame_height],
        x: 0,
        y: 0,
        passes: if reader.is_interlaced { &INTERLACED } else { &[(0, 1)] },
    };
    reader.pixels(target).map_err(damaged)?;
    let samples = reader.samples().map_err(damaged)?;
    samples.unpack(&indices, out.reshape(size, 3));
    Ok(())
}

fn damaged(why: &'static str) -> SampleFault {
    SampleFault::Damaged { format: "GIF", why: why.to_owned() }
}

const TRUNCATED: &str = "it ends before the end of its image";
const WRONG: &str = "a code without a meaning";

/// First row and step of each pass of an interlaced image (GIF89a, appendix E).
const INTERLACED: [(usize, usize); 4] = [(0, 8), (4, 8), (2, 4), (1, 2)];

/// A file, read up to the first image.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    size: [u16; 2],
    global: Option<&'a [u8]>,
    /// The image's own palette: none, or one that is a ramp of grey, or another.
    local: Local<'a>,
    transparent: Option<u8>,
    /// Left, top, width, height.
    frame: [u16; 4],
    is_interlaced: bool,
    /// Bits of a code at the beginning, less one.
    code_bits: u8,
}

enum Local<'a> {
    None,
    Ramp,
    Palette(&'a [u8]),
}

impl<'a> Reader<'a> {
    fn open(bytes: &'a [u8]) -> Result<Self, &'static str> {
        let size = [6, 8].map(|at| u16_le(bytes, at));
        let [Some(width), Some(height)] = size else { return Err(TRUNCATED) };
        let flags = *bytes.get(10).ok_or(TRUNCATED)?;
        let mut reader = Self {
            bytes,
            at: 13,
            size: [width, height],
            global: None,
            local: Local::None,
            transparent: None,
            frame: [0; 4],
            is_interlaced: false,
            code_bits: 0,
        };
        if bytes.len() < 13 {
            return Err(TRUNCATED);
        }
        if flags & 0x80 != 0 {
            let palette = reader.palette(flags);
            reader.global = is_needed(palette)?.then_some(palette);
        }
        loop {
            match reader.byte() {
                None | Some(b';') => return Err("it has no image"),
                Some(b'!') => reader.extension()?,
                Some(b',') => break,
                Some(_) => {}
            }
        }
        reader.image()?;
        Ok(reader)
    }

    fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at = self.at.saturating_add(1);
        Some(byte)
    }

    fn palette(&mut self, flags: u8) -> &'a [u8] {
        let palette = part(self.bytes, self.at, 6_usize << (flags & 7));
        self.at = self.at.saturating_add(palette.len());
        palette
    }

    /// The next block of an extension; empty ones end it.
    fn block(&mut self) -> Option<&'a [u8]> {
        let len = self.byte().filter(|len| *len > 0)?;
        let block = part(self.bytes, self.at, len.into());
        self.at = self.at.saturating_add(block.len());
        // At the end of the file, Pillow sees an empty block.
        (!block.is_empty()).then_some(block)
    }

    fn extension(&mut self) -> Result<(), &'static str> {
        let kind = self.byte().ok_or(TRUNCATED)?;
        let block = self.block();
        if let (249, Some(block)) = (kind, block) {
            if block[0] & 1 != 0 {
                self.transparent = Some(*block.get(3).ok_or(TRUNCATED)?);
            }
            block.get(2).ok_or(TRUNCATED)?;
        }
        // A comment ends with its first empty block; the others have one more to be read.
        if kind != 254 || block.is_some() {
            while self.block().is_some() {}
        }
        Ok(())
    }

    fn image(&mut self) -> Result<(), &'static str> {
        let at = self.at;
        let half = |i: usize| u16_le(self.bytes, at.saturating_add(i)).ok_or(TRUNCATED);
        let frame = [half(0)?, half(2)?, half(4)?, half(6)?];
        let flags = *self.bytes.get(at.saturating_add(8)).ok_or(TRUNCATED)?;
        self.at = at.saturating_add(9);
        for (side, (from, len)) in
            self.size.iter_mut().zip([(frame[0], frame[2]), (frame[1], frame[3])])
        {
            let end =
                from.checked_add(len).ok_or("its image lies beyond 65535 pixels")?;
            *side = end.max(*side);
        }
        self.frame = frame;
        self.is_interlaced = flags & 0x40 != 0;
        if flags & 0x80 != 0 {
            let palette = self.palette(flags);
            let is_needed = is_needed(palette)?;
            self.local = if is_needed { Local::Palette(palette) } else { Local::Ramp };
        }
        self.code_bits = self.byte().ok_or(TRUNCATED)?;
        Ok(())
    }

    /// What an index stands for.
    fn samples(&self) -> Result<Samples, &'static str> {
        let palette = match (&self.local, self.global) {
            (Local::Palette(palette), _) => palette,
            // Pillow drops a local ramp, and then finds the global palette after all.
            (Local::Ramp | Local::None, Some(palette)) => palette,
            (Local::Ramp | Local::None, None) => return Ok(Samples::grey(8)),
        };
        Ok(Samples::palette(8, palette.as_chunks().0))
    }

    /// Decodes the image's pixels.
    fn pixels(&mut self, mut target: Target<'_>) -> Result<(), &'static str> {
        /// What Pillow reads in one call.
        const READ: usize = 1 << 16;
        let mut codes = Codes::new(self.code_bits)?;
        let data = self.bytes.get(self.at..).unwrap_or_default();
        let mut blocks = Blocks { bytes: data, at: 0, left: 0, hold: 0, n_held: 0 };
        let mut read = READ;
        while let Some(code) = blocks.code(codes.bits) {
            if usize::from(code) == codes.end() {
                // Pillow goes on past the end of an image that is not full, if it has not read the
                // rest of the file yet.
                read = read.max(blocks.at.next_multiple_of(READ));
                if read >= data.len() {
                    break;
                }
                read = read.saturating_add(READ);
            } else if codes.next(code, &mut target)? {
                return Ok(());
            }
        }
        Err(TRUNCATED)
    }
}

/// Whether a palette is anything but a ramp of grey.
fn is_needed(palette: &[u8]) -> Result<bool, &'static str> {
    for (i, colour) in palette.chunks(3).enumerate() {
        if colour.iter().any(|value| usize::from(*value) != i) {
            return Ok(true);
        }
        if colour.len() < 3 {
            return Err(TRUNCATED);
        }
    }
    Ok(false)
}

/// Bits of the image's blocks. A block counts once all of it is there.
struct Blocks<'a> {
    bytes: &'a [u8],
    at: usize,
    left: usize,
    hold: u32,
    n_held: u32,
}

impl Blocks<'_> {
    fn code(&mut self, bits: u32) -> Option<u16> {
        while self.n_held < bits {
            let byte = *self.bytes.get(self.at)?;
            self.at = self.at.saturating_add(1);
            if let Some(left) = self.left.checked_sub(1) {
                self.left = left;
                self.hold |= u32::from(byte) << self.n_held;
                self.n_held = self.n_held.saturating_add(8);
            } else {
                self.left = byte.into();
                self.bytes.get(self.at..)?.get(..self.left)?;
            }
        }
        let code = self.hold & !(u32::MAX << bits);
        self.hold >>= bits;
        self.n_held = self.n_held.saturating_sub(bits);
        u16::try_from(code).ok()
    }
}

/// Where pixels go to.
struct Target<'a> {
    indices: &'a mut [u8],
    width: usize,
    left: usize,
    top: usize,
    size: [usize; 2],
    x: usize,
    y: usize,
    passes: &'a [(usize, usize)],
}

impl Target<'_> {
    /// Writes a pixel; whether it was the last.
    fn put(&mut self, index: u8) -> bool {
        let row = self.top.saturating_add(self.y).saturating_mul(self.width);
        let at = row.saturating_add(self.left).saturating_add(self.x);
        if let Some(pixel) = self.indices.get_mut(at) {
            *pixel = index;
        }
        self.x = self.x.saturating_add(1);
        if self.x >= self.size[0] {
            self.x = 0;
            self.y = self.y.saturating_add(self.passes.first().map_or(1, |pass| pass.1));
            while self.y >= self.size[1] {
                self.passes = self.passes.get(1..).unwrap_or_default();
                let Some((first, _)) = self.passes.first() else { return true };
                self.y = *first;
            }
        }
        false
    }
}

/// The longest code (GIF89a, appendix F), and how many there are.
const MOST_BITS: u32 = 12;
const MOST_CODES: usize = 1 << MOST_BITS;

/// The table of strings: each is another one and a pixel.
struct Codes {
    clear: usize,
    /// Bits of a code now.
    bits: u32,
    next: usize,
    pixels: Box<[u8; MOST_CODES]>,
    links: Box<[u16; MOST_CODES]>,
    /// The string before, and its first pixel; none behind a clear code.
    last: Option<(u16, u8)>,
    string: Vec<u8>,
}

impl Codes {
    fn new(code_bits: u8) -> Result<Self, &'static str> {
        if u32::from(code_bits) > MOST_BITS {
            return Err("its codes are longer than 12 bits");
        }
        let clear = 1_usize << code_bits;
        let mut codes = Self {
            clear,
            bits: 0,
            next: 0,
            pixels: Box::new([0; MOST_CODES]),
            links: Box::new([0; MOST_CODES]),
            last: None,
            string: Vec::with_capacity(MOST_CODES),
        };
        codes.clear();
        Ok(codes)
    }

    fn clear(&mut self) {
        self.next = self.clear.saturating_add(2);
        self.bits = self.clear.trailing_zeros().saturating_add(1);
        self.last = None;
    }

    fn end(&self) -> usize {
        self.clear.saturating_add(1)
    }

    /// Writes what a code stands for; whether the image is full.
    fn next(&mut self, code: u16, target: &mut Target<'_>) -> Result<bool, &'static str> {
        let index = usize::from(code);
        if index == self.clear {
            self.clear();
            return Ok(false);
        }
        let Some((before, first_before)) = self.last else {
            if index > self.clear {
                return Err(WRONG);
            }
            let first = code.to_le_bytes()[0];
            self.last = Some((code, first));
            return Ok(target.put(first));
        };
        if index > self.next {
            return Err(WRONG);
        }
        self.string.clear();
        let mut walk = index;
        if index == self.next {
            self.string.push(first_before);
            walk = before.into();
        }
        while walk >= self.clear {
            if self.string.len() >= MOST_CODES || walk >= MOST_CODES {
                return Err(WRONG);
            }
            self.string.push(self.pixels[walk]);
            walk = self.links[walk].into();
        }
        let first = walk.to_le_bytes()[0];
        if self.next < MOST_CODES {
            self.pixels[self.next] = first;
            self.links[self.next] = before;
            let is_longest = self.next.saturating_add(1) == 1 << self.bits;
            if is_longest && self.bits < MOST_BITS {
                self.bits = self.bits.saturating_add(1);
            }
            self.next = self.next.saturating_add(1);
        }
        self.last = Some((code, first));
        if target.put(first) {
            return Ok(true);
        }
        Ok(self.string.iter().rev().any(|pixel| target.put(*pixel)))
    }
}
