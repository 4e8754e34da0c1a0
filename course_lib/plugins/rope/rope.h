// What the outside sees of rope.cu: a C interface, the same whether nvcc or a host compiler built it.
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum RopeType { kRopeFloat32 = 0, kRopeFloat16 = 1, kRopeBFloat16 = 2 };

// Rotates every pair of numbers of every head of every token; the formula is at the top of rope.cu.
//
//   type         RopeType of x and y
//   interleaved  0: number i of a head is paired with number i + head_size / 2; 1: number 2i with number 2i + 1
//   x, y         (batch, sequence, heads, head_size), contiguous, each size at most 2^30; they do not overlap
//   cos, sin     at least `sequence` rows of head_size / 2 float32: row s belongs to token s of every sequence
//   stream       a cudaStream_t; the call returns when the work is enqueued, not when it is done
//
// Device pointers for nvcc's build, host pointers for the host compiler's. Returns 0 or a cudaError_t.
int rope_launch(int type, int interleaved, const void* x, const float* cos, const float* sin, void* y, int64_t batch,
                int64_t sequence, int64_t heads, int64_t head_size, void* stream);

// Grid (x, y, z) and block (x, y, z) of a launch whose threads load `width` numbers at once.
void rope_geometry(int batch, int sequence, int heads, int head_size, int width, unsigned int* six);

#ifdef __cplusplus
}
#endif
