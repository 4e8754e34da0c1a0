// Runs a learner's kernel on the processor and watches every access of every thread.
//
// rope.cu is compiled with -fsanitize=kernel-address, which makes the compiler announce each load and store by a call, such as
// __asan_load4_noabort. No sanitizer is linked: these functions are here. So an access is known before it happens, with its
// thread, its address, its width and its place in the code, and one that a GPU would not survive does not happen.
//
// Standard input: the number of cases, then thirteen int64 for each (struct Case). Standard output: for each case the int64 of a
// Report, then y, then the accesses. The numbers of x, cos and sin are made here, by `mixed`, and again by the process that reads the
// answer. A case that is stopped does not stop the next one, unless it ran out of time.

#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>

#include <initializer_list>
#include <utility>

#include "cuda_on_host.h"
#include "rope.h"

namespace {

struct Case {
  int64_t type, interleaved, batch, sequence, heads, head_size, rows, seed, lowest_x, lowest_table, shifted, watched, stream;
};

enum Fault { kNone, kOutside, kMisaligned, kReadOnly, kOnHost, kCrash, kTime, kHostMemory, kFrame, kCall };

struct Report {
  int64_t fault, error, block[3], thread[3], buffer, offset, size, is_write, threads, launches, accesses, y_bytes, wrong_stream;
  int64_t writers, in_sequence;  // see `Run`; here in_sequence is in bytes
};

struct Access {
  uint64_t site;
  uint32_t block, thread, offset;
  uint8_t buffer, size, is_write, unused;
};

enum { kX, kCos, kSin, kY, kBuffers, kElsewhere = kBuffers };
constexpr size_t kGuard = 1 << 20, kMaxAccesses = 4 << 20;
constexpr size_t kThreadStack = 32 << 10, kParameters = 4096;
constexpr int kTimeLimit = 5;  // seconds of processor time for a case

struct Buffer {
  char* data;
  size_t bytes;
};

Buffer buffers[kBuffers];
char *arena, *arena_end, *stack_top, *thread_top;  // stacks grow downwards: a learner's variables are below the tops
Access* accesses;
Report report;
bool watched, in_kernel;
// Bytes of y: by this thread, the most by one thread of this launch, and of the four launches with the most (`MOST_LAUNCHES`).
int64_t y_of_thread, y_of_launch, y_of_launches[4];
void* stream_given;  // what rope_launch gets as its stream: it must come back with every launch
volatile bool running;
uint32_t first_block;
// Threads run on a stack of their own, which is wiped after each: no thread finds what another left there, and neither does the host.
// The guard below it is what a thread meets that needs more.
char* thread_stack;
alignas(16) char parameters[kParameters];
void (*kernel_call)(void*);
ucontext_t host_context, thread_context;
dim3 launched[2], block_now, thread_now;  // blockIdx and threadIdx as they were given; a kernel could write to its own
size_t number_bytes;
sigjmp_buf ended;

extern "C" char __executable_start, _end;
extern "C" void (*const __asan_functions[])();  // of rope.cu, by compile_kernel.py; a zero ends it

[[noreturn]] void stop(Fault fault) {
  running = false;
  report.fault = fault;
  const dim3 at[2] = {block_now, thread_now};
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

// Where an access comes from: the place in the code, and the stack's end and the frame of the function that makes it.
struct Caller {
  char* site;
  const char* stack_end;
  char** frame;
};

bool on_host_stack(const char* address) { return address < stack_top && address >= stack_top - (8 << 20); }

// The host's stack for the host, and a thread's own for a thread.
bool on_stack(const char* address) {
  return in_kernel ? address >= thread_stack && address < thread_stack + kThreadStack : on_host_stack(address);
}

// An access to the stack that stays among variables. A number that is written over a return address is a jump to that number, so the
// two words of each frame (the caller's frame and the return address) are not written, and neither is what is below the stack's end,
// which the next call uses, nor what is above the first frame of the learner, which is the examiner's.
void touch_stack(const char* address, size_t bytes, bool is_write, const Caller& by) {
  const char* const top = in_kernel ? thread_top : stack_top;
  bool fine = address + bytes <= (is_write || !in_kernel ? top : thread_stack + kThreadStack);
  if (is_write) {
    fine = fine && address >= by.stack_end;
    for (char** frame = by.frame; fine && reinterpret_cast<char*>(frame) >= by.stack_end && reinterpret_cast<char*>(frame) < top;) {
      fine = address >= reinterpret_cast<char*>(frame + 2) || address + bytes <= reinterpret_cast<char*>(frame);
      char** const next = reinterpret_cast<char**>(*frame);
      if (next <= frame) break;
      frame = next;
    }
  }
  if (fine) return;
  report.buffer = kElsewhere, report.size = bytes, report.is_write = is_write;
  stop(kFrame);
}

bool own_data(const char* address) {  // constants, and threadIdx and its like
  if (address >= &__executable_start && address < &_end) return true;
  for (const dim3* one : {&gridDim, &blockDim, &blockIdx, &threadIdx}) {
    const char* from = reinterpret_cast<const char*>(one);
    if (address >= from && address < from + sizeof(dim3)) return true;
  }
  return false;
}

// Which buffer an address is in, or nearest before.
int nearest(const char* address) {
  int found = kX;
  for (int i = 0; i < kBuffers; ++i)
    if (address + kGuard / 2 >= buffers[i].data) found = i;
  return found;
}

void touch(void* where, size_t size, bool is_write, const Caller& by) {
  if (!running) return;
  const char* address = static_cast<char*>(where);
  if (on_stack(address)) return touch_stack(address, size, is_write, by);
  if (address < arena || address >= arena_end) {
    if (!is_write && own_data(address)) return;
    report.buffer = kElsewhere, report.size = size, report.is_write = is_write;
    stop(in_kernel && on_host_stack(address) ? kHostMemory : kOutside);
  }
  const int which = nearest(address);
  const Buffer& buffer = buffers[which];
  report.buffer = which, report.size = size, report.is_write = is_write, report.offset = address - buffer.data;
  if (!in_kernel) stop(kOnHost);
  if (address < buffer.data || address + size > buffer.data + buffer.bytes) stop(kOutside);
  if (is_write && which != kY) stop(kReadOnly);
  if (reinterpret_cast<uintptr_t>(address) % size != 0) stop(kMisaligned);
  if (is_write) y_of_thread += size;  // of y: other writes have been stopped
  if (!watched || size_t(report.accesses) == kMaxAccesses) return;
  const dim3 grid = launched[0], size_of_block = launched[1];
  const uint32_t block = first_block + block_now.x + grid.x * (block_now.y + grid.y * block_now.z);
  const uint32_t thread = thread_now.x + size_of_block.x * (thread_now.y + size_of_block.y * thread_now.z);
  const uint64_t place = by.site - &__executable_start;
  accesses[report.accesses++] = {place, block, thread, uint32_t(report.offset), uint8_t(which), uint8_t(size), is_write, 0};
}

// Of an address that may have any alignment, a GPU's compiler makes one access a number, and so do we.
void touch_each(void* where, size_t bytes, bool is_write, const Caller& by) {
  const char* address = static_cast<char*>(where);
  if (!running || bytes == 0) return;
  if (on_stack(address)) return touch_stack(address, bytes, is_write, by);
  const size_t width = address < buffers[kCos].data - kGuard / 2 || address > buffers[kY].data - kGuard / 2 ? number_bytes : 4;
  for (size_t at = 0; at < bytes; at += width)
    touch(static_cast<char*>(where) + at, bytes - at < width ? 1 : width, is_write, {by.site + at, by.stack_end, by.frame});
}

bool is_function(void (*address)()) {
  for (void (*const* one)() = __asan_functions; *one; ++one)
    if (*one == address) return true;
  return false;
}

}  // namespace

// What the compiler makes of a call or jump by address in rope.cu: `call __x86_indirect_thunk_rax` in place of `call *%rax`. A number
// may have been cast to a pointer, so the address must be one of rope.cu's own functions; no function of the examiner or the library is.
extern "C" __attribute__((used)) void rope_called_by_address(void (*address)()) {
  if (is_function(address)) return;
  if (!running) _exit(3);
  stop(kCall);
}

#ifdef __x86_64__
asm(R"(
.pushsection .text
.irp place, rax, rbx, rcx, rdx, rsi, rdi, rbp, r8, r9, r10, r11, r12, r13, r14, r15
.globl __x86_indirect_thunk_\place
__x86_indirect_thunk_\place:
  push %\place
  jmp .Lcalled_by_address
.endr
.Lcalled_by_address:  # keeps every register in which arguments are passed, and returns to the address that was pushed
  push %rbp
  mov %rsp, %rbp
  .irp place, rax, rcx, rdx, rsi, rdi, r8, r9, r10, r11
  push %\place
  .endr
  mov 8(%rbp), %rdi
  sub $136, %rsp
  and $-16, %rsp
  movaps %xmm0, (%rsp)
  movaps %xmm1, 16(%rsp)
  movaps %xmm2, 32(%rsp)
  movaps %xmm3, 48(%rsp)
  movaps %xmm4, 64(%rsp)
  movaps %xmm5, 80(%rsp)
  movaps %xmm6, 96(%rsp)
  movaps %xmm7, 112(%rsp)
  call rope_called_by_address
  movaps (%rsp), %xmm0
  movaps 16(%rsp), %xmm1
  movaps 32(%rsp), %xmm2
  movaps 48(%rsp), %xmm3
  movaps 64(%rsp), %xmm4
  movaps 80(%rsp), %xmm5
  movaps 96(%rsp), %xmm6
  movaps 112(%rsp), %xmm7
  lea -72(%rbp), %rsp
  .irp place, r11, r10, r9, r8, rdi, rsi, rdx, rcx, rax
  pop %\place
  .endr
  pop %rbp
  ret
.popsection
)");
#endif

#define CALLER \
  { static_cast<char*>(__builtin_return_address(0)), static_cast<char*>(__builtin_dwarf_cfa()), *static_cast<char***>(__builtin_frame_address(0)) }
#define TOUCH(SIZE)                                                                                 \
  extern "C" void __asan_load##SIZE##_noabort(void* p) { touch(p, SIZE, false, CALLER); }           \
  extern "C" void __asan_store##SIZE##_noabort(void* p) { touch(p, SIZE, true, CALLER); }
TOUCH(1)
TOUCH(2)
TOUCH(4)
TOUCH(8)
TOUCH(16)

extern "C" void __asan_loadN_noabort(void* p, size_t n) { touch_each(p, n, false, CALLER); }
extern "C" void __asan_storeN_noabort(void* p, size_t n) { touch_each(p, n, true, CALLER); }
extern "C" void __asan_handle_no_return() {}

extern "C" void* __real_memcpy(void*, const void*, size_t);
extern "C" void* __wrap_memcpy(void* to, const void* from, size_t n) {
  touch_each(const_cast<void*>(from), n, false, CALLER);
  touch_each(to, n, true, CALLER);
  return __real_memcpy(to, from, n);
}

namespace {

// Inline and without calls: what it wipes lies just below.
inline void wipe_below(volatile uint64_t* here) {
  typedef uint64_t Words __attribute__((vector_size(16)));  // both begin at a multiple of 16
  const Words ones = {~uint64_t(0), ~uint64_t(0)};
  volatile Words* const end = reinterpret_cast<volatile Words*>(here);
  for (volatile Words* at = reinterpret_cast<volatile Words*>(thread_stack); at < end; ++at) *at = ones;
}

void run_threads() {
  const dim3 grid = launched[0], block = launched[1];
  volatile uint64_t* here = static_cast<uint64_t*>(__builtin_alloca(64));
  thread_top = static_cast<char*>(const_cast<void*>(static_cast<volatile void*>(here)));
  dim3 &b = block_now, &t = thread_now;
  for (b.z = 0; b.z < grid.z; ++b.z)
    for (b.y = 0; b.y < grid.y; ++b.y)
      for (b.x = 0; b.x < grid.x; ++b.x)
        for (t.z = 0; t.z < block.z; ++t.z)
          for (t.y = 0; t.y < block.y; ++t.y)
            for (t.x = 0; t.x < block.x; ++t.x) {
              gridDim = grid, blockDim = block, blockIdx = b, threadIdx = t;
              y_of_thread = 0;
              kernel_call(parameters);
              wipe_below(here);
              report.writers += y_of_thread > 0;
              if (y_of_thread > y_of_launch) y_of_launch = y_of_thread;
            }
}

}  // namespace

cudaError_t watched_launch(dim3 grid, dim3 block, cudaStream_t stream, void (*call)(void*), const void* arguments, size_t bytes) {
  const bool empty = !grid.x || !grid.y || !grid.z || !block.x || !block.y || !block.z;
  const bool large = grid.x > 2147483647u || grid.y > 65535 || grid.z > 65535 || block.x > 1024 || block.y > 1024 ||
                     block.z > 64 || uint64_t(block.x) * block.y * block.z > 1024;
  if (empty || large) return cudaErrorInvalidConfiguration;
  launched[0] = grid, launched[1] = block;
  if (stream != stream_given) report.wrong_stream = 1;
  if (in_kernel || bytes > kParameters) return cudaErrorInvalidValue;  // no launch from within a launch
  rope_called_by_address(reinterpret_cast<void (*)()>(call));
  ++report.launches;
  report.threads += int64_t(grid.x) * grid.y * grid.z * block.x * block.y * block.z;
  __real_memcpy(parameters, arguments, bytes);
  kernel_call = call;
  getcontext(&thread_context);
  thread_context.uc_stack.ss_sp = thread_stack, thread_context.uc_stack.ss_size = kThreadStack;
  thread_context.uc_link = &host_context;
  makecontext(&thread_context, run_threads, 0);
  y_of_launch = 0;
  in_kernel = true;
  swapcontext(&host_context, &thread_context);
  in_kernel = false;
  for (int64_t& most : y_of_launches)
    if (y_of_launch > most) std::swap(y_of_launch, most);
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
  const size_t width = type == kRopeFloat32 ? 4 : 2, count = buffer.bytes / width;
  for (size_t i = 0; i < count; ++i) {
    const uint32_t h = mixed(uint32_t(i), seed), sign = h >> 31, exponent = h >> 23 & 7, mantissa = h & 0x7FFFFF;
    uint32_t bits = sign << 31 | (127 + lowest + exponent) << 23 | mantissa;
    if (type == kRopeBFloat16) bits >>= 16;
    if (type == kRopeFloat16) bits = sign << 15 | (15 + lowest + exponent) << 10 | mantissa >> 13;
    __real_memcpy(buffer.data + i * width, &bits, width);
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
  stack_top = static_cast<char*>(__builtin_alloca(64));
  limit_time(kTimeLimit);
  stream_given = reinterpret_cast<void*>(uintptr_t(c.stream));  // a number, as TensorRT's is here
  running = true;
  const int error = rope_launch(int(c.type), int(c.interleaved), buffers[kX].data, reinterpret_cast<float*>(buffers[kCos].data),
                                reinterpret_cast<float*>(buffers[kSin].data), buffers[kY].data, c.batch, c.sequence, c.heads,
                                c.head_size, stream_given);
  running = false;
  report.error = error;
}

bool examine(const Case& c) {
  const size_t width = c.type == kRopeFloat32 ? 4 : 2, numbers = c.batch * c.sequence * c.heads * c.head_size;
  const size_t table = c.rows * c.head_size / 2 * 4, sizes[kBuffers] = {numbers * width, table, table, numbers * width};
  size_t total = kGuard;
  for (size_t size : sizes) total += (size + 4095) / 4096 * 4096 + kGuard;
  arena = static_cast<char*>(mmap(nullptr, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  arena_end = arena + total;
  char* at = arena + kGuard;
  for (int i = 0; i < kBuffers; ++i) {  // a buffer that is shifted begins one number behind an aligned address
    buffers[i] = {at + (c.shifted == i + 1 ? (i == kX || i == kY ? width : 4) : 0), sizes[i]};
    at += (sizes[i] + 4095) / 4096 * 4096 + kGuard;
  }
  fill(buffers[kX], c.type, int(c.lowest_x), uint32_t(c.seed));
  fill(buffers[kCos], kRopeFloat32, int(c.lowest_table), uint32_t(c.seed) + 1);
  fill(buffers[kSin], kRopeFloat32, int(c.lowest_table), uint32_t(c.seed) + 2);
  memset(buffers[kY].data, 0xFF, buffers[kY].bytes);  // NaN: what is not written is wrong

  report = {};
  for (int64_t& most : y_of_launches) most = 0;
  number_bytes = width, watched = c.watched, in_kernel = false, first_block = 0;
  run(c);
  limit_time(0);
  report.y_bytes = report.fault ? 0 : buffers[kY].bytes;
  if (report.fault) report.accesses = 0;
  for (int64_t most : y_of_launches) report.in_sequence += most;
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
  thread_stack = static_cast<char*>(mmap(nullptr, kThreadStack + kGuard, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  mprotect(thread_stack, kGuard, PROT_NONE);
  thread_stack += kGuard;
  accesses = static_cast<Access*>(malloc(kMaxAccesses * sizeof(Access)));
  int64_t count = 0;
  if (!transfer(0, &count, sizeof count)) return 1;
  for (int64_t i = 0; i < count; ++i) {
    Case one;
    if (!transfer(0, &one, sizeof one) || !examine(one)) return 1;
  }
  return 0;
}
