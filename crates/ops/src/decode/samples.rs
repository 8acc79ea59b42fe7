//! How the bytes of a row become RGB: one description per kind of pixel, shared by the formats that
//! store rows as they are.
//!
//! Every conversion is the one that Pillow makes between its modes on the way to `convert("RGB")`, so it
//! keeps Pillow's oddities: 16-bit grey is clipped at 255, but 16-bit colour keeps its high byte.

#![allow(
    clippy::arithmetic_side_effects,
    reason = "bits and offsets of a pixel are constants, and lengths were checked by the caller"
)]

mod lab;

use bothends_core::recipe::Size;

use crate::image::Image;

/// The colour of every index, or the grey of every value.
pub(super) type Table = [[u8; 3]; 256];

/// What one pixel of a row looks like.
#[derive(Debug, Clone)]
pub(super) enum Samples {
    /// `bits` (1, 2, 4 or 8) that choose a colour, most significant bits first.
    Indexed {
        /// Bits of a pixel.
        bits: usize,
        /// Bytes from one pixel to the next where a pixel has whole bytes.
        step: usize,
        /// The colours.
        table: Box<Table>,
    },
    /// Bytes `at` these places of every `step` are red, green and blue.
    Bytes {
        /// Bytes of a pixel.
        step: usize,
        /// Where red, green and blue are.
        at: [usize; 3],
    },
    /// The same, multiplied by an alpha that is to be taken out again.
    Premultiplied {
        /// Bytes of a pixel.
        step: usize,
        /// Where red, green, blue and alpha are.
        at: [usize; 4],
    },
    /// Four inks.
    Cmyk {
        /// Bytes of a pixel.
        step: usize,
        /// Where cyan, magenta, yellow and black are.
        at: [usize; 4],
    },
    /// CIE L\*a\*b\*, with signed a\* and b\*.
    Lab,
    /// 16 bits with blue in the lowest five, and five or six of green.
    Packed16 {
        /// Bits of green.
        green: u32,
    },
    /// A grey number that is clipped to 0 to 255.
    Number(Number),
}

/// A number of a pixel, and its order of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Number {
    /// Unsigned, 16 bits, little-endian.
    U16Le,
    /// Unsigned, 16 bits, big-endian.
    U16Be,
    /// Signed, 16 bits.
    I16Le,
    /// Signed, 16 bits, big-endian.
    I16Be,
    /// Signed, 32 bits; what is unsigned in the file, Pillow reads as signed, too.
    I32Le,
    /// Signed, 32 bits, big-endian.
    I32Be,
    /// Floating point.
    F32Le,
    /// Floating point, big-endian.
    F32Be,
    /// Twelve bits, packed, most significant bits first.
    Twelve,
}

impl Samples {
    /// Grey of `bits` bits, spread over 0 to 255.
    pub(super) fn grey(bits: usize) -> Self {
        let most = (1_usize << bits) - 1;
        Self::indexed(bits, |i| [low_byte(i.min(most) * 255 / most); 3])
    }

    /// As [`Self::grey`], with 0 for white.
    pub(super) fn inverted(bits: usize) -> Self {
        let most = (1_usize << bits) - 1;
        Self::indexed(bits, |i| [low_byte(255 - i.min(most) * 255 / most); 3])
    }

    /// Colours by index; black for an index that the palette lacks.
    pub(super) fn palette(bits: usize, colours: &[[u8; 3]]) -> Self {
        Self::indexed(bits, |i| colours.get(i).copied().unwrap_or_default())
    }

    /// Whatever an index stands for.
    pub(super) fn indexed(bits: usize, colour: impl Fn(usize) -> [u8; 3]) -> Self {
        Self::Indexed { bits, step: 1, table: Box::new(std::array::from_fn(colour)) }
    }

    /// The same with an index in the first of every so many bytes.
    pub(super) fn every(mut self, n_bytes: usize) -> Self {
        if let Self::Indexed { bits: 8, step, .. } = &mut self {
            *step = n_bytes;
        }
        self
    }

    /// Bits of a pixel.
    pub(super) fn bits(&self) -> usize {
        match self {
            Self::Indexed { bits: 8, step, .. } => step * 8,
            Self::Indexed { bits, .. } => *bits,
            Self::Bytes { step, .. }
            | Self::Premultiplied { step, .. }
            | Self::Cmyk { step, .. } => step * 8,
            Self::Packed16 { .. } => 16,
            Self::Lab => 24,
            Self::Number(number) => number.bits(),
        }
    }

    /// Bytes of a row of so many pixels.
    pub(super) fn row_bytes(&self, width: usize) -> usize {
        width.saturating_mul(self.bits()).div_ceil(8)
    }

    /// Writes `row`, of [`Self::row_bytes`], as RGB into `out`; what is missing stays as it is.
    pub(super) fn unpack(&self, row: &[u8], out: &mut [u8]) {
        let out = out.as_chunks_mut::<3>().0;
        match self {
            Self::Indexed { bits: 8, step, table } => {
                for (out, pixel) in out.iter_mut().zip(row.chunks_exact(*step)) {
                    *out = table[usize::from(pixel[0])];
                }
            }
            Self::Indexed { bits, table, .. } => unpack_bits(row, *bits, table, out),
            Self::Bytes { step: 3, at: [0, 1, 2] } => {
                let n = row.len().min(out.len() * 3);
                out.as_flattened_mut()[..n].copy_from_slice(&row[..n]);
            }
            Self::Bytes { step, at: [r, g, b] } => {
                for (out, pixel) in out.iter_mut().zip(row.chunks_exact(*step)) {
                    *out = [pixel[*r], pixel[*g], pixel[*b]];
                }
            }
            Self::Premultiplied { step, at: [r, g, b, a] } => {
                for (out, pixel) in out.iter_mut().zip(row.chunks_exact(*step)) {
                    let colours = [pixel[*r], pixel[*g], pixel[*b]];
                    *out = colours.map(|colour| divided(colour, pixel[*a]));
                }
            }
            Self::Cmyk { step, at } => {
                for (out, pixel) in out.iter_mut().zip(row.chunks_exact(*step)) {
                    *out = rgb_of_inks(at.map(|at| pixel[at]));
                }
            }
            Self::Packed16 { green } => {
                for (out, pixel) in out.iter_mut().zip(row.as_chunks::<2>().0) {
                    *out = rgb_of_16(u16::from_le_bytes(*pixel), *green);
                }
            }
            Self::Number(number) => number.unpack(row, out),
            Self::Lab => {
                for (out, [l, a, b]) in out.iter_mut().zip(row.as_chunks::<3>().0) {
                    *out = lab::rgb([*l, a ^ 0x80, b ^ 0x80]);
                }
            }
        }
    }
}

impl Number {
    fn bits(self) -> usize {
        match self {
            Self::Twelve => 12,
            Self::U16Le | Self::U16Be | Self::I16Le | Self::I16Be => 16,
            Self::I32Le | Self::I32Be | Self::F32Le | Self::F32Be => 32,
        }
    }

    fn unpack(self, row: &[u8], out: &mut [[u8; 3]]) {
        let twos = row.as_chunks::<2>().0.iter();
        let fours = row.as_chunks::<4>().0.iter();
        match self {
            Self::U16Le => greys(out, twos.map(|&two| u16::from_le_bytes(two).into())),
            Self::U16Be => greys(out, twos.map(|&two| u16::from_be_bytes(two).into())),
            Self::I16Le => greys(out, twos.map(|&two| i16::from_le_bytes(two).into())),
            Self::I16Be => greys(out, twos.map(|&two| i16::from_be_bytes(two).into())),
            Self::I32Le => greys(out, fours.map(|&four| i32::from_le_bytes(four))),
            Self::I32Be => greys(out, fours.map(|&four| i32::from_be_bytes(four))),
            Self::F32Le => floats(out, fours.map(|&four| f32::from_le_bytes(four))),
            Self::F32Be => floats(out, fours.map(|&four| f32::from_be_bytes(four))),
            Self::Twelve => {
                for (x, out) in out.iter_mut().enumerate() {
                    let at = x * 3 / 2;
                    let [a, b] =
                        [at, at + 1].map(|i| i32::from(*row.get(i).unwrap_or(&0)));
                    let value =
                        if x % 2 == 0 { a << 4 | b >> 4 } else { (a & 15) << 8 | b };
                    *out = [clipped(value); 3];
                }
            }
        }
    }
}

fn greys(out: &mut [[u8; 3]], values: impl Iterator<Item = i32>) {
    for (out, value) in out.iter_mut().zip(values) {
        *out = [clipped(value); 3];
    }
}

fn floats(out: &mut [[u8; 3]], values: impl Iterator<Item = f32>) {
    for (out, value) in out.iter_mut().zip(values) {
        *out = [float_to_grey(value); 3];
    }
}

/// A floating-point grey, clipped and rounded towards zero.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast clips, as meant"
)]
fn float_to_grey(value: f32) -> u8 {
    value as u8
}

/// A grey number, clipped.
pub(super) fn clipped(value: i32) -> u8 {
    u8::try_from(value.clamp(0, 255)).unwrap_or(u8::MAX)
}

fn low_byte(value: usize) -> u8 {
    value.to_le_bytes()[0]
}

fn unpack_bits(row: &[u8], bits: usize, table: &Table, out: &mut [[u8; 3]]) {
    let mask = (1_usize << bits) - 1;
    let per_byte = 8 / bits;
    for (pixels, &byte) in out.chunks_mut(per_byte).zip(row) {
        for (i, pixel) in pixels.iter_mut().enumerate() {
            *pixel = table[usize::from(byte) >> (8 - bits - i * bits) & mask];
        }
    }
}

/// Takes an alpha out of a colour.
pub(super) fn divided(colour: u8, alpha: u8) -> u8 {
    match alpha {
        0 => 0,
        255 => colour,
        alpha => clipped(i32::from(colour) * 255 / i32::from(alpha)),
    }
}

/// Inks as paper shows them: what black leaves, less each ink's part of it.
fn rgb_of_inks([c, m, y, k]: [u8; 4]) -> [u8; 3] {
    let left = 255 - i32::from(k);
    [c, m, y].map(|ink| {
        let product = i32::from(ink) * left + 128;
        clipped(left - (((product >> 8) + product) >> 8))
    })
}

fn rgb_of_16(pixel: u16, green_bits: u32) -> [u8; 3] {
    let pixel = i32::from(pixel);
    let green = (1 << green_bits) - 1;
    let parts = [(pixel >> (5 + green_bits), 31), (pixel >> 5, green), (pixel, 31)];
    parts.map(|(value, most)| clipped((value & most) * 255 / most))
}

/// Which row comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// The uppermost.
    Down,
    /// The lowermost.
    Up,
}

/// Makes RGB of rows that begin every `stride` bytes of `data`. The size has been checked.
pub(super) fn place(
    (data, stride): (&[u8], usize),
    samples: &Samples,
    (size, order): (Size, Order),
    out: &mut Image,
) -> Result<(), &'static str> {
    let row_bytes = samples.row_bytes(size.width as usize);
    if stride < row_bytes {
        return Err("its rows are shorter than their pixels");
    }
    let n_between = (size.height as usize).saturating_sub(1);
    let need = n_between.saturating_mul(stride).saturating_add(row_bytes);
    if data.len() < need {
        return Err("it ends before its last row");
    }
    let out_bytes = (size.width as usize).saturating_mul(3);
    let rows = data.chunks(stride).map(|row| row.get(..row_bytes).unwrap_or(row));
    let out = out.reshape(size, 3).chunks_exact_mut(out_bytes);
    let one = |(out, row): (&mut [u8], &[u8])| samples.unpack(row, out);
    match order {
        Order::Down => out.zip(rows).for_each(one),
        Order::Up => out.rev().zip(rows).for_each(one),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unpacked(samples: &Samples, row: &[u8], width: usize) -> Vec<u8> {
        let mut out = vec![7; width * 3];
        samples.unpack(row, &mut out);
        out.into_iter().step_by(3).collect()
    }

    #[test]
    fn bits_are_read_from_the_top() {
        assert_eq!(
            unpacked(&Samples::grey(1), &[0b1010_0000, 0x80], 9),
            [255, 0, 255, 0, 0, 0, 0, 0, 255]
        );
        assert_eq!(unpacked(&Samples::grey(2), &[0b0001_1011], 4), [0, 85, 170, 255]);
        assert_eq!(unpacked(&Samples::inverted(4), &[0x0f], 2), [255, 0]);
    }

    #[test]
    fn numbers_are_clipped() {
        let row = [0x00, 0x01, 0xff, 0x00, 0x01, 0x80];
        assert_eq!(unpacked(&Samples::Number(Number::U16Le), &row, 3), [255, 255, 255]);
        assert_eq!(unpacked(&Samples::Number(Number::U16Be), &row, 3), [1, 255, 255]);
        assert_eq!(unpacked(&Samples::Number(Number::I16Le), &row, 3), [255, 255, 0]);
        let float = |value: f32| value.to_le_bytes();
        let row = [float(-1.0), float(12.9), float(300.0), float(f32::NAN)].concat();
        assert_eq!(unpacked(&Samples::Number(Number::F32Le), &row, 4), [0, 12, 255, 0]);
        let row = [0x00, 0x81, 0x00];
        assert_eq!(unpacked(&Samples::Number(Number::Twelve), &row, 2), [8, 255]);
    }

    #[test]
    fn five_and_six_bits_are_spread() {
        for (green, full) in [(5, 0x7fff), (6, 0xffff)] {
            assert_eq!(rgb_of_16(full, green), [255; 3]);
            assert_eq!(rgb_of_16(1, green), [0, 0, 8]);
        }
    }

    #[test]
    fn inks_darken() {
        assert_eq!(rgb_of_inks([0, 0, 0, 0]), [255; 3]);
        assert_eq!(rgb_of_inks([255, 0, 128, 0]), [0, 255, 127]);
        assert_eq!(rgb_of_inks([0, 0, 0, 255]), [0; 3]);
    }
}
