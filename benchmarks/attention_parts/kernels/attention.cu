// Fused attention over whole sequences, in the layout of the projection: no transpose before, none after, no scores in memory.
//
// A block has 128 queries of one head, each of its four warps 32 of them. It walks over the keys, 64 at a time, and keeps for each query
// the largest score so far, the sum of the exponentials and the weighted sum of the values (online softmax). While it computes with one
// tile of keys and values, the next one is on its way from memory. A warp uses what it reads of a tile for two groups of 16 queries:
// with one group, shared memory would take twice as long as the Tensor Cores. In the causal form each token sees itself and those before
// it: a block stops after the tile of its last query, and masks the scores of later keys.
//
// Source: Dao, FlashAttention-2: Faster Attention with Better Parallelism and Work Partitioning (2023), algorithm 1.

#include <cuda_runtime.h>

#include "attention.h"
#include "tiles.cuh"

static_assert(kHead == ATTENTION_HEAD_SIZE, "one head size in the header and in the tiles");

namespace {

constexpr int kGroups = 2;                     // of 16 queries, in a warp
constexpr int kWarps = 4;
constexpr int kThreads = 32 * kWarps;
constexpr int kQueries = 16 * kGroups * kWarps;  // of a block
constexpr float kScale = 0.125f * 1.4426950408889634f;  // 1 / sqrt(64), and log2(e): exponentials are taken with base 2
constexpr unsigned kLanes = 0xffffffffu;

struct Shared {
  Tile<kQueries> q;  // at the end the answers
  Tile<kKeys> k[2];  // the tile in use, and the next
  Tile<kKeys> v[2];
};

// Rows of queries (part 0), keys (1) or values (2) of one head, from token `first` on.
template <int kRows>
__device__ void loadTile(Tile<kRows>& tile, half const* head, int part, int first, int sequence, int heads) {
  int const stride = heads * 3 * kHead;  // from one token to the next
#pragma unroll
  for (int i = threadIdx.x; i < kRows * kChunks; i += kThreads) {
    int const row = i / kChunks, chunk = i % kChunks, token = first + row;
    bool const exists = token < sequence;
    half const* from = head + static_cast<size_t>(exists ? token : 0) * stride + part * kHead + chunk * kChunk;
    copyAsync(tile.at(row, chunk), from, exists);
  }
}

using Scores = float[kKeys / 8][4];

// The state of 16 queries in one warp. A lane has parts of two rows, lane / 4 and the eighth after it.
struct Rows {
  float largest[2] = {-INFINITY, -INFINITY};
  float total[2] = {0.0f, 0.0f};  // of this lane's columns; the four lanes of a row are added at the end
  float answer[kHead / 8][4] = {};
};

// Scores of a warp's queries and 64 keys; keys beyond the sequence get minus infinity.
__device__ void computeScores(Scores (&scores)[kGroups], uint32_t const (&q)[kGroups][kHead / 16][4], Tile<kKeys>& k, int keysLeft) {
  int const lane = threadIdx.x % 32;
#pragma unroll
  for (int pair = 0; pair < kKeys / 16; ++pair) {
#pragma unroll
    for (int step = 0; step < kHead / 16; ++step) {
      uint32_t keys[4];
      loadMatrices(keys, k.at(16 * pair + lane / 16 * 8 + lane % 8, 2 * step + lane / 8 % 2));
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
        multiplyAdd(scores[group][2 * pair], q[group][step], keys[0], keys[1]);
        multiplyAdd(scores[group][2 * pair + 1], q[group][step], keys[2], keys[3]);
      }
    }
  }
  if (keysLeft >= kKeys) return;
#pragma unroll
  for (int column = 0; column < kKeys / 8; ++column)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (8 * column + lane % 4 * 2 + i % 2 >= keysLeft)
#pragma unroll
        for (int group = 0; group < kGroups; ++group) scores[group][column][i] = -INFINITY;
}

// Keys after the query get minus infinity. `ahead` is the warp's first query minus the tile's first key.
__device__ void maskLaterKeys(Scores (&scores)[kGroups], int ahead) {
  if (ahead >= kKeys - 1) return;  // every key of the tile is at or before every query of the warp
  int const lane = threadIdx.x % 32;
#pragma unroll
  for (int group = 0; group < kGroups; ++group)
#pragma unroll
    for (int column = 0; column < kKeys / 8; ++column)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        int const query = 16 * group + i / 2 * 8 + lane / 4, key = 8 * column + lane % 4 * 2 + i % 2;
        if (key > query + ahead) scores[group][column][i] = -INFINITY;
      }
}

// Scores become exponentials; what was summed with a smaller maximum is scaled down.
__device__ void updateSoftmax(Rows& rows, Scores& scores) {
#pragma unroll
  for (int side = 0; side < 2; ++side) {
    float largest = rows.largest[side];
#pragma unroll
    for (int column = 0; column < kKeys / 8; ++column)
      largest = fmaxf(largest, fmaxf(scores[column][2 * side], scores[column][2 * side + 1]));
    largest = fmaxf(largest, __shfl_xor_sync(kLanes, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(kLanes, largest, 2));
    float const shift = largest * kScale;  // finite: every query sees a key of the first tile
    float const shrink = powerOfTwo(rows.largest[side] * kScale - shift);  // 0 for the first tile
    rows.largest[side] = largest;
    rows.total[side] *= shrink;
#pragma unroll
    for (int column = 0; column < kHead / 8; ++column) {
      rows.answer[column][2 * side] *= shrink;
      rows.answer[column][2 * side + 1] *= shrink;
    }
#pragma unroll
    for (int column = 0; column < kKeys / 8; ++column)
#pragma unroll
      for (int i = 2 * side; i < 2 * side + 2; ++i) {
        scores[column][i] = powerOfTwo(scores[column][i] * kScale - shift);
        rows.total[side] += scores[column][i];
      }
  }
}

// answer += weights V. The registers of a product's result are those of a next product's first operand, so weights stay where they are.
__device__ void addValues(Rows (&rows)[kGroups], Scores const (&weights)[kGroups], Tile<kKeys>& v) {
  int const lane = threadIdx.x % 32;
#pragma unroll
  for (int step = 0; step < kKeys / 16; ++step) {
    uint32_t a[kGroups][4];
#pragma unroll
    for (int group = 0; group < kGroups; ++group)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float const* const pair = &weights[group][2 * step + i / 2][i % 2 * 2];
        a[group][i] = packed(pair[0], pair[1]);
      }
#pragma unroll
    for (int pair = 0; pair < kHead / 16; ++pair) {
      uint32_t values[4];
      loadTransposed(values, v.at(16 * step + lane / 8 % 2 * 8 + lane % 8, 2 * pair + lane / 16));
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
        multiplyAdd(rows[group].answer[2 * pair], a[group], values[0], values[1]);
        multiplyAdd(rows[group].answer[2 * pair + 1], a[group], values[2], values[3]);
      }
    }
  }
}

// Through shared memory, so that eight lanes write the 128 bytes of a row together. Only rows of this warp, from `begin` on.
__device__ void writeAnswers(Rows& rows, Tile<kQueries>& tile, int begin, half* head, int first, int sequence, int heads) {
  int const lane = threadIdx.x % 32;
#pragma unroll
  for (int side = 0; side < 2; ++side) {
    float total = rows.total[side];
    total += __shfl_xor_sync(kLanes, total, 1);
    total += __shfl_xor_sync(kLanes, total, 2);
    float const share = 1.0f / total;
#pragma unroll
    for (int column = 0; column < kHead / 8; ++column) {
      uint32_t const both = packed(rows.answer[column][2 * side] * share, rows.answer[column][2 * side + 1] * share);
      *reinterpret_cast<uint32_t*>(tile.at(begin + 8 * side + lane / 4, column) + lane % 4 * 2) = both;
    }
  }
  __syncwarp();
  for (int i = lane; i < 16 * kChunks; i += 32) {
    int const row = begin + i / kChunks, chunk = i % kChunks;
    if (first + row >= sequence) continue;
    half* const to = head + static_cast<size_t>(first + row) * heads * kHead + chunk * kChunk;
    *reinterpret_cast<uint4*>(to) = *reinterpret_cast<uint4 const*>(tile.at(row, chunk));
  }
}

// The queries of one block.
template <bool kCausal>
__device__ void attend(half const* qkv, half* out, int sequence, int heads) {
  extern __shared__ __align__(128) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  int const first = blockIdx.x * kQueries, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  size_t const token = static_cast<size_t>(blockIdx.z) * sequence * heads + blockIdx.y;
  half const* const head = qkv + token * 3 * kHead;

  loadTile(shared.q, head, 0, first, sequence, heads);
  loadTile(shared.k[0], head, 1, 0, sequence, heads);
  loadTile(shared.v[0], head, 2, 0, sequence, heads);
  commitCopies();

  Rows rows[kGroups];
  uint32_t q[kGroups][kHead / 16][4];
  int const seen = kCausal ? min(sequence, first + kQueries) : sequence;  // keys that this block's queries see
  int const tiles = (seen + kKeys - 1) / kKeys;
  for (int i = 0; i < tiles; ++i) {
    if (i + 1 < tiles) {
      loadTile(shared.k[(i + 1) % 2], head, 1, (i + 1) * kKeys, sequence, heads);
      loadTile(shared.v[(i + 1) % 2], head, 2, (i + 1) * kKeys, sequence, heads);
    }
    commitCopies();  // an empty group in the last round: the wait below counts groups
    waitForCopies<1>();
    __syncthreads();
    if (i == 0)
#pragma unroll
      for (int group = 0; group < kGroups; ++group)
#pragma unroll
        for (int step = 0; step < kHead / 16; ++step)
          loadMatrices(q[group][step], shared.q.at(16 * (kGroups * warp + group) + lane % 16, 2 * step + lane / 16));
    Scores scores[kGroups] = {};
    computeScores(scores, q, shared.k[i % 2], sequence - i * kKeys);
    if (kCausal) maskLaterKeys(scores, first + 16 * kGroups * warp - i * kKeys);
#pragma unroll
    for (int group = 0; group < kGroups; ++group) updateSoftmax(rows[group], scores[group]);
    addValues(rows, scores, shared.v[i % 2]);
    __syncthreads();  // the next copies go into the tiles that were just read
  }
#pragma unroll
  for (int group = 0; group < kGroups; ++group)
    writeAnswers(rows[group], shared.q, 16 * (kGroups * warp + group), out + token * kHead, first, sequence, heads);
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads, 2) attentionKernel(half const* qkv, int sequence, int heads, half* out) {
  attend<false>(qkv, out, sequence, heads);
}

extern "C" __global__ void __launch_bounds__(kThreads, 2) causalAttentionKernel(half const* qkv, int sequence, int heads, half* out) {
  attend<true>(qkv, out, sequence, heads);
}

using Kernel = void (*)(half const*, int, int, half*);

static int launch(Kernel kernel, void const* qkv, void* out, int batch, int sequence, int heads, void* stream) {
  constexpr int kMost = 65535;
  if (batch <= 0 || sequence <= 0 || heads <= 0 || batch > kMost || heads > kMost) return cudaErrorInvalidValue;
  dim3 const grid((sequence + kQueries - 1) / kQueries, heads, batch);
  kernel<<<grid, kThreads, sizeof(Shared), static_cast<cudaStream_t>(stream)>>>(static_cast<half const*>(qkv), sequence, heads,
                                                                               static_cast<half*>(out));
  return cudaGetLastError();
}

extern "C" int attention_launch(void const* qkv, void* out, int batch, int sequence, int heads, void* stream) {
  return launch(attentionKernel, qkv, out, batch, sequence, heads, stream);
}

extern "C" int attention_causal_launch(void const* qkv, void* out, int batch, int sequence, int heads, void* stream) {
  return launch(causalAttentionKernel, qkv, out, batch, sequence, heads, stream);
}
