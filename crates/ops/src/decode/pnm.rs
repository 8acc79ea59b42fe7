//! PBM, PGM, PPM and PFM as Pillow reads them (`PpmImagePlugin.py`).
//!
//! Pillow's peculiarities are kept: grey of more than eight bits is clipped at 255 on the way to RGB,
//! where colour of as many bits is scaled.

use bothends_core::recipe::Size;

use super::samples::{Number, Order, Samples, clipped, place};
use crate::decode::room::check_room;
use crate::error::{OpsError, SampleFault};
use crate::image::{Image, check_size};

/// Whether the first bytes are those of one of these formats.
pub(super) fn recognises(bytes: &[u8]) -> bool {
    let is_kind = |kind: &u8| b"123456f".contains(kind);
    bytes.starts_with(b"P")
        && bytes.get(1).is_some_and(is_kind)
        && bytes.get(2).is_some_and(is_space)
}

/// The size of an image, and the bytes that its pixels take.
pub(super) fn need_bytes(bytes: &[u8]) -> (Size, u64) {
    let (width, height) = Header::of(bytes).map_or((0, 0), |header| header.size);
    let side = |pixels: usize| u32::try_from(pixels).unwrap_or(u32::MAX);
    let size = Size { height: side(height), width: side(width) };
    let n_pixels = u64::from(size.height).saturating_mul(u64::from(size.width));
    (size, n_pixels.saturating_mul(3))
}

/// Decodes all of `bytes` into `out`.
pub(super) fn decode(bytes: &[u8], out: &mut Image) -> Result<(), OpsError> {
    let header = Header::of(bytes).map_err(damaged)?;
    let (width, height) = header.size;
    let size = check_size(height, width)?;
    check_room(size, need_bytes(bytes).1)?;
    let data = bytes.get(header.at..).unwrap_or_default();
    // Before memory is taken: a sample takes a byte at least, but a bit in P4.
    if header.kind != b'4' && data.len() < width.saturating_mul(height) {
        return Err(damaged(SHORT).into());
    }
    let (samples, order) = match (header.kind, header.most) {
        (b'4', _) => (Samples::inverted(1), Order::Down),
        (b'f', _) => {
            let is_little = header.scale < 0.0;
            let number = if is_little { Number::F32Le } else { Number::F32Be };
            (Samples::Number(number), Order::Up)
        }
        (b'5', 255) => (Samples::grey(8), Order::Down),
        (b'5', 65_535) => (Samples::Number(Number::U16Be), Order::Down),
        (b'6', 255) => (Samples::Bytes { step: 3, at: [0, 1, 2] }, Order::Down),
        (b'5' | b'6', most) => {
            let pixels = out.reshape(size, 3);
            return Ok(scaled(data, header.scaling(most), pixels).map_err(damaged)?);
        }
        (b'1', _) => {
            let pixels = out.reshape(size, 3);
            return Ok(plain_bits(data, pixels).map_err(damaged)?);
        }
        (_, most) => {
            let pixels = out.reshape(size, 3);
            return Ok(plain(data, header.scaling(most), pixels).map_err(damaged)?);
        }
    };
    let stride = samples.row_bytes(width);
    Ok(place((data, stride), &samples, (size, order), out).map_err(damaged)?)
}

fn damaged(why: &'static str) -> SampleFault {
    SampleFault::Damaged { format: "PNM", why: why.to_owned() }
}

/// Between words there is white space.
fn is_space(byte: &u8) -> bool {
    b" \t\n\x0b\x0c\r".contains(byte)
}

const SHORT: &str = "it ends before its last row";

/// What stands before the pixels.
struct Header {
    /// The second letter.
    kind: u8,
    size: (usize, usize),
    /// The largest value of a sample.
    most: u32,
    /// Of PFM: its sign is the order of bytes.
    scale: f64,
    /// Where the pixels begin.
    at: usize,
}

/// How the samples of a file become bytes.
#[derive(Debug, Clone, Copy)]
struct Scaling {
    /// Samples of a pixel.
    bands: usize,
    /// The largest value in the file, and what it becomes.
    from: f64,
    to: f64,
}

impl Scaling {
    /// A sample, scaled, rounded half to even, clipped.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a sample has 16 bits, and is scaled to as many"
    )]
    fn byte(self, value: u32) -> u8 {
        let scaled = f64::from(value) / self.from * self.to;
        clipped(scaled.round_ties_even().min(self.to) as i32)
    }
}

impl Header {
    fn of(bytes: &[u8]) -> Result<Self, &'static str> {
        let mut words = Words { bytes, at: 3 };
        let kind = *bytes.get(1).ok_or(SHORT)?;
        let mut side = || words.number();
        let size = (side()?, side()?);
        let (mut most, mut scale) = (1, 1.0_f64);
        match kind {
            b'1' | b'4' => {}
            b'f' => {
                let word = words.word()?;
                let text = std::str::from_utf8(&word).map_err(|_| "a wrong scale")?;
                scale = text.parse().map_err(|_| "a wrong scale")?;
                if scale == 0.0 || !scale.is_finite() {
                    return Err("a wrong scale");
                }
            }
            _ => {
                most = u32::try_from(words.number()?).unwrap_or(u32::MAX);
                if !(1..65_536).contains(&most) {
                    return Err("a largest value outside 1 to 65535");
                }
            }
        }
        Ok(Self { kind, size, most, scale, at: words.at })
    }

    fn scaling(&self, most: u32) -> Scaling {
        let bands = if matches!(self.kind, b'3' | b'6') { 3 } else { 1 };
        let to = if bands == 1 && most > 255 { 65_535.0 } else { 255.0 };
        Scaling { bands, from: most.into(), to }
    }
}

/// The words of a header.
struct Words<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Words<'_> {
    /// At most ten letters; the white space behind them is read, too.
    fn word(&mut self) -> Result<Vec<u8>, &'static str> {
        let mut word = Vec::new();
        while word.len() <= 10 {
            let Some(byte) = self.bytes.get(self.at) else { break };
            self.at = self.at.saturating_add(1);
            if is_space(byte) {
                if !word.is_empty() {
                    break;
                }
            } else if *byte == b'#' {
                let rest = self.bytes.get(self.at..).unwrap_or_default();
                let line = rest.iter().position(|byte| b"\r\n".contains(byte));
                let len = line.map_or(rest.len(), |line| line.saturating_add(1));
                self.at = self.at.saturating_add(len);
            } else {
                word.push(*byte);
            }
        }
        match word.len() {
            0 => Err("its header is cut short"),
            1..=10 => Ok(word),
            _ => Err("a word of its header is too long"),
        }
    }

    fn number(&mut self) -> Result<usize, &'static str> {
        let word = self.word()?;
        let number = integer(&word).ok_or("a word of its header is not a number")?;
        usize::try_from(number).map_err(|_| "a number of its header is negative")
    }
}

/// A number as Python's `int` reads it: a sign may stand before it, and single `_` between digits.
fn integer(word: &[u8]) -> Option<i64> {
    let (sign, digits) = match word {
        [b'-', digits @ ..] => (-1_i64, digits),
        [b'+', digits @ ..] => (1, digits),
        _ => (1, word),
    };
    let (mut value, mut is_digit) = (0_i64, false);
    for byte in digits {
        match byte {
            b'0'..=b'9' => {
                let digit = i64::from(byte.saturating_sub(b'0'));
                value = value.checked_mul(10)?.checked_add(digit)?;
            }
            b'_' if is_digit => {}
            _ => return None,
        }
        is_digit = *byte != b'_';
    }
    if is_digit { value.checked_mul(sign) } else { None }
}

/// Binary samples that are scaled.
fn scaled(data: &[u8], scaling: Scaling, out: &mut [u8]) -> Result<(), &'static str> {
    let is_wide = scaling.from > 255.0;
    let sample_bytes = if is_wide { 2 } else { 1 };
    let mut samples = data.chunks_exact(sample_bytes).map(|sample| {
        let sample = sample.iter().fold(0, |value, byte| value << 8 | u32::from(*byte));
        scaling.byte(sample)
    });
    fill(out, scaling.bands, || samples.next().ok_or(SHORT))
}

/// Fills pixels with samples.
fn fill(
    out: &mut [u8],
    bands: usize,
    mut next: impl FnMut() -> Result<u8, &'static str>,
) -> Result<(), &'static str> {
    for pixel in out.as_chunks_mut::<3>().0 {
        if bands == 1 {
            *pixel = [next()?; 3];
        } else {
            *pixel = [next()?, next()?, next()?];
        }
    }
    Ok(())
}

/// Bytes that Pillow reads at a time (`ImageFile.SAFEBLOCK`).
const PILLOW_READS: usize = 1 << 20;

/// Numbers in words.
fn plain(data: &[u8], scaling: Scaling, out: &mut [u8]) -> Result<(), &'static str> {
    let text = without_comments(data);
    // Pillow reads a small file at once, and looks at a last word without an end also where no pixel needs it.
    let last = text.rsplit(is_space).next().unwrap_or_default();
    if data.len() <= PILLOW_READS && last.len() > 10 {
        return Err("a number is too long");
    }
    let mut words = text.split(is_space).filter(|word| !word.is_empty());
    fill(out, scaling.bands, || {
        let word = words.next().ok_or(SHORT)?;
        if word.len() > 10 {
            return Err("a number is too long");
        }
        let value = integer(word).and_then(|value| u32::try_from(value).ok());
        let value = value.ok_or("a sample is not a number")?;
        if f64::from(value) > scaling.from {
            return Err("a sample is larger than its largest value");
        }
        Ok(scaling.byte(value))
    })
}

/// Zeros and ones, with or without white space between them.
fn plain_bits(data: &[u8], out: &mut [u8]) -> Result<(), &'static str> {
    let text = without_comments(data);
    let bits: Vec<u8> = text.into_iter().filter(|byte| !is_space(byte)).collect();
    // Pillow looks at all of a small file, also at what comes after the last pixel.
    if bits.iter().any(|bit| !b"01".contains(bit)) {
        return Err("a bit is neither 0 nor 1");
    }
    let mut bits = bits.iter().map(|bit| if *bit == b'1' { 0 } else { 255 });
    fill(out, 1, || bits.next().ok_or(SHORT))
}

/// The text without comments, which end with their line.
fn without_comments(data: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(data.len());
    let mut rest = data;
    while let Some(at) = rest.iter().position(|&byte| byte == b'#') {
        text.extend_from_slice(&rest[..at]);
        let comment = &rest[at..];
        let end = comment.iter().position(|byte| b"\r\n".contains(byte));
        let Some(end) = end else { return text };
        rest = comment.get(end.saturating_add(1)..).unwrap_or_default();
    }
    text.extend_from_slice(rest);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_python() {
        for (word, number) in [
            ("0", Some(0)),
            ("007", Some(7)),
            ("-12", Some(-12)),
            ("+1_2_3", Some(123)),
            ("9223372036854775807", Some(i64::MAX)),
            ("9223372036854775808", None),
            ("", None),
            ("-", None),
            ("+-1", None),
            ("_1", None),
            ("-_1", None),
            ("1_", None),
            ("1__2", None),
            ("1a", None),
            ("\u{664}", None),
        ] {
            assert_eq!(integer(word.as_bytes()), number, "{word}");
        }
        assert_eq!(integer(b"1\xff"), None);
    }

    /// As Pillow 12.3 and 13.0 do.
    #[test]
    fn a_long_word_behind_the_last_number_counts_where_it_has_no_end() {
        let decoded = |bytes: &[u8]| {
            let mut out = Image::default();
            decode(bytes, &mut out).map(|()| out.pixels().to_vec())
        };
        let pixels = [1, 1, 1, 2, 2, 2];
        for end in ["12345678901\n", "1234567890", "# 12345678901"] {
            let file = format!("P2 2 1 255\n1 2\n{end}");
            assert_eq!(decoded(file.as_bytes()).unwrap(), pixels, "{end}");
        }
        let fault = decoded(b"P2 2 1 255\n1 2\n12345678901").unwrap_err();
        assert!(fault.to_string().contains("a number is too long"), "{fault}");
    }
}
