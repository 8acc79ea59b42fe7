//! Rows of equal length in memory, each beginning at a multiple of 64 bytes.
//!
//! What stands between the two passes. The beginning matters for speed alone: a vector that
//! straddles two cache lines costs two loads. Read `columns.rs` next.

/// Bytes of a cache line, and of the widest vector.
const ALIGNMENT: usize = 64;

/// Lines of values whose memory is kept from one image to the next.
#[derive(Debug, Default)]
pub(super) struct Lines<T> {
    values: Vec<T>,
    /// How many values come before the first line.
    skip: usize,
    stride: usize,
}

impl<T: Copy + Default> Lines<T> {
    /// Makes room for `n_lines` of at least `len` values each, left over from before.
    pub(super) fn reshape(&mut self, n_lines: usize, len: usize) {
        let per_line = ALIGNMENT / size_of::<T>();
        self.stride = len.next_multiple_of(per_line);
        let n_values = n_lines * self.stride + per_line;
        if self.values.len() < n_values {
            self.values.resize(n_values, T::default());
        }
        self.skip = self.values.as_ptr().align_offset(ALIGNMENT).min(per_line);
    }

    /// Gives the memory back if it is more than `keep_bytes`.
    pub(super) fn release_above(&mut self, keep_bytes: usize) {
        if self.values.capacity() * size_of::<T>() > keep_bytes {
            *self = Self::default();
        }
    }

    /// `n_lines` lines, the first of them at `first`.
    pub(super) fn at(&self, first: usize, n_lines: usize) -> &[T] {
        &self.values[self.skip + first * self.stride..][..n_lines * self.stride]
    }

    /// The same lines, to be filled.
    pub(super) fn at_mut(&mut self, first: usize, n_lines: usize) -> &mut [T] {
        &mut self.values[self.skip + first * self.stride..][..n_lines * self.stride]
    }
}
