// Planes become samples: upsampling and colour, the pass along the rows, the pass along the columns
// (host: `crates/ops/src/jpeg/upsample.rs`, `colour.rs`, `geometry/resample`).
//
// Exact numerics: a tile of pixels is made in shared memory, resized along its rows to bytes, and
// four rows of bytes stand in one word for the pass along the columns. Planar numerics: every plane
// is resized by itself, in sixty-fourths, and colour comes last.
#pragma once

// Sums of weights with 22 and 14 fraction bits, rounded.
enum { EACH_BITS = 22, RUNNING_BITS = 14, FINE_BITS = 6 };

// ---- pixels

// The rows of samples that pixel row `y` lies between at two to one, the nearer one first.
DEVICE uint2 rows_around(u32 y, u32 height) {
  u32 near = y >> 1, far = y & 1 ? (near + 1 < height ? near + 1 : height - 1) : (near ? near - 1 : 0);
  return make_uint2(near, far);
}

DEVICE const u8* row_of(const DecodeArgs& a, const DecodeComponent& m, u32 y) {
  return at_piece<u8>(a.scratch, m.samples) + (u64)(y - m.block_y * 8) * m.stride;
}

DEVICE bool is_spread_across(const DecodeComponent& m) {
  return m.ratio_x == 2 && m.ratio_y <= 2 && m.width > 2;
}

// The last sample of a row that is there: of the plane, or of what was decoded of it.
DEVICE int last_column(const DecodeComponent& m) {
  u32 first = m.block_x * 8, end = first + m.blocks_x * 8;
  return (int)((m.width < end ? m.width : end) - 1 - first);
}

// Sums over two rows, or samples, spread across: the pixel left of the middle of sample `own` if
// `odd` is 0, else the one right of it. A sample without a neighbour stands for itself.
DEVICE int spread(int own, int neighbour, bool odd, bool both) {
  return both ? (3 * own + neighbour + (odd ? 7 : 8)) >> 4 : (3 * own + neighbour + (odd ? 2 : 1)) >> 2;
}

// Eight pixels of one component, packed, in row `y` from column `x0` (a multiple of 8) on.
DEVICE uint2 eight_samples(const DecodeArgs& a, const DecodeComponent& m, u32 y, u32 x0) {
  u32 left_of = m.block_x * 8;
  if (m.ratio_x == 1 && m.ratio_y == 1) return *(const uint2*)(row_of(a, m, y) + x0 - left_of);
  uint2 rows = rows_around(y, m.height);
  if (m.ratio_x == 1 && m.ratio_y == 2) {
    uint2 p = *(const uint2*)(row_of(a, m, rows.x) + x0 - left_of);
    uint2 q = *(const uint2*)(row_of(a, m, rows.y) + x0 - left_of);
    int round = 1 + (y & 1), v[8];
#pragma unroll
    for (int i = 0; i < 8; i++) {
      u32 near = byte_of(i < 4 ? p.x : p.y, i & 3), far = byte_of(i < 4 ? q.x : q.y, i & 3);
      v[i] = (int)(3 * near + far + round) >> 2;
    }
    return make_uint2(pack_u8(v[1], v[0], pack_u8(v[3], v[2], 0)), pack_u8(v[5], v[4], pack_u8(v[7], v[6], 0)));
  }
  if (is_spread_across(m)) {
    bool both = m.ratio_y == 2;
    int x = (int)((x0 >> 1) - left_of), end = last_column(m), left = x ? x - 1 : 0, right = x + 4 < end ? x + 4 : end;
    const u8* p = row_of(a, m, both ? rows.x : y);
    u32 own = *(const u32*)(p + x);
    // Samples x - 1 to x + 4.
    int s[6] = {p[left], (int)byte_of(own, 0), (int)byte_of(own, 1), (int)byte_of(own, 2), (int)byte_of(own, 3), p[right]};
    if (both) {
      const u8* q = row_of(a, m, rows.y);
      u32 other = *(const u32*)(q + x);
      int t[6] = {q[left], (int)byte_of(other, 0), (int)byte_of(other, 1), (int)byte_of(other, 2), (int)byte_of(other, 3), q[right]};
#pragma unroll
      for (int i = 0; i < 6; i++) s[i] = 3 * s[i] + t[i];
    }
    // Behind the plane's last sample lies what fills its block.
#pragma unroll
    for (int i = 1; i < 4; i++) if (x + i > end) s[i + 1] = s[i];
    if (x + 4 > end) s[5] = s[4];
    u32 out[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const int* q = s + 2 * i;
      out[i] = pack_u8(spread(q[1], q[2], true, both), spread(q[1], q[0], false, both),
                       pack_u8(spread(q[2], q[3], true, both), spread(q[2], q[1], false, both), 0));
    }
    return make_uint2(out[0], out[1]);
  }
  // All else is repeated. The last pixels may be beyond the decoded samples: nobody looks at them.
  const u8* p = row_of(a, m, y / m.ratio_y);
  int end = (int)m.blocks_x * 8 - 1;
  u32 out[2] = {0, 0};
#pragma unroll
  for (int i = 0; i < 8; i++) {
    int x = (int)((x0 + i) / m.ratio_x - left_of);
    out[i >> 2] |= (u32)p[x < end ? x : end] << 8 * (i & 3);
  }
  return make_uint2(out[0], out[1]);
}

// One pixel of one component: the meaning of `eight_samples`, for boxes too wide to be staged.
DEVICE u32 one_sample(const DecodeArgs& a, const DecodeComponent& m, u32 y, u32 x) {
  u32 left_of = m.block_x * 8;
  uint2 rows = rows_around(y, m.height);
  if (m.ratio_x == 1 && m.ratio_y == 2) {
    return (3 * row_of(a, m, rows.x)[x - left_of] + row_of(a, m, rows.y)[x - left_of] + 1 + (y & 1)) >> 2;
  }
  if (!is_spread_across(m)) return row_of(a, m, y / m.ratio_y)[x / m.ratio_x - left_of];
  bool both = m.ratio_y == 2, odd = x & 1;
  int own = (int)((x >> 1) - left_of), end = last_column(m);
  int beside = odd ? (own + 1 < end ? own + 1 : end) : (own ? own - 1 : 0);
  const u8 *p = row_of(a, m, both ? rows.x : y), *q = row_of(a, m, both ? rows.y : y);
  int s = both ? 3 * p[own] + q[own] : p[own], t = both ? 3 * p[beside] + q[beside] : p[beside];
  return spread(s, t, odd, both);
}

// Brightness, blueness and redness as red, green and blue in the low bytes of a word: jdcolor.c.
DEVICE u32 coloured(int y, int blue, int red) {
  int light = y * 65536 + 32768;
  blue -= 128;
  red -= 128;
  return pack_u8((light - 22554 * blue - 46802 * red) >> 16, (light + 91881 * red) >> 16,
                 pack_u8(0, (light + 116130 * blue) >> 16, 0));
}

DEVICE u32 pixel(const DecodeCrop& c, u32 a, u32 b, u32 r) {
  return c.ycc ? coloured((int)a, (int)b, (int)r) : a | b << 8 | r << 16;
}

// Four pixels of four bytes of each component.
DEVICE uint4 four_pixels(bool ycc, u32 a, u32 b, u32 r) {
  u32 out[4];
  if (ycc) {
#pragma unroll
    for (int i = 0; i < 4; i++) out[i] = coloured((int)byte_of(a, i), (int)byte_of(b, i), (int)byte_of(r, i));
  } else {
#pragma unroll
    for (int i = 0; i < 4; i++) out[i] = byte_of(a, i) | byte_of(b, i) << 8 | byte_of(r, i) << 16;
  }
  return make_uint4(out[0], out[1], out[2], out[3]);
}

// ---- exact numerics

// Four rows of an output column: three words, of four bytes each.
DEVICE void put_four(u32* to, u32 width, const int sums[4][3]) {
#pragma unroll
  for (int k = 0; k < 3; k++) {
    u32 upper = pack_u8(sums[3][k] >> EACH_BITS, sums[2][k] >> EACH_BITS, 0);
    to[k * width] = pack_u8(sums[1][k] >> EACH_BITS, sums[0][k] >> EACH_BITS, upper);
  }
}

DEVICE void begin_sums(int sums[4][3]) {
#pragma unroll
  for (int i = 0; i < 4; i++) sums[i][0] = sums[i][1] = sums[i][2] = 1 << (EACH_BITS - 1);
}

// A tile in shared memory: its pixels, and what comes of them.
struct Tile {
  u32 rows, staged;   // rows of pixels, and pixels from row to row
  u32 width;          // outputs
};

// Along the rows of a tile: one output column, from pixel `from` on, of `n` taps. Where there are at most `N`, all are taken
// straight, those that there are not with a weight of 0; pixels behind the tile's may be looked at.
template <u32 N, class Pixels>
DEVICE void along_rows(const Tile& t, const Pixels& pixels, u32 from, u32 n, const u32* weights, u32* to) {
  int w[N];
#pragma unroll
  for (u32 k = 0; k < N; k++) w[k] = k < n ? (int)load<u32>(weights + k * t.width) : 0;
#pragma unroll 1
  for (u32 row = 0; row < t.rows; row += 4, from += 4 * t.staged, to += 3 * t.width) {
    int sums[4][3];
    begin_sums(sums);
#pragma unroll
    for (u32 k = 0; k < N; k++) {
#pragma unroll
      for (u32 i = 0; i < 4; i++) {
        // Tiles have whole fours of rows; those behind the last weigh nothing.
        u32 p = pixels[from + i * t.staged + k];
        sums[i][0] += (int)(p & 255) * w[k];
        sums[i][1] += (int)(p >> 8 & 255) * w[k];
        sums[i][2] += (int)(p >> 16 & 255) * w[k];
      }
    }
    put_four(to, t.width, sums);
  }
}

// The same of any number of taps.
template <class Pixels>
DEVICE void along_long_rows(const Tile& t, const Pixels& pixels, u32 from, u32 n, const u32* weights, u32* to) {
  for (u32 row = 0; row < t.rows; row += 4, from += 4 * t.staged, to += 3 * t.width) {
    int sums[4][3];
    begin_sums(sums);
    for (u32 k = 0; k < n; k++) {
      int w = (int)load<u32>(weights + k * t.width);
#pragma unroll
      for (u32 i = 0; i < 4; i++) {
        u32 p = pixels[from + i * t.staged + k];
        sums[i][0] += (int)(p & 255) * w;
        sums[i][1] += (int)(p >> 8 & 255) * w;
        sums[i][2] += (int)(p >> 16 & 255) * w;
      }
    }
    put_four(to, t.width, sums);
  }
}

// A tile of pixel rows, whole in shared memory.
KERNEL_CAPPED(48, decode_rows_exact, DecodeArgs a) {
  DYNAMIC_SHARED(u32, pixels);
  const DecodeCrop& c = nth<DecodeCrop>(a.input, a.crops, nth<u32>(a.input, a.row_tiles, blockIdx.x));
  const DecodeComponent& m = c.components[0];
  u32 r0 = (blockIdx.x - c.first_row_tile) * c.tile_rows;
  u32 rows = c.rows - r0 < c.tile_rows ? c.rows - r0 : c.tile_rows, staged = c.staged_columns, eights = staged >> 3;
  // A quotient by `eights` as a product: exact below 2^25 / eights, and tiles have fewer pixels.
  u32 inverse = ((1u << 25) + eights - 1) / eights;
  bool ycc = c.ycc != 0, has_colour = c.n_components != 1;
  for (u32 i = threadIdx.x; i < rows * eights; i += blockDim.x) {
    u32 row = i * inverse >> 25, x = c.staged_left + (i - row * eights) * 8, y = c.top + r0 + row;
    uint2 p = eight_samples(a, m, y, x), q = p, r = p;
    if (has_colour) {
      q = eight_samples(a, c.components[1], y, x);
      r = eight_samples(a, c.components[2], y, x);
    }
    // Whole pieces: single words would have 8-way bank conflicts.
    uint4* to = (uint4*)(pixels + row * staged + (x - c.staged_left));
#pragma unroll 1
    for (int half = 0; half < 2; half++) {
      to[half] = four_pixels(ycc, p.x, q.x, r.x);
      p.x = p.y;
      q.x = q.y;
      r.x = r.y;
    }
  }
  __syncthreads();
  const DecodeAxis& axis = nth<DecodeAxis>(a.input, a.axes, m.axis_x);
  const Tile tile = {rows, staged, a.width};
  for (u32 first = 0; first < a.width; first += blockDim.x) {
    u32 o = first + threadIdx.x;
    bool here = o < a.width;
    u32 span = here ? load<u32>(at_piece<u32>(a.scratch, axis.spans) + o) : 0, n = span >> 16;
    // As many as the warp's longest filter, so that its lanes go together.
    bool over[6];
#pragma unroll
    for (u32 i = 0; i < 6; i++) over[i] = __ballot_sync(~0u, n > i + 2) != 0;
    if (!here) continue;
    u32 from = n ? (span & 0xffff) + c.left - c.staged_left : 0;
    const u32* weights = at_piece<u32>(a.scratch, axis.weights) + o;
    u32* to = at_piece<u32>(a.scratch, m.narrow) + (u64)(r0 >> 2) * 3 * a.width + o;
    if (!over[0]) along_rows<2>(tile, pixels, from, n, weights, to);
    else if (!over[1]) along_rows<3>(tile, pixels, from, n, weights, to);
    else if (!over[2]) along_rows<4>(tile, pixels, from, n, weights, to);
    else if (!over[3]) along_rows<5>(tile, pixels, from, n, weights, to);
    else if (!over[4]) along_rows<6>(tile, pixels, from, n, weights, to);
    else if (!over[5]) along_rows<7>(tile, pixels, from, n, weights, to);
    else along_long_rows(tile, pixels, from, n, weights, to);
  }
}

// Boxes too wide for shared memory: four rows, each pixel made again for each output.
KERNEL(256, decode_rows_wide, DecodeArgs a) {
  const DecodeCrop& c = nth<DecodeCrop>(a.input, a.crops, nth<u32>(a.input, a.wide_tiles, blockIdx.x));
  const DecodeComponent& m = c.components[0];
  const DecodeAxis& axis = nth<DecodeAxis>(a.input, a.axes, m.axis_x);
  u32 r0 = (blockIdx.x - c.first_row_tile) * 4;
  for (u32 o = threadIdx.x; o < a.width; o += blockDim.x) {
    u32 span = at_piece<u32>(a.scratch, axis.spans)[o], n = span >> 16, x = c.left + (span & 0xffff);
    const u32* weights = at_piece<u32>(a.scratch, axis.weights) + o;
    int sums[4][3];
    begin_sums(sums);
    for (u32 t = 0; t < n; t++) {
      int w = (int)weights[t * a.width];
#pragma unroll
      for (u32 i = 0; i < 4; i++) {
        u32 y = c.top + (r0 + i < c.rows ? r0 + i : c.rows - 1), s[3];
        s[0] = s[1] = s[2] = one_sample(a, m, y, x + t);
        if (c.n_components == 3) {
          s[1] = one_sample(a, c.components[1], y, x + t);
          s[2] = one_sample(a, c.components[2], y, x + t);
        }
        u32 p = pixel(c, s[0], s[1], s[2]);
        sums[i][0] += (int)(p & 255) * w;
        sums[i][1] += (int)(p >> 8 & 255) * w;
        sums[i][2] += (int)(p >> 16 & 255) * w;
      }
    }
    put_four(at_piece<u32>(a.scratch, m.narrow) + (u64)(r0 >> 2) * 3 * a.width + o, a.width, sums);
  }
}

// One pixel of a sample. Where rows are whole words, four neighbours write three words: every lane
// but the fourth has one. All lanes of a warp come here.
DEVICE void put_pixel(const DecodeArgs& a, u32 row, u32 y, u32 o, u32 rgb) {
  u8* to = a.output + row * a.sample_bytes + (u64)y * 3 * a.width;
  if (a.width & 3) {
    if (o < a.width) {
      to[3 * o] = (u8)rgb;
      to[3 * o + 1] = (u8)(rgb >> 8);
      to[3 * o + 2] = (u8)(rgb >> 16);
    }
    return;
  }
  u32 l = o & 3, next = __shfl_down_sync(~0u, rgb, 1);
  u32 word = rgb >> 8 * l | shl(next, 24 - 8 * l);
  if (l < 3 && o < a.width) ((u32*)to)[(o >> 2) * 3 + l] = word;
}

// One pixel of three components, by byte of the weights; the high one has the sign.
struct ColumnSums {
  u32 low[3] = {0, 0, 0}, middle[3] = {0, 0, 0};
  int high[3] = {0, 0, 0};

  // Four rows of a column.
  DEVICE_MEMBER void add(const u32* from, u32 width, const uint4& w) {
#pragma unroll
    for (int k = 0; k < 3; k++) {
      u32 four = load<u32>(from + k * width);
      low[k] = __dp4a(four, w.x, low[k]);
      middle[k] = __dp4a(four, w.y, middle[k]);
      high[k] = dot_signed(four, w.z, high[k]);
    }
  }

  DEVICE_MEMBER u32 pixel() const {
    int v[3];
#pragma unroll
    for (int k = 0; k < 3; k++) {
      v[k] = (int)(low[k] + (middle[k] << 8) + ((u32)high[k] << 16) + (1u << (EACH_BITS - 1))) >> EACH_BITS;
    }
    return pack_u8(v[1], v[0], pack_u8(0, v[2], 0));
  }
};

KERNEL(256, decode_columns_exact, DecodeArgs a) {
  const DecodeCrop& c = nth<DecodeCrop>(a.input, a.crops, blockIdx.z);
  const DecodeComponent& m = c.components[0];
  const DecodeAxis& axis = nth<DecodeAxis>(a.input, a.axes, m.axis_y);
  const u32* spans = at_piece<u32>(a.scratch, axis.spans);
  const uint4* all_weights = at_piece<uint4>(a.scratch, axis.weights);
  u32 taps = axis.taps, row = c.row;
  u32 o = blockIdx.x * blockDim.x + threadIdx.x, y0 = blockIdx.y * COLUMN_ROWS;
  // Lanes behind the last column go along, for the sake of those that need their neighbour.
  const u32* narrow = at_piece<u32>(a.scratch, m.narrow) + (o < a.width ? o : 0);
  u32 end = y0 + COLUMN_ROWS < a.height ? y0 + COLUMN_ROWS : a.height, down = 3 * a.width;
  for (u32 y = y0; y < end; y += 2) {
    // Two rows at a time, all that most of them need being asked for at once.
    u32 n[2];
    const u32* from[2];
    const uint4* weights[2];
    ColumnSums sums[2];
#pragma unroll
    for (u32 j = 0; j < 2; j++) {
      u32 nth = y + j < end ? y + j : y, span = load<u32>(spans + nth);
      n[j] = span >> 16;
      from[j] = n[j] ? narrow + (u64)(span & 0xffff) * down : narrow;
      weights[j] = all_weights + nth * taps;
    }
#pragma unroll
    for (u32 j = 0; j < 2; j++) {
#pragma unroll
      for (u32 q = 0; q < 2; q++) {
        // The first four again, with no weight, where there is no second.
        u32 place = q < n[j] ? q : 0;
        uint4 w = q < n[j] ? load<uint4>(weights[j] + q) : make_uint4(0, 0, 0, 0);
        sums[j].add(from[j] + place * down, a.width, w);
      }
    }
#pragma unroll
    for (u32 j = 0; j < 2; j++) {
      for (u32 q = 2; q < n[j]; q++) sums[j].add(from[j] + q * down, a.width, load<uint4>(weights[j] + q));
      if (y + j < end) put_pixel(a, row, y + j, o, sums[j].pixel());
    }
  }
}

// ---- planar numerics

// A tile of rows of one plane. Four rows of sixty-fourths stand in two words.
KERNEL(256, decode_rows_planar, DecodeArgs a) {
  DYNAMIC_SHARED(u32, staged);
  const DecodeCrop& c = nth<DecodeCrop>(a.input, a.crops, nth<u32>(a.input, a.row_tiles, blockIdx.x));
  u32 tile = blockIdx.x - c.first_row_tile, k = 0;
  while (tile >= c.components[k].tiles) tile -= c.components[k++].tiles;
  const DecodeComponent& m = c.components[k];
  u32 r0 = tile * c.tile_rows, rows = m.rows - r0 < c.tile_rows ? m.rows - r0 : c.tile_rows;
  u32 left = m.first_x - m.block_x * 8, from_x = left & ~3u, words = (left + m.columns - from_x + 3) >> 2;
  for (u32 i = threadIdx.x; i < rows * words; i += blockDim.x) {
    u32 row = i / words, x = i - row * words;
    staged[i] = *(const u32*)(row_of(a, m, m.first_y + r0 + row) + from_x + 4 * x);
  }
  __syncthreads();
  const DecodeAxis& axis = nth<DecodeAxis>(a.input, a.axes, m.axis_x);
  const u8* bytes = (const u8*)staged;
  for (u32 o = threadIdx.x; o < a.width; o += blockDim.x) {
    u32 span = load<u32>(at_piece<u32>(a.scratch, axis.spans) + o), n = span >> 16;
    const u8* from = bytes + (span & 0xffff) + left - from_x;
    const u32* weights = at_piece<u32>(a.scratch, axis.weights) + o;
    uint2* to = at_piece<uint2>(a.scratch, m.narrow) + (u64)(r0 >> 2) * a.width + o;
    for (u32 row = 0; row < rows; row += 4, from += 16 * words, to += a.width) {
      const int HALF = 1 << (RUNNING_BITS - FINE_BITS - 1);
      int sums[4] = {HALF, HALF, HALF, HALF};
      for (u32 t = 0; t < n; t++) {
        int w = (int)load<u32>(weights + t * a.width);
#pragma unroll
        for (u32 i = 0; i < 4; i++) sums[i] += (int)from[i * 4 * words + t] * w;
      }
#pragma unroll
      for (int i = 0; i < 4; i++) sums[i] >>= RUNNING_BITS - FINE_BITS;
      *to = make_uint2(((u32)sums[0] & 0xffff) | (u32)sums[1] << 16, ((u32)sums[2] & 0xffff) | (u32)sums[3] << 16);
    }
  }
}

// One plane down a column, in sixty-fourths.
DEVICE int down_column(const DecodeArgs& a, const DecodeCrop& c, const DecodeComponent& m, u32 y, u32 o) {
  const DecodeAxis& axis = nth<DecodeAxis>(a.input, a.axes, m.axis_y);
  u32 span = load<u32>(at_piece<u32>(a.scratch, axis.spans) + y), n = span >> 16;
  const uint2* from = at_piece<uint2>(a.scratch, m.narrow) + (u64)(span & 0xffff) * a.width + o;
  const int4* weights = at_piece<int4>(a.scratch, axis.weights) + y * axis.taps;
  int sum = 1 << (RUNNING_BITS - 1);
  for (u32 q = 0; q < n; q++, from += a.width) {
    uint2 p = load<uint2>(from);
    int4 w = load<int4>(weights + q);
    sum += sext16((int)p.x) * w.x + ((int)p.x >> 16) * w.y + sext16((int)p.y) * w.z + ((int)p.y >> 16) * w.w;
  }
  int v = sum >> RUNNING_BITS, most = 255 << FINE_BITS;
  return c.limited ? (v < 0 ? 0 : v > most ? most : v) : v;
}

KERNEL(256, decode_columns_planar, DecodeArgs a) {
  const DecodeCrop& c = nth<DecodeCrop>(a.input, a.crops, blockIdx.z);
  u32 o = blockIdx.x * blockDim.x + threadIdx.x, y0 = blockIdx.y * COLUMN_ROWS, column = o < a.width ? o : 0;
  for (u32 y = y0; y < y0 + COLUMN_ROWS && y < a.height; y++) {
    int v[3];
    v[0] = v[1] = v[2] = down_column(a, c, c.components[0], y, column);
    if (c.n_components == 3) {
      v[1] = down_column(a, c, c.components[1], y, column);
      v[2] = down_column(a, c, c.components[2], y, column);
    }
    int red, green, blue;
    if (c.ycc) {
      int light = v[0] * 65536 + (1 << (16 + FINE_BITS - 1)), b = v[1] - (128 << FINE_BITS), r = v[2] - (128 << FINE_BITS);
      red = (light + 91881 * r) >> (16 + FINE_BITS);
      green = (light - 22554 * b - 46802 * r) >> (16 + FINE_BITS);
      blue = (light + 116130 * b) >> (16 + FINE_BITS);
    } else {
      const int HALF = 1 << (FINE_BITS - 1);
      red = (v[0] + HALF) >> FINE_BITS;
      green = (v[1] + HALF) >> FINE_BITS;
      blue = (v[2] + HALF) >> FINE_BITS;
    }
    put_pixel(a, c.row, y, o, pack_u8(green, red, pack_u8(0, blue, 0)));
  }
}
