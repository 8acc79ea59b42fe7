//! The instructions of AVX2 and of AVX-512 by names that do not tell the width.
//!
//! Where the steps of a kernel are the same for both, they are written once, as a macro, which is
//! expanded with the one or the other in scope: `V` is a vector, [`load`](avx2::load) and
//! [`store`](avx2::store) move one. Numbers behind names are bits of what is worked on. Unpacking
//! and packing stay within the 128 bits of a lane, as the processor's do. Read `colour/x86.rs`
//! for a kernel made so.
#![allow(
    unsafe_code,
    reason = "an instruction is named whose intrinsic LLVM takes apart"
)]

/// 256 bits.
pub(crate) mod avx2 {
    pub(crate) use std::arch::x86_64::{
        __m256i as V, _mm256_add_epi16 as add16, _mm256_add_epi32 as add32,
        _mm256_adds_epu16 as add16_unsigned, _mm256_avg_epu16 as mean16,
        _mm256_broadcastsi128_si256 as repeat, _mm256_cvtepu8_epi16 as widen8,
        _mm256_madd_epi16 as multiply_add, _mm256_mulhi_epi16 as upper16,
        _mm256_mulhi_epu16 as upper16_unsigned, _mm256_mullo_epi16 as lower16,
        _mm256_packs_epi16 as pack_signed16, _mm256_packs_epi32 as pack32,
        _mm256_packus_epi16 as pack16, _mm256_set1_epi16 as splat16,
        _mm256_set1_epi32 as splat32, _mm256_setzero_si256 as zero,
        _mm256_shuffle_epi8 as shuffle8, _mm256_sub_epi16 as sub16,
        _mm256_sub_epi32 as sub32, _mm256_unpackhi_epi8 as unpack_high8,
        _mm256_unpackhi_epi16 as unpack_high16, _mm256_unpackhi_epi32 as unpack_high32,
        _mm256_unpackhi_epi64 as unpack_high64, _mm256_unpacklo_epi8 as unpack_low8,
        _mm256_unpacklo_epi16 as unpack_low16, _mm256_unpacklo_epi32 as unpack_low32,
        _mm256_unpacklo_epi64 as unpack_low64, _mm256_xor_si256 as xor,
    };
    use std::arch::x86_64::{
        _mm_cvtsi32_si128 as count, _mm256_sll_epi16, _mm256_sll_epi32, _mm256_sra_epi16,
        _mm256_sra_epi32, _mm256_srl_epi16,
    };

    pub(crate) use crate::kernels::vectors::{
        load_128 as load_half, load_256 as load, store_256 as store,
    };

    /// Shifts take their count as a type's: AVX-512's has no sign.
    macro_rules! shift {
        ($($name:ident = $instruction:ident),*) => {
            $(
                #[inline]
                #[target_feature(enable = "avx2")]
                pub(crate) fn $name<const BITS: u32>(v: V) -> V {
                    $instruction(v, count(BITS.cast_signed()))
                }
            )*
        };
    }

    shift! {
        shift_left16 = _mm256_sll_epi16,
        shift_left32 = _mm256_sll_epi32,
        shift_right16 = _mm256_sra_epi16,
        shift_right32 = _mm256_sra_epi32,
        shift_right16_unsigned = _mm256_srl_epi16
    }

    /// Adds products of 16-bit numbers, by twos.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(crate) fn add_products(sum: V, a: V, b: V) -> V {
        add32(sum, multiply_add(a, b))
    }
}

/// 512 bits.
pub(crate) mod avx512 {
    pub(crate) use std::arch::x86_64::{
        __m512i as V, _mm512_add_epi16 as add16, _mm512_add_epi32 as add32,
        _mm512_adds_epu16 as add16_unsigned, _mm512_avg_epu16 as mean16,
        _mm512_broadcast_i32x4 as repeat, _mm512_cvtepu8_epi16 as widen8,
        _mm512_madd_epi16 as multiply_add, _mm512_mulhi_epi16 as upper16,
        _mm512_mulhi_epu16 as upper16_unsigned, _mm512_mullo_epi16 as lower16,
        _mm512_packs_epi16 as pack_signed16, _mm512_packs_epi32 as pack32,
        _mm512_packus_epi16 as pack16, _mm512_set1_epi16 as splat16,
        _mm512_set1_epi32 as splat32, _mm512_setzero_si512 as zero,
        _mm512_shuffle_epi8 as shuffle8, _mm512_slli_epi16 as shift_left16,
        _mm512_slli_epi32 as shift_left32, _mm512_srai_epi16 as shift_right16,
        _mm512_srai_epi32 as shift_right32, _mm512_srli_epi16 as shift_right16_unsigned,
        _mm512_sub_epi16 as sub16, _mm512_sub_epi32 as sub32,
        _mm512_unpackhi_epi8 as unpack_high8, _mm512_unpackhi_epi16 as unpack_high16,
        _mm512_unpackhi_epi32 as unpack_high32, _mm512_unpackhi_epi64 as unpack_high64,
        _mm512_unpacklo_epi8 as unpack_low8, _mm512_unpacklo_epi16 as unpack_low16,
        _mm512_unpacklo_epi32 as unpack_low32, _mm512_unpacklo_epi64 as unpack_low64,
        _mm512_xor_si512 as xor,
    };

    /// Adds products of 16-bit numbers, by twos. Not the intrinsic `_mm512_dpwssd_epi32`: LLVM makes a
    /// multiplication and an addition of it where it expects the sum later than the factors.
    #[inline]
    #[target_feature(enable = "avx512f,avx512vnni")]
    pub(crate) fn add_products(mut sum: V, a: V, b: V) -> V {
        // SAFETY: the instruction changes nothing but the register that it names.
        unsafe {
            std::arch::asm!(
                "vpdpwssd {sum}, {a}, {b}",
                sum = inout(zmm_reg) sum,
                a = in(zmm_reg) a,
                b = in(zmm_reg) b,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        sum
    }

    pub(crate) use crate::kernels::vectors::{
        load_256 as load_half, load_512 as load, store_512 as store,
    };
}

/// What `work` comes to on a thread where subnormal numbers are taken and made as zeros, as on the
/// threads of a process that called `torch.set_flush_denormal(True)`.
#[cfg(test)]
pub(crate) fn without_subnormals<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    // MXCSR as a process has it at first, and its bits DAZ and FTZ (Intel SDM 1 §10.2.3).
    const MODE: u32 = 0x1f80 | 1 << 6 | 1 << 15;
    let thread = || {
        // SAFETY: the mode is the thread's own, which ends with the work.
        unsafe {
            std::arch::asm!("ldmxcsr [{mode}]", mode = in(reg) &MODE, options(nostack));
        }
        work()
    };
    std::thread::scope(|threads| threads.spawn(thread).join().expect("works"))
}
