// What lab 08 adds to the course's cuda_on_host.h: more of CUDA's vector types, and a launch that hands every thread to
// examine_on_host.cpp, which watches the accesses of the thread.
#pragma once

#include <math.h>

#define cudaLaunchKernelEx launch_unwatched
#include "../../../../plugins/rope/cuda_on_host.h"
#undef cudaLaunchKernelEx

#define __align__(bytes) alignas(bytes)
#define __forceinline__ inline
#define __noinline__
#define __host__

// Runs `call` once for each thread, on a copy of the arguments as CUDA makes one. Returns the error that CUDA returns for such a grid.
cudaError_t watched_launch(dim3 grid, dim3 block, cudaStream_t stream, void (*call)(void*), const void* arguments, size_t bytes);

template <typename... Parameters, typename... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...), Arguments... arguments) {
  auto thread = [=]() mutable { kernel(arguments...); };
  static_assert(sizeof thread <= 4096, "a kernel's parameters have at most 4 KiB");
  return watched_launch(config->gridDim, config->blockDim, config->stream,
                        [](void* it) { (*static_cast<decltype(thread)*>(it))(); }, &thread, sizeof thread);
}

struct uint2 {
  uint32_t x, y;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(4) __half2 {
  __half x, y;
};
struct alignas(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;
};
using half = __half;

inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) { return {x, y, z, w}; }
inline __half __float2half(float value) { return __float2half_rn(value); }
inline __nv_bfloat16 __float2bfloat16(float value) { return __float2bfloat16_rn(value); }
inline float2 __half22float2(__half2 pair) { return {__half2float(pair.x), __half2float(pair.y)}; }
inline __half2 __floats2half2_rn(float x, float y) { return {__float2half_rn(x), __float2half_rn(y)}; }
inline float2 __bfloat1622float2(__nv_bfloat162 pair) { return {__bfloat162float(pair.x), __bfloat162float(pair.y)}; }
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return {__float2bfloat16_rn(x), __float2bfloat16_rn(y)}; }

template <typename T>
T __ldg(const T* from) { return *from; }
template <typename T>
T __ldcs(const T* from) { return *from; }
template <typename T>
void __stcs(T* to, T value) { *to = value; }
template <typename T>
T min(T a, T b) { return b < a ? b : a; }
template <typename T>
T max(T a, T b) { return a < b ? b : a; }
