//! One permutation of two registers for 21 pixels.
#![allow(unsafe_code, reason = "functions for this processor alone are called")]

use std::arch::x86_64::_mm512_permutex2var_epi8;

use super::{Gather, PIXELS, choose};
use crate::kernels::Avx512;
use crate::kernels::compiled::door;
use crate::kernels::vectors::{load_512, store_512};

door!(pub(super) fn take(
    _: Avx512,
    gather: &Gather,
    src: &[u8],
    dst: &mut [u8],
) -> usize = take_blocks);

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn take_blocks(gather: &Gather, src: &[u8], dst: &mut [u8]) -> usize {
    let mut n_done = 0;
    for (block, columns) in gather.blocks.iter().zip(gather.columns.chunks_exact(PIXELS))
    {
        let place = &mut dst[3 * n_done..];
        n_done += PIXELS;
        // A register is one byte longer than its pixels.
        let (Some(from), Some(register)) = (block.from, place.first_chunk_mut::<64>())
        else {
            choose::<3>(src, columns, &mut place[..3 * PIXELS]);
            continue;
        };
        let window = src[from as usize..].as_chunks::<64>().0;
        let [low, high] = [load_512(&window[0]), load_512(&window[1])];
        let order = load_512(&block.order);
        store_512(register, _mm512_permutex2var_epi8(low, order, high));
    }
    n_done
}
