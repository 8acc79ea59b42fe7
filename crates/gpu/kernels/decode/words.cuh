// What the host tells the decoding kernels: plain words, with the same layout on both sides. The
// host's side is `crates/gpu-decode/src/words.rs`; what the fields mean is said here.
//
// A *piece* is 16 bytes. Places in `input` (what was uploaded) are bytes where a name says so,
// else pieces; places in `scratch` (what kernels leave for each other) are pieces.
#pragma once


// How one axis is resized: `Stretch` of `crates/ops`, and where its weights go.
struct DecodeAxis {
  double start;        // where the box begins, in inputs
  double scale;        // inputs from one output's centre to the next
  double reach;        // half of the filter's width, in inputs
  double per_input;    // the filter's argument, per input
  u32 n_in;            // inputs there are; none exists beyond
  u32 origin;          // the input that spans count from
  u32 window;          // the first output that is wanted
  u32 n_outputs;       // how many are
  u32 mirror;          // 1: they come in reverse order
  u32 filter;          // 0 nearest, 1 triangle, 2 cubic
  u32 running;         // 0: weights of 22 bits, rounded each; 1: of 14 bits, whose running sum is
  u32 by_fours;        // how weights lie: 0 [tap][output]; 1 [output][four inputs], see `decode_axes`
  u32 taps;            // most taps, or fours of taps, of an output
  u32 spans;           // piece: of each output its first tap (or four), and how many << 16
  u32 weights;         // piece
  u32 unused;
};

struct DecodeComponent {
  u32 across, down;        // blocks of an MCU
  u32 ratio_x, ratio_y;    // pixels that a sample covers
  u32 width, height;       // samples of the whole plane
  u32 block_x, blocks_x;   // blocks that are decoded: first, how many
  u32 block_y, blocks_y;
  u32 samples, stride;     // piece of the first decoded sample; bytes from row to row
  u32 blocks;              // piece: store: byte in `input` of each block; JPEG: coefficients
  u32 steps;               // piece in `input`: 64 quantisation steps (u32), column by column
  u32 axis_x, axis_y;      // numbers of its axes
  u32 first_x, first_y;    // the sample that the axes' spans count from
  u32 columns, rows;       // samples that are resized
  u32 narrow;              // piece: what stands between the passes
  u32 tiles;               // planar: tiles of `tile_rows` rows
  u32 unused[2];
};

struct DecodeCrop {
  u32 row;                          // of the batch
  u32 n_components;                 // 1 or 3
  u32 ycc;                          // 1: brightness, blueness, redness
  u32 limited;                      // planar: 1: weights may be negative, so sums are limited
  u32 n_blocks, first_block_tile;   // tiles of BLOCK_TILE blocks
  u32 first_row_tile, tile_rows;
  u32 left, top, columns, rows;     // exact: the pixels that are resized
  u32 staged_left, staged_columns;  // exact: the same columns in whole eights
  u32 mcu_first, mcu_end;           // rows of MCUs that are decoded
  u32 mcus_across, mcus_down;       // MCUs of the picture
  u32 mcus_per_group;               // store: rows of MCUs in a row group
  u32 wide;                         // store: 1: lengths of block rows have four bytes
  u32 rows_per_mcu;                 // block rows of a row of MCUs
  u32 jpeg;                         // number of its `DecodeScan`
  u32 unused[2];
  DecodeComponent components[3];
};

// Row groups of one crop that one thread block looks through.
struct DecodeFront {
  u32 crop;
  u32 group;   // the first
  u32 n;       // how many; as many block rows as a warp has lanes, or one group
  u32 ends;    // number of its entry among the groups' bytes: where it begins; n + 1 follow
};

// What every decoding kernel is launched with.
struct DecodeArgs {
  const u8* input;
  u8* scratch;
  u8* output;
  u64 sample_bytes;    // from row to row of the output
  u32 n_crops, n_axes;
  u32 width, height;   // of every sample
  u32 status;          // piece: a word a crop, 0 for one that is right
  // Bytes in `input`:
  u32 crops, axes, fronts, walks, ends, block_tiles, row_tiles, wide_tiles;
  u32 coefficient_tiles, scans, tables, scan_rows, lanes, checks, points;
  u32 n_scan_rows, n_checks, n_tables;
};

// What a crop's status says. The host makes what is not 0.
enum { BROKEN_BLOCKS = 1, WRONG_CHECKSUM = 2, BROKEN_SCAN = 4 };

enum {
  BLOCK_TILE = 128,         // blocks, and threads, of a thread block
  FRONT_BYTES = 24000,      // row groups that lie in shared memory at a time
  PAST_BLOCK = 288,         // bytes that may be looked at from a block's start on
  COLUMN_ROWS = 28,         // output rows of a thread block
};

// ---- plain JPEGs

// A Huffman table, ready: 512 entries by the next nine bits (0: its code is longer), then one for
// each longer code, by its 16 bits less `base`.
struct DecodeSlot {
  u32 table;   // piece
  u32 base;    // first code longer than nine bits, in the upper of 16 bits
  u32 n_long;
  u32 unused;
};

// What tables are made of: a DHT segment's.
struct DecodeTable {
  u8 counts[16];
  u8 symbols[256];
  DecodeSlot slot;
};

// A block of an MCU, in one word: its component (bits 0 to 3), its column and row in the MCU (4 and
// 8), slots of its codes (DC 12, AC 16), its component's place in the scan (20).
enum { MAX_MCU_BLOCKS = 10, MAX_SLOTS = 6 };

// The part of a scan that a crop needs: rows of MCUs, each cut into segments at entry points.
struct DecodeScan {
  u32 crop;
  u32 data;               // byte of the input where byte 0 of the scan lies: points count from it
  u32 points;             // number of the first among the batch's: [row][segments + 1]
  u32 segments;           // of a row
  u32 first_mcu, step;    // column of the first segment's first MCU; MCUs of a segment
  u32 mcu_x, mcu_end_x;   // columns of MCUs that are decoded
  u32 rows;               // of MCUs
  u32 restart_interval;   // in MCUs; 0: none
  u32 words, n_words;     // piece: data without stuffing; so many words of it are there
  u32 positions;          // piece: bit in the words of every point, as they are listed
  u32 n_slots, n_blocks;  // blocks of an MCU
  u32 first_row;          // its first number among the batch's rows
  u32 blocks[MAX_MCU_BLOCKS];
  u32 unused[2];
  DecodeSlot slots[MAX_SLOTS];
};

// Bytes that have a checksum.
struct DecodeCheck {
  u32 crop;
  u32 from, to;   // bytes of the input
  u32 sum;
};

// Segments of one scan that a thread block decodes.
struct DecodeLanes {
  u32 scan;
  u32 tile;   // of LANE_TILE segments
};

enum { LANE_TILE = 128, LUT_BITS = 9, LUT_SIZE = 1 << LUT_BITS };

// As `crates/gpu-decode/src/words.rs` and `decoder.rs` have them.
static_assert(sizeof(DecodeAxis) == 80 && sizeof(DecodeComponent) == 96, "words");
static_assert(sizeof(DecodeCrop) == 384 && sizeof(DecodeFront) == 16, "words");
static_assert(sizeof(DecodeSlot) == 16 && sizeof(DecodeTable) == 288, "words");
static_assert(sizeof(DecodeScan) == 208 && sizeof(DecodeCheck) == 16, "words");
static_assert(sizeof(DecodeArgs) == 128, "words");
