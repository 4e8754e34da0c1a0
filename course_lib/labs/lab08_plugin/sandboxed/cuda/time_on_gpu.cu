// Runs a learner's kernel on the GPU: one case, launched again and again, so that the process that waits for the answer can time it.
//
// Standard input: struct Question. Standard output: the error of CUDA as int64, then some rows of y. x, cos and sin are made here
// from the seed as in examine_on_host.cpp. Two sets of x and y take turns, and every launch rotates by other rows of the tables,
// so that no launch may be left out; the row of the last launch on each set is the one that is checked.

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime.h>

#include "rope.h"

namespace {

struct Question {
  int64_t type, interleaved, batch, sequence, heads, head_size, rows, seed, lowest_x, lowest_table, launches, first_token, step, is_copy;
};

__global__ void fill(void* data, int64_t count, int type, int lowest, uint32_t seed) {
  const int64_t stride = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) {
    uint32_t h = uint32_t(i) * 0x9E3779B1u + seed;
    h = (h ^ h >> 16) * 0x85EBCA6Bu;
    h = (h ^ h >> 13) * 0xC2B2AE35u;
    h ^= h >> 16;
    const uint32_t sign = h >> 31, exponent = h >> 23 & 7, mantissa = h & 0x7FFFFF;
    const uint32_t bits = sign << 31 | (127 + lowest + exponent) << 23 | mantissa;
    if (type == kRopeFloat32) static_cast<uint32_t*>(data)[i] = bits;
    if (type == kRopeBFloat16) static_cast<uint16_t*>(data)[i] = bits >> 16;
    if (type == kRopeFloat16) static_cast<uint16_t*>(data)[i] = sign << 15 | (15 + lowest + exponent) << 10 | mantissa >> 13;
  }
}

void check(cudaError_t error) {
  if (error == cudaSuccess) return;
  const int64_t said = error;
  fwrite(&said, sizeof said, 1, stdout);
  fflush(stdout);
  _Exit(0);
}

}  // namespace

int main() {
  Question q;
  if (fread(&q, sizeof q, 1, stdin) != 1) return 1;
  const int64_t width = q.type == kRopeFloat32 ? 4 : 2, token = q.heads * q.head_size, count = q.batch * q.sequence * token;
  const int64_t half = q.head_size / 2, table = q.rows * half;
  char *x[2], *y[2];
  float *cos, *sin;
  for (int set = 0; set < 2; ++set) {
    check(cudaMalloc(&x[set], count * width));
    check(cudaMalloc(&y[set], count * width));
    fill<<<2048, 256>>>(x[set], count, int(q.type), int(q.lowest_x), uint32_t(q.seed) + 16 * set);
    check(cudaMemset(y[set], 0xFF, count * width));
  }
  check(cudaMalloc(&cos, table * 4));
  check(cudaMalloc(&sin, table * 4));
  fill<<<2048, 256>>>(cos, table, kRopeFloat32, int(q.lowest_table), uint32_t(q.seed) + 1);
  fill<<<2048, 256>>>(sin, table, kRopeFloat32, int(q.lowest_table), uint32_t(q.seed) + 2);
  check(cudaDeviceSynchronize());
  const int64_t spare = (q.rows - q.sequence) / 8 + 1;  // rows of the tables to begin with: multiples of 8 keep alignment
  for (int64_t i = 0; i < q.launches; ++i) {
    const int set = i % 2;
    const int64_t from = i % spare * 8 * half;
    if (q.is_copy) {
      check(cudaMemcpyAsync(y[set], x[set], count * width, cudaMemcpyDeviceToDevice));
      continue;
    }
    const int error = rope_launch(int(q.type), int(q.interleaved), x[set], cos + from, sin + from, y[set], q.batch, q.sequence,
                                  q.heads, q.head_size, nullptr);
    check(static_cast<cudaError_t>(error));
  }
  check(cudaDeviceSynchronize());
  const int64_t fine = 0;
  fwrite(&fine, sizeof fine, 1, stdout);
  char* row = static_cast<char*>(malloc(token * width));
  for (int set = 0; set < 2 && set < q.launches; ++set)
    for (int64_t at = q.first_token; at < q.batch * q.sequence; at += q.step) {
      check(cudaMemcpy(row, y[set] + at * token * width, token * width, cudaMemcpyDeviceToHost));
      fwrite(row, 1, token * width, stdout);
    }
  return 0;
}
