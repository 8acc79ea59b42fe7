//! What kernels are told, word for word: the host's side of
//! `crates/gpu/kernels/decode/words.cuh`, where the fields are explained.
//!
//! Everything is whole words in the order of the fields, so that nothing depends on how Rust
//! lays out a struct. Nothing here decides a value. Read `batch.rs` for what does.

/// Bytes of a piece: the unit of places in scratch memory, and what destinations in an upload
/// never share.
pub(crate) const PIECE: usize = PIECE_BYTES as usize;
pub(crate) const PIECE_BYTES: u32 = 16;

/// Blocks, and threads, of a thread block that makes samples of blocks.
pub(crate) const BLOCK_TILE: usize = 128;

/// Row groups that lie in shared memory at a time, in bytes.
pub(crate) const FRONT_BYTES: u32 = 24_000;

/// Bytes that may be looked at from a block's start on.
pub(crate) const PAST_BLOCK: u32 = 288;

/// Output rows of a thread block of the passes along the columns.
pub(crate) const COLUMN_ROWS: u32 = 28;

/// What goes into the upload as words.
pub(crate) trait Words {
    /// Its bytes.
    const BYTES: usize;

    /// Writes them to a place of as many.
    fn put(&self, to: &mut [u8]);
}

impl Words for u32 {
    const BYTES: usize = 4;

    #[inline]
    fn put(&self, to: &mut [u8]) {
        to.copy_from_slice(&self.to_le_bytes());
    }
}

impl Words for f64 {
    const BYTES: usize = 8;

    #[inline]
    fn put(&self, to: &mut [u8]) {
        to.copy_from_slice(&self.to_le_bytes());
    }
}

impl<T: Words, const N: usize> Words for [T; N] {
    const BYTES: usize = N * T::BYTES;

    #[inline]
    fn put(&self, to: &mut [u8]) {
        let places = to.chunks_exact_mut(T::BYTES);
        self.iter().zip(places).for_each(|(item, place)| item.put(place));
    }
}

impl Words for u64 {
    const BYTES: usize = 8;

    #[inline]
    fn put(&self, to: &mut [u8]) {
        to.copy_from_slice(&self.to_le_bytes());
    }
}

impl Words for u8 {
    const BYTES: usize = 1;

    #[inline]
    fn put(&self, to: &mut [u8]) {
        to.copy_from_slice(&[*self]);
    }
}

/// A struct of words, which lie in the order of its fields.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, PartialEq)]
        pub(crate) struct $name {
            $(pub(crate) $field: $type,)*
        }

        impl Words for $name {
            const BYTES: usize = 0 $(+ <$type as Words>::BYTES)*;

            #[inline]
            fn put(&self, to: &mut [u8]) {
                let mut rest = to;
                $(
                    let (place, behind) =
                        std::mem::take(&mut rest).split_at_mut(<$type as Words>::BYTES);
                    self.$field.put(place);
                    rest = behind;
                )*
                debug_assert!(rest.is_empty(), "a place of as many bytes");
            }
        }
    };
}

words! {
    /// How one axis is resized.
    AxisWords {
        start: f64, scale: f64, reach: f64, per_input: f64,
        n_in: u32, origin: u32, window: u32, n_outputs: u32,
        mirror: u32, filter: u32, running: u32, by_fours: u32,
        taps: u32, spans: u32, weights: u32, unused: u32,
    }
}

words! {
    /// A component of a crop.
    ComponentWords {
        across: u32, down: u32, ratio_x: u32, ratio_y: u32,
        width: u32, height: u32,
        block_x: u32, blocks_x: u32, block_y: u32, blocks_y: u32,
        samples: u32, stride: u32, blocks: u32, steps: u32,
        axis_x: u32, axis_y: u32, first_x: u32, first_y: u32,
        columns: u32, rows: u32, narrow: u32, tiles: u32,
        unused: [u32; 2],
    }
}

words! {
    /// A crop.
    CropWords {
        row: u32, n_components: u32, ycc: u32, limited: u32,
        n_blocks: u32, first_block_tile: u32, first_row_tile: u32, tile_rows: u32,
        left: u32, top: u32, columns: u32, rows: u32,
        staged_left: u32, staged_columns: u32, mcu_first: u32, mcu_end: u32,
        mcus_across: u32, mcus_down: u32, mcus_per_group: u32, wide: u32,
        rows_per_mcu: u32, jpeg: u32, unused: [u32; 2],
        components: [ComponentWords; 3],
    }
}

words! {
    /// Row groups that one thread block looks through.
    FrontWords { crop: u32, group: u32, n: u32, ends: u32 }
}

/// Most blocks of an MCU, and most Huffman codes of a scan.
pub(crate) const MAX_MCU_BLOCKS: usize = 10;
pub(crate) const MAX_SLOTS: usize = 6;

/// Segments, and threads, of a thread block that decodes a scan.
pub(crate) const LANE_TILE: usize = 128;

/// Bits that tables of Huffman codes are indexed by.
pub(crate) const LUT_BITS: u32 = 9;

words! {
    /// A Huffman table, ready.
    SlotWords { table: u32, base: u32, n_long: u32, unused: u32 }
}

words! {
    /// What a Huffman table is made of.
    TableWords { counts: [u8; 16], symbols: Symbols, slot: SlotWords }
}

/// What the codes of a table mean.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Symbols(pub(crate) [u8; 256]);

impl Default for Symbols {
    fn default() -> Self {
        Self([0; 256])
    }
}

impl Words for Symbols {
    const BYTES: usize = 256;

    #[inline]
    fn put(&self, to: &mut [u8]) {
        to.copy_from_slice(&self.0);
    }
}

words! {
    /// The part of a scan that a crop needs.
    ScanWords {
        crop: u32, data: u32, points: u32, segments: u32,
        first_mcu: u32, step: u32, mcu_x: u32, mcu_end_x: u32,
        rows: u32, restart_interval: u32, words: u32, n_words: u32,
        positions: u32, n_slots: u32, n_blocks: u32, first_row: u32,
        blocks: [u32; MAX_MCU_BLOCKS], unused: [u32; 2],
        slots: [SlotWords; MAX_SLOTS],
    }
}

words! {
    /// Bytes that have a checksum.
    CheckWords { crop: u32, from: u32, to: u32, sum: u32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As long as the kernels' structs; arrays of them stay aligned to what kernels load at once.
    #[test]
    fn words_are_as_many_as_the_kernels_have() {
        assert_eq!(AxisWords::BYTES, 80);
        assert_eq!(ComponentWords::BYTES, 96);
        assert_eq!(CropWords::BYTES, 96 + 3 * 96);
        assert_eq!(FrontWords::BYTES, 16);
        assert_eq!(TableWords::BYTES, 288);
        assert_eq!(ScanWords::BYTES, 112 + 6 * 16);
        assert_eq!(CheckWords::BYTES, 16);
        let mut bytes = [0xEE; AxisWords::BYTES];
        let axis = AxisWords { start: 1.0, unused: 7, ..AxisWords::default() };
        axis.put(&mut bytes);
        assert_eq!((&bytes[..8], bytes[76]), (&1.0_f64.to_le_bytes()[..], 7));
    }
}
