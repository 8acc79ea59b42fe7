// Plain JPEGs: the part of a scan that a crop needs becomes coefficients, one lane from one entry
// point of the side index to the next (host: `crates/ops/src/jpeg/entropy`), and these samples.
//
// Rows of MCUs are held against their checksums, so the data are what the host has decoded before
// it made the entry points. Whatever they are, nothing is read or written outside.
#pragma once

// Fields of an entry point (`ops::jpeg`, `entry_points.rs`).
DEVICE u32 byte_of_point(u64 point) { return (u32)point & 0x1ffffff; }
DEVICE u32 bit_of_point(u64 point) { return (u32)point >> 25 & 7; }
DEVICE int dc_of_point(u64 point, int place) {
  return (int)((u32)(point >> (28 + 12 * place)) << 20) >> 20;
}

DEVICE const u64* points_of(const DecodeArgs& a, const DecodeScan& s) {
  return (const u64*)(a.input + a.points) + s.points;
}

// ---- checksums: eight lanes each

// Sixteen of them, by one thread block.
DEVICE void check_sums(const DecodeArgs& a, u32 nth_block, u64* secret) {
  if (threadIdx.x < 24) secret[threadIdx.x] = XXH3_SECRET[threadIdx.x];
  __syncthreads();
  u32 i = nth_block * 16 + (threadIdx.x >> 3);
  bool here = i < a.n_checks;
  const DecodeCheck c = nth<DecodeCheck>(a.input, a.checks, here ? i : 0);
  u32 sum = checksum<false>(a.input, c.from, c.to - c.from, secret);
  if (here && (threadIdx.x & 7) == 0 && sum != c.sum) report(a, c.crop, WRONG_CHECKSUM);
}

// ---- tables: a thread block each, symbols found by counting codes

// Bits 0 to 5 of an entry: code and value together; 8 to 12: the code; 16 to 20: the value; 24 to
// 31: how far both lead on in the block, 96 for its end.
//
// `limits` and `offsets` are of each length: the end of its codes in the upper of 16 bits, and what leads from a code to
// its place among the symbols.
DEVICE void make_table(const DecodeArgs& a, u32 nth_table, u32* limits, u32* offsets) {
  const DecodeTable& t = nth<DecodeTable>(a.input, a.tables, nth_table);
  if (threadIdx.x == 0) {
    u32 next = 0, place = 0;
    for (u32 length = 1; length <= 16; length++) {
      u32 n = t.counts[length - 1];
      offsets[length] = place - next;
      next += n;
      place += n;
      limits[length] = next << (16 - length);
      next <<= 1;
    }
  }
  __syncthreads();
  u32* out = at_piece<u32>(a.scratch, t.slot.table);
  for (u32 i = threadIdx.x; i < LUT_SIZE + t.slot.n_long; i += blockDim.x) {
    bool is_short = i < LUT_SIZE;
    u32 code = is_short ? i << (16 - LUT_BITS) : t.slot.base + i - LUT_SIZE, length = 1;
    while (length <= 16 && code >= limits[length]) length++;
    u32 entry = 0;
    if (length <= (is_short ? LUT_BITS : 16)) {
      u32 symbol = t.symbols[(offsets[length] + (code >> (16 - length))) & 255];
      u32 size = symbol & 15, run = symbol >> 4, advance = size || run == 15 ? run + 1 : 96;
      entry = (length + size) | length << 8 | size << 16 | advance << 24;
    }
    out[i] = entry;
  }
}

// ---- unstuffing: a warp a row of MCUs, 128 bytes at a time

// In bit 7 of every byte whether it is zero.
DEVICE u32 zero_bytes(u32 v) { return ~(((v & 0x7f7f7f7fu) + 0x7f7f7f7fu) | v | 0x7f7f7f7fu); }

// The lowest `n` bytes of a word.
DEVICE u32 low_bytes(int n) { return n <= 0 ? 0 : n >= 4 ? ~0u : ~(~0u << 8 * n); }

// Of FF bytes only one before a 00 is data, and what follows an FF is none: the 00, or a restart
// marker's number. Words come out with their first bit on top.
DEVICE void unstuff(const DecodeArgs& a, u32 nth_block) {
  u32 w = nth_block * 4 + (threadIdx.x >> 5), lane = threadIdx.x & 31;
  if (w >= a.n_scan_rows) return;
  const DecodeScan& s = nth<DecodeScan>(a.input, a.scans, nth<u32>(a.input, a.scan_rows, w));
  u32 row = w - s.first_row;
  const u64* points = points_of(a, s);
  const u64* p = points + row * (s.segments + 1);
  u64 last = p[s.segments];
  u32 first = byte_of_point(points[0]), from = byte_of_point(p[0]);
  u32 to = byte_of_point(last) + (bit_of_point(last) ? 1 : 0);
  u8* out = at_piece<u8>(a.scratch, s.words);
  u32* positions = at_piece<u32>(a.scratch, s.positions) + row * (s.segments + 1);
  // Each row has its bytes' room, and 16 bytes between it and the next.
  u32 at = ((from - first) & ~3u) + row * 16;
  u32 begin = s.data + from, end = s.data + to;
  u32 after_ff = 0;   // bit 7: the byte before the chunk is FF
  // A chunk ahead: the next one's first byte is looked at, too.
  u32 aligned = begin & ~3u, ahead = aligned + 4 * lane < end + 4 ? load<u32>(a.input + aligned + 4 * lane) : 0;
  for (u32 chunk = aligned; chunk < end; chunk += 128) {
    u32 here = chunk + 4 * lane, v = ahead;
    // One word behind the end is there.
    ahead = here + 128 < end + 4 ? load<u32>(a.input + here + 128) : 0;
    u32 ff = zero_bytes(~v), zero = zero_bytes(v);
    u32 inside = low_bytes((int)(end - here)) & ~low_bytes((int)(begin - here));
    if (here >= end) inside = 0;
    ff &= here < begin ? ~low_bytes((int)(begin - here)) : ~0u;
    u32 behind = __shfl_down_sync(~0u, zero, 1), next_chunk = __shfl_sync(~0u, zero_bytes(ahead), 0);
    if (lane == 31) behind = next_chunk;
    u32 before = __shfl_up_sync(~0u, ff, 1) >> 24;
    if (lane == 0) before = after_ff;
    after_ff = __shfl_sync(~0u, ff, 31) >> 24;
    u32 next_is_zero = zero >> 8 | behind << 24, previous_is_ff = ff << 8 | before;
    u32 keep = ((ff & next_is_zero) | (~ff & ~previous_is_ff)) & inside & 0x80808080u;
    u32 n = __popc(keep), skipped = 4 * lane, n_kept = 128;
    if (__ballot_sync(~0u, n != 4)) {
      u32 ones = __ballot_sync(~0u, n & 1), twos = __ballot_sync(~0u, n & 2), fours = __ballot_sync(~0u, n & 4);
      u32 lower = (1u << lane) - 1;
      skipped = __popc(ones & lower) + 2 * __popc(twos & lower) + 4 * __popc(fours & lower);
      n_kept = __popc(ones) + 2 * __popc(twos) + 4 * __popc(fours);
    }
    u32 o = at + skipped;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      if (keep >> 8 * i & 128) {
        out[o ^ 3] = (u8)(v >> 8 * i);
        o++;
      }
    }
    // Entry points that lie in this chunk.
    for (u32 k = 0; k <= s.segments; k += 32) {
      bool is_point = k + lane <= s.segments;
      u64 q = is_point ? p[k + lane] : 0;
      u32 byte = s.data + byte_of_point(q);
      bool mine = is_point && byte >= chunk && byte < chunk + 128 && byte < end;
      if (!__ballot_sync(~0u, mine)) continue;
      u32 holder = (byte - chunk) >> 2 & 31;
      u32 skipped_there = __shfl_sync(~0u, skipped, holder), kept_there = __shfl_sync(~0u, keep, holder);
      u32 in_word = __popc(kept_there & low_bytes((int)(byte & 3)));
      if (mine) positions[k + lane] = (at + skipped_there + in_word) * 8 + bit_of_point(q);
    }
    at += n_kept;
  }
  // An end at a byte's beginning lies behind the last byte.
  if (bit_of_point(last) == 0 && lane == 0) positions[s.segments] = at * 8;
}

// ---- all of the above in one launch, since none waits for another: alone, checksums are mostly waiting for memory

KERNEL(128, decode_jpeg_prepare, DecodeArgs a) {
  SHARED(u64, memory, 24);
  u32 nth_block = blockIdx.x, n_check_blocks = (a.n_checks + 15) / 16;
  if (nth_block < n_check_blocks) return check_sums(a, nth_block, (u64*)memory);
  nth_block -= n_check_blocks;
  if (nth_block < a.n_tables) return make_table(a, nth_block, (u32*)(u64*)memory, (u32*)(u64*)memory + 17);
  unstuff(a, nth_block - a.n_tables);
}

// ---- entropy decoding

// A lane's place in the words, with 64 to 96 bits at hand. The words come through a ring of four
// pieces in shared memory; the next two pieces are on their way a block ahead, as many as most blocks take.
struct Bits {
  u32 high, low, next;   // the words from the current one on
  u32 used;              // bits of `high` that are taken, 0 to 31
  u32 w;                 // number of the word behind `next`
  u32 filled;            // words below are, or have been, in the ring
  uint4 ahead, then;     // the pieces at `filled`
  u32 n_ahead;           // how many of them there are
};

enum { RING_WORDS = 16, RING_STRIDE = 5, BLOCK_STRIDE = 9 };

DEVICE uint4 words_at(const u32* in, u32 at, u32 n_words) {
  // Beyond the end anything will do: who gets there is at odds with the next entry point.
  return *(const uint4*)(in + (at < n_words ? at : 0));
}

DEVICE void put_ahead(Bits& b, u32* ring) {
  *(uint4*)(ring + (b.filled & (RING_WORDS - 1))) = b.ahead;
  b.filled += 4;
  b.ahead = b.then;
  b.n_ahead--;
}

DEVICE void fill(Bits& b, u32* ring, const u32* in, u32 n_words) {
  if (b.n_ahead == 0) {
    b.ahead = words_at(in, b.filled, n_words);
    b.n_ahead = 1;
  }
  put_ahead(b, ring);
}

// Before each block: puts down what has come, and asks for what comes next.
DEVICE void top_up(Bits& b, u32* ring, const u32* in, u32 n_words) {
  if (b.n_ahead) put_ahead(b, ring);
  if (b.n_ahead) put_ahead(b, ring);
  // The place of the oldest piece is free once all of it is taken.
  u32 room = (b.w & ~3u) + RING_WORDS - b.filled;
  if (room >= 4) {
    b.ahead = words_at(in, b.filled, n_words);
    b.n_ahead = 1;
  }
  if (room >= 8) {
    b.then = words_at(in, b.filled + 4, n_words);
    b.n_ahead = 2;
  }
}

DEVICE void enter(Bits& b, u32 position, u32* ring, const u32* in, u32 n_words) {
  b.w = position >> 5;
  b.used = position & 31;
  b.filled = b.w & ~3u;
  b.n_ahead = 0;
  while (b.filled < b.w + 3) fill(b, ring, in, n_words);
  b.high = ring[b.w & (RING_WORDS - 1)];
  b.low = ring[(b.w + 1) & (RING_WORDS - 1)];
  b.next = ring[(b.w + 2) & (RING_WORDS - 1)];
  b.w += 3;
}

DEVICE u32 position_of(const Bits& b) { return (b.w - 3) * 32 + b.used; }

// The next 32 bits.
DEVICE u32 window(const Bits& b) { return __funnelshift_l(b.low, b.high, b.used); }

// Takes up to 31 bits: as many as the low six bits of `n` say, the two above being 0.
DEVICE void take(Bits& b, u32 n, u32* ring, const u32* in, u32 n_words) {
  u32 used = b.used + n;
  b.used = used & 31;
  if (!(used & 32)) return;
  if (b.w >= b.filled) fill(b, ring, in, n_words);
  b.high = b.low;
  b.low = b.next;
  b.next = ring[b.w & (RING_WORDS - 1)];
  b.w++;
}

// The entry of the next code; `none` where there is no such code. `slot` is a `DecodeSlot`.
DEVICE u32 entry_of(const DecodeArgs& a, const uint4& slot, const u32* lut, u32 bits, u32 none, bool& bad) {
  u32 entry = lut[bits >> (32 - LUT_BITS)];
  if (entry) return entry;
  u32 code = (bits >> 16) - slot.y;
  entry = code < slot.z ? load<u32>(at_piece<u32>(a.scratch, slot.x) + LUT_SIZE + code) : 0;
  if (entry) return entry;
  bad = true;
  return none;
}

// The value behind the code (T.81, figure F.12: one whose first bit is 0 is negative). Shifts look at five bits,
// and those are where the entry has the lengths.
DEVICE int value_of(u32 bits, u32 entry) {
  u32 value = __funnelshift_l(0, bits, entry >> 8), negative = (u32)((int)~value >> 31);
  return (int)(__funnelshift_l(value, negative, entry >> 16) - negative);
}

// A lane a segment; a warp keeps step block by block. Coefficients leave densely, in zigzag order,
// eight lanes a block, so none is cleared in memory beforehand.
KERNEL(LANE_TILE, decode_jpeg_entropy, DecodeArgs a) {
  DYNAMIC_SHARED(u32, luts);
  SHARED(uint4, blocks, LANE_TILE * BLOCK_STRIDE);
  SHARED(uint4, rings, LANE_TILE * RING_STRIDE);
  SHARED(uint4, slots, MAX_SLOTS);
  SHARED(uint4, places, MAX_MCU_BLOCKS);
  SHARED(u32, kinds, MAX_MCU_BLOCKS);
  u32 warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  const DecodeLanes l = nth<DecodeLanes>(a.input, a.lanes, blockIdx.x);
  const DecodeScan& s = nth<DecodeScan>(a.input, a.scans, l.scan);
  const DecodeCrop& c = nth<DecodeCrop>(a.input, a.crops, s.crop);
  for (u32 i = 0; i < BLOCK_STRIDE; i++) blocks[warp * 32 * BLOCK_STRIDE + lane + 32 * i] = make_uint4(0, 0, 0, 0);
  enum { LUT_PIECES = LUT_SIZE / 4 };
  for (u32 i = threadIdx.x; i < s.n_slots * LUT_PIECES; i += blockDim.x) {
    const uint4* table = at_piece<uint4>(a.scratch, s.slots[i / LUT_PIECES].table);
    ((uint4*)luts)[i] = load<uint4>(table + i % LUT_PIECES);
  }
  // What is asked for with every block, or code, at hand.
  if (threadIdx.x < s.n_slots) slots[threadIdx.x] = load<uint4>(s.slots + threadIdx.x);
  if (threadIdx.x < s.n_blocks) {
    u32 kind = s.blocks[threadIdx.x];
    const DecodeComponent& q = c.components[kind & 15];
    kinds[threadIdx.x] = kind;
    // Pieces: of the first of them, from row to row of MCUs, and from MCU to MCU.
    u32 first = q.blocks + ((kind >> 8 & 15) * q.blocks_x + (kind >> 4 & 15)) * 8;
    places[threadIdx.x] = make_uint4(first, q.down * q.blocks_x * 8, q.across * 8, 0);
  }
  __syncthreads();
  u32 nth_segment = l.tile * LANE_TILE + threadIdx.x, n_segments = s.segments * s.rows;
  if ((nth_segment & ~31u) >= n_segments) return;
  bool here = nth_segment < n_segments;
  u32 row = here ? nth_segment / s.segments : 0, in_row = here ? nth_segment - row * s.segments : 0;
  u32 x = s.first_mcu + in_row * s.step, y = c.mcu_first + row;
  u32 row_end = x + s.step < c.mcus_across ? x + s.step : c.mcus_across;
  u32 n_mcus = !here ? 0 : (row_end < s.mcu_end_x ? row_end : s.mcu_end_x) - x;
  bool is_whole = x + n_mcus == row_end;
  const u64* points = points_of(a, s) + row * (s.segments + 1) + in_row;
  const u32* positions = at_piece<u32>(a.scratch, s.positions) + row * (s.segments + 1) + in_row;
  const u32* in = at_piece<u32>(a.scratch, s.words);
  u32* ring = (u32*)(rings + (warp * 32 + lane) * RING_STRIDE);
  i16* block = (i16*)(blocks + (warp * 32 + lane) * BLOCK_STRIDE);
  u64 point = points[0];
  u32 start = positions[0];
  Bits bits = {};
  enter(bits, start < s.n_words * 32 ? start : 0, ring, in, s.n_words);
  int dc[3] = {dc_of_point(point, 0), dc_of_point(point, 1), dc_of_point(point, 2)};
  bool bad = false;
  u32 until = s.restart_interval ? s.restart_interval - (y * c.mcus_across + x) % s.restart_interval : 0;
  const u32 n_blocks = s.n_blocks, step = s.step, n_words = s.n_words, interval = s.restart_interval, mcu_x = s.mcu_x;
  for (u32 m = 0; m < step; m++) {
    bool on = m < n_mcus;
    if (!__ballot_sync(~0u, on)) break;
    if (interval && on) {
      if (until == 0) {
        until = interval;
        take(bits, (0u - bits.used) & 7, ring, in, n_words);
        dc[0] = dc[1] = dc[2] = 0;
      }
      until--;
    }
    for (u32 b = 0; b < n_blocks; b++) {
      u32 kind = kinds[b], dc_slot = kind >> 12 & 15, ac_slot = kind >> 16 & 15, place = kind >> 20;
      u32 at = 64;
      if (on) {
        top_up(bits, ring, in, n_words);
        u32 next = window(bits), entry = entry_of(a, slots[dc_slot], luts + (dc_slot << LUT_BITS), next, 16, bad);
        int v = (place == 0 ? dc[0] : place == 1 ? dc[1] : dc[2]) + value_of(next, entry);
        if (place == 0) dc[0] = v;
        else if (place == 1) dc[1] = v;
        else dc[2] = v;
        block[0] = (i16)v;
        take(bits, entry, ring, in, n_words);
        at = 1;
      }
      const u32* lut = luts + (ac_slot << LUT_BITS);
      while (at < 64) {
        u32 next = window(bits), entry = entry_of(a, slots[ac_slot], lut, next, 16 | 96u << 24, bad);
        at += entry >> 24;
        if ((entry & 0x1f0000) && at <= 64) block[at - 1] = (i16)value_of(next, entry);
        take(bits, entry, ring, in, n_words);
      }
      // A run led out of the block.
      bad |= on && at > 64 && at < 96;
      u32 to = ~0u;
      if (on && x + m >= mcu_x) to = places[b].x + row * places[b].y + (x + m - mcu_x) * places[b].z;
      __syncwarp();
#pragma unroll
      for (u32 i = 0; i < 8; i++) {
        u32 nth_block = i * 4 + (lane >> 3), there = __shfl_sync(~0u, to, nth_block);
        u32 from = (warp * 32 + nth_block) * BLOCK_STRIDE + (lane & 7);
        if (there != ~0u) at_piece<uint4>(a.scratch, there)[lane & 7] = blocks[from];
        blocks[from] = make_uint4(0, 0, 0, 0);
      }
      __syncwarp();
    }
  }
  if (here && is_whole) {
    // It must lead to the next entry point, which lies behind a restart that is due, except for the
    // scan's end.
    bool is_end = y + 1 == c.mcus_down && row_end == c.mcus_across;
    u64 to = points[1];
    if (interval && until == 0 && !is_end) {
      take(bits, (0u - bits.used) & 7, ring, in, n_words);
      dc[0] = dc[1] = dc[2] = 0;
    }
    bad |= position_of(bits) != positions[1];
    for (int i = 0; i < 3; i++) bad |= dc_of_point(to, i) != dc[i];
  }
  if (bad) report(a, s.crop, BROKEN_SCAN);
}

// ---- samples of dense coefficients: one thread a block, neighbours side by side

DEVICE int coefficient_of(const u32* v, int k) { return k & 1 ? (int)v[k >> 1] >> 16 : sext16((int)v[k >> 1]); }

KERNEL(BLOCK_TILE, decode_jpeg_blocks, DecodeArgs a) {
  const DecodeCrop& c = nth<DecodeCrop>(a.input, a.crops, nth<u32>(a.input, a.coefficient_tiles, blockIdx.x));
  u32 b = (blockIdx.x - c.first_block_tile) * BLOCK_TILE + threadIdx.x, k = 0;
  if (b >= c.n_blocks) return;
  while (b >= c.components[k].blocks_x * c.components[k].blocks_y) {
    b -= c.components[k].blocks_x * c.components[k].blocks_y;
    k++;
  }
  const DecodeComponent& m = c.components[k];
  const uint4* from = at_piece<uint4>(a.scratch, m.blocks) + (u64)b * 8;
  u32 v[32];
#pragma unroll
  for (int i = 0; i < 8; i++) {
    uint4 piece = load<uint4>(from + i);
    v[4 * i] = piece.x;
    v[4 * i + 1] = piece.y;
    v[4 * i + 2] = piece.z;
    v[4 * i + 3] = piece.w;
  }
  // All but the first row: numbers 0, 1, 5, 6, 14, 15, 27 and 28.
  u32 rest = v[1] | (v[2] & 0xffff) | v[3] >> 16 | v[4] | v[5] | v[6] | (v[13] & 0xffff) | v[14] >> 16;
#pragma unroll
  for (int i = 8; i < 13; i++) rest |= v[i];
#pragma unroll
  for (int i = 15; i < 32; i++) rest |= v[i];
  inverse_dct([&](int k) { return coefficient_of(v, k); }, rest == 0, at_piece<int4>(a.input, m.steps), block_at(a, m, b), m.stride);
}
