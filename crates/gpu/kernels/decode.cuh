// Decoding from a store and from plain JPEGs: what is uploaded becomes the samples of a batch, u8 by
// row, column and channel. `decode/words.cuh` says what kernels are told, the others what they do.
// They stand in the order in which each needs those before it, since the compiler for GPUs finds
// headers by their path from this folder alone.
#pragma once

#include "device.cuh"

#include "decode/words.cuh"
#include "decode/portable.cuh"
#include "decode/axes.cuh"
#include "decode/checksum.cuh"
#include "decode/idct.cuh"
#include "decode/store.cuh"
#include "decode/jpeg.cuh"
#include "decode/resize.cuh"
