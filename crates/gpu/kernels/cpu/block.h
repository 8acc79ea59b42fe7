// A block of threads on one thread of the host.
//
// A thread of the block runs until it waits for others; then the next one runs. Threads
// that never wait need no stack of their own. What a GPU leaves undefined ends the kernel
// with a message here: a barrier that part of a block reaches, lanes that meet at different
// warp operations, an index outside shared memory, a vector access that is not aligned.
#pragma once

#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include "fibers.h"

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
};

namespace cpu {

enum class At : unsigned char { fresh, ready, barrier, warp, done };

struct Lane {
  At at;
  Fiber* fiber;
  // Where it waits: the line of a barrier, or the name of a warp operation and its mask.
  const char* what;
  unsigned line;
  unsigned mask;
  // What it gives to the others, and what of it they may read since all met.
  unsigned long long given, published;
};

struct Block {
  dim3 thread_idx, block_idx, block_dim, grid_dim;
  const char* kernel = "";
  unsigned n = 0, current = 0, n_started = 0;
  // The order in which threads get their turns.
  std::vector<unsigned> order;
  std::vector<Lane> lanes;
  std::vector<std::unique_ptr<Fiber>> fibers;
  std::vector<Fiber*> idle;
  Context scheduler;
  void (*body)(void*) = nullptr;
  void* arguments = nullptr;
  std::vector<unsigned char> dynamic_memory;
  unsigned char* dynamic = nullptr;
  size_t dynamic_bytes = 0;
  // Tells one block from the next: shared memory holds nothing of the block before.
  unsigned long long generation = 0;
  unsigned n_votes = 0;
  // Device memory: where each allocation begins and ends, in order; and the last one that was used.
  const uint64_t (*allocations)[2] = nullptr;
  size_t n_allocations = 0, last_used = 0;
  bool failed = false;
  char message[512] = "";

  Lane& lane() { return lanes[current]; }
};

inline thread_local Block* block = nullptr;

// Ends the kernel with a message; what the block has begun is not gone on with.
[[noreturn]] inline void fault(const char* format, ...) {
  Block& b = *block;
  int n = snprintf(b.message, sizeof b.message, "%s, block (%u, %u, %u), thread %u: ", b.kernel,
                   b.block_idx.x, b.block_idx.y, b.block_idx.z, b.current);
  va_list values;
  va_start(values, format);
  vsnprintf(b.message + n, sizeof b.message - n, format, values);
  va_end(values);
  b.failed = true;
  Context abandoned;
  switch_to(abandoned, b.scheduler);
  __builtin_unreachable();
}

// Every fiber: starts threads until there are none, then is idle until it is needed again.
inline void fiber_entry() {
  Block& b = *block;
  for (;;) {
    Fiber* self = b.idle.back();
    b.idle.pop_back();
    while (b.n_started < b.n) {
      b.current = b.order[b.n_started++];
      b.thread_idx.x = b.current;
      b.lane().fiber = self;
      b.lane().at = At::ready;
      b.body(b.arguments);
      b.lane().at = At::done;
    }
    b.idle.push_back(self);
    switch_to(self->context, b.scheduler);
  }
}

// The running thread waits; returns once what it waits for has happened.
inline void wait(At at) {
  Block& b = *block;
  const unsigned me = b.current;
  Fiber* fiber = b.lane().fiber;
  b.lane().at = at;
  if (fiber->overflowed()) fault("its stack of %zu bytes is full", STACK_BYTES);
  switch_to(fiber->context, b.scheduler);
  b.current = me;
  b.thread_idx.x = me;
}

inline void describe(const Lane& lane, char* text, size_t bytes) {
  if (lane.at == At::done)
    snprintf(text, bytes, "has ended");
  else if (lane.at == At::barrier)
    snprintf(text, bytes, "waits at the barrier in %s:%u", lane.what, lane.line);
  else
    snprintf(text, bytes, "waits in %s with mask %08x", lane.what, lane.mask);
}

inline void disagree(unsigned one, unsigned other) {
  Block& b = *block;
  char of_one[160], of_other[160];
  describe(b.lanes[one], of_one, sizeof of_one);
  describe(b.lanes[other], of_other, sizeof of_other);
  snprintf(b.message, sizeof b.message,
           "%s, block (%u, %u, %u): thread %u %s, and thread %u %s", b.kernel, b.block_idx.x,
           b.block_idx.y, b.block_idx.z, one, of_one, other, of_other);
  b.failed = true;
}

// Whether two threads wait for the same.
inline bool together(const Lane& one, const Lane& other) {
  return one.at == other.at && one.line == other.line && one.mask == other.mask &&
         !strcmp(one.what, other.what);
}

// Frees the lanes of warps that have all met; whether there were any.
inline bool release_warps() {
  Block& b = *block;
  bool any = false;
  for (unsigned i = 0; i < b.n; i++) {
    if (b.lanes[i].at != At::warp) continue;
    const unsigned first = i & ~31u, mask = b.lanes[i].mask;
    bool all = true;
    for (unsigned lane = 0; lane < 32 && all; lane++) {
      if (!(mask >> lane & 1) || first + lane >= b.n) continue;
      const Lane& other = b.lanes[first + lane];
      all = other.at == At::done || together(other, b.lanes[i]);
    }
    if (!all) continue;
    any = true;
    for (unsigned lane = 0; lane < 32; lane++) {
      if (!(mask >> lane & 1) || first + lane >= b.n) continue;
      Lane& other = b.lanes[first + lane];
      if (other.at == At::done) continue;
      other.published = other.given;
      other.at = At::ready;
    }
  }
  return any;
}

// Frees all threads from a barrier that all have reached; anything else is a fault now.
inline void release_barrier() {
  Block& b = *block;
  for (unsigned i = 0; i < b.n; i++) {
    if (b.lanes[i].at != At::warp) continue;
    for (unsigned other = i & ~31u; other < b.n && other < (i | 31) + 1; other++) {
      const bool awaited = b.lanes[i].mask >> (other & 31) & 1;
      if (awaited && b.lanes[other].at != At::done && !together(b.lanes[i], b.lanes[other]))
        return disagree(i, other);
    }
  }
  for (unsigned i = 1; i < b.n; i++)
    if (!together(b.lanes[0], b.lanes[i])) return disagree(0, i);
  b.n_votes = 0;
  for (Lane& lane : b.lanes) b.n_votes += lane.given != 0, lane.at = At::ready;
}

inline void run_block() {
  Block& b = *block;
  b.generation++;
  b.n_started = 0;
  memset(b.dynamic, 0xA5, b.dynamic_bytes);
  b.lanes.assign(b.n, Lane{At::fresh, nullptr, "", 0, 0, 0, 0});
  while (!b.failed) {
    while (b.n_started < b.n && !b.failed) {
      if (b.idle.empty()) {
        b.fibers.emplace_back(new Fiber(fiber_entry));
        b.idle.push_back(b.fibers.back().get());
      }
      switch_to(b.scheduler, b.idle.back()->context);
    }
    bool all_done = true;
    for (unsigned nth = 0; nth < b.n && !b.failed; nth++) {
      Lane& lane = b.lanes[b.order[nth]];
      if (lane.at == At::ready) {
        b.current = b.order[nth];
        switch_to(b.scheduler, lane.fiber->context);
      }
      all_done = all_done && lane.at == At::done;
    }
    if (all_done || b.failed) return;
    if (!release_warps()) release_barrier();
  }
}

// A kernel as it is called: by name, with addresses of its arguments.
struct Kernel {
  const char* name;
  unsigned most_threads;
  unsigned n_arguments;
  void (*call)(void* const* arguments);
};

inline std::vector<Kernel>& kernels() {
  static std::vector<Kernel> all;
  return all;
}

template <class... A, size_t... I>
void call_with(void (*kernel)(A...), void* const* arguments, std::index_sequence<I...>) {
  kernel(*(std::remove_const_t<A>*)arguments[I]...);
}

template <auto kernel, class... A>
struct Registered {
  static void call(void* const* arguments) {
    call_with(kernel, arguments, std::index_sequence_for<A...>());
  }
};

template <auto kernel, class... A>
bool enter(void (*)(A...), const char* name, unsigned most_threads) {
  kernels().push_back({name, most_threads, sizeof...(A), Registered<kernel, A...>::call});
  return true;
}

}  // namespace cpu
