// The kernels as a shared library of the CPU: names, and one door to run them.
//
// c++ -std=c++17 -O2 -fwrapv -ffp-contract=off -fno-strict-aliasing -fPIC -shared
//     -fvisibility=hidden -DBOTHENDS_CPU
//
// Several threads of the host may run kernels at once; each has its own block.
#include "../kernels.cu"

#include <algorithm>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

// The largest grid that is run: what is above it never ends on a CPU.
constexpr uint64_t MOST_BLOCKS = 1ull << 24;

// Puts 0, 1, ... into `order`, or with a seed the same numbers shuffled.
void fill_order(std::vector<unsigned>& order, unsigned n, uint64_t seed) {
  order.resize(n);
  for (unsigned i = 0; i < n; i++) order[i] = i;
  for (unsigned i = n; seed && i > 1; i--) {
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    std::swap(order[i - 1], order[(seed >> 33) % i]);
  }
}

void begin(cpu::Block& b, const cpu::Kernel& kernel, const unsigned* size, const unsigned* launch) {
  b.kernel = kernel.name;
  b.grid_dim = {size[0], size[1], size[2]};
  b.block_dim = {launch[0], 1, 1};
  b.n = launch[0];
  b.dynamic_bytes = launch[1];
  b.dynamic_memory.resize(launch[1] + 256);
  b.dynamic = (unsigned char*)(((uintptr_t)b.dynamic_memory.data() + 127) & ~(uintptr_t)127);
  if (b.failed) {
    // Threads of the failed kernel were left where they were.
    b.idle.clear();
    for (auto& fiber : b.fibers) fiber->restart(cpu::fiber_entry), b.idle.push_back(fiber.get());
    b.failed = false;
  }
}

int say(char* message, size_t bytes, const char* text) {
  snprintf(message, bytes, "%s", text);
  return 1;
}

}  // namespace

// The kernel's number, or -1.
EXPORT int bothends_find_kernel(const char* name) {
  const auto& all = cpu::kernels();
  for (size_t i = 0; i < all.size(); i++)
    if (!strcmp(all[i].name, name)) return (int)i;
  return -1;
}

// How many arguments it takes.
EXPORT unsigned bothends_kernel_arguments(int kernel) { return cpu::kernels()[kernel].n_arguments; }

// The name of kernel number `nth`, or null.
EXPORT const char* bothends_kernel_name(int nth) {
  const auto& all = cpu::kernels();
  return nth >= 0 && (size_t)nth < all.size() ? all[nth].name : nullptr;
}

// Runs a kernel to its end. `launch` is threads of a block and bytes of dynamic shared memory.
// Blocks and threads come in their order, or with a seed in one that it gives. `allocations` are
// `n_allocations` pairs of where device memory begins and ends, in order. Returns 0, or says in
// `message` what a GPU would have left undefined.
EXPORT int bothends_run_kernel(int kernel, const unsigned* grid, const unsigned* launch,
                               uint64_t seed, const uint64_t (*allocations)[2],
                               size_t n_allocations, void* const* arguments, char* message,
                               size_t message_bytes) {
  static thread_local cpu::Block of_thread;
  cpu::block = &of_thread;
  cpu::Block& b = of_thread;
  const cpu::Kernel& k = cpu::kernels()[kernel];
  const uint64_t n_blocks = (uint64_t)grid[0] * grid[1] * grid[2];
  if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0 || launch[0] == 0)
    return say(message, message_bytes, "an empty grid or block");
  if (grid[1] > 65535 || grid[2] > 65535) return say(message, message_bytes, "more than 65535 blocks along y or z");
  if (launch[0] > k.most_threads) return say(message, message_bytes, "more threads than the kernel is declared for");
  if (launch[1] > 48 * 1024) return say(message, message_bytes, "more than 48 KiB of dynamic shared memory");
  if (n_blocks > MOST_BLOCKS) return say(message, message_bytes, "too large a grid for a CPU");
  begin(b, k, grid, launch);
  fill_order(b.order, b.n, seed);
  b.allocations = allocations, b.n_allocations = n_allocations, b.last_used = 0;
  std::vector<unsigned> blocks;
  if (seed) fill_order(blocks, (unsigned)n_blocks, seed);
  struct Call {
    const cpu::Kernel* kernel;
    void* const* arguments;
  } call{&k, arguments};
  b.body = [](void* call) { ((Call*)call)->kernel->call(((Call*)call)->arguments); };
  b.arguments = &call;
  for (uint64_t i = 0; i < n_blocks; i++) {
    const uint64_t at = seed ? blocks[i] : i;
    b.block_idx = {(unsigned)(at % grid[0]), (unsigned)(at / grid[0] % grid[1]),
                   (unsigned)(at / grid[0] / grid[1])};
    cpu::run_block();
    if (b.failed) return say(message, message_bytes, b.message);
  }
  return 0;
}
