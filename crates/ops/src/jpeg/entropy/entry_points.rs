//! The side index of one image: places inside its scan where decoding can begin.
//!
//! A scan can only be read from its start, because every symbol's length and every DC depend
//! on what came before. An entry point is what there is to know in the middle: the bit, and
//! the DC of each component. There is one for every [`STEP`] MCUs of a row, counted anew in
//! each row, and one for the end: 2.4 % of a photograph's bytes. With them a decoder skips
//! what a crop does not need, and reads two rows at a time.
//!
//! The form is a list of 64-bit numbers, little-endian: bits 0–24 the byte, from the start of
//! the scan's data in the file; 25–27 the bit, from the left; 28–63 three DCs of 12 bits.
//! Scans beyond 32 MiB, more than three components and DCs beyond 12 bits (no encoder makes
//! them) have none. Wrong entry points give a wrong image or an error: whoever keeps them
//! keeps the image's hash beside them. Read `progressive.rs` next.

#![deny(
    clippy::arithmetic_side_effects,
    reason = "numbers that a file gives; a release does not check sums in this crate"
)]

use super::sequential::EntryPoint;

/// MCUs from one entry point to the next.
pub(crate) const STEP: usize = 8;

const BYTE_BITS: u32 = 25;
const DC_BITS: u32 = 12;

/// Entry points of a row of `n_mcus` MCUs.
pub(crate) fn per_row(n_mcus: usize) -> usize {
    n_mcus.div_ceil(STEP)
}

/// An entry point in terms of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FilePoint {
    /// Byte, from the start of the scan's data.
    pub(crate) byte: usize,
    /// Bit of it, 0 the most significant.
    pub(crate) bit: u8,
    pub(crate) dc: [i32; 3],
}

/// Where a component's DC prediction begins in a packed point, in bits.
fn dc_place(component: u32) -> u32 {
    component.saturating_mul(DC_BITS).saturating_add(BYTE_BITS + 3)
}

impl FilePoint {
    fn pack(self) -> Option<u64> {
        let byte = u64::try_from(self.byte).ok().filter(|byte| byte >> BYTE_BITS == 0)?;
        let mut packed = byte | u64::from(self.bit) << BYTE_BITS;
        for (component, &dc) in (0..).zip(&self.dc) {
            if !(-2048..2048).contains(&dc) {
                return None;
            }
            let field = u64::from(dc.cast_unsigned() & 0xfff);
            packed |= field << dc_place(component);
        }
        Some(packed)
    }

    fn unpack(packed: u64) -> Self {
        let dc = [0, 1, 2].map(|component: u32| {
            let field = packed >> dc_place(component);
            (((field & 0xfff) as i32) << 20) >> 20
        });
        let byte = (packed & ((1 << BYTE_BITS) - 1)) as usize;
        Self { byte, bit: (packed >> BYTE_BITS & 7) as u8, dc }
    }
}

/// The entry points of an image, in their stored form.
#[derive(Debug, Clone, Copy)]
pub struct EntryPoints<'a> {
    numbers: &'a [[u8; 8]],
}

impl<'a> EntryPoints<'a> {
    /// Takes the stored form; `None` when its length is not one.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Option<Self> {
        match bytes.as_chunks() {
            (numbers, []) if !numbers.is_empty() => Some(Self { numbers }),
            _ => None,
        }
    }

    pub(crate) fn len(self) -> usize {
        self.numbers.len()
    }

    pub(crate) fn get(self, idx: usize) -> Option<FilePoint> {
        self.numbers.get(idx).map(|number| FilePoint::unpack(u64::from_le_bytes(*number)))
    }
}

/// Entry points in the making.
#[derive(Debug, Default)]
pub(crate) struct Builder {
    points: Vec<EntryPoint>,
    stored: Vec<u8>,
}

impl Builder {
    pub(crate) fn clear(&mut self) {
        self.points.clear();
        self.stored.clear();
    }

    pub(crate) fn push(&mut self, point: EntryPoint) {
        self.points.push(point);
    }

    /// Puts the points into their stored form; `place` says where a byte of the unstuffed
    /// data lies in the file, from the start of the scan's data.
    pub(crate) fn finish(&mut self, mut place: impl FnMut(usize) -> usize) {
        self.stored.clear();
        for point in &self.points {
            let EntryPoint { position, dc: [a, b, c, d] } = *point;
            let packed = FilePoint {
                byte: place((position / 8) as usize),
                bit: (position % 8) as u8,
                dc: [a, b, c],
            };
            let Some(packed) = packed.pack().filter(|_| d == 0) else {
                self.stored.clear();
                return;
            };
            self.stored.extend(packed.to_le_bytes());
        }
    }

    /// The stored form; empty when there is none.
    pub(crate) fn stored(&self) -> &[u8] {
        &self.stored
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_packed_comes_back(
            byte in 0..1_usize << 25,
            bit in 0..8_u8,
            dc in prop::array::uniform3(-2048..2048_i32),
        ) {
            let point = FilePoint { byte, bit, dc };
            prop_assert_eq!(FilePoint::unpack(point.pack().unwrap()), point);
        }
    }

    #[test]
    fn what_does_not_fit_is_not_packed() {
        let point = FilePoint { byte: 0, bit: 0, dc: [0; 3] };
        assert_eq!(FilePoint { byte: 1 << 25, ..point }.pack(), None);
        assert_eq!(FilePoint { dc: [0, 2048, 0], ..point }.pack(), None);
        assert_eq!(FilePoint { dc: [0, 0, -2049], ..point }.pack(), None);
    }

    /// Bit by bit, from the description above.
    #[test]
    fn the_layout_is_the_documented_one() {
        let point = FilePoint { byte: 0x123_4567, bit: 5, dc: [-1, 2, -2048] };
        let expected = 0x123_4567 | 5 << 25 | 0xfff << 28 | 2 << 40 | 0x800 << 52;
        assert_eq!(point.pack(), Some(expected));
    }
}
