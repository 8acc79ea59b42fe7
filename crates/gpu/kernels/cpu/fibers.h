// Switching between stacks: the threads of a block take turns on one thread of the host.
//
// x86-64 and AArch64 have a switch of their own, which costs a few nanoseconds; everything
// else goes through ucontext.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#if !defined(__x86_64__) && !defined(__aarch64__)
#include <ucontext.h>
#endif

namespace cpu {

constexpr size_t STACK_BYTES = 64 << 10;
constexpr uint64_t CANARY = 0x57ac0be105e0f17eull;

#if defined(__x86_64__) || defined(__aarch64__)

// Saves the callee's registers and the stack pointer of whoever calls, continues another.
extern "C" void bothends_switch_stack(void** save, void* to) __attribute__((visibility("hidden")));

#if defined(__x86_64__)
asm(R"(
.text
.hidden bothends_switch_stack
.globl bothends_switch_stack
.type bothends_switch_stack, @function
bothends_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size bothends_switch_stack, .-bothends_switch_stack
)");
constexpr size_t SAVED_WORDS = 6;
#else
asm(R"(
.text
.hidden bothends_switch_stack
.globl bothends_switch_stack
.type bothends_switch_stack, %function
bothends_switch_stack:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size bothends_switch_stack, .-bothends_switch_stack
)");
#endif

struct Context {
  void* sp = nullptr;
};

inline void switch_to(Context& from, Context& to) { bothends_switch_stack(&from.sp, to.sp); }

// Makes `context` begin `entry` on `stack` when it is first switched to.
inline void begin(Context& context, unsigned char* stack, void (*entry)()) {
  uintptr_t top = ((uintptr_t)stack + STACK_BYTES) & ~(uintptr_t)63;
#if defined(__x86_64__)
  // As if `entry` had been called: its return address lies at 8 modulo 16.
  void** words = (void**)top - 2;
  words[0] = (void*)entry;
  words[1] = nullptr;
  for (size_t i = 1; i <= SAVED_WORDS; i++) words[-(ptrdiff_t)i] = nullptr;
  context.sp = words - SAVED_WORDS;
#else
  void** words = (void**)(top - 160);
  for (int i = 0; i < 20; i++) words[i] = nullptr;
  words[11] = (void*)entry;
  context.sp = words;
#endif
}

#else

struct Context {
  ucontext_t context;
};

inline void switch_to(Context& from, Context& to) { swapcontext(&from.context, &to.context); }

inline void begin(Context& context, unsigned char* stack, void (*entry)()) {
  getcontext(&context.context);
  context.context.uc_stack.ss_sp = stack;
  context.context.uc_stack.ss_size = STACK_BYTES;
  context.context.uc_link = nullptr;
  makecontext(&context.context, entry, 0);
}

#endif

// A stack, and where its thread of the block was left.
struct Fiber {
  Context context;
  std::unique_ptr<unsigned char[]> stack{new unsigned char[STACK_BYTES]};

  explicit Fiber(void (*entry)()) { restart(entry); }

  void restart(void (*entry)()) {
    for (int i = 0; i < 8; i++) ((uint64_t*)stack.get())[i] = CANARY;
    begin(context, stack.get(), entry);
  }

  bool overflowed() const {
    for (int i = 0; i < 8; i++)
      if (((const uint64_t*)stack.get())[i] != CANARY) return true;
    return false;
  }
};

}  // namespace cpu
