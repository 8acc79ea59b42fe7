//! A JPEG encoder for what this crate makes: RGB in; grey, 4:2:0 or 4:4:4 out; baseline or
//! progressive, as ITU-T T.81 describes them.
//!
//! Where the standard leaves a choice, it follows libjpeg-turbo 3.1 with its TurboJPEG interface:
//! the files equal that library's byte for byte. It has only what this crate uses: no other
//! subsampling, no restart markers, no 16-bit quantisation tables, and no errors.
//!
//! The files in the order of the steps: `colour.rs`, `dct.rs`, `quantise.rs`, `scans.rs`,
//! `tokens.rs`, `huffman.rs`, `markers.rs`.

mod colour;
mod dct;
mod huffman;
mod markers;
mod quantise;
mod scans;
mod tokens;

use colour::Plane;

/// Resolution of chroma relative to luma.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sampling {
    /// One channel.
    Grayscale,
    /// Half resolution in both directions (4:2:0).
    Half,
    /// Full resolution (4:4:4).
    Full,
}

/// Order of the coefficients in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scans {
    /// One scan, with the example Huffman tables of the standard.
    Baseline,
    /// Coarse before fine; every scan has its own Huffman tables.
    Progressive,
}

/// Eight by eight coefficients: in row order before they are quantised, in zigzag order after.
type Block = [i16; 64];

/// The coefficients of one component: rows of blocks, in whole MCUs.
#[derive(Debug)]
struct Component {
    /// Blocks of an MCU, horizontally as well as vertically.
    factor: usize,
    /// Blocks that have samples, across and down; the others only complete the last MCUs.
    n_across: usize,
    n_down: usize,
    /// Blocks from one row to the next.
    per_row: usize,
    blocks: Vec<Block>,
}

/// A picture as DCT coefficients: all the work that is the same for every quality.
#[derive(Debug)]
pub(crate) struct Spectrum {
    width: usize,
    height: usize,
    components: Vec<Component>,
}

impl Spectrum {
    /// The spectrum of RGB bytes in row order, whose number determines the height.
    pub(crate) fn new(rgb: &[u8], width: usize, sampling: Sampling) -> Self {
        let planes = colour::planes(rgb, width, sampling);
        let components = planes.iter().map(Component::new).collect();
        Self { width, height: rgb.len() / (width * 3), components }
    }

    /// The file for a quality on libjpeg's scale, 1 to 100.
    pub(crate) fn encode(&self, quality: u16, scans: Scans) -> Vec<u8> {
        let components: Vec<_> = (self.components.iter().enumerate())
            .map(|(idx, component)| component.quantised(&quantise::table(idx, quality)))
            .collect();
        let mut file = Vec::new();
        markers::begin(&mut file, self, quality, scans);
        for scan in scans::script(scans, components.len()) {
            let tokens = tokens::of_scan(&scan, &components);
            let tables = huffman::tables(&tokens, scans);
            markers::begin_scan(&mut file, &scan, &tables);
            huffman::write(&mut file, &tokens, &tables);
        }
        file.extend(markers::EOI);
        file
    }
}

impl Component {
    fn new(plane: &Plane) -> Self {
        let factor = plane.factor;
        let per_row = plane.per_row / 8;
        let (n_across, n_down) = (plane.width.div_ceil(8), plane.height.div_ceil(8));
        let n_rows = plane.samples.len() / plane.per_row / 8;
        let mut blocks: Vec<Block> = Vec::with_capacity(per_row * n_rows);
        for (y, x) in (0..n_rows).flat_map(|y| (0..per_row).map(move |x| (y, x))) {
            // A block without samples is flat, with the mean of the previous block in its MCU: this
            // takes the fewest bits.
            blocks.push(if y >= n_down {
                flat(&blocks[(y - 1) * per_row + x / factor * factor + factor - 1])
            } else if x >= n_across {
                flat(&blocks[blocks.len() - 1])
            } else {
                let first = (y * plane.per_row + x) * 8;
                dct::forward(&plane.samples[first..], plane.per_row)
            });
        }
        Self { factor, n_across, n_down, per_row, blocks }
    }

    fn quantised(&self, table: &[u16; 64]) -> Self {
        let blocks = self.blocks.iter().map(|block| quantise::block(block, table));
        Self { blocks: blocks.collect(), ..*self }
    }
}

/// A block of the same mean and nothing else.
fn flat(block: &Block) -> Block {
    let mut flat = [0; 64];
    flat[0] = block[0];
    flat
}

#[cfg(test)]
mod tests {
    use super::Sampling::{Full, Grayscale, Half};
    use super::Scans::{Baseline, Progressive};
    use super::*;

    /// Pixels of one colour with specks: one sample in `every` is another, by at most
    /// `range`. Every sample by 255 is noise, none by 0 is flat.
    fn picture([every, range]: [u32; 2], [width, height]: [usize; 2]) -> Vec<u8> {
        let mut state = 1_u32;
        let mut draw = |below: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            ((u64::from(state) * u64::from(below)) >> 32) as u32
        };
        let flat = [90, 130, 200].repeat(width * height);
        let samples = flat.into_iter().map(|flat: u32| {
            let range = if draw(every) == 0 { range } else { 0 };
            (flat + draw(range + 1)).to_le_bytes()[0]
        });
        samples.collect()
    }

    /// FNV-1a, 64 bits.
    fn digest(bytes: &[u8]) -> u64 {
        bytes.iter().fold(0xCBF2_9CE4_8422_2325, |sum, &byte| {
            (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
        })
    }

    /// The digests are of files that libjpeg-turbo 3.1.0 made of these pictures, through the crate
    /// `turbojpeg` 1.5.1. They include blocks without samples, Huffman codes that had to be
    /// shortened to 16 bits, and longer end-of-band runs than a symbol can express.
    #[test]
    fn files_are_the_librarys_to_the_last_bit() {
        let files = [
            ([1, 255], [1, 1], Half, Baseline, 75, 0x5CBB_3871_DAC0_2A89),
            ([1, 255], [1, 1], Half, Progressive, 75, 0x1C51_5D92_2BAF_60AF),
            ([1, 255], [17, 33], Half, Baseline, 45, 0x9352_2BE5_3D29_EED2),
            ([1, 255], [31, 9], Half, Progressive, 98, 0x05D6_25C7_9418_E71C),
            ([1, 255], [40, 23], Full, Baseline, 60, 0x9EA4_E062_DC84_6BE5),
            ([1, 255], [23, 40], Full, Progressive, 90, 0x9E4E_62BA_65DE_CB1A),
            ([1, 255], [29, 30], Grayscale, Baseline, 98, 0x1F14_9F92_7F05_7E26),
            ([1, 40], [90, 70], Half, Baseline, 92, 0xDE84_309C_8C98_B1DB),
            ([5, 255], [333, 222], Half, Progressive, 85, 0x86CD_B136_3314_9EF1),
            ([300, 255], [333, 222], Half, Progressive, 85, 0xA628_5AB7_F98B_0311),
            ([1, 80], [400, 300], Full, Progressive, 98, 0x66F4_C13E_CCE0_43E4),
            ([1, 0], [1500, 1500], Grayscale, Progressive, 75, 0x0AC9_FEA7_B5AA_054F),
        ];
        for (specks, size, sampling, scans, quality, wanted) in files {
            let rgb = picture(specks, size);
            let file = Spectrum::new(&rgb, size[0], sampling).encode(quality, scans);
            let what = format!("{specks:?} {size:?} {sampling:?} {scans:?} {quality}");
            assert_eq!(digest(&file), wanted, "{what}");
        }
    }
}
