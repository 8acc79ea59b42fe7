//! The first image of a TIFF as Pillow reads it (`TiffImagePlugin.py`, `TiffDecode.c`), upright.
//!
//! Strips and tiles; uncompressed, PackBits, LZW and deflate with predictors, JPEG of both kinds, fax;
//! grey, palettes, RGB, YCbCr, Lab and CMYK of up to 32 bits. Other compressions and colours are
//! refused by name. Pillow reads uncompressed files itself and gives all others to libtiff, and some
//! details differ between the two; so they do here.

mod codecs;
mod directory;
mod fax;
mod jpeg;
mod kinds;
mod old_jpeg;
mod ycbcr;

use bothends_core::recipe::Size;

use self::codecs::Codec;
use self::directory::{Directory, Numbers, SHORT, WRONG, damaged, tag, unsupported};
use self::jpeg::Expected;
use self::kinds::{Bits, Kind};
use self::ycbcr::YCbCr;
use crate::decode::room::check_room;
use crate::decode::samples::{Samples, divided};
use crate::error::{OpsError, SampleFault};
use crate::image::{Image, check_size};

/// Rows that a JPEG-compressed strip may have below the image, at most: those of an MCU, several times.
const EXTRA_ROWS: usize = 64;

/// Whether the first bytes are a TIFF's; its number may be in the wrong order of bytes.
pub(super) fn recognises(bytes: &[u8]) -> bool {
    let known: [&[u8]; 5] =
        [b"MM\0\x2a", b"II\x2a\0", b"MM\x2a\0", b"II\0\x2a", b"II\x2b\0"];
    known.iter().any(|known| bytes.starts_with(known))
}

/// The size of an image, and the bytes that decoding it takes: two images, of which the second is the one
/// that was turned, and a strip or tile, which may be larger than the image.
pub(super) fn need_bytes(bytes: &[u8]) -> (Size, u64) {
    let directory = Directory::open(bytes);
    let side = |tag| directory.one(tag).unwrap_or(0);
    let (height, width) = (side(tag::HEIGHT), side(tag::WIDTH));
    let n_pixels = u64::from(height).saturating_mul(width.into());
    let tile =
        u64::from(side(tag::TILE_WIDTH)).saturating_mul(side(tag::TILE_HEIGHT).into());
    let mut with_tile =
        n_pixels.saturating_mul(6).saturating_add(tile.saturating_mul(16));
    if matches!(directory.one(tag::COMPRESSION), Some(6 | 7)) {
        // Four components' samples and coefficients, RGB twice, and the last strip may have more rows.
        let extra = u64::from(width).saturating_mul(EXTRA_ROWS as u64);
        let part = tile.max(n_pixels.saturating_add(extra)).saturating_mul(4 * 3 + 6);
        with_tile = with_tile.saturating_add(part);
    }
    // Where strips are not in the order of their places, they are sorted.
    let offsets = directory.all(tag::STRIP_OFFSETS).or(directory.all(tag::TILE_OFFSETS));
    let n_parts = offsets.map_or(0, Numbers::len) as u64;
    let sorted = n_pixels.saturating_mul(6).saturating_add(n_parts.saturating_mul(8));
    let need = n_pixels.saturating_mul(3 + 12).max(with_tile).max(sorted);
    (Size { height, width }, need)
}

/// Decodes the first image of `bytes` into `out`.
pub(super) fn decode(bytes: &[u8], out: &mut Image) -> Result<(), OpsError> {
    let directory = Directory::open(bytes);
    if directory.odd.is_some() {
        return Err(unsupported("unusually tagged").into());
    }
    let side = |tag| directory.one(tag).map(|side| side as usize);
    let (Some(height), Some(width)) = (side(tag::HEIGHT), side(tag::WIDTH)) else {
        return Err(damaged("its dimensions are missing").into());
    };
    let codec = Codec::of(&directory, bytes)?;
    let kind = Kind::of(&directory, &codec)?;
    let size = check_size(height, width)?;
    check_room(size, need_bytes(bytes).1)?;
    out.reshape(size, 3);
    let mut zeros = vec![0; kind.samples.row_bytes(width)];
    if matches!(kind.samples, Samples::Lab) {
        // Pillow's own zeros, which are the least of both colours, and not those of a file.
        zeros.as_chunks_mut::<3>().0.fill([0, 0x80, 0x80]);
    }
    for row in out.pixels_mut().chunks_exact_mut(width.saturating_mul(3)) {
        kind.samples.unpack(&zeros, row);
    }
    let layout = Layout { directory: &directory, kind, width, height };
    match codec {
        Codec::None => layout.uncompressed(bytes, out)?,
        Codec::Packed(_) | Codec::Jpeg(_) => layout.compressed(bytes, codec, out)?,
        Codec::OldJpeg(jpeg) => {
            layout.work(bytes).take(jpeg.n_bytes())?;
            jpeg.decode(&directory, width, out.pixels_mut())?;
        }
    }
    turn(directory.orientation(), size, out);
    Ok(())
}

/// How an image is cut into strips or tiles.
struct Layout<'a> {
    directory: &'a Directory<'a>,
    kind: Kind,
    width: usize,
    height: usize,
}

/// A strip or tile.
#[derive(Debug, Clone, Copy)]
struct Part {
    x: usize,
    y: usize,
    /// What of it lies within the image.
    width: usize,
    height: usize,
    /// Its plane, where colours are stored apart.
    plane: usize,
}

impl Layout<'_> {
    /// Width and height of a strip or tile, and where each of them begins.
    fn parts(&self) -> Result<([usize; 2], Numbers<'_>), SampleFault> {
        let index = |tag| self.directory.one(tag).map(|value| value as usize);
        if let Some(offsets) = self.directory.all(tag::STRIP_OFFSETS) {
            let rows = index(tag::ROWS_PER_STRIP).unwrap_or(self.height);
            return Ok(([self.width, rows], offsets));
        }
        let offsets = self.directory.all(tag::TILE_OFFSETS);
        let sides = index(tag::TILE_WIDTH).zip(index(tag::TILE_HEIGHT));
        match (offsets, sides) {
            (Some(offsets), Some((width @ 1.., height @ 1..))) => {
                Ok(([width, height], offsets))
            }
            _ => Err(damaged("it has neither strips nor tiles")),
        }
    }

    /// Pillow's own way: parts follow each other from left to right and from the top, as many as there
    /// are; a later one in the file wins.
    fn uncompressed(&self, bytes: &[u8], out: &mut Image) -> Result<(), SampleFault> {
        let ([width, height], offsets) = self.parts()?;
        if height == 0 {
            return Err(damaged("its strips have no rows"));
        }
        let is_one = width == self.width && height == self.height && !self.kind.is_planar;
        let n_skipped = if is_one { offsets.len().saturating_sub(1) } else { 0 };
        let mut work = self.work(bytes);
        let mut part = |at: u64, nth: usize| -> Result<(), SampleFault> {
            let part = self.nth([width, height], nth);
            let data = usize::try_from(at).ok().and_then(|at| bytes.get(at..));
            let row_bytes = self.kind.row_bytes(part.width);
            // What lies beyond the right edge is stored, too.
            let stride =
                if part.width < width { self.kind.row_bytes(width) } else { row_bytes };
            let need = part.height.saturating_sub(1).saturating_mul(stride);
            let need = need.saturating_add(row_bytes);
            work.take(need)?;
            let data = data.and_then(|data| data.get(..need));
            self.place(data.ok_or_else(|| damaged(SHORT))?, stride, part, out);
            Ok(())
        };
        let n_parts = offsets.len().saturating_sub(n_skipped);
        let offsets = offsets.iter().skip(n_skipped);
        if offsets.clone().is_sorted() {
            return offsets.zip(0..).try_for_each(|(at, nth)| part(at, nth));
        }
        // Of what is not in the order of the file, each place and number is one number.
        let small = |number: u64| u32::try_from(number).map_err(|_| damaged(SHORT));
        let mut sorted = Vec::with_capacity(n_parts);
        for (at, nth) in offsets.zip(0..) {
            sorted.push(u64::from(small(at)?) << 32 | u64::from(small(nth)?));
        }
        sorted.sort_unstable();
        let (low, mut sorted) = (u64::from(u32::MAX), sorted.into_iter());
        sorted.try_for_each(|it| {
            part(it >> 32, usize::try_from(it & low).unwrap_or(usize::MAX))
        })
    }

    /// Strip or tile number `nth` of these sides, from left to right and from the top, plane by plane, and
    /// from the beginning again.
    fn nth(&self, [width, height]: [usize; 2], nth: usize) -> Part {
        let [across, down] = self.grid([width, height]);
        let (row, column) = (nth.div_euclid(across), nth.rem_euclid(across));
        let x = column.saturating_mul(width);
        let y = row.rem_euclid(down).saturating_mul(height);
        Part {
            x,
            y,
            width: width.min(self.width.saturating_sub(x)),
            height: height.min(self.height.saturating_sub(y)),
            plane: row.div_euclid(down),
        }
    }

    /// Strips or tiles of these sides, across and down.
    fn grid(&self, [width, height]: [usize; 2]) -> [usize; 2] {
        [self.width.div_ceil(width).max(1), self.height.div_ceil(height).max(1)]
    }

    /// libtiff's way: every part has its place and its length.
    fn compressed(
        &self,
        bytes: &[u8],
        codec: Codec<'_>,
        out: &mut Image,
    ) -> Result<(), SampleFault> {
        let ([width, height], offsets) = self.parts()?;
        let is_known = matches!(self.directory.one(tag::PLANAR), None | Some(1 | 2));
        let fault = self.directory.fault.or((!is_known).then_some(WRONG));
        if let Some(why) = fault {
            return Err(damaged(why));
        }
        let is_tiled = self.directory.all(tag::STRIP_OFFSETS).is_none();
        let stated = height;
        let height = if is_tiled { height } else { height.min(self.height) };
        if height == 0 {
            return Err(damaged("its strips have no rows"));
        }
        // A strip may have rows of JPEG's blocks below the image.
        let most_height = stated.min(height.saturating_add(EXTRA_ROWS));
        let is_alone = !is_tiled && self.kind.n_planes == 1 && height == self.height;
        let counts = self.byte_counts();
        let is_estimated = is_alone && counts.is_none();
        let estimate = is_estimated.then(|| self.strip_bytes(bytes.len(), offsets));
        let counts = counts.unwrap_or(Numbers::NONE).iter().chain(estimate);
        let (_, stride) = self.kind.part_bytes(width, height);
        check_room_of_part(stride, height)?;
        self.check_ycbcr(width, stated)?;
        let (mut data, mut work) = (Vec::new(), self.work(bytes));
        let mut places = offsets.iter().zip(counts);
        let [across, down] = self.grid([width, height]);
        let n_parts = across.saturating_mul(down).saturating_mul(self.kind.n_planes);
        for part in (0..n_parts).map(|nth| self.nth([width, height], nth)) {
            let place = places.next();
            let place = place.ok_or_else(|| damaged("a strip or tile is missing"))?;
            let [Ok(at), Ok(len)] = [place.0, place.1].map(usize::try_from) else {
                return Err(damaged(SHORT));
            };
            let packed = bytes.get(at..).and_then(|rest| rest.get(..len));
            let rows = if is_tiled { height } else { part.height };
            let (n_bytes, _) = self.kind.part_bytes(width, rows);
            let unpacked = n_bytes.saturating_add(codec.overhead());
            work.take(len.saturating_add(unpacked))?;
            data.clear();
            data.resize(n_bytes, 0);
            let expected = Expected { width, height: rows, most_height };
            let packed = packed.ok_or_else(|| damaged(SHORT))?;
            let unpacked = codec.unpack(packed, expected, &mut data);
            match &self.kind.ycbcr {
                Some(ycbcr) => {
                    // Pillow asks libtiff to go on; what is missing is zero.
                    if unpacked.is_ok() {
                        codec.undo_predictor(&mut data, stride, self.kind.sample)?;
                    }
                    self.place_ycbcr(ycbcr, (&data, width), part, out);
                }
                None => {
                    unpacked?;
                    codec.undo_predictor(&mut data, stride, self.kind.sample)?;
                    self.place(&data, stride, part, out);
                }
            }
        }
        Ok(())
    }

    /// The lengths of strips or tiles.
    fn byte_counts(&self) -> Option<Numbers<'_>> {
        match self.directory.all(tag::STRIP_OFFSETS) {
            Some(_) => self.directory.all(tag::STRIP_BYTE_COUNTS),
            None => self.directory.all(tag::TILE_BYTE_COUNTS),
        }
    }

    fn check_ycbcr(&self, width: usize, stated: usize) -> Result<(), SampleFault> {
        let Some(ycbcr) = &self.kind.ycbcr else { return Ok(()) };
        ycbcr.check_rows(width)?;
        // TIFF's default, all rows, may be written out.
        let is_tiled = self.directory.all(tag::STRIP_OFFSETS).is_none();
        let is_default = !is_tiled && stated == u32::MAX as usize;
        let rows = if is_default { self.height } else { stated };
        // Pillow has a bound of its own for the room of such a part.
        if rows.saturating_mul(self.width) > (i32::MAX / 4) as usize {
            return Err(damaged("its strips are too large"));
        }
        Ok(())
    }

    /// The bytes of the only strip of a file of `len` bytes that does not say it: all that are not the
    /// directory's.
    fn strip_bytes(&self, len: usize, offsets: Numbers<'_>) -> u64 {
        let at = offsets.get(0).and_then(|at| usize::try_from(at).ok());
        let others = self.directory.n_bytes.zip(at).map(|(n, at)| n.max(at));
        others.map_or(0, |others| len.saturating_sub(others) as u64)
    }

    /// Makes RGB of the rows of a part of which several pixels share their chroma.
    fn place_ycbcr(
        &self,
        ycbcr: &YCbCr,
        (data, width): (&[u8], usize),
        part: Part,
        out: &mut Image,
    ) {
        let rows = out.pixels_mut().chunks_exact_mut(self.width.saturating_mul(3));
        let columns =
            part.x.saturating_mul(3)..part.x.saturating_add(part.width).saturating_mul(3);
        for (y, row) in rows.skip(part.y).take(part.height).enumerate() {
            if let Some(row) = row.get_mut(columns.clone()) {
                ycbcr.row(data, (y, width), row);
            }
        }
    }

    /// What reading the parts may take. Several may lie at the same place, and tiles may be larger than
    /// the image: without a bound, the time is that of the file's size squared.
    fn work(&self, bytes: &[u8]) -> Work {
        let of_file = (bytes.len().saturating_add(1 << 20)).saturating_mul(64);
        let n_pixels = self.width.saturating_mul(self.height);
        Work { left: of_file.saturating_add(n_pixels.saturating_mul(32)) }
    }

    /// Makes RGB of the rows of a part.
    fn place(&self, data: &[u8], stride: usize, part: Part, out: &mut Image) {
        let stride_out = self.width.saturating_mul(3);
        let rows = out.pixels_mut().chunks_exact_mut(stride_out).skip(part.y);
        let columns =
            part.x.saturating_mul(3)..part.x.saturating_add(part.width).saturating_mul(3);
        let row_bytes = self.kind.row_bytes(part.width);
        let mut reversed = Vec::new();
        for (out, row) in rows.take(part.height).zip(data.chunks(stride)) {
            let mut row = row.get(..row_bytes).unwrap_or(row);
            if self.kind.bits_order == Bits::LowFirst {
                reversed.clear();
                reversed.extend(row.iter().map(|byte| byte.reverse_bits()));
                row = &reversed;
            }
            let Some(out) = out.get_mut(columns.clone()) else { continue };
            match self.kind.plane_bytes {
                None => self.kind.samples.unpack(row, out),
                Some(step) => {
                    // The high byte comes last, as libtiff delivers it.
                    let values = row.chunks_exact(step).filter_map(|value| value.last());
                    let pixels = out.as_chunks_mut::<3>().0.iter_mut();
                    for (pixel, value) in pixels.zip(values) {
                        match pixel.get_mut(part.plane) {
                            Some(band) => *band = *value,
                            // The alpha, behind the colours.
                            None => *pixel = pixel.map(|band| divided(band, *value)),
                        }
                    }
                }
            }
        }
    }
}

/// Bytes that may still be read and unpacked.
struct Work {
    left: usize,
}

impl Work {
    fn take(&mut self, n_bytes: usize) -> Result<(), SampleFault> {
        let left = self.left.checked_sub(n_bytes);
        let too_often = || damaged("its strips or tiles overlap too often");
        self.left = left.ok_or_else(too_often)?;
        Ok(())
    }
}

/// A strip may claim to be larger than any image.
fn check_room_of_part(stride: usize, height: usize) -> Result<(), SampleFault> {
    let side = |pixels: usize| u32::try_from(pixels).unwrap_or(u32::MAX);
    let size = Size { height: side(height), width: side(stride) };
    check_room(size, (stride as u64).saturating_mul(height as u64))
}

/// Turns an image as its orientation says (TIFF 6.0, "Orientation"), as Pillow does on loading.
fn turn(orientation: u32, size: Size, out: &mut Image) {
    if !(2..=8).contains(&orientation) {
        return;
    }
    let source = out.pixels().to_vec();
    let pixels = source.as_chunks::<3>().0;
    let (height, width) = (size.height as usize, size.width as usize);
    let is_swapped = orientation >= 5;
    let turned =
        if is_swapped { Size { height: size.width, width: size.height } } else { size };
    let columns = turned.width as usize;
    let last = |side: usize| side.saturating_sub(1);
    let out = out.reshape(turned, 3).as_chunks_mut::<3>().0;
    for (y, row) in out.chunks_exact_mut(columns).enumerate() {
        for (x, pixel) in row.iter_mut().enumerate() {
            // Row and column in the file.
            let (from_y, from_x) = match orientation {
                2 => (y, last(width).saturating_sub(x)),
                3 => (last(height).saturating_sub(y), last(width).saturating_sub(x)),
                4 => (last(height).saturating_sub(y), x),
                5 => (x, y),
                6 => (last(height).saturating_sub(x), y),
                7 => (last(height).saturating_sub(x), last(width).saturating_sub(y)),
                _ => (x, last(width).saturating_sub(y)),
            };
            let at = from_y.saturating_mul(width).saturating_add(from_x);
            *pixel = pixels.get(at).copied().unwrap_or_default();
        }
    }
}
