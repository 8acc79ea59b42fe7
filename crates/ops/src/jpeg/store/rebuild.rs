//! A file from its coefficients, byte for byte: Huffman coding undone, and done again.
//!
//! [`take_apart`] makes of a sequential file with one scan its [`Parts`]: coefficients, and a
//! *remainder* of all that they do not tell (docs/store-format.md, section 5).
//! [`put_together`] makes the file of these again, or says why it cannot; it never returns
//! other bytes than those that were taken apart, because the remainder holds their checksum.
//! An encoder has choices here and there (bits that fill up bytes, runs after the last
//! coefficient, several FF in a row): for files that do not make the usual ones, putting
//! together fails. Nothing here knows how coefficients are stored. Read `rebuild/scan.rs`
//! next.

mod scan;

use twox_hash::XxHash3_64;

use super::short_checksum;
use crate::error::SampleFault;
use crate::jpeg::block::Block;
use crate::jpeg::coefficients::{self, Coefficients};
use crate::jpeg::decoder::{Decoder, Part, ScanKind};
use crate::jpeg::entropy::bits::{ScanData, places};
use crate::jpeg::entropy::sequential::{EntryPoint, Scan};
use crate::jpeg::entropy::whole::{DecodedRow, TakeRows, Whole};
use crate::jpeg::file::Opened;
use crate::jpeg::file::frame::{Frame, Process};
use crate::jpeg::unsupported;
use crate::kernels::Level;

/// A file taken apart.
#[derive(Debug, Default)]
pub struct Parts {
    /// Its quantised coefficients.
    pub coefficients: Coefficients,
    /// What is needed besides them to write it again.
    pub remainder: Vec<u8>,
}

/// Takes `file` apart into `parts`, whose memory is used again. `None` when it is damaged or
/// no file of one sequential scan; what `parts` holds then means nothing.
///
/// That it can be put together again is not known yet: try.
#[must_use]
pub fn take_apart(decoder: &mut Decoder, file: &[u8], parts: &mut Parts) -> Option<()> {
    let Parts { coefficients, remainder } = parts;
    take_apart_by_rows(decoder, file, remainder, |row| {
        if row.decoded.y == 0 {
            let (sizes, n_components) = coefficients::sizes(row.frame);
            coefficients.set_sizes(&sizes[..n_components]);
        }
        for (nth, component) in row.frame.components().iter().enumerate() {
            for within in 0..component.v {
                let to = coefficients.row_mut(nth, row.decoded.y * component.v + within);
                for (to, from) in to.iter_mut().zip(row.blocks(nth, within)) {
                    *to = *from;
                }
            }
        }
        Some(())
    })
}

/// [`take_apart`] for one who takes the coefficients row by row of MCUs, from the first to the
/// last, and need not have them all at once. `None` also when `take` says so.
pub(crate) fn take_apart_by_rows(
    decoder: &mut Decoder,
    file: &[u8],
    remainder: &mut Vec<u8>,
    mut take: impl FnMut(&McuRow<'_>) -> Option<()>,
) -> Option<()> {
    let mut opened = Opened::new(file).ok()?;
    let beginning = &file[..opened.scan.data];
    let data_end = undo(decoder, &mut opened, &mut |row| {
        take(row).ok_or_else(|| unsupported("such a"))
    });
    let data_end = data_end.ok()?;
    let found = Remainder {
        beginning,
        fill: data_end.fill,
        checksum: XxHash3_64::oneshot(file),
        end: &file[data_end.at..],
    };
    found.encode(remainder)
}

/// A row of MCUs whose Huffman coding is undone.
pub(crate) struct McuRow<'a> {
    pub(crate) frame: &'a Frame,
    pub(crate) decoded: DecodedRow<'a>,
    kind: &'a ScanKind,
}

impl<'a> McuRow<'a> {
    /// Block row number `within` of a component's in this row of MCUs.
    pub(crate) fn blocks(
        &self,
        component: usize,
        within: usize,
    ) -> impl Iterator<Item = &'a Block> {
        let is_its = |part: &&Part| part.component == component;
        let part = self.kind.parts().iter().find(is_its).expect("all are in the scan");
        let Part { first, h, .. } = *part;
        let first = first + within * h;
        let [n_mcus, _] = self.frame.n_mcus();
        let (decoded, per_mcu) = (self.decoded, self.kind.n_blocks);
        (0..n_mcus).flat_map(move |mcu| {
            let first = decoded.from + mcu * per_mcu + first;
            decoded.blocks.blocks(first..first + h)
        })
    }
}

/// Writes the file that [`take_apart`] made these of to `out`, in place of what that holds.
///
/// # Errors
/// [`SampleFault`] when the remainder is damaged, does not belong to the coefficients, or the
/// file was not written as an encoder usually would; `out` then holds anything.
pub fn put_together(
    level: Level,
    coefficients: &Coefficients,
    remainder: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), SampleFault> {
    let remainder = Remainder::decode(remainder)?;
    remainder.apply(level, coefficients, out)?;
    if XxHash3_64::oneshot(out) != remainder.checksum {
        return Err(wrong("its coefficients do not reproduce the original file"));
    }
    Ok(())
}

/// Where the entropy-coded data of a file end.
#[derive(Debug, Clone, Copy)]
struct DataEnd {
    /// Offset of the first byte behind them.
    at: usize,
    /// The bit that fills up their last byte; 1, as nearly everywhere, if none does.
    fill: u8,
}

impl DataEnd {
    /// Of data, those from `from` on in `file`, whose last MCU ends before bit `position`.
    fn new(data: &ScanData, (file, from): (&[u8], usize), position: u64) -> Self {
        // At least one block has been read, and not beyond the end.
        let last = (position - 1) / 8;
        let n_spare = 8 * (last + 1) - position;
        let last = usize::try_from(last).expect("a place in memory");
        let byte = data.padded()[last];
        let fill = if n_spare == 0 { 1 } else { byte >> (n_spare - 1) & 1 };
        // A restart marker may follow, which belongs to what is behind.
        let n_bytes = if byte == 0xff { 2 } else { 1 };
        Self { at: places(file, from)(last) + n_bytes, fill }
    }
}

/// Reads all coefficients of the only scan of `file`.
fn undo(
    decoder: &mut Decoder,
    file: &mut Opened<'_>,
    take: &mut dyn FnMut(&McuRow<'_>) -> Result<(), SampleFault>,
) -> Result<DataEnd, SampleFault> {
    if !is_one_scan(file) {
        return Err(unsupported("several-scan"));
    }
    let kind = ScanKind::new(file)?;
    decoder.set_codes(file, &file.scan)?;
    let restart_interval = decoder.take_only_scan(file, &kind)?;
    let blocks = kind.codes(&decoder.codes);
    let whole = Whole {
        level: decoder.level(),
        scan: Scan::new(&decoder.data, &blocks[..kind.n_blocks], restart_interval),
        end: 8 * decoder.data.len() as u64,
        size: file.frame.n_mcus(),
        guessing: decoder.guessing,
    };
    let mut rows = AllRows { frame: &file.frame, kind: &kind, take };
    let end = whole.read(&mut decoder.lanes, &mut rows)?;
    let place = (file.bytes, file.scan.data);
    Ok(DataEnd::new(&decoder.data, place, end.position))
}

/// Hands on every row of a scan.
struct AllRows<'a> {
    frame: &'a Frame,
    kind: &'a ScanKind,
    take: &'a mut dyn FnMut(&McuRow<'_>) -> Result<(), SampleFault>,
}

impl TakeRows for AllRows<'_> {
    fn wants(&self, _: usize) -> bool {
        true
    }

    fn point(&mut self, _: EntryPoint) {}

    fn row(&mut self, decoded: DecodedRow<'_>) -> Result<(), SampleFault> {
        (self.take)(&McuRow { frame: self.frame, kind: self.kind, decoded })
    }
}

/// Whether the scan that `file` begins with holds all there is of its image.
fn is_one_scan(file: &Opened<'_>) -> bool {
    file.frame.process == Process::Sequential
        && file.scan.components().len() == file.frame.components().len()
}

/// What is left of a file without its coefficients.
#[derive(Debug, Clone, Copy)]
struct Remainder<'a> {
    /// All up to the entropy-coded data.
    beginning: &'a [u8],
    /// 0 or 1: what fills up bytes at the end of entropy-coded data.
    fill: u8,
    /// Of the whole file.
    checksum: u64,
    /// All behind the entropy-coded data.
    end: &'a [u8],
}

/// Bytes before the beginning.
const HEADER_BYTES: usize = 20;

impl<'a> Remainder<'a> {
    /// `None` if the beginning is too long to be told.
    fn encode(&self, out: &mut Vec<u8>) -> Option<()> {
        let len = u32::try_from(self.beginning.len()).ok()?;
        out.clear();
        out.extend([0; 4]);
        out.extend(len.to_le_bytes());
        out.extend([self.fill, 0, 0, 0]);
        out.extend(self.checksum.to_le_bytes());
        out.extend(self.beginning);
        out.extend(self.end);
        let check = short_checksum(&out[4..]);
        out[..4].copy_from_slice(&check);
        Some(())
    }

    fn decode(bytes: &'a [u8]) -> Result<Self, SampleFault> {
        let short = || wrong("its remainder is cut short");
        let (header, rest) =
            bytes.split_first_chunk::<HEADER_BYTES>().ok_or_else(short)?;
        if short_checksum(&bytes[4..]) != header[..4] {
            return Err(wrong("its remainder does not match its checksum"));
        }
        let &[_, _, _, _, a, b, c, d, fill, zeros @ .., _, _, _, _, _, _, _, _] = header;
        if fill > 1 || zeros != [0; 3] {
            return Err(wrong("its remainder has unknown fields"));
        }
        let len = u32::from_le_bytes([a, b, c, d]);
        let len = usize::try_from(len).map_err(|_| short())?;
        let (beginning, end) = rest.split_at_checked(len).ok_or_else(short)?;
        let checksum =
            header[12..].try_into().map(u64::from_le_bytes).map_err(|_| short())?;
        Ok(Self { beginning, fill, checksum, end })
    }

    /// Writes the file, whatever its checksum.
    fn apply(
        &self,
        level: Level,
        coefficients: &Coefficients,
        out: &mut Vec<u8>,
    ) -> Result<(), SampleFault> {
        let file = Opened::new(self.beginning)?;
        if file.scan.data != self.beginning.len() || !is_one_scan(&file) {
            return Err(wrong("its remainder does not begin with one scan's headers"));
        }
        let (sizes, n_components) = coefficients::sizes(&file.frame);
        if coefficients.sizes() != &sizes[..n_components] {
            return Err(wrong("it lacks the blocks that its frame header announces"));
        }
        out.clear();
        out.extend_from_slice(self.beginning);
        scan::write(level, coefficients, &file, self.fill, out)?;
        out.extend_from_slice(self.end);
        Ok(())
    }
}

fn wrong(why: &str) -> SampleFault {
    SampleFault::Damaged { format: "packed JPEG", why: why.to_owned() }
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation, reason = "lengths are small")]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// Factors of components that may stand in one scan, h above v.
    const SAMPLINGS: [&[u8]; 7] = [
        &[0x11],
        &[0x11, 0x11, 0x11],
        &[0x22, 0x11, 0x11],
        &[0x21, 0x11, 0x11],
        &[0x12, 0x11, 0x12],
        &[0x41, 0x21, 0x11],
        &[0x22, 0x11, 0x11, 0x22],
    ];

    /// A file that no encoder has made: any codes, any coefficients.
    #[derive(Debug, Clone)]
    struct Made {
        sampling: &'static [u8],
        size: [u8; 2],
        restart_interval: u8,
        fill: u8,
        /// For DC and AC of the first component, then of the others: which leaf of the tree
        /// of codes is split next.
        splits: [Vec<u16>; 4],
        /// Number of a coefficient, and its value; over and over.
        coefficients: Vec<(u16, i16)>,
        end: Vec<u8>,
    }

    fn made() -> impl Strategy<Value = Made> {
        let value = prop_oneof![-1..=1_i16, -40..40_i16, -16_000..16_000_i16];
        (
            (
                prop::sample::select(&SAMPLINGS[..]),
                [1..40_u8, 1..40_u8],
                0..5_u8,
                0..2_u8,
            ),
            [vec(any::<u16>(), 16), vec(any::<u16>(), 256), vec(any::<u16>(), 16)],
            vec(any::<u16>(), 256),
            vec((0..150_u16, value), 1..300),
            vec(any::<u8>(), 0..20),
        )
            .prop_map(
                |(
                    (sampling, size, restart_interval, fill),
                    splits,
                    split,
                    coefficients,
                    end,
                )| {
                    let [a, b, c] = splits;
                    let splits = [a, b, c, split];
                    let end = [&[0xff, 0xd9], &end[..]].concat();
                    Made {
                        sampling,
                        size,
                        restart_interval,
                        fill,
                        splits,
                        coefficients,
                        end,
                    }
                },
            )
    }

    /// A table of codes for as many symbols as there are splits, with a code to spare that
    /// is all ones.
    fn table(splits: &[u16]) -> Vec<u8> {
        let mut depths = vec![0_u8];
        for &split in splits {
            let open: Vec<usize> =
                (0..depths.len()).filter(|&leaf| depths[leaf] < 16).collect();
            let leaf = open[usize::from(split) % open.len()];
            depths[leaf] += 1;
            depths.push(depths[leaf]);
        }
        depths.sort_unstable();
        depths.pop();
        let mut counts = [0; 16];
        depths.iter().for_each(|&depth| counts[usize::from(depth) - 1] += 1);
        // Some order or other.
        let n = splits.len();
        let mut symbols: Vec<u8> = (0..n).map(|symbol| symbol as u8).collect();
        symbols.sort_by_key(|&symbol| splits[usize::from(symbol)]);
        [&counts[..], &symbols].concat()
    }

    impl Made {
        fn beginning(&self) -> Vec<u8> {
            let n = self.sampling.len() as u8;
            let mut bytes = vec![0xff, 0xd8, 0xff, 0xdb, 0, 67, 0];
            bytes.extend([1; 64]);
            bytes.extend([
                0xff,
                0xc1,
                0,
                8 + 3 * n,
                8,
                0,
                self.size[0],
                0,
                self.size[1],
                n,
            ]);
            for (id, &factors) in (0..).zip(self.sampling) {
                bytes.extend([id, factors, 0]);
            }
            bytes.extend([0xff, 0xdd, 0, 4, 0, self.restart_interval]);
            for (head, splits) in [0x00, 0x10, 0x01, 0x11].into_iter().zip(&self.splits) {
                let table = table(splits);
                bytes.extend([0xff, 0xc4]);
                bytes.extend((table.len() as u16 + 3).to_be_bytes());
                bytes.push(head);
                bytes.extend(table);
            }
            bytes.extend([0xff, 0xda, 0, 6 + 2 * n, n]);
            (0..n).for_each(|id| bytes.extend([id, if id == 0 { 0 } else { 0x11 }]));
            bytes.extend([0, 63, 0]);
            bytes
        }

        fn coefficients(&self, beginning: &[u8]) -> Coefficients {
            let (sizes, n) = coefficients::sizes(&Opened::new(beginning).unwrap().frame);
            let mut coefficients = Coefficients::default();
            coefficients.set_sizes(&sizes[..n]);
            let mut source = self.coefficients.iter().cycle();
            let (mut skip, mut value) = *source.next().unwrap();
            for (component, [_, down]) in sizes[..n].iter().enumerate() {
                for y in 0..*down {
                    for place in coefficients.row_mut(component, y).as_flattened_mut() {
                        *place = if skip == 0 { value } else { 0 };
                        if skip == 0 {
                            (skip, value) = *source.next().unwrap();
                        } else {
                            skip -= 1;
                        }
                    }
                }
            }
            coefficients
        }
    }

    fn rows(coefficients: &Coefficients) -> Vec<&[[i16; 64]]> {
        let sizes = coefficients.sizes().iter().enumerate();
        sizes
            .flat_map(|(component, [_, down])| {
                (0..*down).map(move |y| coefficients.row(component, y))
            })
            .collect()
    }

    proptest! {
        #[test]
        fn any_coefficients_come_back_and_make_the_file_again(made in made()) {
            let beginning = made.beginning();
            let coefficients = made.coefficients(&beginning);
            let remainder =
                Remainder { beginning: &beginning, fill: made.fill, checksum: 0, end: &made.end };
            let mut file = Vec::new();
            remainder.apply(Level::Scalar, &coefficients, &mut file).unwrap();
            for level in Level::available() {
                let mut twin = Vec::new();
                remainder.apply(level, &coefficients, &mut twin).unwrap();
                prop_assert!(twin == file, "{:?}", level);
            }

            let mut parts = Parts::default();
            let mut decoder = Decoder::default();
            prop_assert!(take_apart(&mut decoder, &file, &mut parts).is_some());
            prop_assert_eq!(rows(&parts.coefficients), rows(&coefficients));
            let told = Remainder::decode(&parts.remainder).unwrap();
            prop_assert_eq!((told.beginning, told.end), (&beginning[..], &made.end[..]));

            // Which bit fills up bytes is seen at the end of the last segment alone.
            let mut again = Vec::new();
            if told.fill == made.fill {
                let (level, remainder) = (Level::of_process(), &parts.remainder);
                put_together(level, &parts.coefficients, remainder, &mut again).unwrap();
                prop_assert!(again == file);
            } else {
                prop_assert_eq!((told.fill, made.fill), (1, 0));
                remainder.apply(Level::Scalar, &parts.coefficients, &mut again).unwrap();
                prop_assert!(again == file);
            }
        }
    }

    /// docs/store-format.md, section 5, field by field.
    #[test]
    fn a_remainder_is_laid_out_as_the_document_says() {
        let remainder = Remainder {
            beginning: &[0xaa; 3],
            fill: 1,
            checksum: 0x0807_0605_0403_0201,
            end: &[0xbb; 2],
        };
        let mut bytes = Vec::new();
        remainder.encode(&mut bytes).unwrap();
        let body = [
            3, 0, 0, 0, 1, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0xaa, 0xaa, 0xaa, 0xbb, 0xbb,
        ];
        assert_eq!(bytes[4..], body);
        assert_eq!(bytes[..4], XxHash3_64::oneshot(&body).to_le_bytes()[..4]);
    }
}
