// Coefficients become samples: the host's `crates/ops/src/jpeg/transform/idct.rs`, to the bit.
#pragma once

// Natural place (row by row) to number in zigzag order.
#define ZIGZAG_NUMBERS                                                                              \
  0, 1, 5, 6, 14, 15, 27, 28, 2, 4, 7, 13, 16, 26, 29, 42, 3, 8, 12, 17, 25, 30, 41, 43, 9, 11, 18, \
      24, 31, 40, 44, 53, 10, 19, 23, 32, 39, 45, 52, 54, 20, 22, 33, 38, 46, 51, 55, 60, 21, 34,   \
      37, 47, 50, 56, 59, 61, 35, 36, 48, 49, 57, 58, 62, 63
CONSTANT u8 ZIGZAG_OF[64] = {ZIGZAG_NUMBERS};

// The same where the place is known when this is compiled.
DEVICE constexpr int zigzag_of(int row, int column) {
  constexpr int numbers[64] = {ZIGZAG_NUMBERS};
  return numbers[row * 8 + column];
}

// One 8-point transform, times 2^13; the rounding of the pass is in it. Three of the sums wrap
// at 16 bits: that is part of the meaning.
template <int ROUND>
DEVICE void transform(const int x[8], int out[8]) {
  int t0 = sext16(x[0] + x[4]) * 8192 + ROUND, t1 = sext16(x[0] - x[4]) * 8192 + ROUND;
  int t2 = x[2] * 4433 - x[6] * 10704, t3 = x[2] * 10703 + x[6] * 4433;
  int e0 = t0 + t3, e1 = t1 + t2, e2 = t1 - t2, e3 = t0 - t3;
  int s = sext16(x[7] + x[3]), r = sext16(x[5] + x[1]);
  int z3 = s * -6436 + r * 9633, z4 = s * 9633 + r * 6437;
  int o0 = x[7] * -7373 + x[1] * 4926 + z4, o1 = x[5] * -20995 + x[3] * 4177 + z3;
  int o2 = x[5] * -4176 + x[3] * -20995 + z4, o3 = x[7] * -4927 + x[1] * -7373 + z3;
  out[0] = e0 + o0;
  out[7] = e0 - o0;
  out[1] = e1 + o1;
  out[6] = e1 - o1;
  out[2] = e2 + o2;
  out[5] = e2 - o2;
  out[3] = e3 + o3;
  out[4] = e3 - o3;
}

// Where the samples of block `b` of a component go.
DEVICE u8* block_at(const DecodeArgs& a, const DecodeComponent& m, u32 b) {
  u32 row = b / m.blocks_x, column = b - row * m.blocks_x;
  return at_piece<u8>(a.scratch, m.samples) + (u64)(row * 8) * m.stride + column * 8;
}

// `coefficient(k)` is the one with number k in zigzag order. Of a flat block, which has
// coefficients in its first row only, the first pass is a shift that wraps: the same as to
// keep 14 bits of each and to transform.
template <class Coefficient>
DEVICE void inverse_dct(Coefficient coefficient, bool flat, const int4* steps, u8* to, u32 stride) {
  int lost = flat ? 18 : 16;
  u32 columns[8][4];   // rows 2 i and 2 i + 1 of a column side by side
#pragma unroll
  for (int x = 0; x < 8; x++) {
    int4 a = __ldg(steps + 2 * x), b = __ldg(steps + 2 * x + 1);
    int step[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}, in[8], out[8];
#pragma unroll
    for (int y = 0; y < 8; y++) in[y] = sext16(coefficient(zigzag_of(y, x)) * step[y]);
    in[0] = in[0] << lost >> lost;
    transform<1 << 10>(in, out);
#pragma unroll
    for (int i = 0; i < 4; i++) columns[x][i] = pack_s16(out[2 * i + 1] >> 11, out[2 * i] >> 11);
  }
#pragma unroll
  for (int y = 0; y < 8; y++) {
    int in[8], out[8];
#pragma unroll
    for (int x = 0; x < 8; x++) in[x] = y & 1 ? (int)columns[x][y / 2] >> 16 : sext16(columns[x][y / 2]);
    transform<1 << 17>(in, out);
#pragma unroll
    for (int x = 0; x < 8; x++) out[x] >>= 18;
    u32 left = pack_s8(out[1], out[0], pack_s8(out[3], out[2], 0)) ^ 0x80808080u;
    u32 right = pack_s8(out[5], out[4], pack_s8(out[7], out[6], 0)) ^ 0x80808080u;
    *(uint2*)(to + (u64)y * stride) = make_uint2(left, right);
  }
}
