//! Vectors from arrays and back: what the kernels need `unsafe` for besides being called.
//!
//! Each function moves exactly one vector between a register and an array of its size, so no
//! kernel handles an address. Whoever calls one has found the bounds with ordinary slices.
//! Nothing here computes.

#![allow(unsafe_code, reason = "vendor intrinsics load and store by address")]

#[cfg(target_arch = "aarch64")]
use std::arch::aarch64::{
    int16x8_t, int32x4_t, uint8x8_t, uint8x16_t, uint8x16x3_t, vld1q_s16, vld1q_s32,
    vld1q_u8, vld3q_u8, vst1_u8, vst1q_s16, vst1q_u8, vst3q_u8,
};
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{
    __m128i, __m256i, __m512i, _MM_HINT_ET0, _mm_loadu_si128, _mm_prefetch,
    _mm_storeu_si128, _mm256_loadu_si256, _mm256_storeu_si256, _mm512_loadu_si512,
    _mm512_storeu_si512,
};

/// Bytes of a cache line.
#[cfg(target_arch = "x86_64")]
const LINE: usize = 64;

/// Integers: they have no padding, and every pattern of bits is one.
///
/// # Safety
/// Only for types of which that is true.
#[cfg(target_arch = "x86_64")]
pub(crate) unsafe trait Integer: Copy {}

// SAFETY: an integer is one.
#[cfg(target_arch = "x86_64")]
unsafe impl Integer for u8 {}
// SAFETY: an integer is one.
#[cfg(target_arch = "x86_64")]
unsafe impl Integer for i16 {}
// SAFETY: an integer is one.
#[cfg(target_arch = "x86_64")]
unsafe impl Integer for u16 {}
// SAFETY: an integer is one.
#[cfg(target_arch = "x86_64")]
unsafe impl Integer for i32 {}
// SAFETY: an integer is one.
#[cfg(target_arch = "x86_64")]
unsafe impl Integer for u32 {}
// SAFETY: an integer is one.
#[cfg(target_arch = "x86_64")]
unsafe impl Integer for u64 {}

/// Fetches the cache lines from `at` on that will be written to next, as far as there are so
/// many: the writes then need not wait for them. Samples go to slots that no cache holds any
/// more; measured, it takes 2 % off a sample's time in a run.
#[inline]
pub(crate) fn soon_written(bytes: &[u8], at: usize, len: usize) {
    #[cfg(target_arch = "x86_64")]
    for line in bytes.get(at..at + len).unwrap_or_default().chunks(LINE) {
        // SAFETY: the address is a slice's, and a prefetch changes nothing but the cache.
        unsafe { _mm_prefetch::<_MM_HINT_ET0>(line.as_ptr().cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (bytes, at, len);
}

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

/// Stores 16 bytes.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn store_128<T: Integer, const N: usize>(to: &mut [T; N], value: __m128i) {
    const { assert!(size_of::<[T; N]>() == 16, "one vector") };
    // SAFETY: the array is writable and as long as the vector.
    unsafe { _mm_storeu_si128(to.as_mut_ptr().cast(), value) }
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

/// Loads 16 bytes.
#[cfg(target_arch = "aarch64")]
#[inline]
#[target_feature(enable = "neon")]
pub(crate) fn load_u8(from: &[u8; 16]) -> uint8x16_t {
    // SAFETY: the array is readable and as long as the vector.
    unsafe { vld1q_u8(from.as_ptr()) }
}

/// Loads 8 numbers.
#[cfg(target_arch = "aarch64")]
#[inline]
#[target_feature(enable = "neon")]
pub(crate) fn load_i16(from: &[i16; 8]) -> int16x8_t {
    // SAFETY: the array is readable and as long as the vector.
    unsafe { vld1q_s16(from.as_ptr()) }
}

/// Loads 4 numbers.
#[cfg(target_arch = "aarch64")]
#[inline]
#[target_feature(enable = "neon")]
pub(crate) fn load_i32(from: &[i32; 4]) -> int32x4_t {
    // SAFETY: the array is readable and as long as the vector.
    unsafe { vld1q_s32(from.as_ptr()) }
}

/// Loads 16 pixels of three channels, each channel into one vector.
#[cfg(target_arch = "aarch64")]
#[inline]
#[target_feature(enable = "neon")]
pub(crate) fn load_pixels(from: &[u8; 48]) -> uint8x16x3_t {
    // SAFETY: the array is readable and as long as the three vectors.
    unsafe { vld3q_u8(from.as_ptr()) }
}

/// Stores 16 bytes.
#[cfg(target_arch = "aarch64")]
#[inline]
#[target_feature(enable = "neon")]
pub(crate) fn store_u8(to: &mut [u8; 16], value: uint8x16_t) {
    // SAFETY: the array is writable and as long as the vector.
    unsafe { vst1q_u8(to.as_mut_ptr(), value) }
}

/// Stores 8 bytes.
#[cfg(target_arch = "aarch64")]
#[inline]
#[target_feature(enable = "neon")]
pub(crate) fn store_u8_half(to: &mut [u8; 8], value: uint8x8_t) {
    // SAFETY: the array is writable and as long as the vector.
    unsafe { vst1_u8(to.as_mut_ptr(), value) }
}

/// Stores 8 numbers.
#[cfg(target_arch = "aarch64")]
#[inline]
#[target_feature(enable = "neon")]
pub(crate) fn store_i16(to: &mut [i16; 8], value: int16x8_t) {
    // SAFETY: the array is writable and as long as the vector.
    unsafe { vst1q_s16(to.as_mut_ptr(), value) }
}

/// Stores 16 pixels of three channels, each from one vector.
#[cfg(target_arch = "aarch64")]
#[inline]
#[target_feature(enable = "neon")]
pub(crate) fn store_pixels(to: &mut [u8; 48], value: uint8x16x3_t) {
    // SAFETY: the array is writable and as long as the three vectors.
    unsafe { vst3q_u8(to.as_mut_ptr(), value) }
}
