//! Which node a key lives on: the tokens of `Murmur3Partitioner`, and the ring of nodes that they divide.
//!
//! A request that goes to a node without the row costs a hop between nodes, and nothing else: where the ring is
//! not known, or another partitioner is in use, any node answers.

/// The token of a partition key of one column.
pub(super) fn token(key: &[u8]) -> i64 {
    let token = hashed(key).0.cast_signed();
    // The least one is that of no key.
    if token == i64::MIN { i64::MAX } else { token }
}

/// MurmurHash3 of 128 bits, as Cassandra has it.
pub(super) fn hashed(key: &[u8]) -> (u64, u64) {
    let (mut h1, mut h2) = (0_u64, 0_u64);
    let mut blocks = key.chunks_exact(16);
    for block in &mut blocks {
        let (low, high) = block.split_at(8);
        h1 ^= mixed_1(word(low));
        h1 =
            h1.rotate_left(27).wrapping_add(h2).wrapping_mul(5).wrapping_add(0x52DC_E729);
        h2 ^= mixed_2(word(high));
        h2 =
            h2.rotate_left(31).wrapping_add(h1).wrapping_mul(5).wrapping_add(0x3849_5AB5);
    }
    let tail = blocks.remainder();
    let (low, high) = tail.split_at(tail.len().min(8));
    if !high.is_empty() {
        h2 ^= mixed_2(signed_word(high));
    }
    if !low.is_empty() {
        h1 ^= mixed_1(signed_word(low));
    }
    let len = key.len() as u64;
    h1 ^= len;
    h2 ^= len;
    h1 = h1.wrapping_add(h2);
    h2 = h2.wrapping_add(h1);
    h1 = finished(h1);
    h2 = finished(h2);
    h1 = h1.wrapping_add(h2);
    (h1, h2.wrapping_add(h1))
}

fn word(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

/// Cassandra takes the last bytes for signed ones, unlike everybody else.
fn signed_word(bytes: &[u8]) -> u64 {
    let signed = |byte: u8| i64::from(byte.cast_signed()).cast_unsigned();
    let shifted = (0..).step_by(8).zip(bytes).map(|(shift, byte)| signed(*byte) << shift);
    shifted.fold(0, |word, one| word ^ one)
}

fn mixed_1(word: u64) -> u64 {
    let mixed = word.wrapping_mul(0x87C3_7B91_1142_53D5).rotate_left(31);
    mixed.wrapping_mul(0x4CF5_AD43_2745_937F)
}

fn mixed_2(word: u64) -> u64 {
    let mixed = word.wrapping_mul(0x4CF5_AD43_2745_937F).rotate_left(33);
    mixed.wrapping_mul(0x87C3_7B91_1142_53D5)
}

fn finished(mut word: u64) -> u64 {
    word ^= word >> 33;
    word = word.wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    word ^= word >> 33;
    word = word.wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    word ^ word >> 33
}

/// Tokens in order, each with the number of the node that has the keys up to it.
#[derive(Debug, Default)]
pub(super) struct Ring(Vec<(i64, usize)>);

impl Ring {
    pub(super) fn new(mut tokens: Vec<(i64, usize)>) -> Self {
        tokens.sort_unstable();
        Self(tokens)
    }

    /// The node that has a key with this token first.
    pub(super) fn node(&self, token: i64) -> Option<usize> {
        let at = self.0.partition_point(|(end, _)| *end < token);
        self.0.get(at).or_else(|| self.0.first()).map(|(_, node)| *node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the drivers of Apache Cassandra are tested with.
    #[test]
    fn tokens_are_those_of_cassandra() {
        for (key, expected) in [
            (&b"123"[..], -7_468_325_962_851_647_638),
            (&[0, 0xFF, 0x10, 0xFA, 0x99].repeat(10), 5_837_342_703_291_459_765),
            (&[0xFE; 8], -8_927_430_733_708_461_935),
            (&[0x10; 8], 1_446_172_840_243_228_796),
            (b"9223372036854775807", 7_162_290_910_810_015_547),
        ] {
            assert_eq!(token(key), expected, "{key:?}");
        }
    }

    #[test]
    fn a_key_is_on_the_node_whose_token_comes_next() {
        let ring = Ring::new(vec![(100, 1), (-100, 0), (0, 2)]);
        let node = |token| ring.node(token).unwrap();
        assert_eq!([-101, -100, -99, 0, 1, 101].map(node), [0, 0, 2, 2, 1, 0]);
        assert_eq!(Ring::default().node(1), None);
    }
}
