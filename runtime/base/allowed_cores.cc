#include "runtime/base/allowed_cores.h"

#include <sched.h>

#include <cerrno>
#include <memory>

namespace ds {
namespace {

// The largest number of cores that a kernel can be built for.
constexpr int kMostCores = 8192;

struct FreeSet {
  void operator()(cpu_set_t* set) const { CPU_FREE(set); }
};

}  // namespace

StatusOr<std::vector<int>> ListCoresOfThread() {
  const std::unique_ptr<cpu_set_t, FreeSet> set(CPU_ALLOC(kMostCores));
  const std::size_t bytes = CPU_ALLOC_SIZE(kMostCores);
  CPU_ZERO_S(bytes, set.get());
  if (::sched_getaffinity(0, bytes, set.get()) != 0) {
    return ErrnoError(errno, "the cores of a thread are not known");
  }
  std::vector<int> cores;
  for (int core = 0; core < kMostCores; ++core) {
    if (CPU_ISSET_S(static_cast<std::size_t>(core), bytes, set.get())) cores.push_back(core);
  }
  return cores;
}

}  // namespace ds
