// Runs a learner's kernel on the GPU: one case, launched again and again, so that the process that waits for the answer can time it.
//
// Standard input: struct Question. Standard output: the error of CUDA as int64, then some rows of y. x, cos, sin and positions are
// made here from the seed as in examine_on_host.cpp. Two sets of x and y take turns, and each launch reads other positions, so that
// no launch may be left out. The last launch on each set is the one that is checked.

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cuda_runtime.h>

#include "rotary.h"

namespace {

struct Question {
  int64_t type, batch, heads, sequence, head_size, rotary, rows, seed, launches, first_row, step, is_copy;
};

constexpr int kSpare = 64;  // positions beyond the last token: launch i begins at number 4 * (i % 16), which keeps alignment

__device__ uint32_t mixed(uint32_t index, uint32_t seed) {
  uint32_t h = index * 0x9E3779B1u + seed;
  h = (h ^ h >> 16) * 0x85EBCA6Bu;
  h = (h ^ h >> 13) * 0xC2B2AE35u;
  return h ^ h >> 16;
}

__global__ void fill(void* data, int64_t count, int type, int lowest, uint32_t seed) {
  const int64_t stride = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) {
    const uint32_t h = mixed(uint32_t(i), seed), sign = h >> 31, exponent = h >> 23 & 7, mantissa = h & 0x7FFFFF;
    const uint32_t bits = sign << 31 | (127 + lowest + exponent) << 23 | mantissa;
    if (type == kRotaryFloat32) static_cast<uint32_t*>(data)[i] = bits;
    if (type == kRotaryBFloat16) static_cast<uint16_t*>(data)[i] = bits >> 16;
    if (type == kRotaryFloat16) static_cast<uint16_t*>(data)[i] = sign << 15 | (15 + lowest + exponent) << 10 | mantissa >> 13;
  }
}

__global__ void fill_positions(int32_t* data, int64_t count, uint32_t rows, uint32_t seed) {
  const int64_t stride = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride)
    data[i] = int32_t(mixed(uint32_t(i), seed) % rows);
}

void check(cudaError_t error) {
  if (error == cudaSuccess) return;
  const int64_t code = error;
  fwrite(&code, sizeof code, 1, stdout);
  fflush(stdout);
  _Exit(0);
}

}  // namespace

int main() {
  Question q;
  if (fread(&q, sizeof q, 1, stdin) != 1) return 1;
  const int64_t width = q.type == kRotaryFloat32 ? 4 : 2, rows = q.batch * q.heads * q.sequence, bytes = rows * q.head_size * width;
  const int64_t tokens = q.batch * q.sequence, table = q.rows * q.rotary / 2;
  char *x[2], *y[2];
  float *cos, *sin;
  int32_t* positions;
  for (int set = 0; set < 2; ++set) {
    check(cudaMalloc(&x[set], bytes));
    check(cudaMalloc(&y[set], bytes));
    fill<<<2048, 256>>>(x[set], rows * q.head_size, int(q.type), -5, uint32_t(q.seed) + 16 * set);
    check(cudaMemset(y[set], 0xFF, bytes));
  }
  check(cudaMalloc(&cos, table * 4));
  check(cudaMalloc(&sin, table * 4));
  check(cudaMalloc(&positions, (tokens + kSpare) * 4));
  fill<<<2048, 256>>>(cos, table, kRotaryFloat32, -8, uint32_t(q.seed) + 1);
  fill<<<2048, 256>>>(sin, table, kRotaryFloat32, -8, uint32_t(q.seed) + 2);
  fill_positions<<<2048, 256>>>(positions, tokens + kSpare, uint32_t(q.rows), uint32_t(q.seed) + 3);
  check(cudaDeviceSynchronize());
  for (int64_t i = 0; i < q.launches; ++i) {
    const int set = i % 2;
    if (q.is_copy) {
      check(cudaMemcpyAsync(y[set], x[set], bytes, cudaMemcpyDeviceToDevice));
      continue;
    }
    const int error = rotary_launch(int(q.type), x[set], cos, sin, positions + 4 * (i % (kSpare / 4)), y[set], q.batch, q.heads,
                                    q.sequence, q.head_size, q.rotary, nullptr);
    check(static_cast<cudaError_t>(error));
  }
  check(cudaDeviceSynchronize());
  const int64_t fine = 0;
  fwrite(&fine, sizeof fine, 1, stdout);
  char* row = static_cast<char*>(malloc(q.head_size * width));
  for (int set = 0; set < 2 && set < q.launches; ++set)
    for (int64_t at = q.first_row; at < rows; at += q.step) {
      check(cudaMemcpy(row, y[set] + at * q.head_size * width, q.head_size * width, cudaMemcpyDeviceToHost));
      fwrite(row, 1, q.head_size * width, stdout);
    }
  return 0;
}
