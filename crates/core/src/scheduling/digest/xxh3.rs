//! The long-input part of XXH3-128 with seed 0, as in the XXH3 specification (xxHash repository,
//! `doc/xxhash_spec.md`, "XXH3 Algorithm (for longer input)").
//!
//! We have our own because its state must be saved, which the library does not support. It handles whole
//! 64-byte stripes only (`digest.rs` buffers) and no short inputs. It is plain 64-bit arithmetic over
//! eight lanes, which compilers turn into vector instructions.

/// Bytes consumed at a time: eight lanes of eight.
pub(super) const STRIPE_BYTES: usize = 64;

const N_LANES: usize = 8;
/// Stripes of a block; the sums are scrambled behind each.
const BLOCK_STRIPES: usize = 16;

const PRIME32_1: u64 = 0x9E37_79B1;
const PRIME32_2: u64 = 0x85EB_CA77;
const PRIME32_3: u64 = 0xC2B2_AE3D;
const PRIME64_1: u64 = 0x9E37_79B1_85EB_CA87;
const PRIME64_2: u64 = 0xC2B2_AE3D_27D4_EB4F;
const PRIME64_3: u64 = 0x1656_67B1_9E37_79F9;
const PRIME64_4: u64 = 0x85EB_CA77_C2B2_AE63;
const PRIME64_5: u64 = 0x27D4_EB2F_1656_67C5;
const PRIME_MX1: u64 = 0x1656_6791_9E37_79F9;

/// The specification's default secret.
const SECRET: [u8; 192] = [
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21,
    0xad, 0x1c, 0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4,
    0xb7, 0xb3, 0x67, 0x1f, 0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a,
    0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21, 0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e,
    0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c, 0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3,
    0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3, 0x71, 0x64, 0x48, 0x97,
    0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8, 0xa8, 0xfa,
    0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
    0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78,
    0x73, 0x64, 0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff,
    0xfa, 0x13, 0x63, 0xeb, 0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16,
    0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e, 0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc,
    0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce, 0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16,
    0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
];

/// Where in the secret each use begins, in bytes; stripe n of a block begins at 8·n.
const SCRAMBLE_AT: usize = 128;
const LAST_STRIPE_AT: usize = 121;
const LOW_HALF_AT: usize = 11;
const HIGH_HALF_AT: usize = 117;

type Lanes = [u64; N_LANES];

/// The eight sums, and how many stripes they have seen.
#[derive(Debug, Clone)]
pub(super) struct LongInput {
    sums: Lanes,
    n_stripes: u64,
}

impl LongInput {
    pub(super) fn new() -> Self {
        let sums = [
            PRIME32_3, PRIME64_1, PRIME64_2, PRIME64_3, PRIME64_4, PRIME32_2, PRIME64_5,
            PRIME32_1,
        ];
        Self { sums, n_stripes: 0 }
    }

    /// Whether no stripe has been consumed yet.
    pub(super) fn is_untouched(&self) -> bool {
        self.n_stripes == 0
    }

    /// Adds whole stripes that are not the last bytes of the input.
    pub(super) fn consume(&mut self, bytes: &[u8]) {
        let (mut stripes, rest) = bytes.as_chunks();
        debug_assert!(rest.is_empty(), "whole stripes only");
        while !stripes.is_empty() {
            // Up to the end of the block, so that the inner loop does nothing but add.
            let first = self.first_of_block();
            let (now, later) = stripes.split_at(stripes.len().min(BLOCK_STRIPES - first));
            let mut sums = self.sums;
            for (stripe, keys) in now.iter().zip(&STRIPE_KEYS[first..]) {
                accumulate(&mut sums, stripe, keys);
            }
            self.sums = sums;
            self.n_stripes += now.len() as u64;
            if self.first_of_block() == 0 {
                scramble(&mut self.sums);
            }
            stripes = later;
        }
    }

    /// The digest, given the last 64 bytes of the input and its length.
    pub(super) fn finish(&self, last: &[u8; STRIPE_BYTES], total_bytes: u64) -> u128 {
        let mut sums = self.sums;
        accumulate(&mut sums, last, &keys(LAST_STRIPE_AT));
        let low = merge(&sums, LOW_HALF_AT, total_bytes.wrapping_mul(PRIME64_1));
        let high = merge(&sums, HIGH_HALF_AT, !total_bytes.wrapping_mul(PRIME64_2));
        u128::from(high) << 64 | u128::from(low)
    }

    /// The sums, least byte first.
    pub(super) fn to_bytes(&self) -> [u8; STRIPE_BYTES] {
        let mut bytes = [0; STRIPE_BYTES];
        for (chunk, sum) in bytes.as_chunks_mut().0.iter_mut().zip(self.sums) {
            *chunk = sum.to_le_bytes();
        }
        bytes
    }

    /// The state after `n_bytes` whose sums are `bytes`; `None` unless whole stripes, one
    /// at least, lead there.
    pub(super) fn from_bytes(bytes: &[u8; STRIPE_BYTES], n_bytes: u64) -> Option<Self> {
        let is_possible = n_bytes > 0 && n_bytes.is_multiple_of(STRIPE_BYTES as u64);
        let n_stripes = n_bytes / STRIPE_BYTES as u64;
        is_possible.then_some(Self { sums: lanes(bytes), n_stripes })
    }

    /// The place of the next stripe in its block.
    #[expect(clippy::cast_possible_truncation, reason = "below BLOCK_STRIPES")]
    fn first_of_block(&self) -> usize {
        (self.n_stripes % BLOCK_STRIPES as u64) as usize
    }
}

/// Each lane gets its neighbour's word, and the product of the halves of its own word
/// mixed with the secret.
#[inline]
fn accumulate(sums: &mut Lanes, stripe: &[u8; STRIPE_BYTES], keys: &Lanes) {
    let words = lanes(stripe);
    for lane in 0..N_LANES {
        let mixed = words[lane] ^ keys[lane];
        let product = (mixed & 0xFFFF_FFFF) * (mixed >> 32);
        sums[lane] = sums[lane].wrapping_add(words[lane ^ 1]).wrapping_add(product);
    }
}

fn scramble(sums: &mut Lanes) {
    for (sum, key) in sums.iter_mut().zip(keys(SCRAMBLE_AT)) {
        *sum = (*sum ^ (*sum >> 47) ^ key).wrapping_mul(PRIME32_1);
    }
}

/// Folds the eight sums into 64 bits.
fn merge(sums: &Lanes, secret_at: usize, start: u64) -> u64 {
    let mixed: Lanes = std::array::from_fn(|lane| sums[lane] ^ keys(secret_at)[lane]);
    let (pairs, _) = mixed.as_chunks();
    let sum =
        pairs.iter().fold(start, |sum, &[a, b]| sum.wrapping_add(fold_product(a, b)));
    let sum = (sum ^ (sum >> 37)).wrapping_mul(PRIME_MX1);
    sum ^ (sum >> 32)
}

/// The exclusive or of both halves of the 128-bit product.
#[expect(clippy::cast_possible_truncation, reason = "takes the product apart")]
fn fold_product(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// Eight little-endian words.
fn lanes(bytes: &[u8; STRIPE_BYTES]) -> Lanes {
    let (words, _) = bytes.as_chunks();
    std::array::from_fn(|lane| u64::from_le_bytes(words[lane]))
}

/// The secret's words for each stripe of a block.
const STRIPE_KEYS: [Lanes; BLOCK_STRIPES] = {
    let mut steps = [[0; N_LANES]; BLOCK_STRIPES];
    let mut stripe = 0;
    while stripe < BLOCK_STRIPES {
        steps[stripe] = keys(8 * stripe);
        stripe += 1;
    }
    steps
};

/// Eight little-endian words of the secret from byte `at`. (Constant functions have
/// neither closures nor `for`.)
const fn keys(at: usize) -> Lanes {
    let mut keys = [0; N_LANES];
    let mut byte = 0;
    while byte < STRIPE_BYTES {
        keys[byte / 8] |= (SECRET[at + byte] as u64) << (8 * (byte % 8));
        byte += 1;
    }
    keys
}
