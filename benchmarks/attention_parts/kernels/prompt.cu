// A prompt: its queries and keys are rotated, its keys and values fill the cache, and each token attends to itself and those before it.
//
// The first kernel also brings each head's query, key and value beside each other, which is the order that the attention kernel reads.

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "attention.h"

namespace {

constexpr int kHead = ATTENTION_HEAD_SIZE;
constexpr int kPairs = kHead / 2;          // that rotate together: numbers i and i + 32
constexpr int kPieces = kPairs / 8;        // of a head: 8 pairs, whose first numbers are 16 bytes, and so are the second ones
constexpr int kThreads = 256;

union Chunk {
  uint4 words;
  half numbers[8];
};

__device__ Chunk chunkAt(half const* from) { return {*reinterpret_cast<uint4 const*>(from)}; }
__device__ void store(half* to, Chunk const& chunk) { *reinterpret_cast<uint4*>(to) = chunk.words; }

// A thread has one piece of a token's head: of its query, its key and its value.
__global__ void rotateKernel(half const* qkv, float const* cos, float const* sin, half* keys, half* values, half* rotated, int sequence,
                             int heads, int capacity) {
  int const index = blockIdx.x * kThreads + threadIdx.x;
  int const piece = index % kPieces, head = index / kPieces % heads, token = index / kPieces / heads;
  if (token >= sequence) return;
  size_t const row = static_cast<size_t>(blockIdx.y) * sequence + token;
  half const* const from = qkv + (row * 3 * heads + head) * kHead + 8 * piece;
  half* const to = rotated + (row * heads + head) * 3 * kHead + 8 * piece;
  size_t const slot = ((static_cast<size_t>(blockIdx.y) * heads + head) * capacity + token) * kHead + 8 * piece;
  for (int part = 0; part < 3; ++part) {
    Chunk first = chunkAt(from + part * heads * kHead), second = chunkAt(from + part * heads * kHead + kPairs);
    if (part < 2) {  // values stay as they are
      for (int i = 0; i < 8; ++i) {
        float const a = __half2float(first.numbers[i]), b = __half2float(second.numbers[i]);
        float const c = cos[token * kPairs + 8 * piece + i], s = sin[token * kPairs + 8 * piece + i];
        first.numbers[i] = __float2half(a * c - b * s);
        second.numbers[i] = __float2half(b * c + a * s);
      }
    }
    store(to + part * kHead, first);
    store(to + part * kHead + kPairs, second);
    if (part > 0) {
      half* const cache = (part == 1 ? keys : values) + slot;
      store(cache, first);
      store(cache + kPairs, second);
    }
  }
}

}  // namespace

extern "C" int attention_prompt_launch(void const* qkv, void const* cos, void const* sin, void* keys, void* values, void* rotated,
                                       void* out, int batch, int sequence, int heads, int capacity, void* stream) {
  bool const right = batch > 0 && batch <= 65535 && heads > 0 && sequence > 0 && sequence <= capacity;
  if (!right) return cudaErrorInvalidValue;
  dim3 const grid((sequence * heads * kPieces + kThreads - 1) / kThreads, batch);
  rotateKernel<<<grid, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      static_cast<half const*>(qkv), static_cast<float const*>(cos), static_cast<float const*>(sin), static_cast<half*>(keys),
      static_cast<half*>(values), static_cast<half*>(rotated), sequence, heads, capacity);
  if (cudaError_t const status = cudaGetLastError()) return status;
  return attention_causal_launch(rotated, out, batch, sequence, heads, stream);
}
