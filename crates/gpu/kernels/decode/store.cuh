// Row groups of a store: where their blocks are, whether they are as they were written, and what
// samples the blocks hold (`docs/store-format.md`, section 3; host: `crates/ops/src/jpeg/store`).
#pragma once

struct BlockHeader {
  u32 fields, mask_low, mask_high;
  u32 n_mask, w0, w1;   // bytes of the mask; widths as they are written
  u32 n;                // values
};

template <bool STAGED>
DEVICE BlockHeader block_header(const u8* data, u32 at) {
  const u32* p = (const u32*)(data + (at & ~3u));
  u32 s = (at & 3) * 8;
  u32 w0 = word_of<STAGED>(p), w1 = word_of<STAGED>(p + 1), w2 = word_of<STAGED>(p + 2), w3 = word_of<STAGED>(p + 3);
  u32 a = __funnelshift_r(w0, w1, s), b = __funnelshift_r(w1, w2, s), c = __funnelshift_r(w2, w3, s);
  BlockHeader h;
  h.fields = a;
  h.n_mask = a >> 12 & 15;
  h.w0 = a >> 16 & 15;
  h.w1 = a >> 20 & 15;
  u32 bits = 8 * h.n_mask;
  h.mask_low = __funnelshift_r(a, b, 24) & ~shl(~0u, bits);
  h.mask_high = __funnelshift_r(b, c, 24) & (bits > 32 ? ~shl(~0u, bits - 32) : 0);
  h.n = __popc(h.mask_low) + __popc(h.mask_high);
  return h;
}

DEVICE u32 value_bytes(const BlockHeader& h) {
  u32 first = h.n < 8 ? h.n : 8, width = h.w0 < 8 ? h.w0 : 8;
  return (first * width + (h.n - first) * h.w1 + 7) >> 3;
}

// Length of the block at `at`; 0 where there is none.
template <bool STAGED>
DEVICE u32 block_length(const u8* data, u32 at) {
  BlockHeader h = block_header<STAGED>(data, at);
  if (h.n_mask > 8 || h.w0 > 9 || h.w1 > 8 || h.mask_high >> 31) return 0;
  u32 end = 3 + h.n_mask + value_bytes(h);
  if (h.w0 != 9) return end;
  // Exceptions are rare; a block that is passed over is held to the same rules as any.
  u32 n = data[at + end];
  if (n > 63) return 0;
  for (u32 i = 0; i < n; i++) {
    u32 place = data[at + end + 1 + 3 * i];
    if (place == 0 || place > 63) return 0;
  }
  return end + 1 + 3 * n;
}

DEVICE u32 row_length(const u8* p, u32 wide) {
  u32 v = p[0] | p[1] << 8;
  return wide ? v | p[2] << 16 | (u32)p[3] << 24 : v;
}

// In place of a block's: there is none to unpack.
enum : u32 { NO_PLACE = ~0u };

// Where block row `nth_row` of a group begins and ends; `data` holds the group from byte `from` up to
// `to`. False where its lengths lead out of the group.
DEVICE bool find_row(const DecodeCrop& c, const u8* data, u32 from, u32 to, u32 n_rows, u32 nth_row, uint2& row) {
  u32 bytes = c.wide ? 4 : 2;
  if (to - from < 4 || (to - from - 4) / bytes < n_rows) return false;
  const u8* lengths = data + from + 4;
  u32 at = from + 4 + bytes * n_rows;
  for (u32 i = 0;; i++) {
    u32 len = row_length(lengths + i * bytes, c.wide);
    if (len > to - at) return false;
    row = make_uint2(at, at + len);
    if (i == nth_row) return true;
    at += len;
  }
}

// One lane's block row: the blocks that are decoded go down in the component's list of places, or
// `NO_PLACE` does, whatever the bytes are. Byte 0 of `data` is byte `base` of the input.
template <bool STAGED>
DEVICE bool walk_row(const DecodeArgs& a, const DecodeCrop& c, const u8* data, u32 base, u32 from, u32 to, u32 mcu, u32 nth_row) {
  u32 before = mcu / c.mcus_per_group * c.mcus_per_group;
  u32 mcus = c.mcus_down - before < c.mcus_per_group ? c.mcus_down - before : c.mcus_per_group;
  uint2 bytes = make_uint2(0, 0);
  bool good = find_row(c, data, from, to, mcus * c.rows_per_mcu, nth_row, bytes);
  if (mcu < c.mcu_first || mcu >= c.mcu_end) return good;
  u32 at = bytes.x, end = bytes.y, k = 0, row = nth_row - (mcu - before) * c.rows_per_mcu;
  while (row >= c.components[k].down) row -= c.components[k++].down;
  const DecodeComponent& m = c.components[k];
  u32* places = at_piece<u32>(a.scratch, m.blocks) + ((mcu - c.mcu_first) * m.down + row) * m.blocks_x;
  u32 last = m.block_x + m.blocks_x;
  for (u32 i = 0; i < last; i++) {
    u32 n = good && at < end ? block_length<STAGED>(data, at) : 0;
    good = n != 0;
    if (i >= m.block_x) places[i - m.block_x] = good ? at + base : NO_PLACE;
    at += n;
  }
  return good && at <= end && (last != c.mcus_across * m.across || at == end);
}

// The first warp walks a block row a lane, the others sum.
template <bool STAGED>
DEVICE void look_through(const DecodeArgs& a, const DecodeFront& f, const u8* data, u32 base, const u64* secret) {
  const DecodeCrop& c = nth<DecodeCrop>(a.input, a.crops, f.crop);
  const u32* ends = (const u32*)(a.input + a.ends) + f.ends;
  u32 warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  if (warp == 0) {
    u32 per_group = c.mcus_per_group * c.rows_per_mcu;
    // Most often all rows are walked at once.
    for (u32 i = lane; i < f.n * per_group; i += 32) {
      u32 in = i / per_group, row = i - in * per_group;
      u32 mcu = (f.group + in) * c.mcus_per_group + row / c.rows_per_mcu;
      if (mcu >= c.mcus_down) continue;
      bool good = walk_row<STAGED>(a, c, data, base, ends[in] - base, ends[in + 1] - base, mcu, row);
      if (!good) report(a, f.crop, BROKEN_BLOCKS);
    }
    return;
  }
  for (u32 first = (warp - 1) * 4; first < f.n; first += 12) {
    u32 in = first + (lane >> 3);
    bool here = in < f.n;
    u32 from = here ? ends[in] - base : 0, len = here ? ends[in + 1] - base - from : 4;
    bool has_sum = len >= 4;
    u32 sum = checksum<STAGED>(data, from + 4, has_sum ? len - 4 : 0, secret);
    if (here && (lane & 7) == 0 && (!has_sum || eight_bytes<STAGED>(data, from).x != sum)) {
      report(a, f.crop, WRONG_CHECKSUM);
    }
  }
}

// Groups that fit shared memory, where walking costs a third of what it costs in global memory.
KERNEL(128, decode_store_front, DecodeArgs a) {
  DYNAMIC_SHARED(u8, staged);
  SHARED(u64, secret, 24);
  if (threadIdx.x < 24) secret[threadIdx.x] = XXH3_SECRET[threadIdx.x];
  const DecodeFront f = nth<DecodeFront>(a.input, a.fronts, blockIdx.x);
  const u32* ends = (const u32*)(a.input + a.ends) + f.ends;
  u32 base = ends[0] & ~15u, n_pieces = (ends[f.n] - base + 15) >> 4;
  const uint4* from = (const uint4*)(a.input + base);
#pragma unroll 4
  for (u32 i = threadIdx.x; i < n_pieces; i += 128) ((uint4*)staged)[i] = __ldg(from + i);
  __syncthreads();
  look_through<true>(a, f, staged, base, secret);
}

// Groups that do not fit.
KERNEL(128, decode_store_walk, DecodeArgs a) {
  SHARED(u64, secret, 24);
  if (threadIdx.x < 24) secret[threadIdx.x] = XXH3_SECRET[threadIdx.x];
  __syncthreads();
  const DecodeFront f = nth<DecodeFront>(a.input, a.walks, blockIdx.x);
  look_through<false>(a, f, a.input, 0, secret);
}

// What unpacking says of a block.
enum { NOT_FLAT = 0, FLAT = 1, NO_BLOCK = 2 };

// The end of some blocks: values beyond a byte. What no writer writes (a value of zero, or one at a
// place that the mask does not name) may make the block flat or not: then all is looked through.
DEVICE int exceptions(const u8* data, u32 at, const BlockHeader& h, i16* block, int flat) {
  u32 n = data[at];
  bool odd = false;
  if (n > 63) return NO_BLOCK;
  for (u32 i = 0; i < n; i++) {
    uint2 e = eight_bytes<false>(data, at + 1 + 3 * i);
    u32 place = e.x & 255;
    int value = (i16)(e.x >> 8);
    if (place == 0 || place > 63) return NO_BLOCK;
    u32 k = ZIGZAG_OF[place];
    odd |= value == 0 || !((k <= 32 ? h.mask_low >> (k - 1) : h.mask_high >> (k - 33)) & 1);
    block[k * 32] = (i16)value;
  }
  if (odd) {
    flat = FLAT;
    for (int i = 8; i < 64; i++) flat = block[ZIGZAG_OF[i] * 32] == 0 ? flat : NOT_FLAT;
  }
  return flat;
}

// Unpacks the block at `at` into block[32 k], k in zigzag order, where zeros stand.
DEVICE int unpack(const u8* data, u32 at, i16* block) {
  BlockHeader h = block_header<false>(data, at);
  block[0] = (i16)((int)(h.fields << 20) >> 20);
  // Coefficients of the first row, less the first: numbers 1, 5, 6, 14, 15, 27 and 28.
  int flat = ((h.mask_low & ~0x0C006031u) | h.mask_high) == 0 ? FLAT : NOT_FLAT;
  u32 from = at + 3 + h.n_mask, now = __brev(h.mask_low), later = __brev(h.mask_high);
  u32 width = h.w0 < 8 ? h.w0 : 8;
  i16* base = block + 32;
  if (!now) {
    now = later;
    later = 0;
    base += 32 * 32;
  }
  while (now) {
    // Eight values take as many bytes as each has bits.
    uint2 bits = eight_bytes<false>(data, from);
    from += width;
    u32 up = 32 - width;
    for (int i = 0; i < 8 && now; i++) {
      int v = (int)shl(bits.x, up) >> (up & 31);
      // There is no zero, and 128 wraps to -128.
      v = (i8)(v + 1 + (v >> 31));
      bits.x = __funnelshift_r(bits.x, bits.y, width);
      bits.y = shr(bits.y, width);
      u32 k = __clz(now);
      base[k * 32] = (i16)v;
      now ^= 0x80000000u >> k;
      if (!now) {
        now = later;
        later = 0;
        base += 32 * 32;
      }
    }
    width = h.w1;
  }
  if (h.w0 == 9) return exceptions(data, at + 3 + h.n_mask + value_bytes(h), h, block, flat);
  return flat;
}

// One thread a block. A warp's coefficients lie side by side in shared memory, in zigzag order, so
// that no place is looked up and no bank is asked twice. More registers would leave room for fewer
// blocks on a multiprocessor, and cost more than they give.
KERNEL_CAPPED(48, decode_store_blocks, DecodeArgs a) {
  // Of each warp 64 coefficients a lane.
  SHARED(uint4, memory, BLOCK_TILE / 32 * 256);
  u32 warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  for (int i = 0; i < 8; i++) memory[warp * 256 + lane + 32 * i] = make_uint4(0, 0, 0, 0);
  u32 id = nth<u32>(a.input, a.block_tiles, blockIdx.x);
  const DecodeCrop& c = nth<DecodeCrop>(a.input, a.crops, id);
  u32 b = (blockIdx.x - c.first_block_tile) * BLOCK_TILE + threadIdx.x, k = 0;
  __syncwarp();
  if (b >= c.n_blocks) return;
  while (b >= c.components[k].blocks_x * c.components[k].blocks_y) {
    b -= c.components[k].blocks_x * c.components[k].blocks_y;
    k++;
  }
  const DecodeComponent& m = c.components[k];
  i16* block = (i16*)(memory + warp * 256) + lane;
  u32 at = at_piece<u32>(a.scratch, m.blocks)[b];
  int is = at == NO_PLACE ? NO_BLOCK : unpack(a.input, at, block);
  if (is == NO_BLOCK) report(a, id, BROKEN_BLOCKS);
  inverse_dct([&](int k) { return (int)block[k * 32]; }, is == FLAT, at_piece<int4>(a.input, m.steps), block_at(a, m, b), m.stride);
}
