//! From the first byte to the first scan: the segments, in the order of ITU-T T.81 Annex B.
//!
//! A [`Segments`] walks over the markers of one file; [`Tables`] is what they define;
//! [`Frame`] is what they describe. Nothing here decodes entropy-coded
//! data. Whatever libjpeg would warn of is a fault here: half an image is worse than none.
//! Read `code.rs` next.

use super::application::check_application;
use super::code::{Class, Code};
use super::frame::{ColourModel, Component, Frame, Process};
use crate::error::SampleFault;
use crate::image::check_size;
use crate::jpeg::{damaged, unsupported};

/// Markers (T.81 table B.1) that mean something here.
mod marker {
    pub(crate) const SOF0: u8 = 0xc0;
    pub(crate) const SOF1: u8 = 0xc1;
    pub(crate) const SOF2: u8 = 0xc2;
    pub(crate) const DHT: u8 = 0xc4;
    pub(crate) const JPG: u8 = 0xc8;
    pub(crate) const DAC: u8 = 0xcc;
    pub(crate) const SOF15: u8 = 0xcf;
    pub(crate) const RST0: u8 = 0xd0;
    pub(crate) const RST7: u8 = 0xd7;
    pub(crate) const SOI: u8 = 0xd8;
    pub(crate) const EOI: u8 = 0xd9;
    pub(crate) const SOS: u8 = 0xda;
    pub(crate) const DQT: u8 = 0xdb;
    pub(crate) const DNL: u8 = 0xdc;
    pub(crate) const DRI: u8 = 0xdd;
    pub(crate) const APP0: u8 = 0xe0;
    pub(crate) const APP14: u8 = 0xee;
    pub(crate) const APP15: u8 = 0xef;
    pub(crate) const COM: u8 = 0xfe;
}

/// Quantisation steps of one table, in natural order (row by row).
pub(crate) type Quantisation = [u16; 64];

/// What DQT, DHT and DRI have defined so far. One table per destination; a later segment
/// replaces an earlier one.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    pub(crate) quantisation: [Option<Quantisation>; 4],
    pub(crate) dc: [Option<Code>; 4],
    pub(crate) ac: [Option<Code>; 4],
    /// MCUs between restarts; 0: none.
    pub(crate) restart_interval: u32,
}

/// One component of a scan.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ScanComponent {
    /// Its place in the frame.
    pub(crate) component: usize,
    pub(crate) dc_table: usize,
    pub(crate) ac_table: usize,
}

/// A start-of-scan segment (T.81 §B.2.3).
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Scan {
    components: [ScanComponent; 4],
    n_components: usize,
    /// First and last coefficient, in zigzag order.
    pub(crate) band: [u8; 2],
    /// Bit of the coefficients sent before (0: none), and in this scan.
    pub(crate) approximation: [u8; 2],
    /// Offset of its entropy-coded data in the file.
    pub(crate) data: usize,
}

impl Scan {
    pub(crate) fn components(&self) -> &[ScanComponent] {
        &self.components[..self.n_components]
    }
}

/// What comes next in a file.
#[derive(Debug)]
pub(crate) enum Next {
    Scan(Scan),
    End,
}

/// The file says that it is JFIF.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Jfif;

/// The segments of one file, one after the other.
#[derive(Debug)]
pub(crate) struct Segments<'a> {
    bytes: &'a [u8],
    /// Where the next one lies; behind a scan's data it is set by who has read them.
    pub(crate) at: usize,
    pub(crate) tables: Tables,
    pub(crate) frame: Option<Frame>,
    jfif: Option<Jfif>,
    adobe_transform: Option<u8>,
}

impl<'a> Segments<'a> {
    /// Begins with the start of image.
    pub(crate) fn new(bytes: &'a [u8]) -> Result<Self, SampleFault> {
        if !bytes.starts_with(&[0xff, marker::SOI]) {
            return Err(damaged("it does not begin with a start of image"));
        }
        Ok(Self {
            bytes,
            at: 2,
            tables: Tables::default(),
            frame: None,
            jfif: None,
            adobe_transform: None,
        })
    }

    /// Reads segments up to and including the next start of scan, or the end of image.
    pub(crate) fn next(&mut self) -> Result<Next, SampleFault> {
        loop {
            match self.marker()? {
                marker::SOS => return self.scan().map(Next::Scan),
                marker::EOI => return Ok(Next::End),
                marker::DQT => self.quantisation()?,
                marker::DHT => self.huffman()?,
                marker::DRI => self.restart_interval()?,
                marker @ marker::APP0..=marker::APP15 => self.application(marker)?,
                marker::COM | marker::DNL => drop(self.segment()?),
                marker::RST0..=marker::RST7 => {}
                marker::DAC => return Err(unsupported("arithmetic-coded")),
                marker @ marker::SOF0..=marker::SOF15 if marker != marker::JPG => {
                    self.frame(marker)?;
                }
                other => {
                    return Err(damaged(format_args!("unknown marker 0x{other:02x}")));
                }
            }
        }
    }

    /// The frame, its colours settled: ask once a scan has begun.
    pub(crate) fn settled_frame(&self) -> Result<Frame, SampleFault> {
        let frame =
            self.frame.as_ref().ok_or_else(|| damaged("a scan without a frame"))?;
        let mut frame = frame.clone();
        let markers = (self.jfif, self.adobe_transform);
        frame.model = colour_model(frame.components(), markers)?;
        Ok(frame)
    }

    fn marker(&mut self) -> Result<u8, SampleFault> {
        if *self.rest().first().ok_or_else(ended)? != 0xff {
            return Err(damaged("stray bytes between its segments"));
        }
        // T.81 §B.1.1.2: any number of fill bytes may precede a marker.
        let fill = self.rest().iter().take_while(|&&byte| byte == 0xff).count();
        self.at = self.at.saturating_add(fill);
        let marker = *self.rest().first().ok_or_else(ended)?;
        if marker == 0 {
            return Err(damaged("stray bytes between its segments"));
        }
        self.at = self.at.saturating_add(1);
        Ok(marker)
    }

    fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    /// The contents of a segment, without its length.
    fn segment(&mut self) -> Result<&'a [u8], SampleFault> {
        let rest = self.rest();
        let (length, rest) = rest.split_first_chunk().ok_or_else(ended)?;
        let length = usize::from(u16::from_be_bytes(*length));
        let contents = length
            .checked_sub(2)
            .ok_or_else(|| damaged("a segment shorter than its own length field"))?;
        self.at = self.at.saturating_add(length);
        rest.get(..contents).ok_or_else(ended)
    }

    /// T.81 §B.2.4.1.
    fn quantisation(&mut self) -> Result<(), SampleFault> {
        let mut rest = self.segment()?;
        while let Some((&head, values)) = rest.split_first() {
            let wide = usize::from(head >> 4 != 0);
            let slot = self.tables.quantisation.get_mut(usize::from(head & 15));
            let slot =
                slot.ok_or_else(|| damaged("a quantisation table beyond the 4th"))?;
            let n_bytes = 64 << wide;
            let (values, later) = values
                .split_at_checked(n_bytes)
                .ok_or_else(|| damaged("a quantisation table is cut short"))?;
            let mut table = [0; 64];
            for (zigzag, step) in values.chunks_exact(1 << wide).enumerate() {
                let step = step.iter().fold(0, |step, &byte| step << 8 | u16::from(byte));
                table[crate::jpeg::zigzag::natural(zigzag)] = step;
            }
            *slot = Some(table);
            rest = later;
        }
        Ok(())
    }

    /// T.81 §B.2.4.2.
    fn huffman(&mut self) -> Result<(), SampleFault> {
        let mut rest = self.segment()?;
        while let Some((&head, values)) = rest.split_first() {
            let (code, later) = Code::read(values)?;
            let class =
                if head >> 4 == 0 { &mut self.tables.dc } else { &mut self.tables.ac };
            let slot = class.get_mut(usize::from(head & 15)).filter(|_| head < 0x20);
            *slot.ok_or_else(|| damaged("a Huffman table beyond the 4th"))? = Some(code);
            rest = later;
        }
        Ok(())
    }

    /// T.81 §B.2.4.4.
    fn restart_interval(&mut self) -> Result<(), SampleFault> {
        let &[high, low] = self.segment()? else {
            return Err(damaged("a restart interval of the wrong length"));
        };
        self.tables.restart_interval = u32::from(u16::from_be_bytes([high, low]));
        Ok(())
    }

    fn application(&mut self, marker: u8) -> Result<(), SampleFault> {
        let contents = self.segment()?;
        check_application(marker, contents)?;
        let len = contents.len();
        if marker == marker::APP0 && len >= 14 && contents.starts_with(b"JFIF\0") {
            self.jfif = Some(Jfif);
        }
        if marker == marker::APP14 && len >= 12 && contents.starts_with(b"Adobe") {
            self.adobe_transform = Some(contents[11]);
        }
        Ok(())
    }

    /// T.81 §B.2.2.
    fn frame(&mut self, marker: u8) -> Result<(), SampleFault> {
        let contents = self.segment()?;
        let process = process(marker)?;
        let &[precision, h1, h0, w1, w0, n, ref components @ ..] = contents else {
            return Err(damaged("its frame header is cut short"));
        };
        if precision != 8 {
            return Err(unsupported(if precision == 12 {
                "12-bit"
            } else {
                "not 8-bit"
            }));
        }
        if self.frame.is_some() {
            return Err(damaged("a second frame"));
        }
        let [height, width] =
            [[h1, h0], [w1, w0]].map(|b| usize::from(u16::from_be_bytes(b)));
        let size = check_size(height, width)?;
        let mut parsed = [Component::default(); 4];
        let n_components = match n {
            1 | 3 | 4 => usize::from(n),
            2 => return Err(unsupported("two-component")),
            _ => return Err(damaged(format_args!("it has {n} components"))),
        };
        if components.len() != usize::from(n) * 3 {
            return Err(damaged("its frame header has the wrong length"));
        }
        for (component, bytes) in parsed.iter_mut().zip(components.chunks_exact(3)) {
            let sampling = [bytes[1] >> 4, bytes[1] & 15].map(usize::from);
            if !sampling.iter().all(|factor| (1..=4).contains(factor)) {
                return Err(damaged("a sampling factor outside 1 to 4"));
            }
            let [h, v] = sampling;
            *component = Component { id: bytes[0], h, v, table: usize::from(bytes[2]) };
        }
        self.frame = Some(Frame::new(size, process, &parsed[..n_components])?);
        Ok(())
    }

    /// T.81 §B.2.3.
    fn scan(&mut self) -> Result<Scan, SampleFault> {
        let contents = self.segment()?;
        let frame =
            self.frame.as_ref().ok_or_else(|| damaged("a scan without a frame"))?;
        let short = || damaged("its scan header has the wrong length");
        let (&n, rest) = contents.split_first().ok_or_else(short)?;
        let n = usize::from(n);
        let (selectors, rest) = rest.split_at_checked(2 * n).ok_or_else(short)?;
        let &[first, last, approximation] = rest else { return Err(short()) };
        if !(1..=frame.components().len()).contains(&n) {
            return Err(damaged(format_args!("a scan of {n} components")));
        }
        let mut scan = Scan {
            n_components: n,
            band: [first, last],
            approximation: [approximation >> 4, approximation & 15],
            data: self.at,
            ..Scan::default()
        };
        for (place, selector) in selectors.chunks_exact(2).enumerate() {
            let taken = |component: &usize| {
                scan.components[..place].iter().any(|other| other.component == *component)
            };
            // Components may share an id. libjpeg passes over as many of the frame's components
            // as the scan has named, and takes none twice.
            let component = (place..frame.components().len())
                .find(|&i| frame.components()[i].id == selector[0])
                .filter(|component| !taken(component))
                .ok_or_else(|| damaged("a scan names a component that is not there"))?;
            scan.components[place] = ScanComponent {
                component,
                dc_table: usize::from(selector[1] >> 4),
                ac_table: usize::from(selector[1] & 15),
            };
        }
        Ok(scan)
    }
}

impl Tables {
    /// The code of a sequential scan's table. A file that brings none means the standard one
    /// (Motion JPEG; libjpeg-turbo does the same).
    pub(crate) fn code(&self, class: Class, slot: usize) -> Result<Code, SampleFault> {
        match self.own_code(class, slot) {
            Err(_) if slot < 2 => Ok(Code::standard(class, slot)),
            own => own,
        }
    }

    /// The code of a scan's table, which the file must bring.
    pub(crate) fn own_code(
        &self,
        class: Class,
        slot: usize,
    ) -> Result<Code, SampleFault> {
        let slots = match class {
            Class::Dc => &self.dc,
            Class::Ac | Class::Progressive => &self.ac,
        };
        let own = slots.get(slot).cloned().flatten();
        own.ok_or_else(|| damaged(format_args!("Huffman table {slot} is not defined")))
    }

    /// The quantisation table of a component.
    pub(crate) fn steps(&self, slot: usize) -> Result<Quantisation, SampleFault> {
        let defined = self.quantisation.get(slot).copied().flatten();
        defined.ok_or_else(|| {
            damaged(format_args!("quantisation table {slot} is not defined"))
        })
    }
}

/// What the components are: libjpeg's rule (`default_decompress_parms` of jdapimin.c), by the
/// markers of JFIF and Adobe.
pub(crate) fn colour_model(
    components: &[Component],
    markers: (Option<Jfif>, Option<u8>),
) -> Result<ColourModel, SampleFault> {
    let has_ids = |ids: &[u8]| components.iter().map(|c| c.id).eq(ids.iter().copied());
    match (components.len(), markers) {
        (1, _) => Ok(ColourModel::Grey),
        (3, (Some(Jfif), _)) => Ok(ColourModel::YCbCr),
        (3, (None, Some(0))) => Ok(ColourModel::Rgb),
        (3, (None, Some(_))) => Ok(ColourModel::YCbCr),
        (3, (None, None)) if has_ids(b"RGB") => Ok(ColourModel::Rgb),
        (3, (None, None)) => Ok(ColourModel::YCbCr),
        (4, (_, Some(0) | None)) => Ok(ColourModel::Cmyk),
        (4, (_, Some(_))) => Ok(ColourModel::Ycck),
        (n, _) => Err(damaged(format_args!("it has {n} components"))),
    }
}

fn ended() -> SampleFault {
    damaged("it ends before its end of image")
}

/// T.81 table B.1.
fn process(marker: u8) -> Result<Process, SampleFault> {
    match marker {
        marker::SOF0 | marker::SOF1 => Ok(Process::Sequential),
        marker::SOF2 => Ok(Process::Progressive),
        0xc3 => Err(unsupported("lossless")),
        0xc9 | 0xca => Err(unsupported("arithmetic-coded")),
        0xcb => Err(unsupported("lossless arithmetic-coded")),
        _ => Err(unsupported("hierarchical")),
    }
}
