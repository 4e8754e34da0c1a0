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

// The same in causal form: each token sees itself and those before it.
int attention_causal_launch(void const* qkv, void* out, int batch, int sequence, int heads, void* stream);

// Attention of one new token of each sequence, whose keys and values are in a cache.
//
//   q            (batch, heads, 64)
//   keys, values (batch, heads, capacity, 64), of which the first `length` tokens are filled
//   out          (batch, heads, 64)
int attention_decode_launch(void const* q, void const* keys, void const* values, void* out, int batch, int heads, int capacity,
                            int length, void* stream);

// What a language model does between its projections: rotate queries and keys by their positions, write keys and values into the cache in
// place, and attend. Numbers i and i + 32 of a head rotate together.
//
//   qkv          (batch, sequence, 3, heads, 64): queries, keys and values of all heads, as one projection writes them
//   cos, sin     (at least as many rows as positions, 32), FP32: of each position's angles
//   keys, values (batch, heads, capacity, 64)
//   out          (batch, sequence, heads, 64)
//
// A step has one new token for each sequence. `position`, an int32 on the device, is the number of tokens that the cache holds. If it is
// negative or the cache is full, the output is NaN and the cache stays as it is.
int attention_step_launch(void const* qkv, void const* cos, void const* sin, void const* position, void* keys, void* values, void* out,
                          int batch, int heads, int capacity, void* stream);

// A prompt fills an empty cache from its first slot on. `rotated` is scratch memory of the size of qkv.
int attention_prompt_launch(void const* qkv, void const* cos, void const* sin, void* keys, void* values, void* rotated, void* out,
                            int batch, int sequence, int heads, int capacity, void* stream);

#ifdef __cplusplus
}
#endif
