//! Compressions of strips and tiles, and predictors (TIFF 6.0 §9, §13, §14), with libtiff's verdicts.

use fdeflate::Decompressor;
use weezl::{BitOrder, LzwStatus};

use super::super::inflate::{End, Sink, inflate};
use super::directory::{Bytes, Directory, SHORT, damaged, tag, unsupported};
use super::fax::{Coding, fax3, fax4};
use super::jpeg::{Expected, Jpeg};
use super::old_jpeg::OldJpeg;
use crate::error::SampleFault;

/// How strips and tiles are compressed.
#[derive(Debug)]
pub(super) enum Codec<'a> {
    /// Not at all: then Pillow reads them itself.
    None,
    /// In some way that libtiff reads.
    Packed(Packed),
    /// Each strip or tile is a JPEG, which gives RGB or inks.
    Jpeg(Box<Jpeg<'a>>),
    /// All of it is one JPEG, in a way that was given up.
    OldJpeg(OldJpeg),
}

/// A compression, and what comes around it.
#[derive(Debug)]
pub(super) struct Packed {
    method: Method,
    /// Bits of every compressed byte are in reverse.
    is_reversed: bool,
    /// The order of bytes of samples that have several.
    order: Bytes,
    predictor: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Method {
    PackBits,
    Lzw,
    Deflate,
    /// Facsimile of group 3 (ITU-T T.4), black as ones.
    Fax3(Coding),
    /// Facsimile of group 4 (ITU-T T.6), black as ones.
    Fax4,
}

impl<'a> Codec<'a> {
    pub(super) fn of(
        directory: &Directory<'a>,
        bytes: &[u8],
    ) -> Result<Self, SampleFault> {
        let method = match directory.one(tag::COMPRESSION).unwrap_or(1) {
            1 => return Ok(Self::None),
            2..=4
                if directory
                    .all(tag::BITS)
                    .is_some_and(|bits| bits.iter().any(|it| it != 1)) =>
            {
                return Err(unsupported("unusually deep fax-compressed"));
            }
            2 => Method::Fax3(Coding::Rows),
            3 => Method::Fax3(Coding::of(directory)?),
            4 => Method::Fax4,
            5 => Method::Lzw,
            6 => return OldJpeg::of(directory, bytes).map(Self::OldJpeg),
            7 => return Jpeg::of(directory).map(|it| Self::Jpeg(Box::new(it))),
            8 | 32_946 => Method::Deflate,
            32_773 => Method::PackBits,
            34_925 => return Err(unsupported("LZMA-compressed")),
            50_000 => return Err(unsupported("Zstandard-compressed")),
            _ => return Err(unsupported("unusually compressed")),
        };
        let has_predictor = matches!(method, Method::Lzw | Method::Deflate);
        Ok(Self::Packed(Packed {
            method,
            is_reversed: directory.one(tag::FILL_ORDER) == Some(2),
            order: directory.order,
            predictor: directory
                .one(tag::PREDICTOR)
                .filter(|_| has_predictor)
                .unwrap_or(1),
        }))
    }

    /// Unpacks a strip or tile into `out`, which it must fill. On an error what came before it is there, and
    /// zeros as they were behind that.
    pub(super) fn unpack(
        &self,
        bytes: &[u8],
        expected: Expected,
        out: &mut [u8],
    ) -> Result<(), SampleFault> {
        match self {
            // Neither is unpacked by parts.
            Self::None | Self::OldJpeg(_) => Ok(()),
            Self::Packed(packed) => packed.unpack(bytes, expected, out).map_err(damaged),
            Self::Jpeg(jpeg) => jpeg.unpack(bytes, expected, out),
        }
    }

    /// Bytes that unpacking any strip or tile reads besides it.
    pub(super) fn overhead(&self) -> usize {
        match self {
            Self::None | Self::Packed(_) | Self::OldJpeg(_) => 0,
            Self::Jpeg(jpeg) => jpeg.tables_bytes(),
        }
    }

    /// Takes a predictor back where samples have so many bits and pixels so many samples, and brings
    /// samples into little-endian order.
    pub(super) fn undo_predictor(
        &self,
        data: &mut [u8],
        stride: usize,
        [bits, n]: [usize; 2],
    ) -> Result<(), SampleFault> {
        let Self::Packed(packed) = self else { return Ok(()) };
        let bytes = bits / 8;
        if packed.predictor != 3 && packed.order == Bytes::Big && bytes > 1 {
            data.chunks_exact_mut(bytes).for_each(<[u8]>::reverse);
        }
        match (packed.predictor, bits) {
            (1, _) => {}
            (2, 8) => {
                for row in data.chunks_exact_mut(stride) {
                    for i in n..row.len() {
                        row[i] = row[i].wrapping_add(row[i.saturating_sub(n)]);
                    }
                }
            }
            (2, 16) => add_before::<2>(data, stride, n),
            (2, 32) => add_before::<4>(data, stride, n),
            (3, 32) => floats(data, stride, n),
            (2 | 3, _) => return Err(unsupported("unusually predicted")),
            _ => return Err(damaged("an unknown predictor")),
        }
        Ok(())
    }
}

impl Packed {
    fn unpack(
        &self,
        bytes: &[u8],
        expected: Expected,
        out: &mut [u8],
    ) -> Result<(), &'static str> {
        let reversed: Vec<u8>;
        let mut bytes = bytes;
        if self.is_reversed {
            reversed = bytes.iter().map(|byte| byte.reverse_bits()).collect();
            bytes = &reversed;
        }
        match self.method {
            Method::PackBits => pack_bits(bytes, out),
            Method::Lzw => lzw(bytes, out),
            Method::Deflate => deflate(bytes, out),
            Method::Fax3(coding) => fax3(bytes, expected.width, coding, out),
            Method::Fax4 => fax4(bytes, expected.width, out),
        }
    }
}

/// To every sample of `N` bytes, little-endian, the one of the pixel before is added.
fn add_before<const N: usize>(data: &mut [u8], stride: usize, n: usize) {
    for row in data.chunks_exact_mut(stride) {
        let samples = row.as_chunks_mut::<N>().0;
        for i in n..samples.len() {
            let before = samples[i.saturating_sub(n)];
            let mut carry = 0;
            for (byte, before) in samples[i].iter_mut().zip(before) {
                let sum =
                    u16::from(*byte).saturating_add(before.into()).saturating_add(carry);
                [*byte, _] = sum.to_le_bytes();
                carry = sum >> 8;
            }
        }
    }
}

/// The predictor of floating-point samples: the bytes of a row are sorted by significance, highest first,
/// and each is the difference to the one before.
fn floats(data: &mut [u8], stride: usize, n: usize) {
    let mut sorted = Vec::new();
    for row in data.chunks_exact_mut(stride) {
        for i in n..row.len() {
            row[i] = row[i].wrapping_add(row[i.saturating_sub(n)]);
        }
        sorted.clear();
        sorted.extend_from_slice(row);
        let n_samples = row.len() / 4;
        for (i, sample) in row.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            for (plane, byte) in sample.iter_mut().rev().enumerate() {
                let at = plane.saturating_mul(n_samples).saturating_add(i);
                *byte = sorted.get(at).copied().unwrap_or(0);
            }
        }
    }
}

fn pack_bits(mut bytes: &[u8], mut out: &mut [u8]) -> Result<(), &'static str> {
    while !out.is_empty() {
        let (&head, rest) = bytes.split_first().ok_or(SHORT)?;
        let head = i8::from_ne_bytes([head]);
        let n = usize::from(head.unsigned_abs()).saturating_add(1).min(out.len());
        bytes = rest;
        if head == i8::MIN {
            continue;
        }
        let (now, later) = out.split_at_mut(n);
        if head < 0 {
            let (&value, rest) = bytes.split_first().ok_or(SHORT)?;
            now.fill(value);
            bytes = rest;
        } else {
            let (literal, rest) = bytes.split_at_checked(n).ok_or(SHORT)?;
            now.copy_from_slice(literal);
            bytes = rest;
        }
        out = later;
    }
    Ok(())
}

fn lzw(mut bytes: &[u8], mut out: &mut [u8]) -> Result<(), &'static str> {
    // Before TIFF 6.0, some wrote the bits of codes the other way round, as GIF does.
    if matches!(bytes, [0, second, ..] if second & 1 == 1) {
        return Err("its LZW codes are of the kind before TIFF 6.0");
    }
    // The first code clears the table (TIFF 6.0 §13).
    if !matches!(bytes, [0x80, second, ..] if second >> 7 == 0) {
        return Err("its LZW codes do not begin with the one that clears");
    }
    let mut stream = weezl::decode::Decoder::with_tiff_size_switch(BitOrder::Msb, 8);
    while !out.is_empty() {
        let made = stream.decode_bytes(bytes, out);
        let status = made.status.map_err(|_| "its LZW codes are wrong")?;
        bytes = bytes.get(made.consumed_in..).unwrap_or_default();
        out = out.get_mut(made.consumed_out..).unwrap_or_default();
        if !out.is_empty() && !matches!(status, LzwStatus::Ok) {
            return Err(SHORT);
        }
    }
    Ok(())
}

/// Fills a buffer from its beginning.
struct Filling<'a> {
    out: &'a mut [u8],
    filled: usize,
}

impl Sink for Filling<'_> {
    fn take(&mut self, bytes: &[u8]) -> Result<(), &'static str> {
        let end = self.filled.saturating_add(bytes.len());
        self.out.get_mut(self.filled..end).ok_or(SHORT)?.copy_from_slice(bytes);
        self.filled = end;
        Ok(())
    }
}

fn deflate(bytes: &[u8], out: &mut [u8]) -> Result<(), &'static str> {
    let mut stream = Decompressor::new();
    let whole = stream.read(bytes, out, 0, true);
    if matches!(whole, Ok((_, made)) if made == out.len()) && stream.is_done() {
        return Ok(());
    }
    let room = out.len() as u64;
    out.fill(0);
    let inflated = inflate(&[bytes], &mut Filling { out, filled: 0 }, room);
    match inflated.end {
        End::Full => Ok(()),
        End::Stream | End::Input => Err(SHORT),
        End::Damaged(why) => Err(why),
    }
}
