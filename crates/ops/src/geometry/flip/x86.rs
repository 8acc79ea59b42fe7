//! Whole pixels of three bytes in the opposite order, as many as a register holds: 21, or 5.
#![allow(unsafe_code, reason = "functions for this processor alone are called")]

use std::arch::x86_64::{_mm_shuffle_epi8, _mm512_permutexvar_epi8};

use crate::kernels::compiled::door;
use crate::kernels::vectors::{load_128, load_512, store_128, store_512};
use crate::kernels::{Avx2, Avx512};

door!(pub(super) fn reverse_avx512(
    _: Avx512,
    src: &[u8],
    dst: &mut [u8],
) -> usize = by_21);

door!(pub(super) fn reverse_avx2(_: Avx2, src: &[u8], dst: &mut [u8]) -> usize = by_5);

/// For each byte of a register of `N` bytes, of which the first is no pixel's, the byte that
/// goes there. The last is overwritten by what comes next.
const fn opposite<const N: usize>() -> [u8; N] {
    let mut order = [0; N];
    let mut to = 0;
    while to < N - 1 {
        let (pixel, channel) = (to / 3, to % 3);
        let from = 1 + (N / 3 - 1 - pixel) * 3 + channel;
        #[expect(clippy::cast_possible_truncation, reason = "below 64")]
        {
            order[to] = from as u8;
        }
        to += 1;
    }
    order
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn by_21(src: &[u8], dst: &mut [u8]) -> usize {
    let order = load_512(&const { opposite::<64>() });
    let mut n_done = 0;
    while n_done + 64 <= src.len() {
        let from = src[src.len() - n_done - 64..].first_chunk().expect("64 are left");
        let to = dst[n_done..].first_chunk_mut::<64>().expect("as many are free");
        store_512(to, _mm512_permutexvar_epi8(order, load_512::<u8, 64>(from)));
        n_done += 63;
    }
    n_done
}

#[target_feature(enable = "avx2")]
fn by_5(src: &[u8], dst: &mut [u8]) -> usize {
    let order = load_128(&const { opposite::<16>() });
    let mut n_done = 0;
    while n_done + 16 <= src.len() {
        let from = src[src.len() - n_done - 16..].first_chunk().expect("16 are left");
        let to = dst[n_done..].first_chunk_mut::<16>().expect("as many are free");
        store_128(to, _mm_shuffle_epi8(load_128::<u8, 16>(from), order));
        n_done += 15;
    }
    n_done
}
