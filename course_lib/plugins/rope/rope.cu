// Rotary position embedding (RoPE): tells attention where a token stands by turning pairs of its numbers.
//
// Each head of each token is head_size / 2 pairs (a, b). Pair i of the token at position s is turned by the angle
// s * base^(-2i / head_size), whose cosine and sine are looked up in tables:
//
//     y_a = x_a * cos[s][i] - x_b * sin[s][i]
//     y_b = x_b * cos[s][i] + x_a * sin[s][i]
//
// Which numbers form pair i is a convention, and mixing the two up is the classic RoPE bug:
//     halves       (i, i + head_size / 2)    GPT-NeoX, Llama as published by Hugging Face
//     interleaved  (2i, 2i + 1)              the paper, GPT-J, Llama's original weights
//
// Source: Su et al., RoFormer: Enhanced Transformer with Rotary Position Embedding (2021), arXiv:2104.09864.
//
// The kernel does six floating-point operations for the eight bytes (FP16) that a pair costs in traffic: nothing but memory
// matters. Hence three rules, each visible below: every thread moves 16 bytes at a time, neighboring threads touch
// neighboring bytes, and a thread loads its cosines and sines once and keeps them in registers for every head that it turns.
//
// This file is compiled two ways: by nvcc into a library, and by a host compiler, for which
// cuda_on_host.h plays the part of CUDA, so that the very same lines are tested on a machine without a GPU.

#ifdef ROPE_ON_HOST
#include "cuda_on_host.h"
#else
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#endif

#include <cstring>

#include "rope.h"

namespace {

constexpr int kThreads = 512;     // a block at most
constexpr int kVectorBytes = 16;  // the widest load and store of one thread

// ---- One kernel after the other. From compute capability 9.0 on, a kernel may be launched while the one before it still runs
// (programmatic dependent launch; `rope_launch` asks for it): its blocks take their places as soon as there is room, and wait
// here. What is saved is the way from the end of one kernel to the begin of the next: in one tuning run on an H200, with one
// token, 1.1 us a launch instead of 1.6.

__device__ inline void wait_for_earlier_kernels() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();  // the next may come: before its own wait it must read nothing that a kernel wrote
  cudaGridDependencySynchronize();            // all earlier kernels are through, and what they wrote can be read
#endif
}

// ---- Numbers: whatever the storage type, the arithmetic is float32.

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
__device__ inline __nv_bfloat16 narrow<__nv_bfloat16>(float value) { return __float2bfloat16_rn(value); }

// `kWidth` neighboring numbers that are loaded at once. The alignment is a guarantee to the compiler, which then emits one
// 16-byte access; a pointer that breaks it is an error on a GPU ("misaligned address").
template <typename T, int kWidth>
struct alignas(kWidth * sizeof(T) < kVectorBytes ? kWidth * sizeof(T) : kVectorBytes) Pack {
  T value[kWidth];
};

template <int kWidth, typename T>
__device__ inline Pack<T, kWidth> load(const T* from) {
  return *reinterpret_cast<const Pack<T, kWidth>*>(from);
}

// The same for what is read once. `cs` tells the caches that nobody will come back for these bytes soon, so that they keep the
// tables instead: on an H200 1 % more bandwidth.
template <int kWidth, typename T>
__device__ inline Pack<T, kWidth> load_once(const T* from) {
  if constexpr (sizeof(Pack<T, kWidth>) == sizeof(uint4)) {
    const uint4 words = __ldcs(reinterpret_cast<const uint4*>(from));
    Pack<T, kWidth> pack;
    std::memcpy(&pack, &words, sizeof pack);
    return pack;
  } else {
    return load<kWidth>(from);
  }
}

// A store is said in so many words: of a plain assignment nvcc 13.0 made seven 2-byte and 4-byte stores, as its PTX showed.
template <typename T, int kWidth>
__device__ inline void store(T* to, const Pack<T, kWidth>& pack) {
  if constexpr (sizeof(pack) == sizeof(uint4)) {
    uint4 words;
    std::memcpy(&words, &pack, sizeof words);
    __stcs(reinterpret_cast<uint4*>(to), words);
  } else {
    *to = pack.value[0];
    static_assert(kWidth == 1, "a pack is as wide as a vector or a single number");
  }
}

// ---- The kernel. A grid's x and a block's z walk along the sequence, a grid's y along the batch, a block's y along the heads
// and its x along a head; each loop strides, so any grid and any block give the right answer. No index needs a division.
// A dimension fits into 32 bits (rope_launch checks), a product of dimensions may not.

template <typename T, int kWidth, bool kInterleaved>
__device__ void rotate(const T* __restrict__ x, const float* __restrict__ cos, const float* __restrict__ sin,
                       T* __restrict__ y, int batch, int sequence, int heads, int head_size) {
  const int half = head_size / 2;
  for (int position = blockIdx.x * blockDim.z + threadIdx.z; position < sequence; position += gridDim.x * blockDim.z) {
    for (int pair = threadIdx.x * kWidth; pair < half; pair += blockDim.x * kWidth) {
      const Pack<float, kWidth> c = load<kWidth>(cos + int64_t(position) * half + pair);
      const Pack<float, kWidth> s = load<kWidth>(sin + int64_t(position) * half + pair);
      // kWidth pairs are 2 * kWidth numbers: two packs, half a head apart or next to each other
      const int first = kInterleaved ? 2 * pair : pair;
      const int second = first + (kInterleaved ? kWidth : half);

      for (int sample = blockIdx.y; sample < batch; sample += gridDim.y) {
        for (int head = threadIdx.y; head < heads; head += blockDim.y) {
          const int64_t start = ((int64_t(sample) * sequence + position) * heads + head) * head_size;
          const Pack<T, kWidth> in[2] = {load_once<kWidth>(x + start + first), load_once<kWidth>(x + start + second)};
          Pack<T, kWidth> out[2];
          for (int i = 0; i < kWidth; ++i) {
            const int a = kInterleaved ? 2 * i : i;  // where in the two packs pair i is
            const int b = kInterleaved ? 2 * i + 1 : i + kWidth;
            const float x_a = widen(in[a / kWidth].value[a % kWidth]);
            const float x_b = widen(in[b / kWidth].value[b % kWidth]);
            out[a / kWidth].value[a % kWidth] = narrow<T>(x_a * c.value[i] - x_b * s.value[i]);
            out[b / kWidth].value[b % kWidth] = narrow<T>(x_b * c.value[i] + x_a * s.value[i]);
          }
          store(y + start + first, out[0]);
          store(y + start + second, out[1]);
        }
      }
    }
  }
}

}  // namespace

// ---- Entry points: one kernel a type, a convention and a width. Plain C names, which profilers show.

// clang-format off
#define ROPE_KERNEL(NAME, T, WIDTH, INTERLEAVED)                                                                              \
  extern "C" __global__ void __launch_bounds__(kThreads)                                                                      \
      NAME(const void* __restrict__ x, const float* __restrict__ cos, const float* __restrict__ sin, void* __restrict__ y,    \
           int batch, int sequence, int heads, int head_size) {                                                               \
    wait_for_earlier_kernels();                                                                                               \
    rotate<T, WIDTH, INTERLEAVED>(static_cast<const T*>(x), cos, sin, static_cast<T*>(y), batch, sequence, heads, head_size); \
  }

#define ROPE_KERNELS(NAME, T)                                                        \
  ROPE_KERNEL(rope_##NAME##_halves_scalar, T, 1, false)                              \
  ROPE_KERNEL(rope_##NAME##_halves_vector, T, int(kVectorBytes / sizeof(T)), false)  \
  ROPE_KERNEL(rope_##NAME##_interleaved_scalar, T, 1, true)                          \
  ROPE_KERNEL(rope_##NAME##_interleaved_vector, T, int(kVectorBytes / sizeof(T)), true)

#define ROPE_TABLE(NAME)                                         \
  {{rope_##NAME##_halves_scalar, rope_##NAME##_halves_vector},   \
   {rope_##NAME##_interleaved_scalar, rope_##NAME##_interleaved_vector}}
// clang-format on

ROPE_KERNELS(float32, float)
ROPE_KERNELS(float16, __half)
ROPE_KERNELS(bfloat16, __nv_bfloat16)

// ---- The launch: host code.

namespace {

using Kernel = void(const void*, const float*, const float*, void*, int, int, int, int);
Kernel* const kKernels[3][2][2] = {ROPE_TABLE(float32), ROPE_TABLE(float16), ROPE_TABLE(bfloat16)};  // as in RopeType
const int kTypeBytes[3] = {4, 2, 2};

int smaller(int a, int b) { return a < b ? a : b; }
int divide_up(int a, int b) { return a / b + (a % b != 0); }

// A block that turns all of a token's 32 heads of 128 at once. In one tuning run on an H200, at (8, 4096, 32, 128), it had 0.98
// of a copy's speed in FP32 and a block of half as many threads 0.96; in FP16 these 256 had 0.97, and 512, two tokens, 0.90.
int block_threads(int width) { return width == 4 ? kThreads : kThreads / 2; }

#ifndef ROPE_ON_HOST
// Whether the code that this device runs has the wait in it: what was compiled for an older architecture has none.
bool waits_for_earlier_kernels(Kernel* kernel) {
  cudaFuncAttributes known;
  return cudaFuncGetAttributes(&known, kernel) == cudaSuccess && known.ptxVersion >= 90;
}
#endif

bool is_dimension(int64_t size) { return 0 <= size && size <= 1 << 30; }  // twice that still fits: a loop may step beyond

}  // namespace

extern "C" void rope_geometry(int batch, int sequence, int heads, int head_size, int width, unsigned int* six) {
  const int threads = block_threads(width);
  const int lanes = smaller(divide_up(head_size / 2, width), threads);
  const int rows = threads / lanes;
  const int rounds = divide_up(heads, rows);                                   // of a block over the heads,
  const int heads_at_once = divide_up(heads, rounds);                          // all of them equally full
  const int positions = smaller(smaller(rows / heads_at_once, 64), sequence);  // 64: CUDA's limit of a block's z
  six[0] = divide_up(sequence, positions);
  six[1] = smaller(batch, 65535);  // CUDA's limit of a grid's y
  six[2] = 1;
  six[3] = lanes;
  six[4] = heads_at_once;
  six[5] = positions;
}

extern "C" int rope_launch(int type, int interleaved, const void* x, const float* cos, const float* sin, void* y, int64_t batch,
                           int64_t sequence, int64_t heads, int64_t head_size, void* stream) {
  const bool sizes = is_dimension(batch) && is_dimension(sequence) && is_dimension(heads) && is_dimension(head_size);
  if (type < kRopeFloat32 || type > kRopeBFloat16 || !sizes || head_size % 2 != 0) return cudaErrorInvalidValue;
  if (batch == 0 || sequence == 0 || heads == 0 || head_size == 0) return cudaSuccess;  // a grid of no blocks is an error

  const int wide = kVectorBytes / kTypeBytes[type];
  const uintptr_t addresses = reinterpret_cast<uintptr_t>(x) | reinterpret_cast<uintptr_t>(cos) |
                              reinterpret_cast<uintptr_t>(sin) | reinterpret_cast<uintptr_t>(y);
  const bool aligned = addresses % kVectorBytes == 0 && head_size / 2 % wide == 0;  // then so is every pack of every row

  unsigned int six[6];
  rope_geometry(int(batch), int(sequence), int(heads), int(head_size), aligned ? wide : 1, six);
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(six[0], six[1], six[2]);
  config.blockDim = dim3(six[3], six[4], six[5]);
  config.stream = static_cast<cudaStream_t>(stream);
  Kernel* const kernel = kKernels[type][interleaved != 0][aligned];
#ifndef ROPE_ON_HOST
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &early;
  config.numAttrs = waits_for_earlier_kernels(kernel) ? 1 : 0;
#endif
  return cudaLaunchKernelEx(&config, kernel, x, cos, sin, y, int(batch), int(sequence), int(heads), int(head_size));
}
