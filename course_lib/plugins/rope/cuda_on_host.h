// The part of CUDA that rope.cu uses, for a host compiler: a grid becomes six nested loops, one thread after the other.
//
// It proves arithmetic, indexing, alignment and bounds, with a sanitizer's help. It says nothing about speed, and a kernel
// whose threads work together (shared memory, __syncthreads) needs more than this.
#pragma once

#include <stdint.h>
#include <string.h>

#define __global__
#define __device__
#define __launch_bounds__(...)

struct dim3 {
  unsigned int x, y, z;
  constexpr dim3(unsigned int x_ = 1, unsigned int y_ = 1, unsigned int z_ = 1) : x(x_), y(y_), z(z_) {}
};

inline thread_local dim3 gridDim, blockDim, blockIdx, threadIdx;  // a host thread has its own grid

using cudaStream_t = void*;
enum cudaError_t { cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorInvalidConfiguration = 9 };

struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
};

// Runs the kernel before it returns, rejecting what a GPU rejects (CUDA Programming Guide, "Technical Specifications").
template <typename... Parameters, typename... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...), Arguments... arguments) {
  const dim3 grid = config->gridDim, block = config->blockDim;
  const bool empty = !grid.x || !grid.y || !grid.z || !block.x || !block.y || !block.z;
  const bool large = grid.x > 2147483647u || grid.y > 65535 || grid.z > 65535 || block.x > 1024 || block.y > 1024 ||
                     block.z > 64 || uint64_t(block.x) * block.y * block.z > 1024;
  if (empty || large) return cudaErrorInvalidConfiguration;
  gridDim = grid;
  blockDim = block;
  for (blockIdx.z = 0; blockIdx.z < grid.z; ++blockIdx.z)
    for (blockIdx.y = 0; blockIdx.y < grid.y; ++blockIdx.y)
      for (blockIdx.x = 0; blockIdx.x < grid.x; ++blockIdx.x)
        for (threadIdx.z = 0; threadIdx.z < block.z; ++threadIdx.z)
          for (threadIdx.y = 0; threadIdx.y < block.y; ++threadIdx.y)
            for (threadIdx.x = 0; threadIdx.x < block.x; ++threadIdx.x) kernel(arguments...);
  return cudaSuccess;
}

struct alignas(16) uint4 {
  uint32_t x, y, z, w;
};

inline void __stcs(uint4* to, uint4 words) { *to = words; }
inline uint4 __ldcs(const uint4* from) { return *from; }

inline uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

inline float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

// ---- bfloat16: the upper half of a float32.

struct __nv_bfloat16 {
  uint16_t bits;
};

inline float __bfloat162float(__nv_bfloat16 value) { return float_of(uint32_t(value.bits) << 16); }

inline __nv_bfloat16 __float2bfloat16_rn(float value) {
  const uint32_t bits = bits_of(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {0x7fff};  // NaN, which rounding could turn into infinity
  return {uint16_t((bits + 0x7fffu + (bits >> 16 & 1)) >> 16)};  // to nearest, ties to even
}

// ---- float16: 5 bits of exponent (bias 15), 10 of mantissa. Source: IEEE 754-2008, binary16.

struct __half {
  uint16_t bits;
};

inline float __half2float(__half value) {
  const uint32_t sign = uint32_t(value.bits & 0x8000u) << 16, magnitude = value.bits & 0x7fffu;
  if (magnitude >= 0x7c00u) return float_of(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);  // infinity or NaN
  // As a float32 the same bits mean 2^-112 times the number, subnormal ones included.
  const float scaled = float_of(magnitude << 13) * float_of(uint32_t(127 + 112) << 23);
  return float_of(sign | bits_of(scaled));
}

inline __half __float2half_rn(float value) {
  const uint32_t sign = bits_of(value) >> 16 & 0x8000u, magnitude = bits_of(value) & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return {0x7fff};                                  // NaN
  if (magnitude >= 0x477ff000u) return {uint16_t(sign | 0x7c00u)};               // 65520 and more round to infinity
  if (magnitude < 0x38800000u) {                                                 // below 2^-14: subnormal, steps of 2^-24
    const float shifted = float_of(magnitude) + 0.5f;                            // float32 near 0.5 has just that step
    return {uint16_t(sign | (bits_of(shifted) - bits_of(0.5f)))};
  }
  const uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1);  // to nearest, ties to even
  return {uint16_t(sign | ((rounded >> 13) - (112u << 10)))};
}
