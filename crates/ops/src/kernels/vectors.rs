//! Vectors from arrays and back: what the kernels need `unsafe` for besides being called.
//!
//! Each function moves exactly one vector between a register and an array of its size, so no
//! kernel handles an address. Whoever calls one has found the bounds with ordinary slices.
//! Nothing here computes.

#![allow(unsafe_code, reason = "vendor intrinsics load and store by address")]

#[cfg(target_arch = "aarch64")]
use std::arch::aarch64::*;
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

/// Bytes of a cache line.
#[cfg(target_arch = "x86_64")]
const LINE: usize = 64;

/// Integers: they have no padding, and every pattern of bits is one.
///
/// # Safety
/// Only for types of which that is true.
#[cfg(target_arch = "x86_64")]
pub(crate) unsafe trait Integer: Copy {}

#[cfg(target_arch = "x86_64")]
macro_rules! integers {
    ($($integer:ty),*) => {
        $(
            // SAFETY: an integer is one.
            unsafe impl Integer for $integer {}
        )*
    };
}

#[cfg(target_arch = "x86_64")]
integers!(u8, i16, u16, i32, u32, u64);

/// Fetches the cache lines from `at` on that will be written to next, as far as there are so
/// many: the writes then need not wait for them. Samples go to slots that no cache holds any
/// more; measured, it takes 2 % off a sample's time in a run.
#[inline]
pub(crate) fn soon_written(bytes: &[u8], at: usize, len: usize) {
    #[cfg(target_arch = "x86_64")]
    prefetch::<_MM_HINT_ET0>(bytes, at, len);
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (bytes, at, len);
}

/// The same for those that will be read.
#[inline]
pub(crate) fn soon_read(bytes: &[u8], at: usize, len: usize) {
    #[cfg(target_arch = "x86_64")]
    prefetch::<_MM_HINT_T0>(bytes, at, len);
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (bytes, at, len);
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn prefetch<const HINT: i32>(bytes: &[u8], at: usize, len: usize) {
    for line in bytes.get(at..at + len).unwrap_or_default().chunks(LINE) {
        // SAFETY: the address is a slice's, and a prefetch changes nothing but the cache.
        unsafe { _mm_prefetch::<HINT>(line.as_ptr().cast()) };
    }
}

/// Defines how a vector of `$n` bytes is loaded and stored.
#[cfg(target_arch = "x86_64")]
macro_rules! vector {
    ($vector:ident, $n:literal, $features:literal,
        $load:ident = $loading:ident, $store:ident = $storing:ident
    ) => {
        #[doc = concat!("Loads ", $n, " bytes.")]
        #[inline]
        #[target_feature(enable = $features)]
        pub(crate) fn $load<T: Integer, const N: usize>(from: &[T; N]) -> $vector {
            const { assert!(size_of::<[T; N]>() == $n, "one vector") };
            // SAFETY: the array is readable and as long as the vector.
            unsafe { $loading(from.as_ptr().cast()) }
        }

        #[doc = concat!("Stores ", $n, " bytes.")]
        #[inline]
        #[target_feature(enable = $features)]
        pub(crate) fn $store<T: Integer, const N: usize>(
            to: &mut [T; N],
            value: $vector,
        ) {
            const { assert!(size_of::<[T; N]>() == $n, "one vector") };
            // SAFETY: the array is writable and as long as the vector.
            unsafe { $storing(to.as_mut_ptr().cast(), value) }
        }
    };
}

#[cfg(target_arch = "x86_64")]
vector!(
    __m512i,
    64,
    "avx512f",
    load_512 = _mm512_loadu_si512,
    store_512 = _mm512_storeu_si512
);
#[cfg(target_arch = "x86_64")]
vector!(
    __m256i,
    32,
    "avx2",
    load_256 = _mm256_loadu_si256,
    store_256 = _mm256_storeu_si256
);
#[cfg(target_arch = "x86_64")]
vector!(__m128i, 16, "avx2", load_128 = _mm_loadu_si128, store_128 = _mm_storeu_si128);

/// Defines how vectors are loaded from arrays, or stored: `load_pixels` and `store_pixels` move 16
/// pixels of three channels, each channel in a vector of its own.
#[cfg(target_arch = "aarch64")]
macro_rules! neon {
    ($(load $load:ident: $from:ty => $loaded:ty = $loading:ident;)*
        $(store $store:ident: $stored:ty => $to:ty = $storing:ident;)*
    ) => {
        $(
            #[inline]
            #[target_feature(enable = "neon")]
            pub(crate) fn $load(from: &$from) -> $loaded {
                // SAFETY: the array is readable and as long as the vectors.
                unsafe { $loading(from.as_ptr()) }
            }
        )*
        $(
            #[inline]
            #[target_feature(enable = "neon")]
            pub(crate) fn $store(to: &mut $to, value: $stored) {
                // SAFETY: the array is writable and as long as the vectors.
                unsafe { $storing(to.as_mut_ptr(), value) }
            }
        )*
    };
}

#[cfg(target_arch = "aarch64")]
neon! {
    load load_u8: [u8; 16] => uint8x16_t = vld1q_u8;
    load load_i16: [i16; 8] => int16x8_t = vld1q_s16;
    load load_i32: [i32; 4] => int32x4_t = vld1q_s32;
    load load_pixels: [u8; 48] => uint8x16x3_t = vld3q_u8;
    store store_u8: uint8x16_t => [u8; 16] = vst1q_u8;
    store store_u8_half: uint8x8_t => [u8; 8] = vst1_u8;
    store store_i16: int16x8_t => [i16; 8] = vst1q_s16;
    store store_pixels: uint8x16x3_t => [u8; 48] = vst3q_u8;
}
