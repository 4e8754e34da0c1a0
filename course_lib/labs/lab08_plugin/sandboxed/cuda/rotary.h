// What the outside sees of rotary.cu: a C interface, the same for nvcc and for a host compiler.
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum RotaryType { kRotaryFloat32 = 0, kRotaryFloat16 = 1, kRotaryBFloat16 = 2 };

// Rotates the first `rotary` numbers of each head of each token, and copies the others.
//
//   type       RotaryType of x and y
//   x, y       (batch, heads, sequence, head_size), contiguous; they do not overlap
//   cos, sin   rows of rotary / 2 float32
//   positions  (batch, sequence): the row of the tables for each token
//   rotary     even, at least 2 and at most head_size, which is even too
//   stream     a cudaStream_t; the call returns when the work is enqueued, not when it is done
//
// Returns 0 or a cudaError_t.
int rotary_launch(int type, const void* x, const float* cos, const float* sin, const int32_t* positions, void* y,
                  int64_t batch, int64_t heads, int64_t sequence, int64_t head_size, int64_t rotary, void* stream);

#ifdef __cplusplus
}
#endif
