// All kernels, as one translation unit. Each topic is a file, included here.
#include "device.cuh"

#include "adjust.cuh"
#include "finish.cuh"
#include "selftest.cuh"
#include "decode.cuh"
