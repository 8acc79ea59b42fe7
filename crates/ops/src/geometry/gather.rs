//! The pixels of a row at chosen columns, the same ones in row after row.
//!
//! What a row of `nearest` comes to. Which columns these are is others' to say. Pixels of three
//! bytes are taken 21 at a time out of two registers, where all of them lie in so many bytes:
//! that is found once, for all rows.

#[cfg(target_arch = "x86_64")]
mod avx512;

use crate::kernels::Level;

/// Bytes from which a block is taken.
const WINDOW: usize = 128;
/// Pixels of a block.
const PIXELS: usize = 21;

/// Chosen columns; keeps its memory.
#[derive(Debug, Default)]
pub(crate) struct Gather {
    level: Level,
    channels: usize,
    /// The chosen ones.
    pub(crate) columns: Vec<u32>,
    blocks: Vec<Block>,
}

/// Where the pixels of a block come from.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(
    not(target_arch = "x86_64"),
    allow(dead_code, reason = "read by the kernels that there are: AVX-512's")
)]
struct Block {
    /// The first byte of the window; `None` where there is no window that has them all.
    from: Option<u32>,
    /// For each byte, which one of the window it is.
    order: [u8; 64],
}

impl Gather {
    /// None yet.
    pub(crate) fn new(level: Level) -> Self {
        Self { level, ..Self::default() }
    }

    /// Chooses `columns` of rows of `width` pixels of `channels` bytes.
    pub(crate) fn set(
        &mut self,
        width: usize,
        channels: usize,
        columns: impl IntoIterator<Item = u32>,
    ) {
        self.channels = channels;
        self.columns.clear();
        self.columns.extend(columns);
        self.blocks.clear();
        if has_kernel(self.level) && channels == 3 && 3 * width >= WINDOW {
            let blocks = self.columns.chunks_exact(PIXELS);
            self.blocks.extend(blocks.map(|columns| Block::new(width, columns)));
        }
    }

    /// Puts the chosen pixels of `src` into `dst`.
    ///
    /// # Panics
    /// When there is no such column, or `dst` is not as long as what is chosen.
    pub(crate) fn take(&self, src: &[u8], dst: &mut [u8]) {
        assert_eq!(dst.len(), self.columns.len() * self.channels, "what is chosen");
        match self.channels {
            1 => choose::<1>(src, &self.columns, dst),
            2 => choose::<2>(src, &self.columns, dst),
            3 => self.take_colours(src, dst),
            n => {
                for (place, &column) in dst.chunks_exact_mut(n).zip(&self.columns) {
                    place.copy_from_slice(&src[column as usize * n..][..n]);
                }
            }
        }
    }

    fn take_colours(&self, src: &[u8], dst: &mut [u8]) {
        let n_done = match self.level {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512(cpu) => avx512::take(cpu, self, src, dst),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2(_) => 0,
            #[cfg(target_arch = "aarch64")]
            Level::Neon(_) => 0,
            Level::Scalar => 0,
        };
        choose::<3>(src, &self.columns[n_done..], &mut dst[3 * n_done..]);
    }

    /// Gives memory back if it is more than `keep_bytes`; the bytes that it keeps.
    pub(crate) fn release_above(&mut self, keep_bytes: usize) -> usize {
        if self.capacity_bytes() > keep_bytes {
            *self = Self::new(self.level);
        }
        self.capacity_bytes()
    }

    /// Bytes of memory that it keeps.
    pub(crate) fn capacity_bytes(&self) -> usize {
        self.columns.capacity() * size_of::<u32>()
            + self.blocks.capacity() * size_of::<Block>()
    }
}

impl Block {
    /// The block of [`PIXELS`] columns of rows of `width` pixels, which hold a window.
    #[expect(clippy::cast_possible_truncation, reason = "a place in the window")]
    fn new(width: usize, columns: &[u32]) -> Self {
        let first = columns.iter().min().map_or(0, |&column| 3 * column as usize);
        let from = first.min(3 * width - WINDOW);
        let end = columns.iter().max().map_or(0, |&column| 3 * column as usize + 3);
        let mut order = [0; 64];
        if end > from + WINDOW {
            return Self { from: None, order };
        }
        for (places, &column) in order.chunks_exact_mut(3).zip(columns) {
            let place = 3 * column as usize - from;
            let three = [place, place + 1, place + 2].map(|place| place as u8);
            places.copy_from_slice(&three);
        }
        Self { from: u32::try_from(from).ok(), order }
    }
}

fn has_kernel(level: Level) -> bool {
    match level {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512(_) => true,
        #[cfg(target_arch = "x86_64")]
        Level::Avx2(_) => false,
        #[cfg(target_arch = "aarch64")]
        Level::Neon(_) => false,
        Level::Scalar => false,
    }
}

/// The pixels of a row at `columns`: the meaning.
fn choose<const N: usize>(row: &[u8], columns: &[u32], out: &mut [u8]) {
    let (pixels, _) = row.as_chunks::<N>();
    let (places, _) = out.as_chunks_mut::<N>();
    for (place, &column) in places.iter_mut().zip(columns) {
        *place = pixels[column as usize];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn taken(level: Level, row: &[u8], channels: usize, columns: &[u32]) -> Vec<u8> {
        let mut gather = Gather::new(level);
        gather.set(row.len() / channels, channels, columns.iter().copied());
        let mut out = vec![0; columns.len() * channels];
        gather.take(row, &mut out);
        out
    }

    proptest! {
        #[test]
        fn every_level_takes_the_same_pixels(
            (width, columns) in (1_u32..200).prop_flat_map(|width| {
                (Just(width), prop::collection::vec(0..width, 0..150))
            }),
            channels in 1_usize..6,
            is_sorted: bool,
        ) {
            let mut columns = columns;
            if is_sorted {
                columns.sort_unstable();
            }
            let n_bytes = width as usize * channels;
            let row: Vec<u8> = (0..=250).cycle().take(n_bytes).collect();
            let expected: Vec<u8> = columns
                .iter()
                .flat_map(|&at| row[at as usize * channels..][..channels].to_vec())
                .collect();
            for level in Level::available() {
                prop_assert_eq!(&taken(level, &row, channels, &columns), &expected);
            }
        }
    }
}
