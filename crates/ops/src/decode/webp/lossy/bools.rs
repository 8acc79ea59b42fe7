//! The boolean entropy decoder (RFC 6386 §7), which remembers whether it read past its bytes.
//!
//! A partition may begin with a byte that no encoder writes, 255. Then the value that is read never gets
//! below its range again, and grows until bits are lost. Which bits these are depends on how many bytes
//! are loaded at a time, so here they are as many as in libwebp on machines of 64 bits.

/// A partition that is being read.
#[derive(Debug)]
pub(super) struct Bools<'a> {
    bytes: &'a [u8],
    value: u64,
    /// Bits of `value` below the byte that is compared next; more are loaded if there are less than none.
    bits: i32,
    /// The range, less one.
    range: u32,
    is_past_end: bool,
}

impl<'a> Bools<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        let mut bools =
            Self { bytes, value: 0, bits: -8, range: 254, is_past_end: false };
        // libwebp loads at once, so an empty partition is one that has ended.
        bools.load();
        bools
    }

    /// Whether a byte was needed that is not there: libwebp then refuses the image.
    pub(super) fn is_past_end(&self) -> bool {
        self.is_past_end
    }

    fn load(&mut self) {
        if let Some(word) = self.bytes.first_chunk::<8>() {
            self.value = self.value << 56 | u64::from_be_bytes(*word) >> 8;
            self.bits += 56;
            self.bytes = &self.bytes[7..];
            return;
        }
        let next = match self.bytes.split_first() {
            Some((next, rest)) => {
                self.bytes = rest;
                *next
            }
            None => {
                self.is_past_end = true;
                0
            }
        };
        self.value = self.value << 8 | u64::from(next);
        self.bits += 8;
    }

    /// What is compared.
    #[inline]
    fn top(&mut self) -> u32 {
        if self.bits < 0 {
            self.load();
        }
        (self.value >> self.bits) as u32
    }

    /// A bit that is 0 with `probability` of 256.
    #[inline]
    pub(super) fn bit(&mut self, probability: u8) -> bool {
        let top = self.top();
        let split = (self.range * u32::from(probability)) >> 8;
        let is_set = top > split;
        let range = if is_set {
            self.value = self.value.wrapping_sub(u64::from(split + 1) << self.bits);
            self.range - split
        } else {
            split + 1
        };
        let shift = range.leading_zeros() - 24;
        self.range = (range << shift) - 1;
        self.bits -= shift as i32;
        is_set
    }

    /// A bit that is as likely as not, compared with a sign, as libwebp does for that of a coefficient.
    #[inline]
    pub(super) fn sign(&mut self) -> bool {
        let top = self.top();
        let split = self.range >> 1;
        let is_set = split.wrapping_sub(top) >> 31 == 1;
        if is_set {
            self.value = self.value.wrapping_sub(u64::from(split + 1) << self.bits);
            self.range -= 1;
        }
        self.range |= 1;
        self.bits -= 1;
        is_set
    }

    pub(super) fn flag(&mut self) -> bool {
        self.bit(128)
    }

    /// A number of `n` bits.
    pub(super) fn number(&mut self, n: u32) -> i32 {
        (0..n).fold(0, |value, _| value << 1 | i32::from(self.flag()))
    }

    /// A number with its sign behind it.
    pub(super) fn signed(&mut self, n: u32) -> i32 {
        let value = self.number(n);
        if self.flag() { -value } else { value }
    }

    /// The same behind a flag; 0 if that is not set.
    pub(super) fn optional(&mut self, n: u32) -> i32 {
        if self.flag() { self.signed(n) } else { 0 }
    }
}
