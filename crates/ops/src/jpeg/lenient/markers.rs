//! The segments of a file as libjpeg reads them (jdmarker.c): stray bytes are skipped, lengths of
//! what is left out are believed, and tables may be defined again between scans.
//!
//! What a scan is to be decoded with is in [`Headers`] once [`Headers::read`] has come to it.

use super::opening::component;
use super::stream::{Stop, Stream, fault};
use crate::error::SampleFault;
use crate::jpeg::file::code::Code;
use crate::jpeg::file::frame::Component;
use crate::jpeg::file::header::{Jfif, Quantisation};
use crate::jpeg::zigzag::natural;
use crate::jpeg::{damaged, unsupported};

/// What stopped marker reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reached {
    Scan,
    End,
}

/// How coefficients are coded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Coding {
    Huffman,
    Arithmetic,
}

/// How they are spread over scans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spread {
    Sequential,
    Progressive,
}

/// A frame header.
#[derive(Debug, Clone)]
pub(super) struct FrameHeader {
    pub(super) coding: Coding,
    pub(super) spread: Spread,
    pub(super) height: u16,
    pub(super) width: u16,
    pub(super) components: Vec<Component>,
}

/// A component of a scan.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Selected {
    pub(super) component: usize,
    pub(super) dc_table: usize,
    pub(super) ac_table: usize,
}

/// A scan header.
#[derive(Debug, Clone, Default)]
pub(super) struct ScanHeader {
    pub(super) selected: Vec<Selected>,
    /// First and last coefficient, in zigzag order.
    pub(super) band: [usize; 2],
    /// Bit of the coefficients sent before (0: none), and in this scan.
    pub(super) before: u32,
    pub(super) now: u32,
}

/// Conditioning of arithmetic coding (T.81 §F.1.4.4.1.4).
#[derive(Debug, Clone)]
pub(super) struct Conditioning {
    pub(super) dc_low: [u8; 16],
    pub(super) dc_high: [u8; 16],
    pub(super) ac: [u8; 16],
}

impl Default for Conditioning {
    fn default() -> Self {
        Self { dc_low: [0; 16], dc_high: [1; 16], ac: [5; 16] }
    }
}

/// All that markers have defined so far.
#[derive(Debug, Default)]
pub(super) struct Headers {
    pub(super) quantisation: [Option<Quantisation>; 4],
    pub(super) dc: [Option<Code>; 4],
    pub(super) ac: [Option<Code>; 4],
    pub(super) restart_interval: u16,
    pub(super) conditioning: Conditioning,
    pub(super) frame: Option<FrameHeader>,
    pub(super) scan: ScanHeader,
    pub(super) n_scans: usize,
    pub(super) jfif: Option<Jfif>,
    pub(super) adobe_transform: Option<u8>,
    soi: Option<()>,
    contents: Vec<u8>,
}

impl Headers {
    /// What is kept when a file of tables ends and another begins behind it.
    pub(super) fn begin_again(&mut self) {
        self.soi = None;
        self.n_scans = 0;
    }

    /// Reads up to and including the next scan header, or the end of the image.
    pub(super) fn read(&mut self, stream: &mut Stream<'_>) -> Result<Reached, Stop> {
        loop {
            let marker = match (stream.marker, self.soi) {
                (Some(marker), _) => marker,
                (None, Some(())) => stream.next_marker()?,
                (None, None) => first_marker(stream)?,
            };
            stream.marker = Some(marker);
            let reached = self.act(marker, stream)?;
            stream.marker = None;
            if let Some(reached) = reached {
                return Ok(reached);
            }
        }
    }

    fn act(
        &mut self,
        marker: u8,
        stream: &mut Stream<'_>,
    ) -> Result<Option<Reached>, Stop> {
        use Coding::{Arithmetic, Huffman};
        use Spread::{Progressive, Sequential};
        match marker {
            0xd8 => self.start_of_image()?,
            0xc0 | 0xc1 => self.frame(stream, (Huffman, Sequential))?,
            0xc2 => self.frame(stream, (Huffman, Progressive))?,
            0xc9 => self.frame(stream, (Arithmetic, Sequential))?,
            0xca => self.frame(stream, (Arithmetic, Progressive))?,
            0xc3 => return Err(unsupported("lossless").into()),
            0xcb => return Err(unsupported("lossless arithmetic-coded").into()),
            0xc5..=0xc7 | 0xcd..=0xcf => return Err(unsupported("hierarchical").into()),
            0xda => {
                self.scan(stream)?;
                return Ok(Some(Reached::Scan));
            }
            0xd9 => return Ok(Some(Reached::End)),
            0xcc => self.conditioning(stream)?,
            0xc4 => self.huffman(stream)?,
            0xdb => self.quantisation(stream)?,
            0xdd => self.restart_interval(stream)?,
            0xe0 | 0xee => self.application(marker, stream)?,
            0xe1..=0xef | 0xfe | 0xdc => stream.skip_segment()?,
            0xd0..=0xd7 => stream.warn("a restart marker where none belongs"),
            0x01 => {}
            other => {
                return Err(damaged(format_args!("unknown marker 0x{other:02x}")).into());
            }
        }
        Ok(None)
    }

    fn start_of_image(&mut self) -> Result<(), Stop> {
        if self.soi.is_some() {
            return Err(fault("a second start of image"));
        }
        self.soi = Some(());
        self.conditioning = Conditioning::default();
        self.restart_interval = 0;
        (self.jfif, self.adobe_transform) = (None, None);
        Ok(())
    }

    fn frame(
        &mut self,
        stream: &mut Stream<'_>,
        (coding, spread): (Coding, Spread),
    ) -> Result<(), Stop> {
        if self.frame.is_some() {
            return Err(fault("a second frame"));
        }
        let length = usize::from(stream.word()?);
        let precision = stream.byte()?;
        let [height, width] = [stream.word()?, stream.word()?];
        let n = stream.byte()?;
        if height == 0 || width == 0 || n == 0 {
            return Err(SampleFault::NoPixels.into());
        }
        if length != usize::from(n) * 3 + 8 {
            return Err(fault("its frame header has the wrong length"));
        }
        if precision != 8 {
            return Err(unsupported("not 8-bit").into());
        }
        stream.take(usize::from(n) * 3, &mut self.contents)?;
        let components = self.contents.chunks_exact(3).map(component).collect();
        self.frame = Some(FrameHeader { coding, spread, height, width, components });
        Ok(())
    }

    fn scan(&mut self, stream: &mut Stream<'_>) -> Result<(), Stop> {
        let Some(frame) = &self.frame else {
            return Err(fault("a scan without a frame"));
        };
        let length = usize::from(stream.word()?);
        let n = usize::from(stream.byte()?);
        if length != 2 * n + 6 || !(1..=4).contains(&n) {
            return Err(fault("its scan header has the wrong length"));
        }
        stream.take(2 * n, &mut self.contents)?;
        self.scan.selected = selected(&self.contents, &frame.components)
            .ok_or_else(|| fault("a scan names a component that is not there"))?;
        let [first, last, bits] = [stream.byte()?, stream.byte()?, stream.byte()?];
        self.scan.band = [first, last].map(usize::from);
        (self.scan.before, self.scan.now) = (u32::from(bits >> 4), u32::from(bits & 15));
        self.n_scans += 1;
        stream.begin_scan();
        Ok(())
    }

    fn conditioning(&mut self, stream: &mut Stream<'_>) -> Result<(), Stop> {
        let mut left = i32::from(stream.word()?) - 2;
        while left > 0 {
            let [slot, value] = [stream.byte()?, stream.byte()?];
            left -= 2;
            let own = &mut self.conditioning;
            let place = usize::from(slot & 15);
            match slot {
                0..=15 => {
                    (own.dc_low[place], own.dc_high[place]) = (value & 15, value >> 4);
                    if value & 15 > value >> 4 {
                        return Err(fault("arithmetic conditioning out of range"));
                    }
                }
                16..=31 => own.ac[place] = value,
                _ => return Err(fault("an arithmetic table beyond the 16th")),
            }
        }
        check_used_up(left)
    }

    fn huffman(&mut self, stream: &mut Stream<'_>) -> Result<(), Stop> {
        let mut left = i32::from(stream.word()?) - 2;
        while left > 16 {
            let head = stream.byte()?;
            let mut code = Code { counts: [0; 16], symbols: [0; 256] };
            for n in &mut code.counts {
                *n = stream.byte()?;
            }
            left -= 17;
            let n_codes: u16 = code.counts.iter().map(|&n| u16::from(n)).sum();
            if n_codes > 256 || i32::from(n_codes) > left {
                return Err(fault("a Huffman table is cut short"));
            }
            for symbol in &mut code.symbols[..usize::from(n_codes)] {
                *symbol = stream.byte()?;
            }
            left -= i32::from(n_codes);
            let class = if head & 0x10 == 0 { &mut self.dc } else { &mut self.ac };
            let slot = class.get_mut(usize::from(head & !0x10));
            *slot.ok_or_else(|| fault("a Huffman table beyond the 4th"))? = Some(code);
        }
        check_used_up(left)
    }

    fn quantisation(&mut self, stream: &mut Stream<'_>) -> Result<(), Stop> {
        let mut left = i32::from(stream.word()?) - 2;
        while left > 0 {
            let head = stream.byte()?;
            let is_wide = head >> 4 != 0;
            let slot = self.quantisation.get_mut(usize::from(head & 15));
            let slot =
                slot.ok_or_else(|| fault("a quantisation table beyond the 4th"))?;
            let mut table = [0; 64];
            for zigzag in 0..64 {
                let high = if is_wide { stream.byte()? } else { 0 };
                table[natural(zigzag)] = u16::from_be_bytes([high, stream.byte()?]);
            }
            *slot = Some(table);
            left -= if is_wide { 129 } else { 65 };
        }
        check_used_up(left)
    }

    fn restart_interval(&mut self, stream: &mut Stream<'_>) -> Result<(), Stop> {
        if stream.word()? != 4 {
            return Err(fault("a restart interval of the wrong length"));
        }
        self.restart_interval = stream.word()?;
        Ok(())
    }

    fn application(&mut self, marker: u8, stream: &mut Stream<'_>) -> Result<(), Stop> {
        /// What libjpeg looks at; the rest it leaves out, even where the file ends before.
        const LOOKED_AT: usize = 14;
        let length = usize::from(stream.length()?);
        stream.take(length.min(LOOKED_AT), &mut self.contents)?;
        stream.at += length - self.contents.len();
        let contents = &*self.contents;
        if marker == 0xe0 && contents.len() >= 14 && contents.starts_with(b"JFIF\0") {
            self.jfif = Some(Jfif);
        }
        if marker == 0xee && contents.len() >= 12 && contents.starts_with(b"Adobe") {
            self.adobe_transform = Some(contents[11]);
        }
        Ok(())
    }
}

/// Tables must end where their segment does, of which so much is left.
fn check_used_up(left: i32) -> Result<(), Stop> {
    if left == 0 {
        Ok(())
    } else {
        Err(fault("a segment of tables has the wrong length"))
    }
}

/// No byte may stand before the first marker.
fn first_marker(stream: &mut Stream<'_>) -> Result<u8, Stop> {
    match [stream.byte()?, stream.byte()?] {
        [0xff, 0xd8] => Ok(0xd8),
        _ => Err(fault("it does not begin with a start of image")),
    }
}

/// The components that a scan names, as libjpeg finds them: a component that stands at the place
/// of one found before is passed over, and none may be named twice.
fn selected(selectors: &[u8], components: &[Component]) -> Option<Vec<Selected>> {
    let mut found: Vec<Selected> = Vec::new();
    for selector in selectors.chunks_exact(2) {
        let component =
            components.iter().enumerate().position(|(place, component)| {
                component.id == selector[0] && place >= found.len()
            })?;
        if found.iter().any(|other| other.component == component) {
            return None;
        }
        let [dc_table, ac_table] = [selector[1] >> 4, selector[1] & 15].map(usize::from);
        found.push(Selected { component, dc_table, ac_table });
    }
    Some(found)
}
