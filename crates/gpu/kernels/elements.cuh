// Elements of a delivered batch: u8, f32, f16 and bf16, and the arithmetic of `ops::finish`.
//
// Every function has its meaning in the crate `ops` (finish/half.rs, finish/mixing.rs), bit for
// bit. Conversions use whole numbers, so that no mode of a processor changes them; `nearest_bits` uses
// the GPU's own to f16, which the CPU build never runs.
#pragma once

#include "device.cuh"

enum Dtype { U8 = 0, F32 = 1, F16 = 2, BF16 = 3 };

// Bytes of an element.
DEVICE constexpr u32 size_of(int dtype) { return dtype == U8 ? 1 : dtype == F32 ? 4 : 2; }

// The nearest IEEE binary16, ties to even.
DEVICE u32 f16_bits(float value) {
  const u32 bits = __float_as_uint(value), magnitude = bits & 0x7fffffffu;
  const u32 special = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
  const u32 odd = magnitude >> 13 & 1;
  const u32 normal = (magnitude - (112u << 23) + 0x0fffu + odd) >> 13;
  const u32 small = __float_as_uint(__fadd_rn(__uint_as_float(magnitude), 0.5f)) - 0x3f000000u;
  const u32 finite = magnitude < 0x38800000u ? small : normal;
  const u32 f16 = magnitude >= 0x477ff000u ? special : finite;
  return ((bits >> 16 & 0x8000u) | f16) & 0xffffu;
}

// The nearest bfloat16, ties to even.
DEVICE u32 bf16_bits(float value) {
  const u32 bits = __float_as_uint(value), odd = bits >> 16 & 1;
  const u32 rounded = (bits + 0x7fffu + odd) >> 16, nan = bits >> 16 | 0x40u;
  return (bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded;
}

DEVICE float f16_value(u32 bits) {
  const u32 sign = (bits & 0x8000u) << 16, magnitude = (bits & 0x7fffu) << 13;
  // 2^112 rebiases the exponent, subnormal numbers included.
  const u32 finite = __float_as_uint(__fmul_rn(__uint_as_float(magnitude), __uint_as_float(239u << 23)));
  return __uint_as_float(sign | (magnitude >= 0x7c00u << 13 ? magnitude | 0x7f800000u : finite));
}

// The nearest byte, halves to even.
DEVICE u32 byte_of(float value) {
  value = value > 0.0f ? value : 0.0f;
  value = value < 255.0f ? value : 255.0f;
  return __float_as_uint(__fadd_rn(value, 8388608.0f)) & 255;
}

template <int DTYPE>
DEVICE u32 bits_of(float value) {
  if (DTYPE == U8) return byte_of(value);
  if (DTYPE == F16) return f16_bits(value);
  if (DTYPE == BF16) return bf16_bits(value);
  return __float_as_uint(value);
}

template <int DTYPE>
DEVICE float value_of(u32 bits) {
  if (DTYPE == U8) return __uint2float_rn(bits);
  if (DTYPE == F16) return f16_value(bits);
  if (DTYPE == BF16) return __uint_as_float(bits << 16);
  return __uint_as_float(bits);
}

// The same as `bits_of`, of a number that is finite: the processor's own rounding where it has one.
template <int DTYPE>
DEVICE u32 nearest_bits(float value) {
#ifndef BOTHENDS_CPU
  if (DTYPE == F16) {
    u16 half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
    return half;
  }
#endif
  if (DTYPE == BF16) {
    const u32 bits = __float_as_uint(value);
    return (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
  }
  return bits_of<DTYPE>(value);
}

// Philox4x32-10: four words of a 128-bit counter and a 64-bit key (`core/src/philox.rs`).
DEVICE uint4 philox(uint4 counter, u32 k0, u32 k1) {
  for (int round = 0; round < 10; round++) {
    const u32 high0 = __umulhi(0xD2511F53u, counter.x), low0 = 0xD2511F53u * counter.x;
    const u32 high1 = __umulhi(0xCD9E8D57u, counter.z), low1 = 0xCD9E8D57u * counter.z;
    counter = make_uint4(high1 ^ counter.y ^ k0, low1, high0 ^ counter.w ^ k1, low0);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return counter;
}
