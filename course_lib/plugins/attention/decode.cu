// Attention of one new token to a cache: every key and value is read once and used once, so only the memory's speed counts.
//
// A block has one head of one sequence. Eight lanes read the 128 bytes of a key, and those of its value, so a warp has four tokens at a
// time, and asks for several before it uses the first. Each group of eight lanes has its own softmax; they are merged at the end.

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "attention.h"

namespace {

constexpr int kHead = ATTENTION_HEAD_SIZE;
constexpr int kThreads = 256;
constexpr int kLanesOfToken = 8;                      // 16 bytes each
constexpr int kGroups = kThreads / kLanesOfToken;     // tokens that a block has at a time
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

// Tokens begin, begin + kGroups, ... of one head's cache.
__device__ void addTokens(Partial& mine, float const (&q)[kNumbers], uint4 const* keys, uint4 const* values, int begin, int length) {
  uint4 k[kAhead], v[kAhead];
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
    int const token = min(begin + i * kGroups, length - 1);  // a token beyond the end is read again, and not counted
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
    scores[i] = begin + i * kGroups < length ? score * kScale : -INFINITY;
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

__global__ void __launch_bounds__(kThreads) decodeKernel(half const* q, half const* keys, half const* values, half* out, int capacity, int length) {
  __shared__ float largest[kGroups], total[kGroups], sums[kGroups][kHead];
  int const lane = threadIdx.x % kLanesOfToken, group = threadIdx.x / kLanesOfToken;
  size_t const head = static_cast<size_t>(blockIdx.y) * gridDim.x + blockIdx.x;

  float query[kNumbers];
  toFloats(query, reinterpret_cast<uint4 const*>(q + head * kHead)[lane]);
  uint4 const* const k = reinterpret_cast<uint4 const*>(keys + head * capacity * kHead) + lane;
  uint4 const* const v = reinterpret_cast<uint4 const*>(values + head * capacity * kHead) + lane;
  Partial mine;
  // A warp's four groups take part in the same rounds, because the lanes of a shuffle must all be there.
  for (int begin = group; begin - group < length; begin += kGroups * kAhead) addTokens(mine, query, k, v, begin, length);

  if (lane == 0) largest[group] = mine.largest, total[group] = mine.total;
#pragma unroll
  for (int j = 0; j < kNumbers; ++j) sums[group][lane * kNumbers + j] = mine.sum[j];
  __syncthreads();
  if (threadIdx.x >= kHead) return;
  float most = -INFINITY, weights = 0.0f, sum = 0.0f;
  for (int i = 0; i < kGroups; ++i) most = fmaxf(most, largest[i]);
  for (int i = 0; i < kGroups; ++i) {
    float const share = exp2f(largest[i] - most);
    weights += share * total[i];
    sum += share * sums[i][threadIdx.x];
  }
  out[head * kHead + threadIdx.x] = __float2half(sum / weights);
}

}  // namespace

extern "C" int attention_decode_launch(void const* q, void const* keys, void const* values, void* out, int batch, int heads,
                                       int capacity, int length, void* stream) {
  bool const right = batch > 0 && batch <= 65535 && heads > 0 && length > 0 && length <= capacity;
  if (!right) return cudaErrorInvalidValue;
  decodeKernel<<<dim3(heads, batch), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      static_cast<half const*>(q), static_cast<half const*>(keys), static_cast<half const*>(values), static_cast<half*>(out), capacity,
      length);
  return cudaGetLastError();
}
