// Built by test_rope_sanitized.py together with rope.cu under the address and undefined-behavior sanitizers.
//
// Each buffer is an allocation of its own and just as long as it must be, so one number too far is an error; with an offset its
// first number is misaligned for a vector, so a vector access there is one too. Exit status: the number of wrong results.

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "cuda_on_host.h"
#include "rope.h"

extern "C" void rope_float32_halves_vector(const void*, const float*, const float*, void*, int, int, int, int);
extern "C" void rope_float32_interleaved_vector(const void*, const float*, const float*, void*, int, int, int, int);

namespace {

template <typename T>
struct Buffer {
  size_t count;
  char* memory;
  T* data;
  Buffer(size_t n, bool shifted) : count(n), memory(static_cast<char*>(malloc((n + shifted) * sizeof(T) + (n == 0)))) {
    data = reinterpret_cast<T*>(memory) + shifted;
  }
  ~Buffer() { free(memory); }
  Buffer(const Buffer&) = delete;
};

void set(float& to, float value) { to = value; }
void set(__half& to, float value) { to = __float2half_rn(value); }
void set(__nv_bfloat16& to, float value) { to = __float2bfloat16_rn(value); }
double get(float value) { return value; }
double get(__half value) { return __half2float(value); }
double get(__nv_bfloat16 value) { return __bfloat162float(value); }

float uniform() {  // a linear congruential generator in [-1, 1)
  static uint32_t state = 1;
  state = state * 1664525u + 1013904223u;
  return float(state >> 8) / float(1 << 23) - 1;
}

// What launches the kernel: rope_launch, or a grid and a block of the test's own.
using Launch = int (*)(int type, int interleaved, const void* x, const float* cos, const float* sin, void* y, int64_t batch,
                       int64_t sequence, int64_t heads, int64_t head_size, void* stream);

template <typename T>
bool right(int type, double tolerance, int interleaved, int batch, int sequence, int heads, int head_size, int shifted,
           Launch launch = rope_launch) {
  const int half = head_size / 2;
  const size_t count = size_t(batch) * sequence * heads * head_size;
  Buffer<T> x(count, shifted == 1), y(count, shifted == 2);
  Buffer<float> cosines(size_t(sequence) * half, shifted == 3), sines(size_t(sequence) * half, shifted == 4);
  for (size_t i = 0; i < count; ++i) set(x.data[i], uniform());
  for (size_t i = 0; i < cosines.count; ++i) cosines.data[i] = uniform(), sines.data[i] = uniform();
  memset(static_cast<void*>(y.data), 0xff, count * sizeof(T));  // NaN: what is not written is wrong

  if (launch(type, interleaved, x.data, cosines.data, sines.data, y.data, batch, sequence, heads, head_size, nullptr) != 0)
    return false;
  for (size_t row = 0; row < count / (head_size ? head_size : 1); ++row) {
    const size_t position = row / heads % sequence;
    for (int i = 0; i < half; ++i) {
      const size_t at_a = row * head_size + (interleaved ? 2 * i : i), at_b = interleaved ? at_a + 1 : at_a + half;
      const double a = get(x.data[at_a]), b = get(x.data[at_b]);
      const double c = cosines.data[position * half + i], s = sines.data[position * half + i];
      if (!(std::fabs(get(y.data[at_a]) - (a * c - b * s)) <= tolerance)) return false;
      if (!(std::fabs(get(y.data[at_b]) - (b * c + a * s)) <= tolerance)) return false;
    }
  }
  return true;
}

dim3 grid, block;

int launch_on_grid(int, int interleaved, const void* x, const float* cos, const float* sin, void* y, int64_t batch,
                   int64_t sequence, int64_t heads, int64_t head_size, void*) {
  cudaLaunchConfig_t config;
  config.gridDim = grid;
  config.blockDim = block;
  auto* kernel = interleaved ? rope_float32_interleaved_vector : rope_float32_halves_vector;
  return cudaLaunchKernelEx(&config, kernel, x, cos, sin, y, int(batch), int(sequence), int(heads), int(head_size));
}

}  // namespace

int main() {
  int wrong = 0, run = 0;
  for (dim3 g : {dim3(1, 1), dim3(3, 2), dim3(40, 9)})  // any grid and any block will do, too small or too large
    for (dim3 b : {dim3(1, 1, 1), dim3(5, 2, 3), dim3(64, 2, 2)})
      for (int interleaved : {0, 1}) {
        grid = g, block = b;
        wrong += !right<float>(kRopeFloat32, 1e-6, interleaved, 3, 17, 5, 64, 0, launch_on_grid), ++run;
      }
  for (int head_size : {0, 2, 6, 16, 64, 66, 130, 256, 1040})
    for (int heads : {1, 3, 33})
      for (int sequence : {0, 1, 7})
        for (int batch : {1, 2})
          for (int interleaved : {0, 1})
            for (int shifted : {0, 1, 2, 3, 4}) {
              if (batch * sequence * heads * head_size > 40000) continue;
              const bool results[] = {
                  right<float>(kRopeFloat32, 1e-6, interleaved, batch, sequence, heads, head_size, shifted),
                  right<__half>(kRopeFloat16, 1e-3, interleaved, batch, sequence, heads, head_size, shifted),
                  right<__nv_bfloat16>(kRopeBFloat16, 8e-3, interleaved, batch, sequence, heads, head_size, shifted),
              };
              for (bool result : results) wrong += !result, ++run;
            }
  printf("%d launches, %d wrong\n", run, wrong);
  return wrong > 255 ? 255 : wrong;
}
