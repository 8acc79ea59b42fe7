// A GPU's words for a C++ compiler: what CUDA has built in, with its meaning, for threads of a
// block that take turns (`block.h`).
//
// To be compiled with -fwrapv -ffp-contract=off -fno-strict-aliasing: as the GPU compiler is told
// to, nothing is fused or assumed. Only what kernels here use is here; a new intrinsic gets
// its meaning from CUDA's own documentation.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdlib>

#include "block.h"

#define KERNEL(threads, name, ...)                                            \
  static void name(__VA_ARGS__);                                              \
  static const bool name##_entered = cpu::enter<name>(name, #name, threads);  \
  static void name(__VA_ARGS__)
#define KERNEL_CAPPED(registers, name, ...) KERNEL(1024, name, __VA_ARGS__)
#define DEVICE static inline
#define DEVICE_CALL static inline
#define DEVICE_MEMBER inline
#define CONSTANT static const
#define SHARED(type, name, count)                              \
  static thread_local cpu::SharedArray<type, count> name##_of; \
  cpu::Checked<type> name = name##_of.of_block()
#define DYNAMIC_SHARED(type, name) \
  cpu::Checked<type> name((type*)cpu::block->dynamic, cpu::block->dynamic_bytes / sizeof(type))

#define threadIdx (cpu::block->thread_idx)
#define blockIdx (cpu::block->block_idx)
#define blockDim (cpu::block->block_dim)
#define gridDim (cpu::block->grid_dim)

#define __syncthreads() cpu::barrier(__FILE__, __LINE__, 0)
#define __syncthreads_count(predicate) cpu::barrier(__FILE__, __LINE__, (predicate) != 0)
#define __syncthreads_or(predicate) (int)(__syncthreads_count(predicate) != 0)
#define __syncthreads_and(predicate) (int)(__syncthreads_count(predicate) == cpu::block->n)

namespace cpu {

// An array that faults at an index outside. It goes where a pointer is wanted.
template <class T>
struct Checked {
  T* at;
  size_t n;

  Checked(T* at, size_t n) : at(at), n(n) {}

  template <class I>
  T& operator[](I i) const {
    if ((uint64_t)(int64_t)i >= n) fault("index %lld of %zu", (long long)i, n);
    return at[i];
  }
  template <class I>
  Checked operator+(I i) const {
    if ((uint64_t)(int64_t)i > n) fault("offset %lld of %zu", (long long)i, n);
    return Checked(at + i, n - (size_t)i);
  }
  T& operator*() const { return (*this)[0]; }
  operator T*() const { return at; }
  template <class U>
  explicit operator U*() const {
    return (U*)at;
  }
};

// Static shared memory. A new block finds nothing of the last one's in it.
template <class T, size_t COUNT>
struct SharedArray {
  alignas(16) T values[COUNT];
  unsigned long long generation = 0;

  Checked<T> of_block() {
    if (generation != block->generation) {
      generation = block->generation;
      memset((void*)values, 0xA5, sizeof values);
    }
    return Checked<T>(values, COUNT);
  }
};

// Waits for the whole block; how many threads came with a vote.
inline unsigned barrier(const char* file, unsigned line, bool vote) {
  Lane& lane = block->lane();
  lane.what = file, lane.line = line, lane.mask = 0, lane.given = vote;
  wait(At::barrier);
  return block->n_votes;
}

// Waits for the lanes in `mask` and shows them `given`.
inline void meet(const char* what, unsigned mask, unsigned long long given) {
  Lane& lane = block->lane();
  if (!(mask >> (block->current & 31) & 1)) fault("%s with mask %08x, not its own lane", what, mask);
  lane.what = what, lane.line = 0, lane.mask = mask, lane.given = given;
  wait(At::warp);
}

template <class T>
inline T shuffle(const char* what, unsigned mask, T value, int from, bool stays) {
  static_assert(sizeof(T) <= 8, "shuffles move at most 8 bytes");
  unsigned long long bits = 0;
  memcpy(&bits, &value, sizeof value);
  meet(what, mask, bits);
  if (stays) return value;
  const unsigned other = (block->current & ~31u) + (unsigned)from;
  if (other >= block->n || !(mask >> from & 1)) fault("%s from lane %d, which is not in it", what, from);
  T got;
  memcpy(&got, &block->lanes[other].published, sizeof got);
  return got;
}

inline unsigned ballot(const char* what, unsigned mask, bool predicate) {
  meet(what, mask, predicate);
  unsigned votes = 0;
  const unsigned first = block->current & ~31u;
  for (unsigned lane = 0; lane < 32 && first + lane < block->n; lane++) {
    const Lane& other = block->lanes[first + lane];
    if (mask >> lane & 1 && other.published) votes |= 1u << lane;
  }
  return votes;
}

// Bytes before and behind an allocation that belong to it and to nobody (`src/twin.rs`).
constexpr uint64_t GUARD = 256;

// Faults where an access is not aligned, or reaches beyond an allocation's ends. Memory of the block
// is in none, and not looked at.
template <class T>
inline void check(const void* at) {
  const uint64_t first = (uintptr_t)at, behind = first + sizeof(T);
  if (first % alignof(T)) fault("%p is not aligned to %zu bytes", at, alignof(T));
  Block& b = *block;
  if (b.n_allocations == 0) return;
  const uint64_t* of = b.allocations[b.last_used];
  if (first >= of[0] && behind <= of[1]) return;
  size_t low = 0, high = b.n_allocations;
  while (high - low > 1) {
    const size_t middle = (low + high) / 2;
    (b.allocations[middle][0] <= first + GUARD ? low : high) = middle;
  }
  of = b.allocations[low];
  b.last_used = low;
  const bool near = first + GUARD >= of[0] && first < of[1] + GUARD;
  if (near && (first < of[0] || behind > of[1]))
    fault("%zu bytes at %lld of an allocation of %llu", sizeof(T), (long long)(first - of[0]),
          (unsigned long long)(of[1] - of[0]));
}

}  // namespace cpu

struct uchar4 { unsigned char x, y, z, w; };
struct alignas(8) uint2 { unsigned x, y; };
struct uint3 { unsigned x, y, z; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(8) int2 { int x, y; };
struct alignas(16) int4 { int x, y, z, w; };
struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline int2 make_int2(int x, int y) { return {x, y}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

template <class T>
inline T load(const void* at) {
  cpu::check<T>(at);
  T value;
  memcpy(&value, at, sizeof value);
  return value;
}
template <class T>
inline T load_written(const void* at) {
  return load<T>(at);
}
template <class T>
inline void store(void* at, T value) {
  cpu::check<T>(at);
  memcpy(at, &value, sizeof value);
}
template <class T>
inline T __ldg(const T* at) {
  return load<T>(at);
}

// Warps.
inline void __syncwarp(unsigned mask = ~0u) { cpu::meet("__syncwarp", mask, 0); }
inline unsigned __ballot_sync(unsigned mask, int p) { return cpu::ballot("__ballot_sync", mask, p); }
inline int __any_sync(unsigned mask, int p) { return cpu::ballot("__any_sync", mask, p) != 0; }
inline int __all_sync(unsigned mask, int p) { return cpu::ballot("__all_sync", mask, !p) == 0; }
template <class T>
inline T __shfl_sync(unsigned mask, T value, int from, int width = 32) {
  const int lane = (int)(cpu::block->current & 31);
  return cpu::shuffle("__shfl_sync", mask, value, (lane & -width) | (from & (width - 1)), false);
}
template <class T>
inline T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32) {
  const int lane = (int)(cpu::block->current & 31), from = lane - (int)by;
  return cpu::shuffle("__shfl_up_sync", mask, value, from, from < (lane & -width));
}
template <class T>
inline T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32) {
  const int lane = (int)(cpu::block->current & 31), from = lane + (int)by;
  return cpu::shuffle("__shfl_down_sync", mask, value, from, from >= (lane & -width) + width);
}
template <class T>
inline T __shfl_xor_sync(unsigned mask, T value, int by, int width = 32) {
  const int lane = (int)(cpu::block->current & 31), from = lane ^ by;
  return cpu::shuffle("__shfl_xor_sync", mask, value, from, from >= (lane & -width) + width);
}

// Memory that other blocks change, too.
inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
template <class T>
inline T atomicAdd(T* at, T value) { return __atomic_fetch_add(at, value, __ATOMIC_RELAXED); }
template <class T>
inline T atomicSub(T* at, T value) { return __atomic_fetch_sub(at, value, __ATOMIC_RELAXED); }
template <class T>
inline T atomicOr(T* at, T value) { return __atomic_fetch_or(at, value, __ATOMIC_RELAXED); }
template <class T>
inline T atomicAnd(T* at, T value) { return __atomic_fetch_and(at, value, __ATOMIC_RELAXED); }
template <class T>
inline T atomicXor(T* at, T value) { return __atomic_fetch_xor(at, value, __ATOMIC_RELAXED); }
template <class T>
inline T atomicExch(T* at, T value) { return __atomic_exchange_n(at, value, __ATOMIC_RELAXED); }
template <class T>
inline T atomicCAS(T* at, T expected, T value) {
  __atomic_compare_exchange_n(at, &expected, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return expected;
}
template <class T>
inline T atomicMin(T* at, T value) {
  T old = __atomic_load_n(at, __ATOMIC_RELAXED);
  while (value < old && !__atomic_compare_exchange_n(at, &old, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  return old;
}
template <class T>
inline T atomicMax(T* at, T value) {
  T old = __atomic_load_n(at, __ATOMIC_RELAXED);
  while (value > old && !__atomic_compare_exchange_n(at, &old, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  return old;
}

// Whole numbers.
template <class T>
inline T min(T a, T b) { return b < a ? b : a; }
template <class T>
inline T max(T a, T b) { return a < b ? b : a; }
inline int abs_of(int v) { return v < 0 ? -v : v; }
inline int __popc(unsigned v) { return __builtin_popcount(v); }
inline int __popcll(unsigned long long v) { return __builtin_popcountll(v); }
inline int __clz(int v) { return v ? __builtin_clz((unsigned)v) : 32; }
inline int __clzll(long long v) { return v ? __builtin_clzll((unsigned long long)v) : 64; }
inline int __ffs(int v) { return __builtin_ffs(v); }
inline int __ffsll(long long v) { return __builtin_ffsll(v); }
inline unsigned __brev(unsigned v) {
  unsigned r = 0;
  for (int i = 0; i < 32; i++) r |= (v >> i & 1) << (31 - i);
  return r;
}
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  const unsigned long long bytes = (unsigned long long)b << 32 | a;
  unsigned r = 0;
  for (int i = 0; i < 4; i++) {
    const unsigned nibble = selector >> 4 * i & 15, byte = (unsigned)(bytes >> 8 * (nibble & 7)) & 255;
    r |= (nibble & 8 ? (byte & 128 ? 255 : 0) : byte) << 8 * i;
  }
  return r;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned by) {
  return (unsigned)(((unsigned long long)high << 32 | low) << (by & 31) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) {
  return (unsigned)(((unsigned long long)high << 32 | low) >> (by & 31));
}
inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
inline int __mulhi(int a, int b) { return (int)((long long)a * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)((unsigned __int128)a * b >> 64);
}
inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
  for (int i = 0; i < 4; i++) c += (a >> 8 * i & 255) * (b >> 8 * i & 255);
  return c;
}
inline int __dp4a(int a, int b, int c) {
  for (int i = 0; i < 4; i++) c += (int8_t)(a >> 8 * i) * (int8_t)(b >> 8 * i);
  return c;
}
inline unsigned __dp2a_lo(unsigned a, unsigned b, unsigned c) {
  return c + (a & 65535) * (b & 255) + (a >> 16) * (b >> 8 & 255);
}
inline unsigned __dp2a_hi(unsigned a, unsigned b, unsigned c) {
  return c + (a & 65535) * (b >> 16 & 255) + (a >> 16) * (b >> 24);
}

// Numbers with a fraction: one rounding each, to nearest.
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return std::fmaf(a, b, c); }
inline float __fsqrt_rn(float a) { return std::sqrt(a); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline double __fma_rn(double a, double b, double c) { return std::fma(a, b, c); }
inline double __dsqrt_rn(double a) { return std::sqrt(a); }

// Conversions: towards zero or to nearest and even; outside the range its end, NaN is 0.
namespace cpu {
template <class T, class F>
inline T whole(F value) {
  if (value != value) return 0;
  constexpr int BITS = 8 * sizeof(T) - (T(-1) < 0 ? 1 : 0);
  const F end = std::ldexp(F(1), BITS);
  if (value >= end) return (T)~((T)(T(-1) < 0) << (BITS % (8 * sizeof(T))));
  if (T(-1) < 0 ? value < -end : value <= F(-1)) return T(-1) < 0 ? (T)((T)1 << (BITS % (8 * sizeof(T)))) : 0;
  return (T)value;
}
}  // namespace cpu
inline int __float2int_rz(float a) { return cpu::whole<int>(a); }
inline int __float2int_rn(float a) { return cpu::whole<int>(std::nearbyint(a)); }
inline int __float2int_rd(float a) { return cpu::whole<int>(std::floor(a)); }
inline unsigned __float2uint_rz(float a) { return cpu::whole<unsigned>(a); }
inline unsigned __float2uint_rn(float a) { return cpu::whole<unsigned>(std::nearbyint(a)); }
inline int __double2int_rz(double a) { return cpu::whole<int>(a); }
inline int __double2int_rn(double a) { return cpu::whole<int>(std::nearbyint(a)); }
inline int __double2int_rd(double a) { return cpu::whole<int>(std::floor(a)); }
inline unsigned __double2uint_rz(double a) { return cpu::whole<unsigned>(a); }
inline long long __double2ll_rz(double a) { return cpu::whole<long long>(a); }
inline long long __double2ll_rd(double a) { return cpu::whole<long long>(std::floor(a)); }
inline float __double2float_rn(double a) { return (float)a; }
inline float __int2float_rn(int a) { return (float)a; }
inline float __uint2float_rn(unsigned a) { return (float)a; }
inline double __int2double_rn(int a) { return a; }
inline double __uint2double_rn(unsigned a) { return a; }
inline double __ll2double_rn(long long a) { return (double)a; }
inline unsigned __float_as_uint(float a) { return __builtin_bit_cast(unsigned, a); }
inline float __uint_as_float(unsigned a) { return __builtin_bit_cast(float, a); }
inline int __float_as_int(float a) { return __builtin_bit_cast(int, a); }
inline float __int_as_float(int a) { return __builtin_bit_cast(float, a); }
inline long long __double_as_longlong(double a) { return __builtin_bit_cast(long long, a); }
inline double __longlong_as_double(long long a) { return __builtin_bit_cast(double, a); }
