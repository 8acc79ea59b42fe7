//! The tags of a TIFF's first image (TIFF 6.0 §2, and BigTIFF).
//!
//! What is wrong with a tag makes it missing, and a directory that is cut short has the tags before the
//! cut, as in Pillow. Numbers stay in the file until somebody asks for them: a tag may have as many as
//! there are bytes.

use std::collections::BTreeMap;

use memchr::memmem;

use crate::error::SampleFault;

/// Tags that pixels depend on.
pub(super) mod tag {
    pub(in super::super) const WIDTH: u16 = 256;
    pub(in super::super) const HEIGHT: u16 = 257;
    pub(in super::super) const BITS: u16 = 258;
    pub(in super::super) const COMPRESSION: u16 = 259;
    pub(in super::super) const PHOTOMETRIC: u16 = 262;
    pub(in super::super) const FILL_ORDER: u16 = 266;
    pub(in super::super) const STRIP_OFFSETS: u16 = 273;
    pub(in super::super) const ORIENTATION: u16 = 274;
    pub(in super::super) const SAMPLES: u16 = 277;
    pub(in super::super) const ROWS_PER_STRIP: u16 = 278;
    pub(in super::super) const STRIP_BYTE_COUNTS: u16 = 279;
    pub(in super::super) const PLANAR: u16 = 284;
    pub(in super::super) const PREDICTOR: u16 = 317;
    pub(in super::super) const COLOUR_MAP: u16 = 320;
    pub(in super::super) const TILE_WIDTH: u16 = 322;
    pub(in super::super) const TILE_HEIGHT: u16 = 323;
    pub(in super::super) const TILE_OFFSETS: u16 = 324;
    pub(in super::super) const TILE_BYTE_COUNTS: u16 = 325;
    pub(in super::super) const EXTRA_SAMPLES: u16 = 338;
    pub(in super::super) const JPEG_TABLES: u16 = 347;
    pub(in super::super) const SAMPLE_FORMAT: u16 = 339;
    pub(in super::super) const FAX_OPTIONS: u16 = 292;
    pub(in super::super) const JPEG_PROCESS: u16 = 512;
    pub(in super::super) const JPEG_FILE: u16 = 513;
    pub(in super::super) const JPEG_FILE_BYTES: u16 = 514;
    pub(in super::super) const JPEG_RESTART: u16 = 515;
    pub(in super::super) const JPEG_Q: u16 = 519;
    pub(in super::super) const JPEG_DC: u16 = 520;
    pub(in super::super) const JPEG_AC: u16 = 521;
    pub(in super::super) const COEFFICIENTS: u16 = 529;
    pub(in super::super) const SUBSAMPLING: u16 = 530;
    pub(in super::super) const REFERENCE: u16 = 532;
    pub(in super::super) const XMP: u16 = 700;

    /// All that most files have but the packet, which is text, and the tables, which are bytes.
    pub(in super::super) const ALL: [u16; 21] = [
        WIDTH,
        HEIGHT,
        BITS,
        COMPRESSION,
        PHOTOMETRIC,
        FILL_ORDER,
        STRIP_OFFSETS,
        ORIENTATION,
        SAMPLES,
        ROWS_PER_STRIP,
        STRIP_BYTE_COUNTS,
        PLANAR,
        PREDICTOR,
        COLOUR_MAP,
        TILE_WIDTH,
        TILE_HEIGHT,
        TILE_OFFSETS,
        TILE_BYTE_COUNTS,
        EXTRA_SAMPLES,
        SAMPLE_FORMAT,
        SUBSAMPLING,
    ];

    /// Those of some compressions and colours.
    pub(in super::super) const SOME: [u16; 8] = [
        FAX_OPTIONS,
        JPEG_PROCESS,
        JPEG_FILE,
        JPEG_FILE_BYTES,
        JPEG_RESTART,
        JPEG_Q,
        JPEG_DC,
        JPEG_AC,
    ];

    /// Those that libtiff must be able to read if they are there, as one number.
    pub(in super::super) const SINGLE: [u16; 6] =
        [WIDTH, HEIGHT, ROWS_PER_STRIP, PLANAR, TILE_WIDTH, TILE_HEIGHT];

    /// Those of numbers that need not be whole.
    pub(in super::super) const REAL: [u16; 2] = [COEFFICIENTS, REFERENCE];
}

pub(super) fn damaged(why: &'static str) -> SampleFault {
    SampleFault::Damaged { format: "TIFF", why: why.to_owned() }
}

pub(super) fn unsupported(feature: &'static str) -> SampleFault {
    SampleFault::Unsupported { format: "TIFF", feature }
}

/// One more real number than a tag of them has at most.
const MOST_REALS: usize = 7;

/// What a file says of which libtiff cannot read a tag that it needs.
pub(super) const WRONG: &str = "a tag of its directory is wrong";

/// What a file says that is cut short.
pub(super) const SHORT: &str = "it ends before its last row";

/// An order of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bytes {
    Little,
    Big,
}

/// The tags with numbers, and the XMP packet.
#[derive(Debug)]
pub(super) struct Directory<'a> {
    pub(super) order: Bytes,
    /// A tag that pixels depend on, of a type that it should not have.
    pub(super) odd: Option<u16>,
    /// Why libtiff would not take it.
    pub(super) fault: Option<&'static str>,
    /// Bytes of the head, the directory and its values; nothing if a tag's type is unknown.
    pub(super) n_bytes: Option<usize>,
    values: BTreeMap<u16, Numbers<'a>>,
    reals: BTreeMap<u16, Vec<f32>>,
    /// Tags of some compressions and colours that have a type that they should not have, and all that are
    /// longer than the file.
    strange: Vec<u16>,
    xmp: &'a [u8],
    /// What JPEG-compressed strips have in common; empty where they have nothing.
    pub(super) jpeg_tables: &'a [u8],
}

impl<'a> Directory<'a> {
    pub(super) fn open(bytes: &'a [u8]) -> Self {
        let order = if bytes.starts_with(b"II") { Bytes::Little } else { Bytes::Big };
        let mut directory = Self {
            order,
            odd: None,
            fault: None,
            n_bytes: None,
            values: BTreeMap::new(),
            reals: BTreeMap::new(),
            strange: Vec::new(),
            xmp: &[],
            jpeg_tables: &[],
        };
        // Lengths of offsets, of the count of tags, of a tag.
        let is_big = bytes.get(2) == Some(&43);
        let lengths = if is_big { [8, 8, 20] } else { [4, 2, 12] };
        if directory.read(Reader { bytes, order }, lengths).is_none() {
            directory.fault = Some("its directory is cut short");
        }
        directory
    }

    fn read(
        &mut self,
        reader: Reader<'a>,
        [word, n_count, n_tag]: [usize; 3],
    ) -> Option<()> {
        let at = index(reader.number(word, word)?)?;
        let n_tags = index(reader.number(at, n_count)?)?;
        let first = at.checked_add(n_count)?;
        let end = first.checked_add(n_tags.checked_mul(n_tag)?);
        let are_listed = end.is_some_and(|end| end <= reader.bytes.len());
        let (mut n_apart, mut are_known) = (0_usize, true);
        for i in 0..n_tags {
            let at = first.checked_add(i.checked_mul(n_tag)?)?;
            reader.bytes.get(at..)?.get(..n_tag)?;
            let number = u16::try_from(reader.number(at, 2)?).ok()?;
            let kind = reader.number(at.checked_add(2)?, 2)?;
            let count = index(reader.number(at.checked_add(4)?, word)?)?;
            let is_single = matches!(kind, 1 | 3 | 4 | 6 | 8 | 9 | 16 | 17) && count == 1;
            if tag::SINGLE.contains(&number) && !is_single {
                self.fault = Some(WRONG);
            }
            let Some(len) = len_of(kind) else {
                are_known &= matches!(kind, 0 | 17 | 18);
                self.pass_over(number);
                continue;
            };
            let here = at.checked_add(4)?.checked_add(word)?;
            let n_bytes = len.saturating_mul(count);
            let place = if n_bytes <= word {
                Some(here)
            } else {
                index(reader.number(here, word)?)
            };
            if n_bytes > word {
                // Pillow counts those that it passes over, too.
                n_apart = n_apart.saturating_add(n_bytes);
                if n_apart > reader.bytes.len() {
                    self.pass_over(number);
                    self.strange.push(number);
                    continue;
                }
            }
            // A value beyond the file ends the directory for Pillow. libtiff goes on without it if it can.
            let value = reader.bytes.get(place?..).and_then(|rest| rest.get(..n_bytes));
            let Some(value) = value else {
                return (are_listed && number >= tag::REFERENCE).then_some(());
            };
            self.keep(reader, (number, kind, len), value);
        }
        let head = if word == 8 { 16 } else { 8 };
        let listed = end?.checked_sub(at)?.checked_add(word)?.checked_add(head)?;
        self.n_bytes = listed.checked_add(n_apart).filter(|_| are_known);
        Some(())
    }

    /// A tag that Pillow does not take; libtiff refuses the file if it needs it.
    fn pass_over(&mut self, number: u16) {
        const NEEDED: [u16; 5] = [
            tag::BITS,
            tag::SAMPLE_FORMAT,
            tag::EXTRA_SAMPLES,
            tag::STRIP_BYTE_COUNTS,
            tag::TILE_BYTE_COUNTS,
        ];
        if NEEDED.contains(&number) {
            self.fault = Some(WRONG);
        }
    }

    /// Keeps a tag of a type whose values have `len` bytes each.
    fn keep(
        &mut self,
        reader: Reader<'a>,
        (number, kind, len): (u16, u64, usize),
        value: &'a [u8],
    ) {
        if number == tag::XMP {
            self.xmp = value;
        }
        if number == tag::JPEG_TABLES {
            self.jpeg_tables = value;
        }
        let is_number = matches!(kind, 1 | 3 | 4 | 13 | 16);
        if !is_number && tag::ALL.contains(&number) {
            self.odd = Some(number);
        }
        if !is_number && tag::SOME.contains(&number) {
            self.strange.push(number);
        }
        if tag::REAL.contains(&number) && !self.reals.contains_key(&number) {
            match reader.reals(value, kind) {
                Some(reals) => drop(self.reals.insert(number, reals)),
                None => self.strange.push(number),
            }
        }
        // Tags may overlap: none is taken that nobody asks for.
        let is_wanted =
            is_number && (tag::ALL.contains(&number) || tag::SOME.contains(&number));
        if is_wanted && !value.is_empty() && !self.values.contains_key(&number) {
            let numbers = Numbers { bytes: value, len_each: len, order: self.order };
            self.values.insert(number, numbers);
        }
    }

    /// All numbers of a tag.
    pub(super) fn all(&self, tag: u16) -> Option<Numbers<'a>> {
        self.values.get(&tag).copied()
    }

    /// The first number of a tag.
    pub(super) fn one(&self, tag: u16) -> Option<u32> {
        self.all(tag).and_then(|all| u32::try_from(all.get(0)?).ok())
    }

    /// All numbers of a tag that need not be whole, or seven of more.
    pub(super) fn reals(&self, tag: u16) -> Option<&[f32]> {
        self.reals.get(&tag).map(Vec::as_slice)
    }

    /// Whether such a tag, or one of few compressions, has a type or a length that it should not have.
    pub(super) fn is_strange(&self, tag: u16) -> bool {
        self.strange.contains(&tag) || self.odd == Some(tag)
    }

    /// 1 to 8; from the XMP packet, if no tag says it.
    pub(super) fn orientation(&self) -> u32 {
        self.one(tag::ORIENTATION).or_else(|| self.orientation_of_xmp()).unwrap_or(1)
    }

    fn orientation_of_xmp(&self) -> Option<u32> {
        const NAME: &[u8] = b"tiff:Orientation";
        memmem::find_iter(self.xmp, NAME).find_map(|at| {
            let rest = self.xmp.get(at..)?.strip_prefix(NAME)?;
            let rest = rest.strip_prefix(b"=\"").or_else(|| rest.strip_prefix(b">"))?;
            let digit = char::from(*rest.first()?);
            digit.to_digit(10)
        })
    }
}

/// The numbers of a tag.
#[derive(Debug, Clone, Copy)]
pub(super) struct Numbers<'a> {
    bytes: &'a [u8],
    len_each: usize,
    order: Bytes,
}

impl<'a> Numbers<'a> {
    pub(super) const NONE: Self = Self { bytes: &[], len_each: 1, order: Bytes::Little };

    /// How many there are.
    pub(super) fn len(self) -> usize {
        self.bytes.len().checked_div(self.len_each).unwrap_or(0)
    }

    pub(super) fn get(self, i: usize) -> Option<u64> {
        let bytes = self.bytes.get(i.checked_mul(self.len_each)?..)?;
        bytes.get(..self.len_each).map(|bytes| self.order.join(bytes))
    }

    pub(super) fn iter(self) -> impl Iterator<Item = u64> + Clone + 'a {
        self.bytes.chunks_exact(self.len_each).map(move |bytes| self.order.join(bytes))
    }

    /// All of them, if they are `N`.
    pub(super) fn array<const N: usize>(self) -> Option<[u64; N]> {
        let mut all = [0; N];
        all.iter_mut().zip(self.iter()).for_each(|(to, number)| *to = number);
        (self.len() == N).then_some(all)
    }
}

impl Bytes {
    /// The number that bytes in this order are.
    fn join(self, bytes: &[u8]) -> u64 {
        let join = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
        match self {
            Self::Little => bytes.iter().rev().fold(0, join),
            Self::Big => bytes.iter().fold(0, join),
        }
    }
}

/// Bytes of a value of a type.
fn len_of(kind: u64) -> Option<usize> {
    match kind {
        1 | 2 | 6 | 7 => Some(1),
        3 | 8 => Some(2),
        4 | 9 | 11 | 13 => Some(4),
        5 | 10 | 12 | 16 => Some(8),
        _ => None,
    }
}

#[derive(Debug, Clone, Copy)]
struct Reader<'a> {
    bytes: &'a [u8],
    order: Bytes,
}

impl Reader<'_> {
    fn number(&self, at: usize, len: usize) -> Option<u64> {
        self.bytes.get(at..)?.get(..len).map(|bytes| self.order.join(bytes))
    }

    /// Fractions and whole numbers, as libtiff takes them; of many, more than any tag should have.
    fn reals(&self, bytes: &[u8], kind: u64) -> Option<Vec<f32>> {
        let whole = |bytes: &[u8]| {
            #[expect(clippy::cast_precision_loss, reason = "as in libtiff")]
            let value = self.order.join(bytes) as f32;
            value
        };
        let fraction = |bytes: &[u8]| {
            let (above, below) = bytes.split_at(4);
            match whole(below) {
                0.0 => 0.0,
                below => whole(above) / below,
            }
        };
        match kind {
            3 => Some(bytes.chunks_exact(2).take(MOST_REALS).map(whole).collect()),
            4 => Some(bytes.chunks_exact(4).take(MOST_REALS).map(whole).collect()),
            5 => Some(bytes.chunks_exact(8).take(MOST_REALS).map(fraction).collect()),
            _ => None,
        }
    }
}

fn index(value: u64) -> Option<usize> {
    usize::try_from(value).ok()
}
