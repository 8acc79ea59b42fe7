// What every kernel is written with: types, how a kernel is declared, memory of a block.
//
// The same sources are compiled twice: by NVRTC for GPUs, and by a C++ compiler as a CPU
// program (`cpu/gpu.h`), which is how they are tested on machines without a GPU. What
// the two need said differently is said here. README.md tells how to add a kernel.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;

#ifdef BOTHENDS_CPU
#include "cpu/gpu.h"
#else

// KERNEL(threads, name, parameters...) { ... }: a kernel for blocks of at most so many threads.
#define KERNEL(threads, name, ...) \
  extern "C" __global__ void __launch_bounds__(threads) name(__VA_ARGS__)
// The same, held to so many registers a thread instead of to a block size.
#define KERNEL_CAPPED(registers, name, ...) \
  extern "C" __global__ void __maxnreg__(registers) name(__VA_ARGS__)
// A function of the device, always inlined.
#define DEVICE static __device__ __forceinline__
// A function of the device that is called: what is seldom needed, or large.
#define DEVICE_CALL static __device__ __noinline__
// A member of a structure, inlined.
#define DEVICE_MEMBER __device__ __forceinline__
// A table in constant memory.
#define CONSTANT static __constant__
// Memory of the block, uninitialised. On the CPU, indices are checked.
#define SHARED(type, name, count) __shared__ __align__(16) type name[count]
// The launch's dynamic shared memory as an array of `type`; aligned to 16 bytes.
#define DYNAMIC_SHARED(type, name)                              \
  extern __shared__ __align__(16) u8 bothends_dynamic_shared[]; \
  type* name = (type*)bothends_dynamic_shared

// Reads a value from memory that nothing writes while the kernel runs. The address is aligned to
// the type: the CPU build checks that.
template <class T>
DEVICE T load(const void* at) {
  return __ldg((const T*)at);
}

// Reads a value that the kernel itself may have written.
template <class T>
DEVICE T load_written(const void* at) {
  return *(const T*)at;
}

// Writes a value; aligned likewise.
template <class T>
DEVICE void store(void* at, T value) {
  *(T*)at = value;
}

#endif
