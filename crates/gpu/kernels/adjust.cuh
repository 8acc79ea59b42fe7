// What is done to whole images between the resize and the finish: values changed, mirrored,
// warped. Images are u8, rows x columns x channels, one or three channels, all of one shape.
//
// One launch a batch: a block takes an image through all its steps, so that images with
// different policies go side by side. A step that cannot work in place writes to the other
// of an image's two places. The meanings are those of the crate `ops` (`adjust/`,
// `geometry/warp/`), bit for bit; steps are numbered in `src/adjust/steps.rs`.
#pragma once

#include "elements.cuh"

enum AdjustOp {
  ADJUST_BRIGHTNESS = 0, ADJUST_CONTRAST, ADJUST_SATURATION, ADJUST_HUE, ADJUST_GRAYSCALE, ADJUST_SHARPNESS,
  ADJUST_BLUR, ADJUST_AUTOCONTRAST, ADJUST_EQUALIZE, ADJUST_INVERT, ADJUST_POSTERIZE, ADJUST_SOLARIZE,
  ADJUST_SOLARIZE_ADD, ADJUST_MIRROR_COLUMNS, ADJUST_MIRROR_ROWS, ADJUST_ERASE, ADJUST_BILINEAR, ADJUST_BICUBIC,
  ADJUST_SCALED, ADJUST_FIXED, ADJUST_NEAREST,
};

// A step. `a` and `b` are numbers or bits of an f32, as the op wants them.
struct AdjustStep {
  u32 op;
  u32 a, b;
  u32 is_perspective;
  u32 area[4];    // top, left, bottom, right
  u32 fill[3];    // per channel
  u32 unused;
  double map[8];  // of a warp
};

struct AdjustRow {
  u64 offset;  // of the image's first place, in bytes from `images`
  u32 first_step, n_steps;
};

struct AdjustArguments {
  u8* images;
  u64 other;  // bytes from an image's first place to its second
  const AdjustRow* rows;
  const AdjustStep* steps;
  const u16* weights;  // of blurs
  u32 height, width;
};

static_assert(sizeof(AdjustStep) == 112, "as in src/adjust/steps.rs");
static_assert(sizeof(AdjustRow) == 16, "as in src/adjust/steps.rs");
static_assert(sizeof(AdjustArguments) == 48, "as in src/adjust.rs");

constexpr u32 ADJUST_THREADS = 512;
// Numbers of 16 bits that a blur keeps in shared memory: a row of the image at least.
constexpr u32 ADJUST_KEPT = 8192;

// An image being worked on by a block.
struct Worked {
  u8* image;
  u8* next;
  u32 height, width, channels;

  DEVICE_MEMBER u32 n_pixels() const { return height * width; }
  DEVICE_MEMBER u32 n_bytes() const { return height * width * channels; }
  DEVICE_MEMBER void swap() {
    u8* const made = next;
    next = image;
    image = made;
  }
};

// Cut off at 0 and 255, and without its fraction.
DEVICE u32 truncated(float value) {
  value = value > 0.0f ? value : 0.0f;
  value = value < 255.0f ? value : 255.0f;
  return __float2uint_rz(value);
}

// From `from` (at 0) to `to` (at 1) and beyond.
DEVICE u32 blend(u32 from, u32 to, float factor) {
  const float difference = __int2float_rn((i32)to - (i32)from);
  return truncated(__fadd_rn(__uint2float_rn(from), __fmul_rn(factor, difference)));
}

DEVICE u32 grey_of(u32 r, u32 g, u32 b) { return (r * 19595 + g * 38470 + b * 7471 + (1 << 15)) >> 16; }

// Replaces every value by what its channel's table says. The whole block.
template <int CHANNELS>
DEVICE void apply_tables(const Worked& w, const u8* tables) {
  const u32 n = w.n_bytes(), n_words = (u64)w.image % 4 == 0 ? n / 4 : 0;
  for (u32 i = threadIdx.x; i < n_words; i += blockDim.x) {
    const u32 word = load_written<u32>(w.image + 4 * i);
    u32 changed = 0;
#pragma unroll
    for (u32 k = 0; k < 4; k++) {
      const u32 channel = (4 * i + k) % CHANNELS;
      changed |= (u32)tables[256 * channel + (word >> 8 * k & 255)] << 8 * k;
    }
    store<u32>(w.image + 4 * i, changed);
  }
  for (u32 i = 4 * n_words + threadIdx.x; i < n; i += blockDim.x)
    store<u8>(w.image + i, tables[256 * (i % CHANNELS) + load_written<u8>(w.image + i)]);
  __syncthreads();
}

// What an op makes of one value, for those that see one at a time.
DEVICE u32 value_after(const AdjustStep& step, u32 value) {
  switch (step.op) {
    case ADJUST_BRIGHTNESS: return blend(0, value, __uint_as_float(step.a));
    case ADJUST_INVERT: return 255 - value;
    case ADJUST_POSTERIZE: return step.a > 7 ? value : value & (0xff00u >> step.a & 255);
    case ADJUST_SOLARIZE: return value >= step.a ? 255 - value : value;
    case ADJUST_SOLARIZE_ADD: return value < 128 ? min(value + step.a, 255u) : value;
  }
  return value;
}

// Away from the mean of all greys.
template <int CHANNELS>
DEVICE void contrast(const Worked& w, const AdjustStep& step, u8* tables, u64* sum) {
  if (threadIdx.x == 0) *sum = 0;
  __syncthreads();
  u32 part = 0;
  for (u32 i = threadIdx.x; i < w.n_pixels(); i += blockDim.x) {
    const u8* pixel = w.image + CHANNELS * i;
    const u32 first = load_written<u8>(pixel);
    part += CHANNELS == 1 ? first : grey_of(first, load_written<u8>(pixel + 1 % CHANNELS), load_written<u8>(pixel + 2 % CHANNELS));
  }
  atomicAdd(sum, (u64)part);
  __syncthreads();
  const u64 n = w.n_pixels();
  const u32 mean = (u32)((2 * *sum + n) / (2 * n));
  for (u32 i = threadIdx.x; i < 256; i += blockDim.x)
    for (u32 channel = 0; channel < CHANNELS; channel++)
      tables[256 * channel + i] = (u8)blend(mean, i, __uint_as_float(step.a));
  __syncthreads();
  apply_tables<CHANNELS>(w, tables);
}

// Each channel's smallest value becomes 0 and its largest 255.
template <int CHANNELS>
DEVICE void autocontrast(const Worked& w, u8* tables, u32* ends) {
  if (threadIdx.x < CHANNELS) ends[2 * threadIdx.x] = 255, ends[2 * threadIdx.x + 1] = 0;
  __syncthreads();
  u32 low[CHANNELS], high[CHANNELS];
#pragma unroll
  for (u32 channel = 0; channel < CHANNELS; channel++) low[channel] = 255, high[channel] = 0;
  for (u32 i = threadIdx.x; i < w.n_pixels(); i += blockDim.x)
#pragma unroll
    for (u32 channel = 0; channel < CHANNELS; channel++) {
      const u32 value = load_written<u8>(w.image + CHANNELS * i + channel);
      low[channel] = min(low[channel], value), high[channel] = max(high[channel], value);
    }
#pragma unroll
  for (u32 channel = 0; channel < CHANNELS; channel++) {
    atomicMin(ends + 2 * channel, low[channel]);
    atomicMax(ends + 2 * channel + 1, high[channel]);
  }
  __syncthreads();
  for (u32 i = threadIdx.x; i < 256 * CHANNELS; i += blockDim.x) {
    const u32 first = ends[2 * (i / 256)], last = ends[2 * (i / 256) + 1], value = i % 256;
    if (last <= first) {
      tables[i] = (u8)value;
      continue;
    }
    const double scale = __ddiv_rn(255.0, __uint2double_rn(last - first));
    const double offset = __dmul_rn(-__uint2double_rn(first), scale);
    const i32 stretched = __double2int_rz(__dadd_rn(__dmul_rn(__uint2double_rn(value), scale), offset));
    tables[i] = (u8)(stretched < 0 ? 0 : stretched > 255 ? 255 : stretched);
  }
  __syncthreads();
  apply_tables<CHANNELS>(w, tables);
}

// Each channel's values occur about equally often.
template <int CHANNELS>
DEVICE void equalize(const Worked& w, u8* tables, u32* counts) {
  for (u32 i = threadIdx.x; i < 256 * CHANNELS; i += blockDim.x) counts[i] = 0;
  __syncthreads();
  for (u32 i = threadIdx.x; i < w.n_bytes(); i += blockDim.x)
    atomicAdd(counts + 256 * (i % CHANNELS) + load_written<u8>(w.image + i), 1u);
  __syncthreads();
  if (threadIdx.x < CHANNELS) {
    const u32* const own = counts + 256 * threadIdx.x;
    u8* const table = tables + 256 * threadIdx.x;
    u32 last = 0;
    for (u32 value = 0; value < 256; value++) last = own[value] ? own[value] : last;
    const u32 every = (w.n_pixels() - last) / 255;
    u32 below = every / 2;
    for (u32 value = 0; value < 256; value++) {
      table[value] = (u8)(every ? min(below / every, 255u) : value);
      below += own[value];
    }
  }
  __syncthreads();
  apply_tables<CHANNELS>(w, tables);
}

// Red, green and blue turned along the colour wheel by `sixths`.
DEVICE void turn(u32* rgb, float sixths) {
  const u32 r = rgb[0], g = rgb[1], b = rgb[2];
  const u32 top = max(max(r, g), b), bottom = min(min(r, g), b);
  const u32 third = r == top ? 0 : g == top ? 2 : 4;
  const u32 ahead = r == top ? g : g == top ? b : r, behind = r == top ? b : g == top ? r : g;
  const float off_middle = __int2float_rn((i32)ahead - (i32)behind);
  const float range = __uint2float_rn(top - bottom);
  float place = __fadd_rn(__uint2float_rn(third), __fdiv_rn(off_middle, range > 1.0f ? range : 1.0f));
  place = __fadd_rn(place, sixths);
  place = place < 0.0f ? __fadd_rn(place, 6.0f) : place;
  place = place >= 6.0f ? __fsub_rn(place, 6.0f) : place;
  const u32 sixth = truncated(place);
  const float low = __uint2float_rn(bottom), high = __uint2float_rn(top);
  const float come = __fmul_rn(__fsub_rn(high, low), __fsub_rn(place, __uint2float_rn(sixth)));
  const float exact = sixth % 2 == 0 ? __fadd_rn(low, come) : __fsub_rn(high, come);
  // 255.999 / 255, in f32.
  const u32 between = truncated(__fmul_rn(exact, __fdiv_rn(255.999f, 255.0f)));
  rgb[0] = sixth == 5 || sixth == 0 ? top : sixth == 1 || sixth == 4 ? between : bottom;
  rgb[1] = sixth == 1 || sixth == 2 ? top : sixth == 0 || sixth == 3 ? between : bottom;
  rgb[2] = sixth == 3 || sixth == 4 ? top : sixth == 2 || sixth == 5 ? between : bottom;
}

// What sees the three channels of a pixel and nothing else.
DEVICE void colours(const Worked& w, const AdjustStep& step) {
  const float factor = __uint_as_float(step.a);
  for (u32 i = threadIdx.x; i < w.n_pixels(); i += blockDim.x) {
    u8* const pixel = w.image + 3 * i;
    u32 rgb[3] = {load_written<u8>(pixel), load_written<u8>(pixel + 1), load_written<u8>(pixel + 2)};
    if (step.op == ADJUST_HUE) {
      turn(rgb, factor);
    } else {
      const u32 grey = grey_of(rgb[0], rgb[1], rgb[2]);
#pragma unroll
      for (u32 channel = 0; channel < 3; channel++)
        rgb[channel] = step.op == ADJUST_SATURATION ? blend(grey, rgb[channel], factor) : grey;
    }
#pragma unroll
    for (u32 channel = 0; channel < 3; channel++) store<u8>(pixel + channel, (u8)rgb[channel]);
  }
  __syncthreads();
}

// Away from a slight blur; the outermost pixels stay.
DEVICE void sharpness(const Worked& w, const AdjustStep& step) {
  const u32 line = w.width * w.channels;
  for (u32 i = threadIdx.x; i < w.n_bytes(); i += blockDim.x) {
    const u32 y = i / line, x = i - y * line;
    const u8* const at = w.image + i;
    u32 value = load_written<u8>(at);
    if (y > 0 && y + 1 < w.height && x >= w.channels && x + w.channels < line) {
      u32 sum = 4 * value;
#pragma unroll
      for (i32 down = -1; down <= 1; down++)
#pragma unroll
        for (i32 across = -1; across <= 1; across++)
          sum += load_written<u8>(at + (i64)down * line + across * (i32)w.channels);
      value = blend((sum + 6) / 13, value, __uint_as_float(step.a));
    }
    store<u8>(w.next + i, (u8)value);
  }
  __syncthreads();
}

// Row or column `at` of `n`, mirrored beyond the last.
DEVICE u32 mirrored(u32 at, u32 n) {
  if (at < n) return at;
  const u32 there_and_back = 2 * (n - 1);
  const u32 in = there_and_back ? at % there_and_back : 0;
  return min(in, there_and_back - in);
}

// A sum of weighed pairs, as `ops` has it: of many taps whole products are summed, of few the
// upper halves.
struct Weighed {
  u32 sum;
  bool many;

  DEVICE_MEMBER Weighed(u32 n_taps, u32 rounding) {
    many = n_taps > 64;
    sum = many ? rounding << 16 | 1 << 15 : min(n_taps / 2, 65535u) + rounding;
  }
  DEVICE_MEMBER void add(u32 pair, u32 weight) {
    const u32 product = pair * weight;
    sum = many ? sum + product : min(sum + (product >> 16), 65535u);
  }
  DEVICE_MEMBER u32 mean() const { return many ? sum >> 16 : sum; }
};

// Along the columns into shared memory, in 128ths, then along the rows; some rows at a time.
DEVICE void blur(const Worked& w, const AdjustStep& step, const u16* weights, u16* kept) {
  const u32 line = w.width * w.channels, rows = ADJUST_KEPT / line;
  const u32 n_down = step.a, n_across = step.b;
  const u16 *const down = weights + step.area[0], *const across = weights + step.area[1];
  for (u32 first = 0; first < w.height; first += rows) {
    const u32 n = min(rows, w.height - first) * line;
    for (u32 i = threadIdx.x; i < n; i += blockDim.x) {
      const u32 y = first + i / line, x = i % line;
      Weighed weighed(n_down, 0);
      for (u32 away = 0; away < n_down; away++) {
        const u32 above = mirrored(y > away ? y - away : away - y, w.height), below = mirrored(y + away, w.height);
        const u32 pair = load_written<u8>(w.image + (u64)above * line + x) + load_written<u8>(w.image + (u64)below * line + x);
        weighed.add(pair << 6, load<u16>(down + away));
      }
      kept[i] = (u16)weighed.mean();
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < n; i += blockDim.x) {
      const u32 row = i / line, x = i % line, column = x / w.channels, channel = x - column * w.channels;
      Weighed weighed(n_across, 128);
      for (u32 away = 0; away < n_across; away++) {
        const u32 left = mirrored(column > away ? column - away : away - column, w.width);
        const u32 right = mirrored(column + away, w.width);
        const u32 pair = (u32)kept[row * line + left * w.channels + channel] + kept[row * line + right * w.channels + channel];
        weighed.add(min(pair, 65535u), load<u16>(across + away));
      }
      store<u8>(w.next + first * line + i, (u8)(weighed.mean() >> 8));
    }
    __syncthreads();
  }
}

DEVICE void mirror(const Worked& w, bool columns) {
  for (u32 i = threadIdx.x; i < w.n_pixels(); i += blockDim.x) {
    const u32 y = i / w.width, x = i - y * w.width;
    const u32 from = columns ? y * w.width + (w.width - 1 - x) : (w.height - 1 - y) * w.width + x;
    for (u32 channel = 0; channel < w.channels; channel++)
      store<u8>(w.next + w.channels * i + channel, load_written<u8>(w.image + w.channels * from + channel));
  }
  __syncthreads();
}

DEVICE void erase(const Worked& w, const AdjustStep& step) {
  const u32 line = step.area[3] - step.area[1], n = (step.area[2] - step.area[0]) * line;
  for (u32 i = threadIdx.x; i < n; i += blockDim.x) {
    const u32 y = step.area[0] + i / line, x = step.area[1] + i % line;
    for (u32 channel = 0; channel < w.channels; channel++)
      store<u8>(w.image + w.channels * (y * w.width + x) + channel, (u8)step.fill[channel]);
  }
  __syncthreads();
}

// `bits` dropped, halves rounded up.
DEVICE i32 shifted(i32 sum, u32 bits) { return (sum + (1 << (bits - 1))) >> bits; }

// A coordinate less half a pixel, in 16384ths.
DEVICE i32 units(double at) {
  const double moved = __dadd_rn(__dmul_rn(at, 16384.0), -8192.0);
  return (i32)(u32)__double_as_longlong(__dadd_rn(moved, 6755399441055744.0));
}

template <u32 TAPS>
DEVICE void curve(i32 t, i32* weights) {
  if (TAPS == 2) {
    weights[0] = 16384 - t, weights[1] = t;
    return;
  }
  const i32 t2 = shifted(t * t, 14), t3 = shifted(t2 * t, 14);
  const i32 first = 2 * t2 - t3 - t, third = t + t2 - t3, last = t3 - t2;
  weights[0] = first, weights[1] = 16384 - first - third - last, weights[2 % TAPS] = third, weights[3 % TAPS] = last;
}

// Each pixel looked up elsewhere in the image, between pixels.
template <u32 TAPS>
DEVICE void warp(const Worked& w, const AdjustStep& step) {
  const double* const m = step.map;
  const double columns = __uint2double_rn(w.width), rows = __uint2double_rn(w.height);
  for (u32 i = threadIdx.x; i < w.n_pixels(); i += blockDim.x) {
    const u32 row = i / w.width, column = i - row * w.width;
    const double x = __dadd_rn(__uint2double_rn(column), 0.5), y = __dadd_rn(__uint2double_rn(row), 0.5);
    double at_x = __dadd_rn(__dadd_rn(__dmul_rn(m[0], x), __dmul_rn(m[1], y)), m[2]);
    double at_y = __dadd_rn(__dadd_rn(__dmul_rn(m[3], x), __dmul_rn(m[4], y)), m[5]);
    if (step.is_perspective) {
      const double far = __dadd_rn(__dadd_rn(__dmul_rn(m[6], x), __dmul_rn(m[7], y)), 1.0);
      at_x = __ddiv_rn(at_x, far), at_y = __ddiv_rn(at_y, far);
    }
    u8* const to = w.next + w.channels * i;
    if (!(at_x >= 0.0 && at_x < columns && at_y >= 0.0 && at_y < rows)) {
      for (u32 channel = 0; channel < w.channels; channel++) store<u8>(to + channel, (u8)step.fill[channel]);
      continue;
    }
    const i32 point_x = units(at_x), point_y = units(at_y);
    i32 across[TAPS], down[TAPS];
    curve<TAPS>(point_x & 16383, across);
    curve<TAPS>(point_y & 16383, down);
    const i32 left = (point_x >> 14) + 1 - (i32)TAPS / 2, top = (point_y >> 14) + 1 - (i32)TAPS / 2;
    for (u32 channel = 0; channel < w.channels; channel++) {
      i32 sum = 0;
#pragma unroll
      for (u32 r = 0; r < TAPS; r++) {
        const u32 source = (u32)min(max(top + (i32)r, 0), (i32)w.height - 1);
        i32 of_row = 0;
#pragma unroll
        for (u32 c = 0; c < TAPS; c++) {
          const u32 from = (u32)min(max(left + (i32)c, 0), (i32)w.width - 1);
          of_row += (i32)load_written<u8>(w.image + w.channels * (source * w.width + from) + channel) * across[c];
        }
        sum += shifted(of_row, 8) * down[r];
      }
      const i32 value = shifted(sum, 20);
      store<u8>(to + channel, (u8)(value < 0 ? 0 : value > 255 ? 255 : value));
    }
  }
  __syncthreads();
}

// A place outside of an image, where sides are below 2^15.
constexpr u32 ADJUST_OUTSIDE = 0xffff;

// Places along an axis: `first`, then `step` added for each, as Pillow adds them up.
DEVICE void add_up(double first, double step, u32 n_to, u32 n_from, u16* places) {
  double at = first;
  for (u32 i = 0; i < n_to; i++) {
    const bool inside = at >= 0.0 && at < __uint2double_rn(n_from);
    places[i] = (u16)(inside ? __double2uint_rz(at) : ADJUST_OUTSIDE);
    at = __dadd_rn(at, step);
  }
}

// Each pixel is the nearest one elsewhere in the image, found in Pillow's three ways.
DEVICE void nearest(const Worked& w, const AdjustStep& step, u16* kept) {
  const double* const m = step.map;
  if (step.op == ADJUST_SCALED) {
    if (threadIdx.x == 0) add_up(m[0], m[1], w.width, w.width, kept);
    if (threadIdx.x == blockDim.x / 2) add_up(m[2], m[3], w.height, w.height, kept + w.width);
    __syncthreads();
  }
  for (u32 i = threadIdx.x; i < w.n_pixels(); i += blockDim.x) {
    const u32 row = i / w.width, column = i - row * w.width;
    u32 x, y;
    if (step.op == ADJUST_SCALED) {
      x = kept[column], y = kept[w.width + row];
    } else if (step.op == ADJUST_FIXED) {
      // Sums wrap. What is below 0 is far behind the end.
      x = (u32)((i32)(step.a * column + step.b * row + step.area[0]) >> 16);
      y = (u32)((i32)(step.area[1] * column + step.area[2] * row + step.area[3]) >> 16);
    } else {
      const double at = __dadd_rn(__uint2double_rn(column), 0.5), down = __dadd_rn(__uint2double_rn(row), 0.5);
      const double far = __dadd_rn(__dadd_rn(__dmul_rn(m[6], at), __dmul_rn(m[7], down)), 1.0);
      const double from_x = __ddiv_rn(__dadd_rn(__dadd_rn(__dmul_rn(m[0], at), __dmul_rn(m[1], down)), m[2]), far);
      const double from_y = __ddiv_rn(__dadd_rn(__dadd_rn(__dmul_rn(m[3], at), __dmul_rn(m[4], down)), m[5]), far);
      const bool inside = from_x >= 0.0 && from_x < __uint2double_rn(w.width) && from_y >= 0.0 &&
                          from_y < __uint2double_rn(w.height);
      x = inside ? __double2uint_rz(from_x) : ADJUST_OUTSIDE, y = inside ? __double2uint_rz(from_y) : ADJUST_OUTSIDE;
    }
    const bool inside = x < w.width && y < w.height;
    for (u32 channel = 0; channel < w.channels; channel++) {
      const u32 value = inside ? load_written<u8>(w.image + w.channels * (y * w.width + x) + channel) : step.fill[channel];
      store<u8>(w.next + w.channels * i + channel, (u8)value);
    }
  }
  __syncthreads();
}

template <int CHANNELS>
DEVICE void adjust(const AdjustArguments& a) {
  SHARED(u8, tables, 768);
  // What steps keep: a blur its rows, equalize its counts, contrast its sum.
  SHARED(u16, kept, ADJUST_KEPT);
  const AdjustRow row = a.rows[blockIdx.x];
  Worked w = {a.images + row.offset, a.images + row.offset + a.other, a.height, a.width, CHANNELS};
  for (u32 nth = 0; nth < row.n_steps; nth++) {
    const AdjustStep& step = a.steps[row.first_step + nth];
    switch (step.op) {
      case ADJUST_CONTRAST: contrast<CHANNELS>(w, step, tables, (u64*)kept); break;
      case ADJUST_AUTOCONTRAST: autocontrast<CHANNELS>(w, tables, (u32*)kept); break;
      case ADJUST_EQUALIZE: equalize<CHANNELS>(w, tables, (u32*)kept); break;
      case ADJUST_SATURATION:
      case ADJUST_HUE:
      case ADJUST_GRAYSCALE:
        if (CHANNELS == 3) colours(w, step);
        break;
      case ADJUST_SHARPNESS: sharpness(w, step), w.swap(); break;
      case ADJUST_BLUR: blur(w, step, a.weights, kept), w.swap(); break;
      case ADJUST_MIRROR_COLUMNS: mirror(w, true), w.swap(); break;
      case ADJUST_MIRROR_ROWS: mirror(w, false), w.swap(); break;
      case ADJUST_ERASE: erase(w, step); break;
      case ADJUST_BILINEAR: warp<2>(w, step), w.swap(); break;
      case ADJUST_BICUBIC: warp<4>(w, step), w.swap(); break;
      case ADJUST_SCALED:
      case ADJUST_FIXED:
      case ADJUST_NEAREST: nearest(w, step, kept), w.swap(); break;
      default:
        for (u32 i = threadIdx.x; i < 256 * CHANNELS; i += blockDim.x) tables[i] = (u8)value_after(step, i % 256);
        __syncthreads();
        apply_tables<CHANNELS>(w, tables);
    }
  }
}

KERNEL(ADJUST_THREADS, adjust_1, AdjustArguments a) { adjust<1>(a); }
KERNEL(ADJUST_THREADS, adjust_3, AdjustArguments a) { adjust<3>(a); }
