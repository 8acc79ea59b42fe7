// XXH3-64 with seed 0, as the store and the side index have it: eight lanes a checksum, each with
// one of the algorithm's eight sums; of up to 240 bytes, which one lane does alone.
// The algorithm is Yann Collet's, https://github.com/Cyan4973/xxHash.
#pragma once

// kSecret, the first 192 bytes, as words.
CONSTANT u64 XXH3_SECRET[24] = {
    0xbe4ba423396cfeb8ull, 0x1cad21f72c81017cull, 0xdb979083e96dd4deull, 0x1f67b3b7a4a44072ull,
    0x78e5c0cc4ee679cbull, 0x2172ffcc7dd05a82ull, 0x8e2443f7744608b8ull, 0x4c263a81e69035e0ull,
    0xcb00c391bb52283cull, 0xa32e531b8b65d088ull, 0x4ef90da297486471ull, 0xd8acdea946ef1938ull,
    0x3f349ce33f76faa8ull, 0x1d4f0bc7c7bbdcf9ull, 0x3159b4cd4be0518aull, 0x647378d9c97e9fc8ull,
    0xc3ebd33483acc5eaull, 0xeb6313faffa081c5ull, 0x49daf0b751dd0d17ull, 0x9e68d429265516d3ull,
    0xfca1477d58be162bull, 0xce31d07ad1b8f88full, 0x280416958f3acb45ull, 0x7e404bbbcafbd7afull};

#define P32_1 0x9E3779B1ull
#define P32_2 0x85EBCA77ull
#define P32_3 0xC2B2AE3Dull
#define P64_1 0x9E3779B185EBCA87ull
#define P64_2 0xC2B2AE3D27D4EB4Full
#define P64_3 0x165667B19E3779F9ull
#define P64_4 0x85EBCA77C2B2AE63ull
#define P64_5 0x27D4EB2F165667C5ull
#define PMX_1 0x165667919E3779F9ull
#define PMX_2 0x9FB21C651E98DF25ull

// Eight bytes of the secret, from any of them.
DEVICE u64 secret_at(const u64* secret, u32 byte) {
  u32 w = byte >> 3, s = (byte & 7) * 8;
  return s ? secret[w] >> s | secret[w + 1 < 24 ? w + 1 : 23] << (64 - s) : secret[w];
}
// The 128 bits of a product, folded.
DEVICE u64 product_folded(u64 a, u64 b) {
  u64 al = (u32)a, ah = a >> 32, bl = (u32)b, bh = b >> 32;
  u64 ll = al * bl, hl = ah * bl, lh = al * bh, hh = ah * bh, cross = (ll >> 32) + (u32)hl + lh;
  return ((hl >> 32) + (cross >> 32) + hh) ^ (cross << 32 | (u32)ll);
}
DEVICE u64 xor_lane(u64 v, int mask) {
  return (u64)__shfl_xor_sync(~0u, (u32)(v >> 32), mask) << 32 | __shfl_xor_sync(~0u, (u32)v, mask);
}
DEVICE u64 avalanche(u64 v) {
  v ^= v >> 37;
  v *= PMX_1;
  return v ^ v >> 32;
}
DEVICE u64 avalanche_64(u64 v) {
  v ^= v >> 33;
  v *= P64_2;
  v ^= v >> 29;
  v *= P64_3;
  return v ^ v >> 32;
}
DEVICE u64 bytes_reversed(u64 v) {
  u64 r = 0;
  for (int i = 0; i < 8; i++) r = r << 8 | (v >> 8 * i & 255);
  return r;
}
template <bool STAGED>
DEVICE u64 word64(const u8* data, u32 at) {
  uint2 v = eight_bytes<STAGED>(data, at);
  return (u64)v.y << 32 | v.x;
}
template <bool STAGED>
DEVICE u64 mix_16(const u8* data, u32 at, const u64* secret, u32 byte) {
  u64 low = word64<STAGED>(data, at), high = word64<STAGED>(data, at + 8);
  return product_folded(low ^ secret_at(secret, byte), high ^ secret_at(secret, byte + 8));
}

// Of up to 240 bytes.
template <bool STAGED>
DEVICE u64 checksum_short(const u8* data, u32 at, u32 len, const u64* secret) {
  if (len == 0) return avalanche_64(secret_at(secret, 56) ^ secret_at(secret, 64));
  if (len <= 3) {
    u32 first = data[at], middle = data[at + (len >> 1)], last = data[at + len - 1];
    u32 combined = first << 16 | middle << 24 | last | len << 8;
    return avalanche_64(combined ^ (u64)((u32)secret[0] ^ (u32)(secret[0] >> 32)));
  }
  if (len <= 8) {
    u32 low = eight_bytes<STAGED>(data, at).x, high = eight_bytes<STAGED>(data, at + len - 4).x;
    u64 v = ((u64)low << 32 | high) ^ (secret_at(secret, 8) ^ secret_at(secret, 16));
    v ^= (v << 49 | v >> 15) ^ (v << 24 | v >> 40);
    v *= PMX_2;
    v ^= (v >> 35) + len;
    v *= PMX_2;
    return v ^ v >> 28;
  }
  if (len <= 16) {
    u64 low = word64<STAGED>(data, at) ^ (secret_at(secret, 24) ^ secret_at(secret, 32));
    u64 high = word64<STAGED>(data, at + len - 8) ^ (secret_at(secret, 40) ^ secret_at(secret, 48));
    return avalanche(len + bytes_reversed(low) + high + product_folded(low, high));
  }
  u64 sum = len * P64_1;
  if (len <= 128) {
    // From both ends towards the middle.
    for (int i = (int)(len - 1) / 32; i >= 0; i--) {
      sum += mix_16<STAGED>(data, at + 16 * i, secret, 32 * i);
      sum += mix_16<STAGED>(data, at + len - 16 * (i + 1), secret, 32 * i + 16);
    }
    return avalanche(sum);
  }
  for (u32 i = 0; i < 8; i++) sum += mix_16<STAGED>(data, at + 16 * i, secret, 16 * i);
  sum = avalanche(sum);
  for (u32 i = 8; i < len / 16; i++) sum += mix_16<STAGED>(data, at + 16 * i, secret, 16 * (i - 8) + 3);
  return avalanche(sum + mix_16<STAGED>(data, at + len - 16, secret, 136 - 17));
}

// Of any number of bytes; a whole warp calls it, eight lanes with the same `at` and `len`. The low
// half is right in each group's first lane.
template <bool STAGED>
DEVICE u32 checksum(const u8* data, u32 at, u32 len, const u64* secret) {
  u32 i = threadIdx.x & 7;
  bool is_long = len > 240;
  u32 stripes = is_long ? (len - 1) / 64 : 0, most = stripes;
  // The longest of the warp's: shuffles are for all lanes.
  for (int m = 8; m < 32; m *= 2) {
    u32 other = __shfl_xor_sync(~0u, most, m);
    most = other > most ? other : most;
  }
  u64 acc = i == 0 ? P32_3 : i == 1 ? P64_1 : i == 2 ? P64_2 : i == 3 ? P64_3
          : i == 4 ? P64_4 : i == 5 ? P32_2 : i == 6 ? P64_5 : P32_1;
  u64 scramble = secret_at(secret, 128 + 8 * i), last_key = secret_at(secret, 192 - 64 - 7 + 8 * i);
  // Four at a time, all loads first: one alone is waited for as long as all.
  for (u32 first = 0; first <= most; first += 4) {
    u64 values[4];
#pragma unroll
    for (u32 j = 0; j < 4; j++) {
      u32 from = first + j >= stripes ? at + len - 64 : at + (first + j) * 64;
      values[j] = is_long ? word64<STAGED>(data, from + 8 * i) : 0;
    }
#pragma unroll
    for (u32 j = 0; j < 4; j++) {
      u32 n = first + j;
      u64 key = values[j] ^ (n >= stripes ? last_key : secret[(n & 15) + i]), other = xor_lane(values[j], 1);
      if (n <= stripes) acc += other + (u64)(u32)key * (key >> 32);
      if (n < stripes && (n & 15) == 15) acc = (acc ^ acc >> 47 ^ scramble) * P32_1;
    }
  }
  // Pairs are folded together, then all eight.
  u64 mixed = acc ^ secret_at(secret, 11 + 8 * i), neighbour = xor_lane(mixed, 1);
  u64 sum = i & 1 ? 0 : product_folded(mixed, neighbour);
  for (int m = 2; m < 8; m *= 2) sum += xor_lane(sum, m);
  u64 whole = avalanche(sum + len * P64_1);
  if (!is_long && i == 0) whole = checksum_short<STAGED>(data, at, len, secret);
  return (u32)whole;
}
