//! The slow path: files that are damaged or odd, with the pixels that Pillow gives, or its refusal.
//!
//! Whatever `decoder.rs` does not take comes here and is decoded as libjpeg-turbo (3.1, 3.2)
//! decodes it behind Pillow (12.3, 13.0), block by block, in plain code: stray bytes, wrong
//! lengths, damaged entropy-coded data with libjpeg's resynchronisation, restart markers that are
//! missing or too many, progressive files whose scans do not bring all bits, arithmetic coding.
//! Inverse DCT, upsampling and colour are those of the fast path.
//!
//! ```text
//! opening (Pillow's own checks) ─► stream ─► markers ─► scan ─► bits, huffman ─► smooth
//!                                                          └─► states, arithmetic ─┘
//! ```
//!
//! Refused where Pillow goes on, by name: lossless files, and files whose scans are too many for
//! their size ([`BlocksLeft`]; libjpeg has no bound). See `opening.rs` for the reverse.
//! Coefficients of the whole image are held, whatever the kind of file: within what
//! [`Frame::need_bytes`] counts.

mod arithmetic;
mod bits;
mod huffman;
mod markers;
mod opening;
mod scan;
mod smooth;
mod states;
mod stream;

use bothends_core::recipe::{Size, Truncated};

use self::arithmetic::Arithmetic;
use self::huffman::{Huffman, check_progressive};
use self::markers::{Coding, FrameHeader, Headers, Reached, Spread};
use self::opening::{Opening, opened};
use self::scan::{Grid, Layout, Mcu};
use self::smooth::Progress;
use self::stream::{Pieces, Stop, Stream, fault};
use super::coefficients::Coefficients;
use super::damaged;
use super::decoder::Decoder;
use super::entropy::blocks_left::BlocksLeft;
use super::file::frame::Frame;
use super::file::header::{Quantisation, colour_model};
use super::planes::{Chroma, McuBox, Region};
use super::transform::idct::Steps;
use crate::error::SampleFault;

/// The fewest blocks that a scan after the first one is counted for: any image may have 32,768 scans.
const FEWEST_BLOCKS: usize = 1 << 12;

/// What a block counts for in later arithmetic-coded scans, which cost time without taking a byte.
const ARITHMETIC_PARTS: usize = 16;

/// What came of a file.
#[derive(Debug)]
pub(crate) struct Lenient {
    pub(crate) frame: Frame,
    pub(crate) steps: [Steps; 4],
    /// Rows of pixels from the top that were decoded. Those below are black, or white if there are
    /// four inks.
    pub(crate) n_rows: usize,
    /// What was wrong first, if anything was.
    pub(crate) damage: Option<&'static str>,
}

impl Decoder {
    /// Decodes all of a file that the fast path does not take into [`Self::planes`], and takes what its
    /// scans visit from `left`.
    ///
    /// # Errors
    /// [`SampleFault`] when Pillow does not take it either, or its scans are too many.
    pub(crate) fn decode_leniently(
        &mut self,
        bytes: &[u8],
        truncated: Truncated,
        left: &mut BlocksLeft,
    ) -> Result<Lenient, SampleFault> {
        let mut scans = self.scans.take().unwrap_or_default();
        let decoded = decode(bytes, truncated, (&mut scans.coefficients, left));
        self.points.clear();
        if let Ok(Lenient { frame, steps, .. }) = &decoded {
            let whole = Region::whole(frame.size);
            let mcus = McuBox::of(frame, &whole, Chroma::Upsampled);
            self.begin(frame, &mcus);
            self.transform_all(&scans.coefficients, frame, steps, &mcus);
        }
        self.scans = Some(scans);
        decoded
    }
}

/// Rows and columns of a file, and the bytes that decoding it here may take at most; nothing
/// where its first bytes say nothing.
pub(crate) fn need_bytes(bytes: &[u8]) -> (Size, u64) {
    let frame = opened(bytes).and_then(|opening| opening.frame());
    frame.map_or((Size { height: 0, width: 0 }, 0), |frame| {
        (frame.size, frame.need_bytes())
    })
}

/// Decodes a file into coefficients.
fn decode(
    bytes: &[u8],
    truncated: Truncated,
    (coefficients, left): (&mut Coefficients, &mut BlocksLeft),
) -> Result<Lenient, SampleFault> {
    let opening = opened(bytes)?;
    let mut run = Run {
        stream: Stream::new(bytes, truncated),
        headers: Headers::default(),
        coefficients,
        steps: Vec::new(),
        n_rows: 0,
        left,
    };
    match (run.decode(&opening), truncated) {
        (Ok(lenient), _) => Ok(lenient),
        (Err(Stop::Fault(fault)), Truncated::Refuse) => Err(fault),
        (Err(Stop::Ended), Truncated::Refuse) => {
            Err(damaged("it ends before its end of image"))
        }
        (Err(_), Truncated::Fill) => run.blank(&opening),
    }
}

/// A file on its way.
struct Run<'a, 'c> {
    stream: Stream<'a>,
    headers: Headers,
    coefficients: &'c mut Coefficients,
    /// For each component the table that was valid when its first scan began.
    steps: Vec<Option<Quantisation>>,
    n_rows: usize,
    left: &'c mut BlocksLeft,
}

/// What is known once the first scan has been reached.
struct Known {
    header: FrameHeader,
    frame: Frame,
    grid: Grid,
    progress: Progress,
    has_one_scan: bool,
}

/// The entropy decoder of one scan.
enum Entropy {
    Huffman(Huffman),
    Arithmetic(Arithmetic),
}

impl Run<'_, '_> {
    fn decode(&mut self, opening: &Opening) -> Result<Lenient, Stop> {
        while self.headers.read(&mut self.stream)? == Reached::End {
            if self.headers.frame.is_some() {
                return Err(fault("there is no image in it"));
            }
            self.headers.begin_again();
        }
        let mut known = self.known(opening)?;
        self.coefficients.reset_sizes(&known.grid.padded());
        self.steps.resize(known.grid.components.len(), None);
        self.scan(&mut known)?;
        if known.has_one_scan {
            self.n_rows = known.frame.height();
            self.finish()?;
        } else {
            while self.headers.read(&mut self.stream)? == Reached::Scan {
                self.scan(&mut known)?;
            }
            self.n_rows = known.frame.height();
        }
        if known.header.spread == Spread::Progressive {
            if !known.progress.is_complete() {
                self.stream.warn("its scans do not bring all of its coefficients");
            }
            let n_scans = self.headers.n_scans;
            let coefficients = (&mut *self.coefficients, n_scans);
            known.progress.smooth(&known.grid, &self.steps, coefficients);
        }
        Ok(self.lenient(known.frame))
    }

    /// What the frame header says, as soon as there is a scan (jdmaster.c, jdinput.c).
    fn known(&self, opening: &Opening) -> Result<Known, Stop> {
        let Some(header) = self.headers.frame.clone() else {
            return Err(fault("a scan without a frame"));
        };
        let found = (header.height, header.width, header.components.len());
        if found != (opening.height, opening.width, opening.n_components.into()) {
            return Err(fault("a second frame"));
        }
        let mut frame = opening.frame()?;
        let markers = (self.headers.jfif, self.headers.adobe_transform);
        frame.model = colour_model(&header.components, markers)?;
        let has_all = self.headers.scan.selected.len() == header.components.len();
        Ok(Known {
            frame,
            grid: Grid::new(&header),
            progress: Progress::new(header.components.len()),
            has_one_scan: has_all && header.spread == Spread::Sequential,
            header,
        })
    }

    /// Decodes the scan that has been reached.
    fn scan(&mut self, known: &mut Known) -> Result<(), Stop> {
        let Self { stream, headers, coefficients, .. } = self;
        if known.has_one_scan && headers.n_scans > 1 {
            return Err(fault("a scan after the one that held all components"));
        }
        let layout = Layout::new(&known.grid, &headers.scan)?;
        for selected in &headers.scan.selected {
            let slot = known.header.components[selected.component].table;
            let steps = &mut self.steps[selected.component];
            if steps.is_none() {
                let table = headers.quantisation.get(slot).copied().flatten();
                *steps = table;
                table.ok_or_else(|| fault("a quantisation table is not defined"))?;
            }
        }
        let spread = known.header.spread;
        let scan = &headers.scan;
        if spread == Spread::Progressive {
            check_progressive(scan)?;
            known.progress.begin_scan(scan, headers.n_scans, stream);
        } else if (scan.band, scan.before, scan.now) != ([0, 63], 0, 0) {
            stream.warn("a sequential scan of a part of the coefficients");
        }
        let mut entropy = match known.header.coding {
            Coding::Huffman => Entropy::Huffman(Huffman::new(headers, spread)?),
            Coding::Arithmetic => Entropy::Arithmetic(Arithmetic::new(headers, spread)?),
        };
        let [across, down] = layout.mcus;
        let parts = match known.header.coding {
            Coding::Arithmetic if headers.n_scans > 1 => ARITHMETIC_PARTS,
            Coding::Arithmetic | Coding::Huffman => 1,
        };
        let n_blocks = across * down * layout.n_blocks() * parts;
        let fewest = if headers.n_scans > 1 { FEWEST_BLOCKS } else { 0 };
        let left = self.left.take(n_blocks.max(fewest));
        left.ok_or_else(|| fault("it has too many scans for its size"))?;
        for y in 0..down {
            let mcu_row = y / layout.rows_per_row;
            if known.has_one_scan {
                self.n_rows = n_rows_before(mcu_row, known);
            }
            for x in 0..across {
                if entropy.is_over() {
                    return Ok(());
                }
                if !entropy.ran_out() {
                    known.progress.last_good_row = mcu_row;
                }
                let mut mcu = layout.mcu(coefficients, [x, y]);
                while let Err(stop) = entropy.mcu(stream, &mut mcu) {
                    if !matches!(stop, Stop::Ended) || !stream.more() {
                        return Err(stop);
                    }
                    if known.has_one_scan {
                        mcu.clear();
                    }
                }
            }
        }
        Ok(())
    }

    /// Reads on to the end of the image as far as Pillow does: what it has at hand.
    fn finish(&mut self) -> Result<(), Stop> {
        self.stream.pieces = Pieces::AtHand;
        match self.headers.read(&mut self.stream) {
            Ok(Reached::End) => Ok(()),
            Ok(Reached::Scan) => {
                Err(fault("a scan after the one that held all components"))
            }
            Err(Stop::Ended) => {
                if self.stream.is_at_end() {
                    self.stream.warn("it ends before its end of image");
                }
                Ok(())
            }
            Err(stop) => Err(stop),
        }
    }

    fn lenient(&self, frame: Frame) -> Lenient {
        let mut steps = [Steps::ZERO; 4];
        for (steps, table) in steps.iter_mut().zip(&self.steps) {
            if let Some(table) = table {
                *steps = Steps::new(table);
            }
        }
        Lenient { frame, steps, n_rows: self.n_rows, damage: self.stream.damage }
    }

    /// What Pillow makes of an image that cannot be decoded if it is to be filled up: the rows that
    /// were decoded before.
    fn blank(&mut self, opening: &Opening) -> Result<Lenient, SampleFault> {
        self.stream.warn("it cannot be decoded");
        let known = if self.n_rows > 0 { self.known(opening) } else { Err(Stop::Ended) };
        if let Ok(known) = known {
            return Ok(self.lenient(known.frame));
        }
        let frame = opening.blank_frame()?;
        self.n_rows = 0;
        self.coefficients.reset(&frame);
        Ok(self.lenient(frame))
    }
}

impl Entropy {
    fn mcu(&mut self, stream: &mut Stream<'_>, mcu: &mut Mcu<'_>) -> Result<(), Stop> {
        match self {
            Self::Huffman(huffman) => huffman.mcu(stream, mcu),
            Self::Arithmetic(arithmetic) => arithmetic.mcu(stream, mcu),
        }
    }

    fn ran_out(&self) -> bool {
        match self {
            Self::Huffman(huffman) => huffman.ran_out,
            Self::Arithmetic(_) => false,
        }
    }

    fn is_over(&self) -> bool {
        match self {
            Self::Huffman(huffman) => huffman.is_over(),
            Self::Arithmetic(_) => false,
        }
    }
}

/// Rows of pixels that libjpeg has handed out when it reads this row of MCUs. Where rows are
/// upsampled from their neighbours, the last ones wait for those below. The factors of a lone component
/// count here.
fn n_rows_before(mcu_row: usize, Known { frame, grid, .. }: &Known) -> usize {
    let v_max = grid.components.iter().map(|c| c.v).max().unwrap_or(1);
    let has_neighbours =
        (0..frame.components().len()).any(|c| matches!(frame.ratio(c), [1 | 2, 2]));
    let waiting = if has_neighbours { v_max } else { 0 };
    (mcu_row * 8 * v_max).saturating_sub(waiting)
}
