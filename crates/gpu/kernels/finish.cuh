// The finish: samples at the cut (u8, rows x columns x channels) become a delivered batch.
//
// One launch a batch: flip, normalise, cast, lay out, erase, mix. The meaning is
// `ops::finish`'s, bit for bit; what is drawn is drawn on the host (`src/finish/describe.rs`).
//
// A thread makes 16 bytes of output at a time, three times 16 where the three channels go to
// planes, of as many bytes of input as that takes. Rows that are not aligned, and what is left
// over at the end of a sample, go element by element. The grid is (parts of a sample, samples).
#pragma once

#include "elements.cuh"

// A row of the batch. `src/finish/describe.rs` writes these.
struct FinishRow {
  u64 offset;        // of its sample, in bytes from `src`
  u32 flip;          // left and right exchanged
  u32 first_erased;  // its rectangles, in the order in which they are erased
  u32 n_erased;
  u32 unused;
};

// A rectangle with something else in it.
struct FinishErased {
  u32 top, left, bottom, right;
  float values[3];  // per channel, where there is no noise
  u32 noise;        // whether the values are the normal distribution's
  u32 key[2];       // of the noise
  u32 counter[3];   // its second to fourth words
  u32 unused;
};

enum Mixing { MIX_NOTHING = 0, MIX_UP = 1, MIX_CUT = 2 };
// What is done to a value that is erased with: bytes are brought back from normalised ones.
enum Scaling { SCALE_NOTHING = 0, SCALE_TO_BYTE = 1, SCALE_NORMALISED = 2 };

struct FinishArguments {
  const u8* src;
  u8* dst;
  const u32* values;       // 256 of each channel, as bits of an element; not for bytes
  const float* quantiles;  // 65536, for noise
  const FinishRow* rows;
  const FinishErased* erased;
  u64 dst_stride;  // bytes from a sample of the batch to the next
  u32 height, width, n_rows;
  u32 distance;  // how many rows before a row its partner is, 1 to n_rows
  u32 mixing;
  float own_share, rest;          // of itself and of the partner
  u32 top, left, bottom, right;   // what is the partner's
  u32 scaling;
  float mean[3], std[3];          // `FULL`: of normalisation
  // Else, to f32, `std` and `low` are the halves of 1 / std, and `unit` those of 1 / 255. To f16 and bf16 `std` is a
  // factor and `mean` an offset (`src/finish/factors.rs`).
  float low[3], unit[2];
  u32 unused;
};

static_assert(sizeof(FinishRow) == 24, "as in describe.rs");
static_assert(sizeof(FinishErased) == 56, "as in describe.rs");
static_assert(sizeof(FinishArguments) == 152, "as in describe.rs");

// What a thread makes at a time: `LINES` runs of `N` elements, 16 bytes each; of `FULL` kernels,
// which do more for an element, four elements each.
template <int DTYPE, int CHANNELS, bool PLANAR, bool FULL>
struct Group {
  static constexpr u32 N = FULL ? 4 : 16 / size_of(DTYPE);
  static constexpr u32 LINES = PLANAR ? CHANNELS : 1;
  static constexpr u32 WORDS = LINES * N / 4;
};

// `n` bytes of a line, one by one, from element `unit` on; `width` is that of a flipped sample, or 0.
template <int CHANNELS, bool PLANAR>
DEVICE_CALL u32 gather_word(const u8* sample, u32 width, u32 line, u32 unit, u32 n) {
  u32 bytes = 0;
  for (u32 i = 0; i < n; i++) {
    u32 pixel = PLANAR ? unit + i : (unit + i) / CHANNELS;
    const u32 channel = PLANAR ? line : unit + i - pixel * CHANNELS;
    if (width) {
      const u32 y = pixel / width;
      pixel = y * width + (width - 1 - (pixel - y * width));
    }
    bytes |= (u32)load<u8>(sample + (u64)pixel * CHANNELS + channel) << 8 * i;
  }
  return bytes;
}

// Bytes of one group of a sample, in the order of the output, flipped where that is wanted.
template <int CHANNELS, bool PLANAR, class G>
struct Source {
  const u8* sample;
  u32 width, n_units;  // of a line
  bool flip, aligned;

  DEVICE_MEMBER Source(const FinishArguments& a, const FinishRow& row) {
    sample = a.src + row.offset;
    width = a.width;
    n_units = a.height * a.width * (PLANAR ? 1 : CHANNELS);
    flip = row.flip != 0;
    const bool whole = CHANNELS == 1 || PLANAR;
    aligned = (u64)sample % G::N == 0 && (!flip || (whole && width % G::N == 0));
  }

  DEVICE_MEMBER void fetch(u32 first, u32* words) const {
    if (!aligned || first + G::N > n_units) return gather(first, words);
    u32 begin = first;
    if (flip) {
      const u32 y = first / width;
      begin = y * width + (width - G::N - (first - y * width));
    }
    const u8* at = sample + begin * (PLANAR ? CHANNELS : 1);
    u32 raw[G::WORDS];
#pragma unroll
    for (u32 line = 0; line < G::LINES; line++) {
      const u8* from = at + line * G::N;
      u32* to = raw + line * G::N / 4;
      if (G::N == 4) to[0] = load<u32>(from);
      if (G::N == 8) {
        const uint2 two = load<uint2>(from);
        to[0] = two.x, to[1 % (G::N / 4)] = two.y;
      }
      if (G::N == 16) {
        const uint4 four = load<uint4>(from);
        to[0] = four.x, to[1 % (G::N / 4)] = four.y, to[2 % (G::N / 4)] = four.z, to[3 % (G::N / 4)] = four.w;
      }
    }
    if (flip)
      arrange<true>(raw, words);
    else
      arrange<false>(raw, words);
  }

  // From pixels as they lie to lines of bytes.
  template <bool FLIP>
  DEVICE_MEMBER void arrange(const u32* raw, u32* words) const {
#pragma unroll
    for (u32 word = 0; word < G::WORDS; word++) {
      u32 bytes = 0;
#pragma unroll
      for (u32 k = 0; k < 4; k++) {
        const u32 line = (4 * word + k) / G::N, i = (4 * word + k) % G::N;
        const u32 at = (FLIP ? G::N - 1 - i : i) * G::LINES + line;
        bytes |= (raw[at / 4] >> 8 * (at % 4) & 255) << 8 * k;
      }
      words[word] = bytes;
    }
  }

  DEVICE_MEMBER void gather(u32 first, u32* words) const {
#pragma unroll
    for (u32 word = 0; word < G::WORDS; word++) {
      const u32 line = 4 * word / G::N, unit = first + 4 * word % G::N;
      const u32 n = unit < n_units ? min(n_units - unit, 4u) : 0;
      words[word] = gather_word<CHANNELS, PLANAR>(sample, flip ? width : 0, line, unit, n);
    }
  }
};

// What a value that is erased with goes through before it is an element.
struct Scale {
  u32 scaling;
  float mean, std;
};

template <int DTYPE>
DEVICE Scale scale_of(const FinishArguments& a, u32 channel) {
  if (DTYPE != U8) return {SCALE_NOTHING, 0.0f, 1.0f};
  if (channel == 0) return {a.scaling, a.mean[0], a.std[0]};
  if (channel == 1) return {a.scaling, a.mean[1], a.std[1]};
  return {a.scaling, a.mean[2], a.std[2]};
}

// An element of a finished sample that is not yet mixed: `bits`, or what a rectangle has there.
template <int DTYPE, int CHANNELS>
DEVICE_CALL u32 unmixed(const FinishErased* erased, u32 n, const float* quantiles, Scale scale, u32 y, u32 x,
                        u32 channel, u32 bits) {
  // The last rectangle lies on top.
  for (; n > 0; n--) {
    const FinishErased& last = erased[n - 1];
    if (y >= last.top && y < last.bottom && x >= last.left && x < last.right) break;
  }
  if (n == 0) return bits;
  const FinishErased& top = erased[n - 1];
  float value = top.values[channel];
  if (top.noise) {
    const u32 nth = ((y - top.top) * (top.right - top.left) + (x - top.left)) * CHANNELS + channel;
    const uint4 counter = make_uint4(nth / 8, top.counter[0], top.counter[1], top.counter[2]);
    const uint4 block = philox(counter, top.key[0], top.key[1]);
    const u32 of = nth % 8 / 2, word = of == 0 ? block.x : of == 1 ? block.y : of == 2 ? block.z : block.w;
    value = load<float>(quantiles + (nth % 2 ? word >> 16 : word & 0xffff));
  }
  if (scale.scaling == SCALE_NORMALISED) value = __fadd_rn(__fmul_rn(value, scale.std), scale.mean);
  if (scale.scaling != SCALE_NOTHING) value = __fmul_rn(value, 255.0f);
  return bits_of<DTYPE>(value);
}

// Stores a line of a group; `n` of its elements are the sample's.
template <int DTYPE, u32 N>
DEVICE void store_line(u8* to, const u32* bits, bool whole, u32 n) {
  constexpr u32 WORDS = N * size_of(DTYPE) / 4;
  if (whole && n == N) {
    u32 words[WORDS];
#pragma unroll
    for (u32 word = 0; word < WORDS; word++) {
      if (DTYPE == F32) words[word] = bits[word];
      if (size_of(DTYPE) == 2) words[word] = bits[2 * word % N] | bits[(2 * word + 1) % N] << 16;
      if (DTYPE == U8)
        words[word] = bits[4 * word % N] | bits[(4 * word + 1) % N] << 8 | bits[(4 * word + 2) % N] << 16 |
                      bits[(4 * word + 3) % N] << 24;
    }
    if (WORDS == 1) store(to, words[0]);
    if (WORDS == 2) store(to, make_uint2(words[0], words[1 % WORDS]));
    if (WORDS == 4) store(to, make_uint4(words[0], words[1 % WORDS], words[2 % WORDS], words[3 % WORDS]));
    return;
  }
#pragma unroll
  for (u32 i = 0; i < N; i++) {
    if (i >= n) continue;
    if (DTYPE == F32) store<u32>(to + 4 * i, bits[i]);
    if (size_of(DTYPE) == 2) store<u16>(to + 2 * i, (u16)bits[i]);
    if (DTYPE == U8) store<u8>(to + i, (u8)bits[i]);
  }
}

// What bytes become, without a division and without looking it up; the host has tried all 256 bytes
// (`src/finish/factors.rs`). Of the channels from `first` on.
template <int DTYPE>
struct Factors {
  float offset[3], high[3], low[3], unit_high, unit_low;

  DEVICE_MEMBER Factors(const FinishArguments& a, u32 first) : unit_high(a.unit[0]), unit_low(a.unit[1]) {
#pragma unroll
    for (u32 i = 0; i < 3; i++) {
      const u32 channel = first + i < 3 ? first + i : first + i - 3;
      offset[i] = channel == 0 ? a.mean[0] : channel == 1 ? a.mean[1] : a.mean[2];
      high[i] = channel == 0 ? a.std[0] : channel == 1 ? a.std[1] : a.std[2];
      low[i] = channel == 0 ? a.low[0] : channel == 1 ? a.low[1] : a.low[2];
    }
  }

  DEVICE_MEMBER u32 of(u32 byte, u32 nth) const {
    if (DTYPE == U8) return byte;
    // 2^23 and the byte, less 2^23.
    const float value = __fsub_rn(__uint_as_float(byte | 0x4B000000u), 8388608.0f);
    // So near that it rounds to what is wanted.
    if (DTYPE != F32) return nearest_bits<DTYPE>(__fmaf_rn(value, high[nth], offset[nth]));
    // Products with reciprocals of twice the bits, as `ops::finish` has them.
    const float centred = __fsub_rn(__fmaf_rn(value, unit_high, __fmul_rn(value, unit_low)), offset[nth]);
    return __float_as_uint(__fmaf_rn(centred, high[nth], __fmul_rn(centred, low[nth])));
  }
};

// `FULL`: with rectangles and mixing, which most batches do without, and of any values: they come from a table.
template <int DTYPE, int CHANNELS, bool PLANAR, bool FULL>
DEVICE void finish(const FinishArguments& a) {
  typedef Group<DTYPE, CHANNELS, PLANAR, FULL> G;
  typedef Source<CHANNELS, PLANAR, G> Samples;
  SHARED(u32, values, 768);
  if (DTYPE != U8 && FULL) {
    for (u32 i = threadIdx.x; i < 256 * CHANNELS; i += blockDim.x) values[i] = load<u32>(a.values + i);
    __syncthreads();
  }
  const auto element = [&](u32 byte, u32 channel) { return DTYPE == U8 ? byte : (u32)values[256 * channel + byte]; };
  const FinishRow row = a.rows[blockIdx.y];
  const u32 partner = (blockIdx.y + a.n_rows - a.distance) % a.n_rows;
  const FinishRow partner_row = a.rows[FULL ? partner : blockIdx.y];
  const Samples own(a, row), other(a, partner_row);
  u8* const sample = a.dst + blockIdx.y * a.dst_stride;
  const u32 n_pixels = a.height * a.width, n_units = own.n_units;
  const bool whole = (u64)sample % 16 == 0 && (!PLANAR || n_pixels * size_of(DTYPE) % 16 == 0);

  const u32 step = gridDim.x * blockDim.x * G::N;
  for (u32 first = (blockIdx.x * blockDim.x + threadIdx.x) * G::N; first < n_units; first += step) {
    u32 own_words[G::WORDS], other_words[G::WORDS];
    own.fetch(first, own_words);
    if (FULL && a.mixing != MIX_NOTHING) other.fetch(first, other_words);
    const u32 first_pixel = PLANAR ? first : first / CHANNELS;
    const Factors<DTYPE> factors(a, PLANAR ? 0 : first - first_pixel * CHANNELS);
#pragma unroll
    for (u32 line = 0; line < G::LINES; line++) {
      u32 bits[G::N];
      u32 y = first_pixel / a.width, x = first_pixel - y * a.width;
      u32 channel = PLANAR ? line : first - first_pixel * CHANNELS;
#pragma unroll
      for (u32 i = 0; i < G::N; i++) {
        const u32 at = line * G::N + i, byte = own_words[at / 4] >> 8 * (at % 4) & 255;
        bits[i] = FULL ? element(byte, channel) : factors.of(byte, PLANAR ? line : i % CHANNELS);
        if (FULL && first + i < n_units) {
          const Scale scale = scale_of<DTYPE>(a, channel);
          if (row.n_erased)
            bits[i] = unmixed<DTYPE, CHANNELS>(a.erased + row.first_erased, row.n_erased, a.quantiles, scale, y, x,
                                               channel, bits[i]);
          const bool inside = y >= a.top && y < a.bottom && x >= a.left && x < a.right;
          if (a.mixing == MIX_UP || (a.mixing == MIX_CUT && inside)) {
            u32 theirs = element(other_words[at / 4] >> 8 * (at % 4) & 255, channel);
            if (partner_row.n_erased)
              theirs = unmixed<DTYPE, CHANNELS>(a.erased + partner_row.first_erased, partner_row.n_erased,
                                                a.quantiles, scale, y, x, channel, theirs);
            const float mixed = __fadd_rn(__fmul_rn(value_of<DTYPE>(theirs), a.rest),
                                          __fmul_rn(value_of<DTYPE>(bits[i]), a.own_share));
            bits[i] = a.mixing == MIX_CUT ? theirs : bits_of<DTYPE>(mixed);
          }
        }
        if (!PLANAR && ++channel == CHANNELS) channel = 0;
        if ((PLANAR || channel == 0) && ++x == a.width) x = 0, y++;
      }
      u8* const to = sample + (u64)(PLANAR ? line * n_pixels + first : first) * size_of(DTYPE);
      store_line<DTYPE, G::N>(to, bits, whole, min(G::N + 0u, n_units - first));
    }
  }
}

#define FINISH(name, dtype, channels, planar)                                                                      \
  KERNEL(256, finish_##name, FinishArguments a) { finish<dtype, channels, planar, false>(a); }                     \
  KERNEL(256, finish_##name##_full, FinishArguments a) { finish<dtype, channels, planar, true>(a); }

FINISH(u8_1, U8, 1, false)
FINISH(u8_3, U8, 3, false)
FINISH(u8_3_planes, U8, 3, true)
FINISH(f32_1, F32, 1, false)
FINISH(f32_3, F32, 3, false)
FINISH(f32_3_planes, F32, 3, true)
FINISH(f16_1, F16, 1, false)
FINISH(f16_3, F16, 3, false)
FINISH(f16_3_planes, F16, 3, true)
FINISH(bf16_1, BF16, 1, false)
FINISH(bf16_3, BF16, 3, false)
FINISH(bf16_3_planes, BF16, 3, true)
