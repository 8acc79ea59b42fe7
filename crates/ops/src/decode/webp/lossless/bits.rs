//! Bits of a lossless image, the lowest first; zeros behind the end, which is remembered.

/// Bytes that are being read.
#[derive(Debug)]
pub(super) struct Bits<'a> {
    bytes: &'a [u8],
    /// The next byte, which may lie behind the end.
    at: usize,
    window: u64,
    /// Bits in the window.
    n: u32,
}

impl<'a> Bits<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0, window: 0, n: 0 }
    }

    /// Whether more was read than there is. libwebp loads eight bytes at once, and does not notice before.
    pub(super) fn is_past_end(&self) -> bool {
        self.at * 8 - self.n as usize > self.bytes.len().max(8) * 8
    }

    /// Makes the window hold 32 bits at least.
    fn fill(&mut self) {
        if let Some(word) = self.bytes.get(self.at..).and_then(|rest| rest.first_chunk())
        {
            self.window |= u64::from(u32::from_le_bytes(*word)) << self.n;
            self.at += 4;
            self.n += 32;
            return;
        }
        while self.n < 32 {
            let byte = self.bytes.get(self.at).copied().unwrap_or(0);
            self.window |= u64::from(byte) << self.n;
            self.at += 1;
            self.n += 8;
        }
    }

    /// The next 16 bits, without going on.
    #[inline]
    pub(super) fn peek(&mut self) -> u16 {
        if self.n < 32 {
            self.fill();
        }
        self.window as u16
    }

    /// Goes on by `n` bits, at most those that were peeked at.
    #[inline]
    pub(super) fn skip(&mut self, n: u32) {
        self.window >>= n;
        self.n -= n;
    }

    /// A number of at most 24 bits.
    #[inline]
    pub(super) fn number(&mut self, n: u32) -> u32 {
        if self.n < 32 {
            self.fill();
        }
        let value = self.window & ((1 << n) - 1);
        self.skip(n);
        value as u32
    }

    pub(super) fn flag(&mut self) -> bool {
        self.number(1) == 1
    }
}
