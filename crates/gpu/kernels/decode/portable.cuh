// What the decoding kernels ask of a processor: instructions by name for a GPU, and what they mean
// for a CPU.
#pragma once

#ifndef BOTHENDS_CPU
// Two numbers, each limited to 16 bits with a sign.
DEVICE u32 pack_s16(int high, int low) {
  u32 d;
  asm("cvt.pack.sat.s16.s32 %0, %1, %2;" : "=r"(d) : "r"(high), "r"(low));
  return d;
}
// Two numbers, each limited to 8 bits, below the lower half of `rest`.
DEVICE u32 pack_s8(int high, int low, u32 rest) {
  u32 d;
  asm("cvt.pack.sat.s8.s32.b32 %0, %1, %2, %3;" : "=r"(d) : "r"(high), "r"(low), "r"(rest));
  return d;
}
DEVICE u32 pack_u8(int high, int low, u32 rest) {
  u32 d;
  asm("cvt.pack.sat.u8.s32.b32 %0, %1, %2, %3;" : "=r"(d) : "r"(high), "r"(low), "r"(rest));
  return d;
}
// Shifts by 32 and more leave nothing.
DEVICE u32 shl(u32 v, u32 by) {
  u32 d;
  asm("shl.b32 %0, %1, %2;" : "=r"(d) : "r"(v), "r"(by));
  return d;
}
DEVICE u32 shr(u32 v, u32 by) {
  u32 d;
  asm("shr.u32 %0, %1, %2;" : "=r"(d) : "r"(v), "r"(by));
  return d;
}
// Four bytes times four bytes with a sign.
DEVICE int dot_signed(u32 bytes, u32 weights, int sum) {
  int d;
  asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(d) : "r"(bytes), "r"(weights), "r"(sum));
  return d;
}
#else
DEVICE int limited(int v, int least, int most) { return v < least ? least : v > most ? most : v; }
DEVICE u32 pack_s16(int high, int low) {
  return (u32)(u16)limited(high, -32768, 32767) << 16 | (u16)limited(low, -32768, 32767);
}
DEVICE u32 pack_s8(int high, int low, u32 rest) {
  return (u32)(u8)limited(high, -128, 127) << 8 | (u8)limited(low, -128, 127) | rest << 16;
}
DEVICE u32 pack_u8(int high, int low, u32 rest) {
  return (u32)limited(high, 0, 255) << 8 | (u32)limited(low, 0, 255) | rest << 16;
}
DEVICE u32 shl(u32 v, u32 by) { return by > 31 ? 0 : v << by; }
DEVICE u32 shr(u32 v, u32 by) { return by > 31 ? 0 : v >> by; }
DEVICE int dot_signed(u32 bytes, u32 weights, int sum) {
  for (int i = 0; i < 4; i++) sum += (int)(bytes >> 8 * i & 255) * (i8)(weights >> 8 * i);
  return sum;
}
#endif

DEVICE int sext16(int v) { return (i16)v; }
DEVICE u32 byte_of(u32 word, int i) { return word >> 8 * i & 255; }

template <class T>
DEVICE const T* at_piece(const u8* base, u32 piece) {
  return (const T*)(base + (u64)piece * 16);
}
template <class T>
DEVICE T* at_piece(u8* base, u32 piece) {
  return (T*)(base + (u64)piece * 16);
}
template <class T>
DEVICE const T& nth(const u8* base, u32 byte, u32 n) {
  return ((const T*)(base + byte))[n];
}

// A word of memory: shared, or global that no kernel writes meanwhile.
template <bool STAGED>
DEVICE u32 word_of(const u32* p) {
  return STAGED ? *p : __ldg(p);
}
// Eight bytes from any address, through aligned words: up to 11 bytes are looked at.
template <bool STAGED>
DEVICE uint2 eight_bytes(const u8* data, u32 at) {
  const u32* p = (const u32*)(data + (at & ~3u));
  u32 s = (at & 3) * 8, a = word_of<STAGED>(p), b = word_of<STAGED>(p + 1), c = word_of<STAGED>(p + 2);
  return make_uint2(__funnelshift_r(a, b, s), __funnelshift_r(b, c, s));
}

// A thread block's share of the crops' status words.
DEVICE void report(const DecodeArgs& a, u32 crop, u32 what) {
  atomicOr(at_piece<u32>(a.scratch, a.status) + crop, what);
}
