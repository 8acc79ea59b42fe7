//! Looking up 64 values at once with VBMI: two lookups of seven bits, of which the eighth
//! chooses one.
#![allow(unsafe_code, reason = "functions for this processor alone are called")]

use std::arch::x86_64::*;

use super::Table;
use crate::kernels::Avx512;
use crate::kernels::compiled::door;
use crate::kernels::vectors::{load_512, store_512};

door!(pub(super) fn apply(_: Avx512, table: &Table, values: &mut [u8]) = look_up);

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn look_up(table: &Table, values: &mut [u8]) {
    let (quarters, _) = table.0.as_chunks::<64>();
    let quarter = |nth: usize| load_512(&quarters[nth]);
    let [a, b, c, d] = [quarter(0), quarter(1), quarter(2), quarter(3)];
    let (blocks, rest) = values.as_chunks_mut::<64>();
    for block in blocks {
        let index = load_512(block);
        let low = _mm512_permutex2var_epi8(a, index, b);
        let high = _mm512_permutex2var_epi8(c, index, d);
        let is_high = _mm512_movepi8_mask(index);
        store_512(block, _mm512_mask_blend_epi8(is_high, low, high));
    }
    table.apply_scalar(rest);
}
