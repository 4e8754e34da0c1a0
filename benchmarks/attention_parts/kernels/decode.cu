// Attention of one new token to a cache: every key and value is read once and used once, so only the memory's speed counts.
//
// A block has one head of one sequence. Eight lanes read the 128 bytes of a key, and those of its value, so a warp has four tokens at a
// time, and asks for several before it uses the first. Each group of eight lanes has its own softmax; they are merged at the end. Where
// there are fewer blocks than multiprocessors, a block is four times as large, because one of them has to ask for more at a time.
//
// The step of a language model also rotates the new query and key and writes the new key and value. The first group has these in registers
// and adds them to its own softmax, so that no thread waits for a number on its way through memory.

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "attention.h"

namespace {

constexpr int kHead = ATTENTION_HEAD_SIZE;
constexpr int kPairs = kHead / 2;                     // that rotate together: numbers i and i + 32
constexpr int kThreads = 256, kManyThreads = 1024;   // of a block
constexpr int kFewBlocks = 128;                       // about the multiprocessors of a large GPU
constexpr int kWarp = 32;
constexpr int kLanesOfToken = 8;                      // 16 bytes each
constexpr int kAhead = 4;                             // tokens of a group that are asked for together
constexpr int kNumbers = kHead / kLanesOfToken;       // of a head, in one lane
constexpr float kScale = 0.125f * 1.4426950408889634f;  // 1 / sqrt(64), and log2(e)
constexpr unsigned kLanes = 0xffffffffu;

struct Partial {
  float largest = -INFINITY;
  float total = 0.0f;
  float sum[kNumbers] = {};
};

__device__ void toFloats(float (&to)[kNumbers], uint4 const& from) {
  half2 const* const pairs = reinterpret_cast<half2 const*>(&from);
#pragma unroll
  for (int i = 0; i < kNumbers / 2; ++i) {
    float2 const both = __half22float2(pairs[i]);
    to[2 * i] = both.x, to[2 * i + 1] = both.y;
  }
}

__device__ uint4 toHalves(float const (&from)[kNumbers]) {
  uint4 to;
  half2* const pairs = reinterpret_cast<half2*>(&to);
#pragma unroll
  for (int i = 0; i < kNumbers / 2; ++i) pairs[i] = __floats2half2_rn(from[2 * i], from[2 * i + 1]);
  return to;
}

// Adds tokens whose keys and values are in registers, as far as they count.
template <int kTokens>
__device__ void add(Partial& mine, float const (&q)[kNumbers], uint4 const (&k)[kTokens], uint4 const (&v)[kTokens],
                    bool const (&counts)[kTokens]) {
  float scores[kTokens], largest = mine.largest;
#pragma unroll
  for (int i = 0; i < kTokens; ++i) {
    float key[kNumbers], score = 0.0f;
    toFloats(key, k[i]);
#pragma unroll
    for (int j = 0; j < kNumbers; ++j) score += q[j] * key[j];
#pragma unroll
    for (int step = kLanesOfToken / 2; step > 0; step /= 2) score += __shfl_xor_sync(kLanes, score, step);
    scores[i] = counts[i] ? score * kScale : -INFINITY;
    largest = fmaxf(largest, scores[i]);
  }
  if (largest == -INFINITY) return;  // this group has not met a token yet
  float const shrink = exp2f(mine.largest - largest);
  mine.largest = largest;
  mine.total *= shrink;
#pragma unroll
  for (int j = 0; j < kNumbers; ++j) mine.sum[j] *= shrink;
#pragma unroll
  for (int i = 0; i < kTokens; ++i) {
    float const weight = exp2f(scores[i] - largest);
    float value[kNumbers];
    toFloats(value, v[i]);
    mine.total += weight;
#pragma unroll
    for (int j = 0; j < kNumbers; ++j) mine.sum[j] += weight * value[j];
  }
}

// Adds this group's share of the first `length` tokens of a head's cache.
template <int kBlock>
__device__ void addCache(Partial& mine, float const (&q)[kNumbers], half const* keys, half const* values, int length) {
  constexpr int kGroups = kBlock / kLanesOfToken;
  int const lane = threadIdx.x % kLanesOfToken, group = threadIdx.x / kLanesOfToken;
  // A warp's four groups take part in the same rounds, because the lanes of a shuffle must all be there.
  for (int begin = group; begin - group < length; begin += kGroups * kAhead) {
    uint4 k[kAhead], v[kAhead];
    bool counts[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      int const token = min(begin + i * kGroups, length - 1);  // a token beyond the end is read again, and not counted
      k[i] = __ldcs(reinterpret_cast<uint4 const*>(keys) + token * kLanesOfToken + lane);
      v[i] = __ldcs(reinterpret_cast<uint4 const*>(values) + token * kLanesOfToken + lane);
      counts[i] = begin + i * kGroups < length;
    }
    add(mine, q, k, v, counts);
  }
}

// Adds what the lane's counterpart in another group of the warp has; both have the same afterwards.
__device__ void merge(Partial& mine, int step) {
  float const largest = fmaxf(mine.largest, __shfl_xor_sync(kLanes, mine.largest, step));
  float const share = largest == -INFINITY ? 0.0f : exp2f(mine.largest - largest);
  mine.largest = largest;
  mine.total *= share;
  mine.total += __shfl_xor_sync(kLanes, mine.total, step);
#pragma unroll
  for (int j = 0; j < kNumbers; ++j) {
    mine.sum[j] *= share;
    mine.sum[j] += __shfl_xor_sync(kLanes, mine.sum[j], step);
  }
}

// Writes the answer of the whole block.
template <int kBlock>
__device__ void write(Partial& mine, half* out) {
  constexpr int kWarps = kBlock / kWarp;
  __shared__ float largest[kWarps], total[kWarps], sums[kWarps][kHead];
  int const lane = threadIdx.x % kLanesOfToken, warp = threadIdx.x / kWarp;
#pragma unroll
  for (int step = kLanesOfToken; step < kWarp; step *= 2) merge(mine, step);

  if (threadIdx.x % kWarp == 0) largest[warp] = mine.largest, total[warp] = mine.total;
  if (threadIdx.x % kWarp < kLanesOfToken)
#pragma unroll
    for (int j = 0; j < kNumbers; ++j) sums[warp][lane * kNumbers + j] = mine.sum[j];
  __syncthreads();
  if (threadIdx.x >= kHead) return;
  float most = -INFINITY, weights = 0.0f, sum = 0.0f;
  for (int i = 0; i < kWarps; ++i) most = fmaxf(most, largest[i]);
  for (int i = 0; i < kWarps; ++i) {
    float const share = exp2f(largest[i] - most);
    weights += share * total[i];
    sum += share * sums[i][threadIdx.x];
  }
  out[threadIdx.x] = __float2half(sum / weights);
}

template <int kBlock>
__global__ void __launch_bounds__(kBlock) decodeKernel(half const* q, half const* keys, half const* values, half* out, int capacity,
                                                       int length) {
  size_t const head = static_cast<size_t>(blockIdx.y) * gridDim.x + blockIdx.x;
  float query[kNumbers];
  toFloats(query, reinterpret_cast<uint4 const*>(q + head * kHead)[threadIdx.x % kLanesOfToken]);
  Partial mine;
  addCache<kBlock>(mine, query, keys + head * capacity * kHead, values + head * capacity * kHead, length);
  write<kBlock>(mine, out + head * kHead);
}

// This lane's numbers of a head, rotated. Numbers i and i + 32 rotate together, and the lane has i or i + 32.
__device__ void rotate(float (&to)[kNumbers], half const* head, float const* cos, float const* sin) {
  constexpr int kHalf = kLanesOfToken / 2;
  int const lane = threadIdx.x % kLanesOfToken;
  float own[kNumbers], other[kNumbers];
  toFloats(own, reinterpret_cast<uint4 const*>(head)[lane]);
  toFloats(other, reinterpret_cast<uint4 const*>(head)[lane ^ kHalf]);
  float const sign = lane < kHalf ? -1.0f : 1.0f;
#pragma unroll
  for (int i = 0; i < kNumbers; ++i) {
    int const pair = lane % kHalf * kNumbers + i;
    to[i] = own[i] * cos[pair] + sign * other[i] * sin[pair];
  }
}

template <int kBlock>
__global__ void __launch_bounds__(kBlock) stepKernel(half const* qkv, float const* cos, float const* sin, int const* position, half* keys,
                                                     half* values, half* out, int capacity) {
  int const heads = gridDim.x, slot = *position, lane = threadIdx.x % kLanesOfToken;
  size_t const head = static_cast<size_t>(blockIdx.y) * heads + blockIdx.x;
  if (slot < 0 || slot >= capacity) {  // the host cannot check a number on the device, so the output shows a wrong one
    if (threadIdx.x < kHead) out[head * kHead + threadIdx.x] = __float2half(NAN);
    return;
  }
  keys += head * capacity * kHead;
  values += head * capacity * kHead;
  cos += slot * kPairs;
  sin += slot * kPairs;
  half const* const q = qkv + (static_cast<size_t>(blockIdx.y) * 3 * heads + blockIdx.x) * kHead;
  half const *const k = q + heads * kHead, *const v = k + heads * kHead;
  float query[kNumbers];
  rotate(query, q, cos, sin);
  Partial mine;
  addCache<kBlock>(mine, query, keys, values, slot);
  if (threadIdx.x < kWarp) {  // the whole warp, for its shuffles; the first group counts the new token and writes it
    float rotated[kNumbers];
    rotate(rotated, k, cos, sin);
    uint4 const key[] = {toHalves(rotated)}, value[] = {reinterpret_cast<uint4 const*>(v)[lane]};
    bool const first = threadIdx.x < kLanesOfToken, counts[] = {first};
    add(mine, query, key, value, counts);
    if (first) {
      reinterpret_cast<uint4*>(keys + slot * kHead)[lane] = key[0];
      reinterpret_cast<uint4*>(values + slot * kHead)[lane] = value[0];
    }
  }
  write<kBlock>(mine, out + head * kHead);
}

}  // namespace

extern "C" int attention_decode_launch(void const* q, void const* keys, void const* values, void* out, int batch, int heads,
                                       int capacity, int length, void* stream) {
  bool const right = batch > 0 && batch <= 65535 && heads > 0 && length > 0 && length <= capacity;
  if (!right) return cudaErrorInvalidValue;
  bool const few = batch * heads < kFewBlocks;
  auto const kernel = few ? decodeKernel<kManyThreads> : decodeKernel<kThreads>;
  kernel<<<dim3(heads, batch), few ? kManyThreads : kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      static_cast<half const*>(q), static_cast<half const*>(keys), static_cast<half const*>(values), static_cast<half*>(out), capacity,
      length);
  return cudaGetLastError();
}

extern "C" int attention_step_launch(void const* qkv, void const* cos, void const* sin, void const* position, void* keys, void* values,
                                     void* out, int batch, int heads, int capacity, void* stream) {
  if (batch <= 0 || batch > 65535 || heads <= 0 || capacity <= 0) return cudaErrorInvalidValue;
  bool const few = batch * heads < kFewBlocks;
  auto const kernel = few ? stepKernel<kManyThreads> : stepKernel<kThreads>;
  kernel<<<dim3(heads, batch), few ? kManyThreads : kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      static_cast<half const*>(qkv), static_cast<float const*>(cos), static_cast<float const*>(sin), static_cast<int const*>(position),
      static_cast<half*>(keys), static_cast<half*>(values), static_cast<half*>(out), capacity);
  return cudaGetLastError();
}
