#ifdef ON_HOST
#include "cuda_on_host.h"
#else
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#endif

#include "rotary.h"

// To float32 and back, for the three types.
__device__ inline float widen(float value) { return value; }
__device__ inline float widen(__half value) { return __half2float(value); }
__device__ inline float widen(__nv_bfloat16 value) { return __bfloat162float(value); }

template <typename T>
__device__ inline T narrow(float value);
template <>
__device__ inline float narrow<float>(float value) { return value; }
template <>
__device__ inline __half narrow<__half>(float value) { return __float2half_rn(value); }
template <>
__device__ inline __nv_bfloat16 narrow<__nv_bfloat16>(float value) {
  return __float2bfloat16_rn(value);
}

struct Sizes {
  int64_t batch, heads, sequence, head_size, rotary;
};

// ---- The kernel: what one thread does.
// kWidth neighboring numbers. The alignment of a wide pack lets the compiler load and
// store it at once. A pair may begin at any number.
template <typename T, int kWidth>
struct alignas(kWidth == 2 ? sizeof(T) : kWidth * sizeof(T)) Pack {
  T value[kWidth];
};

template <typename T, int kWidth>
__device__ inline void store(T* to, const Pack<T, kWidth>& pack) {
  if constexpr (sizeof(pack) == sizeof(uint4)) {
    uint4 words;
    memcpy(&words, &pack, sizeof words);
    __stcs(reinterpret_cast<uint4*>(to), words);
  } else {
    *reinterpret_cast<Pack<T, kWidth>*>(to) = pack;
  }
}

// The grid's x covers the packs of one head for all tokens, which are next to each other
// in memory. Its y covers the heads. A pack never splits a pair.
template <typename T, int kWidth>
__global__ void rotate(const T* x, const float* cos, const float* sin,
                       const int32_t* positions, T* y, Sizes n) {
  const int packs = n.head_size / kWidth, rotary = n.rotary;  // of one token
  const int64_t pack = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (pack >= n.sequence * packs) return;
  const int token = uint32_t(pack) / packs, first = uint32_t(pack) % packs * kWidth;

  for (int64_t head = blockIdx.y; head < n.batch * n.heads; head += gridDim.y) {
    const int64_t at = head * n.sequence * n.head_size + pack * kWidth;
    auto numbers = *reinterpret_cast<const Pack<T, kWidth>*>(x + at);
    if (first < rotary) {
      const int64_t position = positions[head / n.heads * n.sequence + token];
      const int64_t row = position * (rotary / 2) + first / 2;
#pragma unroll
      for (int i = 0; i < kWidth; i += 2) {
        if (first + i >= rotary) continue;
        const float a = widen(numbers.value[i]), b = widen(numbers.value[i + 1]);
        const float c = cos[row + i / 2], s = sin[row + i / 2];
        numbers.value[i] = narrow<T>(a * c - b * s);
        numbers.value[i + 1] = narrow<T>(b * c + a * s);
      }
    }
    store(y + at, numbers);
  }
}

template <typename T, int kWidth>
int launch_packs(const T* x, const float* cos, const float* sin, const int32_t* positions,
                 T* y, Sizes n, cudaStream_t stream) {
  const int64_t packs = n.sequence * (n.head_size / kWidth), heads = n.batch * n.heads;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3((packs + 255) / 256, min(heads, int64_t(65535)));
  config.blockDim = dim3(256);
  config.stream = stream;
  return cudaLaunchKernelEx(&config, rotate<T, kWidth>, x, cos, sin, positions, y, n);
}

// ---- The launch: grid, block, and which kernel. Returns 0 or a CUDA error.
template <typename T>
int launch(const T* x, const float* cos, const float* sin, const int32_t* positions, T* y,
           Sizes n, cudaStream_t stream) {
  constexpr int kWide = 16 / sizeof(T);
  const bool aligned =
      (reinterpret_cast<uintptr_t>(x) | reinterpret_cast<uintptr_t>(y)) % 16 == 0;
  if (aligned && n.head_size % kWide == 0)  // then so is every pack of every head
    return launch_packs<T, kWide>(x, cos, sin, positions, y, n, stream);
  return launch_packs<T, 2>(x, cos, sin, positions, y, n, stream);
}

// What the outside calls; rotary.h says what the arguments are.
extern "C" int rotary_launch(int type, const void* x, const float* cos, const float* sin,
                             const int32_t* positions, void* y, int64_t batch,
                             int64_t heads, int64_t sequence, int64_t head_size,
                             int64_t rotary, void* stream) {
  const Sizes n = {batch, heads, sequence, head_size, rotary};
  const auto on = static_cast<cudaStream_t>(stream);
  if (batch * heads * sequence * head_size == 0)
    return cudaSuccess;  // a grid of no blocks is an error
  switch (type) {
    case kRotaryFloat32:
      return launch(static_cast<const float*>(x), cos, sin, positions,
                    static_cast<float*>(y), n, on);
    case kRotaryFloat16:
      return launch(static_cast<const __half*>(x), cos, sin, positions,
                    static_cast<__half*>(y), n, on);
    case kRotaryBFloat16:
      return launch(static_cast<const __nv_bfloat16*>(x), cos, sin, positions,
                    static_cast<__nv_bfloat16*>(y), n, on);
  }
  return cudaErrorInvalidValue;
}
