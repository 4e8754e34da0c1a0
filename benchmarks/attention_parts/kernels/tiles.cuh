// What a fused attention needs of the GPU: tiles in shared memory, and products of 16 x 16 numbers by the Tensor Cores.
//
// Source: PTX ISA, "Matrix Fragments for mma.m16n8k16" and "ldmatrix"; both exist since compute capability 8.0.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

constexpr int kHead = 64;                // numbers of a head: 128 bytes
constexpr int kKeys = 64;                // of a tile
constexpr int kChunk = 8;                // halves in 16 bytes, the widest access
constexpr int kChunks = kHead / kChunk;  // in a row

// A tile in shared memory. Eight rows that are read together begin in different banks, because the place of a chunk depends on its row.
template <int kRows>
struct Tile {
  half data[kRows * kHead];

  __device__ half* at(int row, int chunk) { return data + row * kHead + ((chunk ^ (row & 7)) * kChunk); }
};

__device__ inline uint32_t sharedAddress(void const* pointer) { return static_cast<uint32_t>(__cvta_generic_to_shared(pointer)); }

// Copies 16 bytes to shared memory in the background; zeros if the source does not exist.
__device__ inline void copyAsync(half* to, half const* from, bool exists) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(sharedAddress(to)), "l"(from), "r"(exists ? 16 : 0));
}
__device__ inline void commitCopies() { asm volatile("cp.async.commit_group;\n"); }

// Waits until at most `kPending` of the latest groups of copies are still under way.
template <int kPending>
__device__ inline void waitForCopies() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kPending));
}

// Four matrices of 8 x 8, one row's address from each lane. In the transposed form each lane gets a column's neighbors instead.
__device__ inline void loadMatrices(uint32_t (&to)[4], half const* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(sharedAddress(row)));
}
__device__ inline void loadTransposed(uint32_t (&to)[4], half const* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(sharedAddress(row)));
}

// sum (16 x 8, FP32) += a (16 x 16) b (16 x 8), by one warp.
__device__ inline void multiplyAdd(float (&sum)[4], uint32_t const (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
               : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ inline uint32_t packed(float low, float high) {
  half2 const both = __floats2half2_rn(low, high);
  return *reinterpret_cast<uint32_t const*>(&both);
}

// 2 ^ x, to about 22 bits; 0 for minus infinity.
__device__ inline float powerOfTwo(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(result) : "f"(x));
  return result;
}
