// The fused attention, as a C function that a plugin, ctypes or a test can call.
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

#define ATTENTION_HEAD_SIZE 64  // numbers of one head; the kernels are written for this size

// softmax(Q K^T / 8) V of every head, in FP16 with sums in FP32.
//
//   qkv   (batch, sequence, heads, 3, 64): for each token and head its query, key and value, as one projection writes them
//   out   (batch, sequence, heads, 64)
//
// Pointers are device pointers, aligned to 16 bytes. The work is put on `stream`, a cudaStream_t. Returns a cudaError_t: 0 is success,
// and cudaErrorInvalidValue says that a size is not positive, or that heads or batch exceed a grid's 65535.
int attention_launch(void const* qkv, void* out, int batch, int sequence, int heads, void* stream);

// The same for one new token of each sequence, whose keys and values are in a cache.
//
//   q            (batch, heads, 64)
//   keys, values (batch, heads, capacity, 64), of which the first `length` tokens are filled
//   out          (batch, heads, 64)
int attention_decode_launch(void const* q, void const* keys, void const* values, void* out, int batch, int heads, int capacity,
                            int length, void* stream);

#ifdef __cplusplus
}
#endif
