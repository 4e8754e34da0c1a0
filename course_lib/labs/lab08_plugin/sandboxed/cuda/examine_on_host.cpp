// Runs a learner's kernel on the processor and watches every access of every thread.
//
// rotary.cu is compiled with -fsanitize=kernel-address, which makes the compiler announce each load and store by a call, such as
// __asan_load4_noabort. No sanitizer is linked: these functions are here. So an access is known before it happens, with its
// thread, its address, its width and its place in the code, and one that a GPU would not survive does not happen.
//
// Standard input: the number of cases, then twelve int64 for each (struct Case). Standard output: for each case a Report, then y,
// then the accesses. x, cos, sin and positions are made here, by `mixed`, and again by the process that reads the answer. A case
// that is stopped does not stop the next one, unless it ran out of time.

#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

#include <initializer_list>

#include "cuda_on_host.h"
#include "rotary.h"

namespace {

struct Case {
  int64_t type, batch, heads, sequence, head_size, rotary, rows, seed, shifted, watched, stream, unused;
};

enum Fault { kNone, kOutside, kMisaligned, kReadOnly, kOnHost, kCrash, kTime, kHostMemory };

struct Report {
  int64_t fault, error, block[3], thread[3], buffer, offset, size, is_write;
  int64_t threads, most_written, launches, wrong_stream, accesses, y_bytes;  // see `Run`; most_written is in bytes
};

struct Access {
  uint64_t site;
  uint32_t block, thread, offset;
  uint8_t buffer, size, is_write, unused;
};

enum { kX, kCos, kSin, kPositions, kY, kBuffers, kElsewhere = kBuffers };
constexpr size_t kGuard = 1 << 20, kMaxAccesses = 4 << 20, kStack = 8 << 20, kParameters = 4096;
constexpr int kTimeLimit = 5;  // seconds of processor time for a case

struct Buffer {
  char* data;
  size_t bytes, width;
};

Buffer buffers[kBuffers];
char *arena, *arena_end, *host_top, *thread_top;  // stacks grow downwards: local variables are below these addresses
Access* accesses;
Report report;
bool watched, in_kernel;
size_t y_of_thread;
void* stream_given;  // what rotary_launch gets as its stream: it must come back with every launch
volatile bool running;
uint32_t first_block;
alignas(16) char parameters[kParameters];
dim3 launched[2];
sigjmp_buf ended;

extern "C" char __executable_start, _end;

[[noreturn]] void stop(Fault fault) {
  running = false;
  report.fault = fault;
  const dim3 at[2] = {blockIdx, threadIdx};
  for (int i = 0; i < 2; ++i) {
    int64_t* to = i ? report.thread : report.block;
    to[0] = at[i].x, to[1] = at[i].y, to[2] = at[i].z;
  }
  siglongjmp(ended, 1);
}

void on_signal(int signal) {
  if (!running) _exit(3);
  report.error = signal;
  stop(signal == SIGVTALRM ? kTime : kCrash);
}

bool between(const char* address, const char* from, const char* to) { return address >= from && address < to; }

bool constant(const char* address) {  // of the program, or threadIdx and its like
  if (between(address, &__executable_start, &_end)) return true;
  for (const dim3* one : {&gridDim, &blockDim, &blockIdx, &threadIdx})
    if (between(address, reinterpret_cast<const char*>(one), reinterpret_cast<const char*>(one + 1))) return true;
  return false;
}

void touch(void* where, size_t size, bool is_write, char* site) {
  if (!running) return;
  const char* address = static_cast<char*>(where);
  if (between(address, host_top - kStack, in_kernel ? thread_top : host_top)) return;  // a local variable
  report.buffer = kElsewhere, report.size = size, report.is_write = is_write;
  if (!between(address, arena, arena_end)) {
    if (!is_write && constant(address)) return;
    stop(in_kernel && between(address, thread_top, host_top) ? kHostMemory : kOutside);
  }
  int which = kX;  // the buffer that the address is in, or the nearest before
  for (int i = 0; i < kBuffers; ++i)
    if (address + kGuard / 2 >= buffers[i].data) which = i;
  const Buffer& buffer = buffers[which];
  report.buffer = which, report.offset = address - buffer.data;
  if (!in_kernel) stop(kOnHost);
  if (address < buffer.data || address + size > buffer.data + buffer.bytes) stop(kOutside);
  if (is_write && which != kY) stop(kReadOnly);
  if (reinterpret_cast<uintptr_t>(address) % size != 0) stop(kMisaligned);
  if (is_write) y_of_thread += size;
  if (!watched || size_t(report.accesses) == kMaxAccesses) return;
  const dim3 grid = launched[0], of_block = launched[1], b = blockIdx, t = threadIdx;
  const uint32_t block = first_block + b.x + grid.x * (b.y + grid.y * b.z);
  const uint32_t thread = t.x + of_block.x * (t.y + of_block.y * t.z);
  const uint64_t place = site - &__executable_start;
  accesses[report.accesses++] = {place, block, thread, uint32_t(report.offset), uint8_t(which), uint8_t(size), is_write, 0};
}

// Of an address that may have any alignment, a GPU's compiler makes one access for each number, and so do we.
void touch_each(void* where, size_t bytes, bool is_write, char* site) {
  char* const address = static_cast<char*>(where);
  size_t width = bytes;  // of local variables, which `touch` lets pass
  for (const Buffer& one : buffers)
    if (between(address, one.data - kGuard / 2, one.data + one.bytes + kGuard / 2)) width = one.width;
  for (size_t at = 0; running && at < bytes; at += width) touch(address + at, bytes - at < width ? 1 : width, is_write, site + at);
}

}  // namespace

#define SITE static_cast<char*>(__builtin_return_address(0))
#define TOUCH(SIZE)                                                                     \
  extern "C" void __asan_load##SIZE##_noabort(void* p) { touch(p, SIZE, false, SITE); } \
  extern "C" void __asan_store##SIZE##_noabort(void* p) { touch(p, SIZE, true, SITE); }
TOUCH(1)
TOUCH(2)
TOUCH(4)
TOUCH(8)
TOUCH(16)

extern "C" void __asan_loadN_noabort(void* p, size_t n) { touch_each(p, n, false, SITE); }
extern "C" void __asan_storeN_noabort(void* p, size_t n) { touch_each(p, n, true, SITE); }
extern "C" void __asan_handle_no_return() {}

extern "C" void* __real_memcpy(void*, const void*, size_t);
extern "C" void* __wrap_memcpy(void* to, const void* from, size_t n) {
  touch_each(const_cast<void*>(from), n, false, SITE);
  touch_each(to, n, true, SITE);
  return __real_memcpy(to, from, n);
}

cudaError_t watched_launch(dim3 grid, dim3 block, cudaStream_t stream, void (*call)(void*), const void* arguments, size_t bytes) {
  const bool empty = !grid.x || !grid.y || !grid.z || !block.x || !block.y || !block.z;
  const bool large = grid.x > 2147483647u || grid.y > 65535 || grid.z > 65535 || block.x > 1024 || block.y > 1024 ||
                     block.z > 64 || uint64_t(block.x) * block.y * block.z > 1024;
  if (empty || large) return cudaErrorInvalidConfiguration;
  if (in_kernel) return cudaErrorInvalidValue;  // no launch from within a launch
  launched[0] = gridDim = grid, launched[1] = blockDim = block;
  if (stream != stream_given) report.wrong_stream = 1;
  ++report.launches;
  report.threads += int64_t(grid.x) * grid.y * grid.z * block.x * block.y * block.z;
  __real_memcpy(parameters, arguments, bytes);
  in_kernel = true;
  thread_top = static_cast<char*>(__builtin_frame_address(0));
  dim3 &b = blockIdx, &t = threadIdx;
  for (b.z = 0; b.z < grid.z; ++b.z)
    for (b.y = 0; b.y < grid.y; ++b.y)
      for (b.x = 0; b.x < grid.x; ++b.x)
        for (t.z = 0; t.z < block.z; ++t.z)
          for (t.y = 0; t.y < block.y; ++t.y)
            for (t.x = 0; t.x < block.x; ++t.x) {
              y_of_thread = 0;
              call(parameters);
              if (int64_t(y_of_thread) > report.most_written) report.most_written = y_of_thread;
            }
  in_kernel = false;
  first_block += grid.x * grid.y * grid.z;
  return cudaSuccess;
}

namespace {

uint32_t mixed(uint32_t index, uint32_t seed) {  // the finalizer of MurmurHash3
  uint32_t h = index * 0x9E3779B1u + seed;
  h = (h ^ h >> 16) * 0x85EBCA6Bu;
  h = (h ^ h >> 13) * 0xC2B2AE35u;
  return h ^ h >> 16;
}

// Any sign, any mantissa, and eight exponents.
void fill(const Buffer& buffer, int64_t type, int lowest, uint32_t seed) {
  for (size_t i = 0; i < buffer.bytes / buffer.width; ++i) {
    const uint32_t h = mixed(uint32_t(i), seed), sign = h >> 31, exponent = h >> 23 & 7, mantissa = h & 0x7FFFFF;
    uint32_t bits = sign << 31 | (127 + lowest + exponent) << 23 | mantissa;
    if (type == kRotaryBFloat16) bits >>= 16;
    if (type == kRotaryFloat16) bits = sign << 15 | (15 + lowest + exponent) << 10 | mantissa >> 13;
    __real_memcpy(buffer.data + i * buffer.width, &bits, buffer.width);
  }
}

bool transfer(int file, void* data, size_t bytes) {
  char* at = static_cast<char*>(data);
  while (bytes) {
    const ssize_t done = file == 0 ? read(0, at, bytes) : write(1, at, bytes);
    if (done <= 0) return false;
    at += done, bytes -= done;
  }
  return true;
}

void limit_time(int seconds) {
  itimerval timer{};
  timer.it_value.tv_sec = seconds;
  setitimer(ITIMER_VIRTUAL, &timer, nullptr);
}

void run(const Case& c) {
  if (sigsetjmp(ended, 1)) return;
  limit_time(kTimeLimit);
  stream_given = reinterpret_cast<void*>(uintptr_t(c.stream));
  host_top = static_cast<char*>(__builtin_frame_address(0));
  running = true;
  const int error = rotary_launch(int(c.type), buffers[kX].data, reinterpret_cast<float*>(buffers[kCos].data),
                                  reinterpret_cast<float*>(buffers[kSin].data),
                                  reinterpret_cast<int32_t*>(buffers[kPositions].data), buffers[kY].data, c.batch, c.heads,
                                  c.sequence, c.head_size, c.rotary, stream_given);
  running = false;
  report.error = error;
}

bool examine(const Case& c) {
  const size_t width = c.type == kRotaryFloat32 ? 4 : 2, tokens = c.batch * c.sequence, numbers = tokens * c.heads * c.head_size;
  const size_t table = c.rows * c.rotary / 2 * 4;
  const Buffer needed[kBuffers] = {{nullptr, numbers * width, width},
                                   {nullptr, table, 4},
                                   {nullptr, table, 4},
                                   {nullptr, tokens * 4, 4},
                                   {nullptr, numbers * width, width}};
  size_t total = kGuard;
  for (const Buffer& one : needed) total += (one.bytes + 4095) / 4096 * 4096 + kGuard;
  arena = static_cast<char*>(mmap(nullptr, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  arena_end = arena + total;
  char* at = arena + kGuard;
  for (int i = 0; i < kBuffers; ++i) {  // a buffer that is shifted begins one number behind an aligned address
    buffers[i] = {at + (c.shifted == i + 1 ? needed[i].width : 0), needed[i].bytes, needed[i].width};
    at += (needed[i].bytes + 4095) / 4096 * 4096 + kGuard;
  }
  fill(buffers[kX], c.type, -5, uint32_t(c.seed));
  fill(buffers[kCos], kRotaryFloat32, -8, uint32_t(c.seed) + 1);
  fill(buffers[kSin], kRotaryFloat32, -8, uint32_t(c.seed) + 2);
  for (size_t i = 0; i < tokens; ++i)
    reinterpret_cast<int32_t*>(buffers[kPositions].data)[i] = int32_t(mixed(uint32_t(i), uint32_t(c.seed) + 3) % c.rows);
  memset(buffers[kY].data, 0xFF, buffers[kY].bytes);  // NaN: what is not written is wrong

  report = {};
  watched = c.watched, in_kernel = false, first_block = 0;
  run(c);
  limit_time(0);
  report.y_bytes = report.fault ? 0 : buffers[kY].bytes;
  if (report.fault) report.accesses = 0;
  const bool written = transfer(1, &report, sizeof report) && transfer(1, buffers[kY].data, report.y_bytes) &&
                       transfer(1, accesses, report.accesses * sizeof(Access));
  munmap(arena, total);
  return written && report.fault != kTime;
}

}  // namespace

int main() {
  static char signal_stack[1 << 16];
  stack_t stack{};
  stack.ss_sp = signal_stack, stack.ss_size = sizeof signal_stack;
  sigaltstack(&stack, nullptr);
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_ONSTACK;
  for (int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGVTALRM}) sigaction(signal, &action, nullptr);
  accesses = static_cast<Access*>(malloc(kMaxAccesses * sizeof(Access)));
  int64_t count = 0;
  if (!transfer(0, &count, sizeof count)) return 1;
  for (int64_t i = 0; i < count; ++i) {
    Case one;
    if (!transfer(0, &one, sizeof one) || !examine(one)) return 1;
  }
  return 0;
}
