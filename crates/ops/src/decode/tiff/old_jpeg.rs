//! Old-style JPEG compression (TIFF 6.0 §22, compression 6), as far as it is well-formed: one baseline
//! JPEG, whole in the file or put together of tables and entropy-coded data that tags point to.
//!
//! As libtiff reads it for Pillow: planes as they are stored, and what `ycbcr.rs` makes of them. Images
//! in several strips or tiles are refused, and so are damaged ones, which libjpeg reads on.

use bothends_core::sample::{Encoding, Record};

use super::super::picture::Picture;
use super::directory::{Directory, Numbers, SHORT, damaged, tag, unsupported};
use super::jpeg::in_strip;
use super::ycbcr::YCbCr;
use crate::error::SampleFault;
use crate::jpeg::file::frame::Process;
use crate::jpeg::{Chroma, Decoder, Region};

const ODD: SampleFault = SampleFault::Unsupported {
    format: "TIFF",
    feature: "unusual old-style JPEG-compressed",
};

/// Such an image: the JPEG.
#[derive(Debug)]
pub(super) struct OldJpeg {
    file: Vec<u8>,
    size: [usize; 2],
}

impl OldJpeg {
    pub(super) fn of(
        directory: &Directory<'_>,
        bytes: &[u8],
    ) -> Result<Self, SampleFault> {
        let one = |tag| directory.one(tag);
        let named = [tag::JPEG_FILE, tag::JPEG_FILE_BYTES, tag::JPEG_PROCESS]
            .into_iter()
            .chain([tag::JPEG_RESTART, tag::JPEG_Q, tag::JPEG_DC, tag::JPEG_AC]);
        let is_plain = one(tag::PHOTOMETRIC) == Some(6)
            && matches!(one(tag::SAMPLES), None | Some(3))
            && directory.all(tag::BITS).and_then(Numbers::array) == Some([8, 8, 8])
            && matches!(one(tag::PLANAR), None | Some(1))
            && matches!(one(tag::SAMPLE_FORMAT), None | Some(1))
            && matches!(one(tag::FILL_ORDER), None | Some(1))
            && directory.all(tag::EXTRA_SAMPLES).is_none()
            && matches!(one(tag::JPEG_PROCESS), None | Some(1))
            && matches!(one(tag::JPEG_RESTART), None | Some(0));
        let mut named = named;
        if !is_plain
            || directory.fault.is_some()
            || named.any(|tag| directory.is_strange(tag))
        {
            return Err(ODD);
        }
        let (size, part) = Self::part(directory, bytes)?;
        let at = one(tag::JPEG_FILE).unwrap_or(0) as usize;
        let mut file = Vec::new();
        if at != 0 {
            // Without a length, or with one that is beyond the file, it is all of the rest.
            let stated = one(tag::JPEG_FILE_BYTES).unwrap_or(0) as usize;
            let rest = bytes.get(at..).ok_or(ODD)?;
            let here = rest.get(..stated).filter(|here| !here.is_empty()).unwrap_or(rest);
            file.extend_from_slice(here);
            mend_scan(&mut file).ok_or(ODD)?;
            file.extend_from_slice(part);
        } else {
            Self::put_together(directory, bytes, size, &mut file)?;
            file.extend_from_slice(part);
            file.extend_from_slice(b"\xff\xd9");
        }
        Ok(Self { file, size })
    }

    /// The only strip or tile, and its height and width.
    fn part<'a>(
        directory: &Directory<'_>,
        bytes: &'a [u8],
    ) -> Result<([usize; 2], &'a [u8]), SampleFault> {
        let side = |tag| directory.one(tag).unwrap_or(0) as usize;
        let (height, width) = (side(tag::HEIGHT), side(tag::WIDTH));
        let (size, at, len) = match directory.all(tag::STRIP_OFFSETS) {
            Some(at) => {
                let rows = directory.one(tag::ROWS_PER_STRIP).unwrap_or(u32::MAX);
                if (rows as usize) < height {
                    return Err(ODD);
                }
                ([height, width], at, directory.all(tag::STRIP_BYTE_COUNTS))
            }
            None => {
                let tile = [side(tag::TILE_HEIGHT), side(tag::TILE_WIDTH)];
                if tile[0] < height || tile[1] < width {
                    return Err(ODD);
                }
                let at = directory.all(tag::TILE_OFFSETS).ok_or(ODD)?;
                (tile, at, directory.all(tag::TILE_BYTE_COUNTS))
            }
        };
        let (Some([at]), Some([len])) = (at.array(), len.and_then(Numbers::array)) else {
            return Err(ODD);
        };
        let index = |value| usize::try_from(value).unwrap_or(usize::MAX);
        let rest = bytes.get(index(at)..).ok_or(damaged(SHORT))?;
        Ok((size, rest.get(..index(len)).unwrap_or(rest)))
    }

    /// Writes the segments of a JPEG up to its entropy-coded data.
    fn put_together(
        directory: &Directory<'_>,
        bytes: &[u8],
        [height, width]: [usize; 2],
        file: &mut Vec<u8>,
    ) -> Result<(), SampleFault> {
        let offsets = |tag| -> Result<[usize; 3], SampleFault> {
            let all = directory.all(tag).ok_or(ODD)?;
            let all = all.array::<3>().ok_or(ODD)?;
            let [a, b, c] = all.map(|at| usize::try_from(at).unwrap_or(usize::MAX));
            // One that two components share is written once by libtiff, in ways of its own.
            if a == b || b == c || a == c || [a, b, c].contains(&0) {
                Err(ODD)
            } else {
                Ok([a, b, c])
            }
        };
        let mut segment = |marker: u8, parts: &[&[u8]]| -> Result<(), SampleFault> {
            let len =
                parts.iter().map(|part| part.len()).sum::<usize>().saturating_add(2);
            let len = u16::try_from(len).map_err(|_| ODD)?;
            file.extend_from_slice(&[0xff, marker]);
            file.extend_from_slice(&len.to_be_bytes());
            parts.iter().for_each(|part| file.extend_from_slice(part));
            Ok(())
        };
        let bytes_at = |at: usize, len: usize| {
            bytes.get(at..).and_then(|rest| rest.get(..len)).ok_or(damaged(SHORT))
        };
        for (id, at) in (0_u8..).zip(offsets(tag::JPEG_Q)?) {
            segment(0xdb, &[&[id], bytes_at(at, 64)?])?;
        }
        for (class, tag) in [(0_u8, tag::JPEG_DC), (0x10, tag::JPEG_AC)] {
            for (id, at) in (class..).zip(offsets(tag)?) {
                let counts = bytes_at(at, 16)?;
                let n = counts.iter().map(|&n| usize::from(n)).sum::<usize>();
                segment(0xc4, &[&[id], bytes_at(at, n.saturating_add(16))?])?;
            }
        }
        let side =
            |side: usize| u16::try_from(side).map(u16::to_be_bytes).map_err(|_| ODD);
        let factors = match directory.all(tag::SUBSAMPLING).map(Numbers::array) {
            None => 0x22,
            Some(Some([h @ 1..=4, v @ 1..=4])) => {
                [h << 4 | v].map(|it| it.to_le_bytes()[0])[0]
            }
            Some(_) => return Err(ODD),
        };
        let components = [0, factors, 0, 1, 0x11, 1, 2, 0x11, 2];
        segment(0xc0, &[&[8], &side(height)?, &side(width)?, &[3], &components])?;
        segment(0xda, &[&[3, 0, 0, 1, 0x11, 2, 0x22, 0, 63, 0]])?;
        file.splice(0..0, *b"\xff\xd8");
        Ok(())
    }

    /// Bytes that decoding it reads.
    pub(super) fn n_bytes(&self) -> usize {
        self.file.len()
    }

    /// Decodes it into `out`, rows of `width` pixels of RGB.
    pub(super) fn decode(
        &self,
        directory: &Directory<'_>,
        width: usize,
        out: &mut [u8],
    ) -> Result<(), SampleFault> {
        let picture = Picture::open(Record::new(&self.file, Encoding::Image));
        let picture =
            picture.map_err(in_strip)?.ok_or(damaged("its JPEG data are not a JPEG"))?;
        let frame = picture.frame();
        if frame.process == Process::Progressive {
            return Err(unsupported("progressive JPEG-compressed"));
        }
        if [frame.height(), frame.width()] != self.size {
            return Err(ODD);
        }
        let &[first, second, third] = frame.components() else { return Err(ODD) };
        let are_single = [second, third].iter().all(|it| (it.h, it.v) == (1, 1));
        let factors = [first.h, first.v];
        let ycbcr = YCbCr::of(directory, Some(factors).filter(|_| are_single))?;
        if !are_single || ycbcr.factors != factors {
            return Err(ODD);
        }
        let mut decoder = Decoder::default();
        let whole = Region::whole(frame.size);
        picture.decode(&mut decoder, &whole, Chroma::AsStored).map_err(in_strip)?;
        let [luma, cb, cr] = decoder.planes() else { return Err(ODD) };
        let [h, v] = factors;
        let n_chroma = width.div_ceil(h);
        let of = |n: usize, factor: usize| n.checked_div(factor).unwrap_or(0);
        for (y, row) in out.chunks_exact_mut(width.saturating_mul(3)).enumerate() {
            let luma = luma.row(y, 0..width);
            let [cb, cr] = [cb, cr].map(|plane| plane.row(of(y, v), 0..n_chroma));
            for (x, pixel) in row.as_chunks_mut::<3>().0.iter_mut().enumerate() {
                *pixel = ycbcr.rgb([luma[x], cb[of(x, h)], cr[of(x, h)]]);
            }
        }
        Ok(())
    }
}

/// Makes the first scan one of all coefficients: some files say otherwise, and libtiff does not look.
fn mend_scan(file: &mut [u8]) -> Option<()> {
    let mut at = 2_usize;
    loop {
        let [first, marker] = *file.get(at..)?.first_chunk()?;
        if [first, marker] == [0xff, 0xff] {
            at = at.checked_add(1)?;
            continue;
        }
        let start = at.checked_add(2)?;
        let len = u16::from_be_bytes(*file.get(start..)?.first_chunk()?);
        at = start.checked_add(len.into())?;
        if first != 0xff {
            return None;
        }
        if marker == 0xda {
            let end = file.get_mut(start..at)?.last_chunk_mut()?;
            *end = [0, 63, 0];
            return Some(());
        }
    }
}
