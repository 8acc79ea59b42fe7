//! What an epoch delivered, in 128 bits: the stream digest (content and order) and the content digest
//! (content in any order).
//!
//! Both are XXH3-128, seed 0, over: sample id (u64 LE), label (i64 LE), bytes as delivered, and
//! the length (u64 LE) and bytes of each further field where any were asked for. They detect
//! differences but do not protect against forgery. The state of a stream digest fits into a line of
//! text, so a resumed run continues where the first one stopped. `digest/xxh3.rs` has the long-input
//! part of XXH3 for that reason.

mod xxh3;

use std::fmt;
use std::str::FromStr;

use twox_hash::XxHash3_128;

use crate::ids::{Label, SampleId};
use xxh3::{LongInput, STRIPE_BYTES};

/// Bytes kept back; until more have come the digest is the library's one-shot function
/// over them (XXH3 treats up to 240 bytes in a way of its own).
const BUFFER_BYTES: usize = 4 * STRIPE_BYTES;

/// A text that is not a saved digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("`{what}` is not a digest as this program writes it")]
pub struct DigestError {
    /// Which digest.
    pub what: &'static str,
}

/// The digest of one sample.
#[must_use]
pub fn sample_digest(id: SampleId, label: Label, bytes: &[u8]) -> u128 {
    sample_digest_of(id, label, &[bytes])
}

/// The digest of one sample, whose bytes are these parts together.
#[must_use]
pub fn sample_digest_of(id: SampleId, label: Label, parts: &[&[u8]]) -> u128 {
    let mut hash = XxHash3_128::new();
    hash.write(&id.0.to_le_bytes());
    hash.write(&label.0.to_le_bytes());
    parts.iter().for_each(|part| hash.write(part));
    hash.finish_128()
}

/// The wrapping sum of the sample digests: equal for equal content in any order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct ContentDigest(pub u128);

impl ContentDigest {
    /// Counts a sample by its [`sample_digest`].
    pub fn add(&mut self, sample: u128) {
        self.0 = self.0.wrapping_add(sample);
    }

    /// Counts everything the other has counted.
    pub fn merge(&mut self, other: Self) {
        self.add(other.0);
    }
}

/// 32 hexadecimal digits.
impl fmt::Display for ContentDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl FromStr for ContentDigest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, DigestError> {
        let error = DigestError { what: "content digest" };
        if text.len() != 32 {
            return Err(error);
        }
        let bytes = from_hex(text).ok_or(error)?;
        Ok(Self(bytes.iter().fold(0, |sum, &byte| sum << 8 | u128::from(byte))))
    }
}

/// XXH3-128 over samples in delivery order. Written with `{}` it is the digest so far;
/// [`Self::save`] and [`Self::restore`] carry it into another process.
#[derive(Debug, Clone)]
pub struct StreamDigest {
    long: LongInput,
    total_bytes: u64,
    /// The stripe consumed last; zeros before the first.
    previous: [u8; STRIPE_BYTES],
    /// Bytes not yet consumed: `n_buffered` of them, none only when nothing has come.
    buffer: [u8; BUFFER_BYTES],
    n_buffered: usize,
}

impl Default for StreamDigest {
    fn default() -> Self {
        Self {
            long: LongInput::new(),
            total_bytes: 0,
            previous: [0; STRIPE_BYTES],
            buffer: [0; BUFFER_BYTES],
            n_buffered: 0,
        }
    }
}

impl StreamDigest {
    /// The digest of nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether nothing was added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.total_bytes == 0
    }

    /// Adds one sample as it was delivered.
    pub fn add(&mut self, id: SampleId, label: Label, bytes: &[u8]) {
        self.update(&id.0.to_le_bytes());
        self.update(&label.0.to_le_bytes());
        self.update(bytes);
    }

    /// Adds bytes; how they are cut into calls does not matter.
    pub fn update(&mut self, bytes: &[u8]) {
        self.total_bytes += bytes.len() as u64;
        let room = BUFFER_BYTES - self.n_buffered;
        if bytes.len() <= room {
            self.buffer[self.n_buffered..][..bytes.len()].copy_from_slice(bytes);
            self.n_buffered += bytes.len();
            return;
        }
        // More follows the full buffer, so all of it can go: XXH3 wants only its very last
        // stripe apart.
        let (head, rest) = bytes.split_at(room);
        self.buffer[self.n_buffered..].copy_from_slice(head);
        self.n_buffered = BUFFER_BYTES;
        self.consume_buffered(BUFFER_BYTES);
        let (whole, tail) = rest.split_at(whole_stripes(rest.len()));
        self.long.consume(whole);
        if let Some(last) = whole.last_chunk() {
            self.previous = *last;
        }
        self.buffer[..tail.len()].copy_from_slice(tail);
        self.n_buffered = tail.len();
    }

    /// XXH3-128 of everything so far. Asking changes nothing.
    #[must_use]
    pub fn digest(&self) -> u128 {
        if self.long.is_untouched() {
            return XxHash3_128::oneshot(&self.buffer[..self.n_buffered]);
        }
        let mut rest = self.clone();
        rest.consume_buffered(whole_stripes(rest.n_buffered));
        let mut last = [0; STRIPE_BYTES];
        let (from_previous, from_buffer) =
            last.split_at_mut(STRIPE_BYTES - rest.n_buffered);
        from_previous.copy_from_slice(&rest.previous[rest.n_buffered..]);
        from_buffer.copy_from_slice(&rest.buffer[..rest.n_buffered]);
        rest.long.finish(&last, rest.total_bytes)
    }

    /// The state in at most 500 characters of `[0-9a-f-]`: the number of bytes, then either
    /// all of them (up to 240), or accumulators, last stripe and the bytes behind it.
    #[must_use]
    pub fn save(&self) -> String {
        let mut short = self.clone();
        if self.total_bytes > 240 {
            short.consume_buffered(whole_stripes(short.n_buffered));
        }
        let rest = to_hex(&short.buffer[..short.n_buffered]);
        if short.long.is_untouched() {
            return format!("{}-{rest}", self.total_bytes);
        }
        let (sums, previous) = (to_hex(&short.long.to_bytes()), to_hex(&short.previous));
        format!("{}-{sums}-{previous}-{rest}", self.total_bytes)
    }

    /// The digest whose [`Self::save`] is `text`.
    ///
    /// # Errors
    /// [`DigestError`] for any other text.
    pub fn restore(text: &str) -> Result<Self, DigestError> {
        Self::parse(text).ok_or(DigestError { what: "stream digest" })
    }

    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let total_bytes: u64 = parts.next()?.parse().ok()?;
        let mut digest = Self { total_bytes, ..Self::default() };
        let rest = if total_bytes <= 240 {
            from_hex(parts.next()?).filter(|rest| rest.len() as u64 == total_bytes)?
        } else {
            let sums: [u8; STRIPE_BYTES] = from_hex(parts.next()?)?.try_into().ok()?;
            digest.previous = from_hex(parts.next()?)?.try_into().ok()?;
            let rest = from_hex(parts.next()?)?;
            let n_rest =
                (1..=STRIPE_BYTES).contains(&rest.len()).then_some(rest.len() as u64)?;
            let consumed = total_bytes.checked_sub(n_rest)?;
            digest.long = LongInput::from_bytes(&sums, consumed)?;
            rest
        };
        if parts.next().is_some() {
            return None;
        }
        digest.buffer[..rest.len()].copy_from_slice(&rest);
        digest.n_buffered = rest.len();
        Some(digest)
    }

    /// Feeds the first `n_bytes` of the buffer, a whole number of stripes, to the sums.
    fn consume_buffered(&mut self, n_bytes: usize) {
        let whole = &self.buffer[..n_bytes];
        self.long.consume(whole);
        if let Some(last) = whole.last_chunk() {
            self.previous = *last;
        }
        self.buffer.copy_within(n_bytes..self.n_buffered, 0);
        self.n_buffered -= n_bytes;
    }
}

/// 32 hexadecimal digits.
impl fmt::Display for StreamDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.digest())
    }
}

/// The longest whole number of stripes, in bytes, that leaves at least one byte.
fn whole_stripes(n_bytes: usize) -> usize {
    n_bytes.saturating_sub(1) / STRIPE_BYTES * STRIPE_BYTES
}

fn to_hex(bytes: &[u8]) -> String {
    let halves = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    halves.map(|half| char::from(b"0123456789abcdef"[usize::from(half)])).collect()
}

/// The bytes of a text of lower-case hexadecimal digits; `None` for any other.
fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    digits.chunks(2).map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use twox_hash::XxHash3_128;

    fn pattern(n: usize) -> Vec<u8> {
        (0..n).map(|i| (i.wrapping_mul(0x9E37_79B1) >> 13).to_le_bytes()[0]).collect()
    }

    fn digest_of(chunks: &[&[u8]]) -> StreamDigest {
        let mut digest = StreamDigest::new();
        for chunk in chunks {
            digest.update(chunk);
        }
        digest
    }

    #[test]
    fn every_length_equals_the_library() {
        let bytes = pattern(2_100);
        for n in 0..bytes.len() {
            let digest = digest_of(&[&bytes[..n]]);
            assert_eq!(digest.digest(), XxHash3_128::oneshot(&bytes[..n]), "{n} bytes");
            let restored = StreamDigest::restore(&digest.save()).unwrap();
            assert_eq!(restored.digest(), digest.digest(), "{n} bytes, restored");
            assert_eq!(restored.save(), digest.save(), "{n} bytes, saved again");
            assert!(digest.save().len() <= 500, "{n} bytes: {}", digest.save().len());
        }
    }

    #[test]
    fn one_byte_at_a_time_equals_the_library() {
        let bytes = pattern(1_500);
        let mut digest = StreamDigest::new();
        for (i, byte) in bytes.iter().enumerate() {
            digest.update(std::slice::from_ref(byte));
            assert_eq!(digest.digest(), XxHash3_128::oneshot(&bytes[..=i]));
        }
    }

    #[test]
    fn a_sample_is_id_label_bytes() {
        let mut bytes = 5_u64.to_le_bytes().to_vec();
        bytes.extend((-1_i64).to_le_bytes());
        bytes.extend(pattern(300));
        assert_eq!(
            sample_digest(SampleId(5), Label(-1), &pattern(300)),
            XxHash3_128::oneshot(&bytes)
        );
        let mut stream = StreamDigest::new();
        stream.add(SampleId(5), Label(-1), &pattern(300));
        assert_eq!(stream.digest(), XxHash3_128::oneshot(&bytes));
        assert_eq!(stream.to_string(), format!("{:032x}", XxHash3_128::oneshot(&bytes)));
    }

    /// Digests computed by Python's `xxhash` from the definition in `docs/numbers.md`.
    #[test]
    fn golden_digests() {
        let (mut stream, mut content) = (StreamDigest::new(), ContentDigest::default());
        for i in 0..3_u8 {
            let byte = |j: usize| (usize::from(i) * 7 + j * j).to_le_bytes()[0];
            let bytes: Vec<u8> = (0..1_000 * usize::from(i)).map(byte).collect();
            let (id, label) = (SampleId(u64::from(i) << 40), Label(i64::from(i) - 1));
            stream.add(id, label, &bytes);
            content.add(sample_digest(id, label, &bytes));
        }
        assert_eq!(stream.to_string(), "4b92d548a7bac6d5c3674b61a95d56dc");
        assert_eq!(content.to_string(), "aae2fd6b200437cc251ed0a5f324776b");
    }

    #[test]
    fn content_does_not_know_order() {
        let samples = [3_u128, u128::MAX, 1 << 127];
        let (mut forth, mut back) = (ContentDigest::default(), ContentDigest::default());
        samples.iter().for_each(|sample| forth.add(*sample));
        samples.iter().rev().for_each(|sample| back.add(*sample));
        assert_eq!(forth, back);
        assert_eq!(forth.to_string().parse(), Ok(forth));
        let mut merged = ContentDigest(1);
        merged.merge(forth);
        assert_ne!(merged, forth);
        for bad in ["", "0", &"g".repeat(32), &"+".repeat(32), &"0".repeat(33)] {
            assert!(bad.parse::<ContentDigest>().is_err(), "{bad}");
        }
    }

    #[test]
    fn other_texts_are_refused() {
        let long = digest_of(&[&pattern(5_000)]).save();
        let bad = [
            String::new(),
            "0".into(),
            "1-".into(),
            "2-00".into(),
            "241-00".into(),
            "x-00".into(),
            "1-0G".into(),
            "1-é".into(),
            long[..long.len() - 1].into(),
            long[..long.len() - 2].into(),
            format!("{long}00"),
            format!("{long}-00"),
            long.replacen("5000", "50", 1),
            format!("{}{long}", u64::MAX),
        ];
        for text in bad {
            assert!(StreamDigest::restore(&text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn chunks_and_saves_do_not_matter(
            bytes in proptest::collection::vec(any::<u8>(), 0..6_000),
            cuts in proptest::collection::vec((any::<proptest::sample::Index>(), any::<bool>()), 0..8),
        ) {
            let mut cuts: Vec<_> =
                cuts.into_iter().map(|(at, save)| (at.index(bytes.len() + 1), save)).collect();
            cuts.sort_unstable();
            let mut digest = StreamDigest::new();
            let mut from = 0;
            for (at, save) in cuts {
                digest.update(&bytes[from..at]);
                from = at;
                if save {
                    let text = digest.save();
                    prop_assert!(text.len() <= 500);
                    digest = StreamDigest::restore(&text).unwrap();
                }
                prop_assert_eq!(digest.digest(), XxHash3_128::oneshot(&bytes[..at]));
            }
            digest.update(&bytes[from..]);
            prop_assert_eq!(digest.digest(), XxHash3_128::oneshot(&bytes));
        }

        #[test]
        fn any_text_is_refused_or_restored(text in "[0-9a-f-]{0,600}") {
            if let Ok(digest) = StreamDigest::restore(&text) {
                let _ = digest.digest();
            }
        }
    }
}
