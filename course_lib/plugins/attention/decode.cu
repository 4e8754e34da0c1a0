// Attention of one new token to a cache: every key and value is read once and used once, so only the memory's speed counts.
//
// A block has one head of one sequence. Eight lanes read the 128 bytes of a key, and those of its value, so a warp has four tokens at a
// time, and asks for several before it uses the first. Each group of eight lanes has its own softmax; they are merged at the end. Where
// there are fewer blocks than multiprocessors, a block is four times as large, because one of them has to ask for more at a time.
//
// The step of a language model also rotates the new query and key and writes the new key and value. The block that reads a head's cache is
// the only one that writes to it, so no other block has to be waited for.

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

// Tokens begin, begin + stride, ... of one head's cache.
__device__ void addTokens(Partial& mine, float const (&q)[kNumbers], uint4 const* keys, uint4 const* values, int begin, int stride,
                          int length) {
  uint4 k[kAhead], v[kAhead];
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
    int const token = min(begin + i * stride, length - 1);  // a token beyond the end is read again, and not counted
    k[i] = __ldcs(keys + token * kLanesOfToken);
    v[i] = __ldcs(values + token * kLanesOfToken);
  }
  float scores[kAhead], largest = mine.largest;
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
    float key[kNumbers], score = 0.0f;
    toFloats(key, k[i]);
#pragma unroll
    for (int j = 0; j < kNumbers; ++j) score += q[j] * key[j];
#pragma unroll
    for (int step = kLanesOfToken / 2; step > 0; step /= 2) score += __shfl_xor_sync(kLanes, score, step);
    scores[i] = begin + i * stride < length ? score * kScale : -INFINITY;
    largest = fmaxf(largest, scores[i]);
  }
  if (largest == -INFINITY) return;  // this group has not met a token yet
  float const shrink = exp2f(mine.largest - largest);
  mine.largest = largest;
  mine.total *= shrink;
#pragma unroll
  for (int j = 0; j < kNumbers; ++j) mine.sum[j] *= shrink;
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
    float const weight = exp2f(scores[i] - largest);
    float value[kNumbers];
    toFloats(value, v[i]);
    mine.total += weight;
#pragma unroll
    for (int j = 0; j < kNumbers; ++j) mine.sum[j] += weight * value[j];
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

// One query and one head's cache, by the whole block. A lane has its `kNumbers` numbers of the query.
template <int kBlock>
__device__ void attendToCache(float const (&query)[kNumbers], half const* keys, half const* values, half* out, int length) {
  constexpr int kWarps = kBlock / kWarp, kGroups = kBlock / kLanesOfToken;
  __shared__ float largest[kWarps], total[kWarps], sums[kWarps][kHead];
  int const lane = threadIdx.x % kLanesOfToken, group = threadIdx.x / kLanesOfToken, warp = threadIdx.x / kWarp;
  uint4 const* const k = reinterpret_cast<uint4 const*>(keys) + lane;
  uint4 const* const v = reinterpret_cast<uint4 const*>(values) + lane;
  Partial mine;
  // A warp's four groups take part in the same rounds, because the lanes of a shuffle must all be there.
  for (int begin = group; begin - group < length; begin += kGroups * kAhead) addTokens(mine, query, k, v, begin, kGroups, length);
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
  attendToCache<kBlock>(query, keys + head * capacity * kHead, values + head * capacity * kHead, out + head * kHead, length);
}

template <int kBlock>
__global__ void __launch_bounds__(kBlock) stepKernel(half const* qkv, float const* cos, float const* sin, int const* position, half* keys,
                                                     half* values, half* out, int capacity) {
  __shared__ float rotated[kHead];
  int const heads = gridDim.x, slot = *position, thread = threadIdx.x;
  size_t const head = static_cast<size_t>(blockIdx.y) * heads + blockIdx.x;
  if (slot < 0 || slot >= capacity) {  // the host cannot check a number on the device, and a wrong one must not go unseen
    if (thread < kHead) out[head * kHead + thread] = __float2half(NAN);
    return;
  }
  half const* const q = qkv + (static_cast<size_t>(blockIdx.y) * 3 * heads + blockIdx.x) * kHead;
  half const *const k = q + heads * kHead, *const v = k + heads * kHead;
  half* const key = keys + (head * capacity + slot) * kHead;
  half* const value = values + (head * capacity + slot) * kHead;
  if (thread < kHead) {  // the first warp has the pairs of the query, the second one those of the key
    int const pair = thread % kPairs;
    half const* const from = thread < kPairs ? q : k;
    float const a = __half2float(from[pair]), b = __half2float(from[pair + kPairs]);
    float const c = cos[slot * kPairs + pair], s = sin[slot * kPairs + pair];
    float const first = a * c - b * s, second = b * c + a * s;
    if (thread < kPairs)
      rotated[pair] = first, rotated[pair + kPairs] = second;
    else
      key[pair] = __float2half(first), key[pair + kPairs] = __float2half(second);
  } else if (thread < 2 * kHead) {
    value[thread - kHead] = v[thread - kHead];
  }
  __syncthreads();  // the block reads its own key and value again
  float query[kNumbers];
#pragma unroll
  for (int i = 0; i < kNumbers; ++i) query[i] = rotated[thread % kLanesOfToken * kNumbers + i];
  attendToCache<kBlock>(query, keys + head * capacity * kHead, values + head * capacity * kHead, out + head * kHead, slot + 1);
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
