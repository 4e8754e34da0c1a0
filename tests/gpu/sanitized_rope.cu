// Built by test_rope.py together with rope.cu and run under compute-sanitizer: each buffer is just as long as it must be, and with
// an offset its first number is misaligned for a vector.

#include <cuda_runtime.h>

#include <cstdio>
#include <vector>

#include "rope.h"

struct Buffer {
  char* memory = nullptr;
  char* data;
  Buffer(size_t bytes, size_t offset) {
    cudaMalloc(&memory, bytes + offset);
    cudaMemset(memory, 0x11, bytes + offset);
    data = memory + offset;
  }
  ~Buffer() { cudaFree(memory); }
};

int main() {
  int run = 0;
  for (int head_size : {2, 6, 64, 66, 128, 130, 256, 1040})
    for (int heads : {1, 3, 33})
      for (int sequence : {1, 7, 65})
        for (int type : {kRopeFloat32, kRopeFloat16, kRopeBFloat16})
          for (int interleaved : {0, 1})
            for (int shifted : {0, 1, 2, 3, 4}) {
              const size_t size = type == kRopeFloat32 ? 4 : 2, batch = 2;
              const size_t numbers = batch * sequence * heads * head_size, table = size_t(sequence) * head_size / 2;
              Buffer x(numbers * size, shifted == 1 ? size : 0), y(numbers * size, shifted == 2 ? size : 0);
              Buffer cosines(table * 4, shifted == 3 ? 4 : 0), sines(table * 4, shifted == 4 ? 4 : 0);
              int status = rope_launch(type, interleaved, x.data, reinterpret_cast<float*>(cosines.data),
                                       reinterpret_cast<float*>(sines.data), y.data, batch, sequence, heads, head_size, nullptr);
              if (status == 0) status = cudaDeviceSynchronize();
              if (status != 0) {
                printf("CUDA error %d\n", status);
                return 2;
              }
              ++run;
            }
  printf("%d launches\n", run);
  return 0;
}
