//! What is kept between the two passes: the last few rows that came, one after the other.
//!
//! Rows are put in at the lower end; those that no output needs any more make room at the
//! upper. So no more of them are kept than the processor's nearest cache holds, as long as
//! whoever brings them does not run far ahead of what can be made of them. Every row begins at a
//! multiple of 64 bytes: a vector that straddles two cache lines costs two loads. Read
//! `columns.rs` next.

/// Bytes of a cache line, and of the widest vector.
const ALIGNMENT: usize = 64;

/// Room for so many more rows than are needed at once, so that they are seldom moved.
const SPARE_ROWS: usize = 16;

/// Rows of one length. Keeps its memory from one image to the next.
#[derive(Debug, Default)]
pub(super) struct Lines<T> {
    values: Vec<T>,
    /// How many values come before the first row.
    skip: usize,
    stride: usize,
    /// For how many rows there is room.
    n_places: usize,
    /// How many rows are looked at together; the last ones may be there in name only.
    n_at_once: usize,
    /// Which row is in the first place.
    first: usize,
    /// How many rows have come.
    pub(super) n_rows: usize,
}

impl<T: Copy + Default> Lines<T> {
    /// Begins with no rows. They will be `len` values long, and `n_at_once` are needed at once.
    pub(super) fn begin(&mut self, len: usize, n_at_once: usize) {
        self.stride = len.next_multiple_of(ALIGNMENT / size_of::<T>());
        self.n_at_once = n_at_once;
        self.first = 0;
        self.n_rows = 0;
        self.make_places(n_at_once + SPARE_ROWS);
    }

    /// Room for the next `n_rows`, which count as come. Rows before `keep` may be forgotten.
    pub(super) fn next(&mut self, n_rows: usize, keep: usize) -> &mut [T] {
        if self.n_rows + n_rows > self.first + self.n_places {
            let keep = keep.min(self.n_rows);
            let kept = self.place(keep)..self.place(self.n_rows);
            self.values.copy_within(kept, self.skip);
            self.first = keep;
        }
        if self.n_rows + n_rows > self.first + self.n_places {
            self.make_places(2 * (self.n_rows + n_rows - self.first));
        }
        let place = self.place(self.n_rows);
        self.n_rows += n_rows;
        &mut self.values[place..][..n_rows * self.stride]
    }

    /// `n_rows` rows from `first` on. Those that have not come are left over from before.
    pub(super) fn rows(&self, first: usize, n_rows: usize) -> &[T] {
        &self.values[self.place(first)..][..n_rows * self.stride]
    }

    /// The one row there is, to be filled again and again.
    pub(super) fn only(&mut self) -> &mut [T] {
        &mut self.values[self.skip..][..self.stride]
    }

    /// Gives the memory back if it is more than `keep_bytes`; the bytes that it keeps.
    pub(super) fn release_above(&mut self, keep_bytes: usize) -> usize {
        if self.values.capacity() * size_of::<T>() > keep_bytes {
            *self = Self::default();
        }
        self.values.capacity() * size_of::<T>()
    }

    fn place(&self, row: usize) -> usize {
        self.skip + (row - self.first) * self.stride
    }

    /// Makes room for `n_places` rows, and for those that are looked at but never come.
    fn make_places(&mut self, n_places: usize) {
        self.n_places = n_places;
        let per_line = ALIGNMENT / size_of::<T>();
        let n_values = (n_places + self.n_at_once) * self.stride + per_line;
        if self.values.len() < n_values {
            self.values.resize(n_values, T::default());
            // In new memory the first multiple of 64 may be elsewhere.
            let skip = self.values.as_ptr().align_offset(ALIGNMENT).min(per_line);
            let kept = self.skip..self.place(self.n_rows);
            self.values.copy_within(kept, skip);
            self.skip = skip;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stay_themselves_however_many_come_at_once() {
        let mut lines = Lines::<i16>::default();
        for (len, n_at_once, at_once, behind) in [
            (5, 2, 1, 2),
            (33, 4, 7, 3),
            (1, 9, 30, 40),
            (64, 1, 200, 0),
            (700, 3, 1, 90),
        ] {
            lines.begin(len, n_at_once);
            let mut n_rows = 0_usize;
            while n_rows < 500 {
                let keep = n_rows.saturating_sub(behind);
                let places = lines.next(at_once, keep);
                let stride = places.len() / at_once;
                assert_eq!(places.as_ptr().align_offset(64), 0);
                for row in places.chunks_exact_mut(stride) {
                    row.fill(i16::try_from(n_rows).unwrap());
                    n_rows += 1;
                }
                assert_eq!(lines.n_rows, n_rows);
                for row in keep..n_rows {
                    let value = i16::try_from(row).unwrap();
                    let rows = lines.rows(row, n_at_once);
                    assert!(rows[..stride].iter().all(|&v| v == value), "row {row}");
                }
            }
        }
    }
}
