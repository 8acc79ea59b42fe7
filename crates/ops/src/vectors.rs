//! Vectors from arrays and back: what the kernels need `unsafe` for besides being called.
//!
//! Each function moves exactly one vector between a register and an array of its size, so no
//! kernel handles an address. Whoever calls one has found the bounds with ordinary slices.
//! Nothing here computes.

#![allow(unsafe_code, reason = "vendor intrinsics load and store by address")]

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{
    __m128i, __m256i, __m512i, _mm_loadu_si128, _mm_storeu_si128, _mm256_loadu_si256,
    _mm256_storeu_si256, _mm512_loadu_si512, _mm512_mask_storeu_epi8,
    _mm512_maskz_loadu_epi8, _mm512_storeu_si512,
};

/// Integers: they have no padding, and every pattern of bits is one.
///
/// # Safety
/// Only for types of which that is true.
pub(crate) unsafe trait Integer: Copy {}

// SAFETY: an integer is one.
unsafe impl Integer for u8 {}
// SAFETY: an integer is one.
unsafe impl Integer for i16 {}
// SAFETY: an integer is one.
unsafe impl Integer for i32 {}
// SAFETY: an integer is one.
unsafe impl Integer for u32 {}

/// Loads 64 bytes.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx512f")]
pub(crate) fn load_512<T: Integer, const N: usize>(from: &[T; N]) -> __m512i {
    const { assert!(size_of::<[T; N]>() == 64, "one vector") };
    // SAFETY: the array is readable and as long as the vector.
    unsafe { _mm512_loadu_si512(from.as_ptr().cast()) }
}

/// Stores 64 bytes.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx512f")]
pub(crate) fn store_512<T: Integer, const N: usize>(to: &mut [T; N], value: __m512i) {
    const { assert!(size_of::<[T; N]>() == 64, "one vector") };
    // SAFETY: the array is writable and as long as the vector.
    unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), value) }
}

/// Loads as many numbers as `from` has, 64 bytes at most; zeros behind them.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
pub(crate) fn load_front_512<T: Integer>(from: &[T]) -> __m512i {
    let mask = front(size_of_val(from));
    // SAFETY: the mask has a bit only for bytes that the slice has.
    unsafe { _mm512_maskz_loadu_epi8(mask, from.as_ptr().cast()) }
}

/// A bit for each of `n_bytes`, 64 at most.
#[cfg(target_arch = "x86_64")]
fn front(n_bytes: usize) -> u64 {
    match n_bytes {
        n @ 0..64 => (1 << n) - 1,
        _ => u64::MAX,
    }
}

/// Stores as many bytes as `to` has room for, 64 at most.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
pub(crate) fn store_front_512(to: &mut [u8], value: __m512i) {
    let mask = front(to.len());
    // SAFETY: the mask has a bit only for bytes that the slice has.
    unsafe { _mm512_mask_storeu_epi8(to.as_mut_ptr().cast(), mask, value) }
}

/// Loads 32 bytes.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn load_256<T: Integer, const N: usize>(from: &[T; N]) -> __m256i {
    const { assert!(size_of::<[T; N]>() == 32, "one vector") };
    // SAFETY: the array is readable and as long as the vector.
    unsafe { _mm256_loadu_si256(from.as_ptr().cast()) }
}

/// Stores 32 bytes.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn store_256<T: Integer, const N: usize>(to: &mut [T; N], value: __m256i) {
    const { assert!(size_of::<[T; N]>() == 32, "one vector") };
    // SAFETY: the array is writable and as long as the vector.
    unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), value) }
}

/// Loads 16 bytes.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn load_128<T: Integer, const N: usize>(from: &[T; N]) -> __m128i {
    const { assert!(size_of::<[T; N]>() == 16, "one vector") };
    // SAFETY: the array is readable and as long as the vector.
    unsafe { _mm_loadu_si128(from.as_ptr().cast()) }
}

/// Stores 16 bytes.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn store_128<T: Integer, const N: usize>(to: &mut [T; N], value: __m128i) {
    const { assert!(size_of::<[T; N]>() == 16, "one vector") };
    // SAFETY: the array is writable and as long as the vector.
    unsafe { _mm_storeu_si128(to.as_mut_ptr().cast(), value) }
}
