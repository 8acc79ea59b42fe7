//! A fixed number of aligned buffers, and the bytes that were read into them.
//!
//! Memory is bounded by construction: a [`Pool`] never grows, and a buffer returns when its last user
//! drops it. There is no unsafe code: a buffer is a longer vector with an aligned part.

use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::sync::{Arc, Mutex, PoisonError};

/// What buffers are multiples of, in bytes, and what offsets and lengths of O_DIRECT reads are
/// at most. No file system in use asks for more than its 4 KiB block.
pub const ALIGNMENT: usize = 4096;

/// Owned memory that begins at a multiple of [`ALIGNMENT`] and is a multiple of it long.
///
/// A vector, not a box: the kernel writes into it while it is moved from hand to hand, and
/// a box would promise the compiler that nobody does.
pub struct Buffer {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl Buffer {
    /// Zeroed memory of at least `len_bytes`, rounded up to [`ALIGNMENT`].
    #[must_use]
    pub fn new(len_bytes: usize) -> Self {
        let len = len_bytes.next_multiple_of(ALIGNMENT);
        let memory = vec![0; len + ALIGNMENT - 1];
        let address = memory.as_ptr().addr();
        Self { start: address.next_multiple_of(ALIGNMENT) - address, len, memory }
    }

    /// The aligned bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.len]
    }

    /// The aligned bytes, to write into.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").field("len", &self.len).finish_non_exhaustive()
    }
}

/// A fixed number of equal buffers. Clones are handles on the same buffers.
#[derive(Debug, Clone)]
pub struct Pool {
    free: Arc<Mutex<Vec<Numbered>>>,
    buffer_bytes: usize,
}

/// A buffer with its number in the pool, by which a ring knows it.
#[derive(Debug)]
struct Numbered {
    number: u16,
    buffer: Buffer,
}

impl Pool {
    /// These buffers, numbered in order.
    pub(crate) fn of(buffers: Vec<Buffer>) -> Self {
        let buffer_bytes = buffers.first().map_or(0, |buffer| buffer.len);
        let free = (0..).zip(buffers).map(|(number, buffer)| Numbered { number, buffer });
        Self { free: Arc::new(Mutex::new(free.collect())), buffer_bytes }
    }

    /// Length of each buffer in bytes.
    #[must_use]
    pub fn buffer_bytes(&self) -> usize {
        self.buffer_bytes
    }

    /// A free buffer, if there is one; never waits for one.
    #[must_use]
    pub fn take(&self) -> Option<Pooled> {
        let numbered = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop()?;
        Some(Pooled { numbered: Some(numbered), home: self.clone() })
    }
}

/// A buffer out of a [`Pool`]; goes back when dropped, on whatever thread.
#[derive(Debug)]
pub struct Pooled {
    /// Taken by `drop` alone.
    numbered: Option<Numbered>,
    home: Pool,
}

const HELD: &str = "the buffer is held until drop";

impl Pooled {
    /// The buffer's number in its pool.
    pub(crate) fn number(&self) -> u16 {
        self.numbered.as_ref().expect(HELD).number
    }
}

impl Deref for Pooled {
    type Target = Buffer;

    fn deref(&self) -> &Buffer {
        &self.numbered.as_ref().expect(HELD).buffer
    }
}

impl DerefMut for Pooled {
    fn deref_mut(&mut self) -> &mut Buffer {
        &mut self.numbered.as_mut().expect(HELD).buffer
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        let mut free = self.home.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.extend(self.numbered.take());
    }
}

/// Memory under a read: a pool's, or its own for a record that no pool buffer holds.
#[derive(Debug)]
pub(crate) enum Memory {
    Pooled(Pooled),
    Own(Buffer),
}

impl Memory {
    pub(crate) fn buffer(&self) -> &Buffer {
        match self {
            Self::Pooled(pooled) => pooled,
            Self::Own(buffer) => buffer,
        }
    }

    pub(crate) fn buffer_mut(&mut self) -> &mut Buffer {
        match self {
            Self::Pooled(pooled) => pooled,
            Self::Own(buffer) => buffer,
        }
    }
}

/// Exactly the bytes that were asked for. Dropping them frees their buffer for the next
/// read; they may outlive their reader and move between threads.
pub struct Bytes {
    memory: Memory,
    range: Range<usize>,
}

impl Bytes {
    /// The part `range` of `memory`.
    pub(crate) fn new(memory: Memory, range: Range<usize>) -> Self {
        Self { memory, range }
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory.buffer().as_slice()[self.range.clone()]
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bytes").field("len", &self.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_long_enough() {
        for len in [0, 1, 4095, 4096, 4097, 1 << 20] {
            let buffer = Buffer::new(len);
            assert!(buffer.as_slice().as_ptr().addr().is_multiple_of(ALIGNMENT));
            assert_eq!(buffer.as_slice().len(), len.next_multiple_of(ALIGNMENT));
        }
    }

    #[test]
    fn a_pool_never_grows_and_gets_its_buffers_back() {
        let pool = Pool::of(vec![Buffer::new(5000), Buffer::new(5000)]);
        assert_eq!(pool.buffer_bytes(), 8192);
        let (one, two) = (pool.take().unwrap(), pool.take().unwrap());
        assert_ne!(one.number(), two.number());
        assert!(pool.take().is_none());
        std::thread::spawn(move || drop(one)).join().unwrap();
        assert!(pool.take().is_some());
        drop(pool);
        drop(two); // A buffer may outlive the last handle on its pool.
    }
}
