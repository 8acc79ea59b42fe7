//! Philox4x32-10, the source of every random number: a pure function of a counter and a key.
//!
//! It keeps no state and does not know what is drawn: the shuffle is in
//! `scheduling/permutation.rs`, a sample's streams are in `preprocessing/rng.rs`.

/// First counter word of everything that is not an op's stream (an op's is below it).
pub(crate) const PERMUTATION_DOMAIN: u32 = 0xFFFF_0000;
/// The same of the waits before retries. The shuffle's rounds are added to its word, so this one is
/// far from it.
pub(crate) const FETCH_DOMAIN: u32 = 0xFFFF_8000;
/// The same of the waits before a member of a pool is tried again, and of the order of the tries.
pub(crate) const MEMBERS_DOMAIN: u32 = 0xFFFF_8001;

/// First counter word of what is drawn for the ranks of a pool.
pub(crate) const POOL_DOMAIN: u32 = 0xFFFF_0200;

/// First counter word of what is drawn for a mix of data sets.
pub(crate) const MIX_DOMAIN: u32 = 0xFFFF_0100;

/// The Philox4x32-10 block function (Salmon et al., "Parallel random numbers: as easy as
/// 1, 2, 3", SC 2011): four words of output for a 128-bit counter and a 64-bit key.
#[must_use]
pub fn philox4x32_10(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let [mut c0, mut c1, mut c2, mut c3] = counter;
    let [mut k0, mut k1] = key;
    for _ in 0..10 {
        let (high_0, low_0) = multiply(0xD251_1F53, c0);
        let (high_1, low_1) = multiply(0xCD9E_8D57, c2);
        (c0, c1, c2, c3) = (high_1 ^ c1 ^ k0, low_1, high_0 ^ c3 ^ k1, low_0);
        k0 = k0.wrapping_add(0x9E37_79B9);
        k1 = k1.wrapping_add(0xBB67_AE85);
    }
    [c0, c1, c2, c3]
}

/// Low and high word.
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "takes the value apart")]
pub fn words(value: u64) -> [u32; 2] {
    [value as u32, (value >> 32) as u32]
}

/// High and low word of the 64-bit product.
pub(crate) fn multiply(a: u32, b: u32) -> (u32, u32) {
    let [low, high] = words(u64::from(a) * u64::from(b));
    (high, low)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Random123 1.14, tests/kat_vectors, lines `philox4x32 10`.
    #[test]
    fn known_answers() {
        let kat: [([u32; 4], [u32; 2], [u32; 4]); 3] = [
            ([0; 4], [0; 2], [0x6627_E8D5, 0xE169_C58D, 0xBC57_AC4C, 0x9B00_DBD8]),
            (
                [u32::MAX; 4],
                [u32::MAX; 2],
                [0x408F_276D, 0x41C8_3B0E, 0xA20B_C7C6, 0x6D54_51FD],
            ),
            (
                [0x243F_6A88, 0x85A3_08D3, 0x1319_8A2E, 0x0370_7344],
                [0xA409_3822, 0x299F_31D0],
                [0xD16C_FE09, 0x94FD_CCEB, 0x5001_E420, 0x2412_6EA1],
            ),
        ];
        for (counter, key, answer) in kat {
            assert_eq!(philox4x32_10(counter, key), answer);
        }
    }
}
