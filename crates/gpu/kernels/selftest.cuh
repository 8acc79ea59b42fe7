// Kernels that test how kernels are run: a sum through shared memory, warps and atomics, and
// what must be refused.
#pragma once

#include "device.cuh"

// Adds up `n` numbers: per warp by shuffles, per block in shared memory, then atomically.
KERNEL(256, selftest_sum, const u32* values, u32 n, u32* sum) {
  SHARED(u32, of_warps, 8);
  const u32 at = blockIdx.x * blockDim.x + threadIdx.x;
  u32 part = at < n ? load<u32>(values + at) : 0;
  for (int by = 16; by > 0; by /= 2) part += __shfl_down_sync(~0u, part, by);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = part;
  __syncthreads();
  if (threadIdx.x == 0) {
    u32 total = 0;
    for (u32 warp = 0; warp < blockDim.x / 32; warp++) total += of_warps[warp];
    atomicAdd(sum, total);
  }
}

// Writes each thread's neighbour's number; right only with the barrier.
KERNEL(256, selftest_neighbours, u32* out, u32 with_barrier) {
  DYNAMIC_SHARED(u32, numbers);
  numbers[threadIdx.x] = threadIdx.x;
  if (with_barrier) __syncthreads();
  out[threadIdx.x] = numbers[(threadIdx.x + 1) % blockDim.x];
}

// Half of the block waits for the other half.
KERNEL(256, selftest_half_a_barrier, u32 from) {
  if (threadIdx.x >= from) __syncthreads();
}
