//! One entry point as it is kept: a 64-bit number.
//!
//! Bits 0–24 are the byte, from the start of the scan's data in the file; 25–27 the bit, from the
//! left; 28–63 three DCs of 12 bits. Scans beyond 32 MiB, more than three components and DCs beyond
//! 12 bits (no encoder makes them) have no entry points. Read `note.rs` next.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "fields are cut to their bits"
)]
#![deny(
    clippy::arithmetic_side_effects,
    reason = "numbers that a file gives; a release does not check sums in this crate"
)]

const BYTE_BITS: u32 = 25;

/// The first bit of each DC.
const DC_AT: [u32; 3] = [28, 40, 52];

/// Entry points of a row of `n_mcus` MCUs, one for every `step`.
pub(crate) fn per_row(n_mcus: usize, step: usize) -> usize {
    n_mcus.div_ceil(step.max(1))
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

impl FilePoint {
    pub(crate) fn pack(self) -> Option<u64> {
        let byte = u64::try_from(self.byte).ok().filter(|byte| byte >> BYTE_BITS == 0)?;
        let mut packed = byte | u64::from(self.bit) << BYTE_BITS;
        for (at, &dc) in DC_AT.into_iter().zip(&self.dc) {
            if !(-2048..2048).contains(&dc) {
                return None;
            }
            let field = u64::from(dc.cast_unsigned() & 0xfff);
            packed |= field.unbounded_shl(at);
        }
        Some(packed)
    }

    pub(crate) fn unpack(packed: u64) -> Self {
        let dc = DC_AT.map(|at| {
            let field = packed.unbounded_shr(at) & 0xfff;
            ((field as i32) << 20) >> 20
        });
        let byte = (packed & ((1 << BYTE_BITS) - 1)) as usize;
        Self { byte, bit: (packed >> BYTE_BITS & 7) as u8, dc }
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
