// Decoding from a store and from plain JPEGs: what is uploaded becomes the samples of a batch, u8 by
// row, column and channel. `decode/words.cuh` says what kernels are told, the others what they do.
#pragma once

#include "decode/axes.cuh"
#include "decode/jpeg.cuh"
#include "decode/resize.cuh"
#include "decode/store.cuh"
