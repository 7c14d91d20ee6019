#include "runtime/device/thread_cores.h"

#include <ATen/Parallel.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "runtime/base/allowed_cores.h"
#include "runtime/device/parallel.h"

namespace ds::device {
namespace {

// Maximum number of cores of a kernel build.
constexpr int kMostCores = 8192;

struct FreeSet {
  void operator()(cpu_set_t* set) const { CPU_FREE(set); }
};
using CoreSet = std::unique_ptr<cpu_set_t, FreeSet>;
const std::size_t kSetBytes = CPU_ALLOC_SIZE(kMostCores);

// Returns errno, or 0.
int BindThisThread(const std::vector<int>& cores) {
  const CoreSet set(CPU_ALLOC(kMostCores));
  CPU_ZERO_S(kSetBytes, set.get());
  for (const int core : cores) CPU_SET_S(static_cast<std::size_t>(core), kSetBytes, set.get());
  return ::sched_setaffinity(0, kSetBytes, set.get()) == 0 ? 0 : errno;
}

}  // namespace

// A loop with as many elements as threads runs one element on each thread.
Status BindThreadAndPool(const std::vector<int>& cores, int threads) {
  at::set_num_threads(threads);
  std::atomic<int> error = 0;
  const auto bind = [&] {
    if (const int failed = BindThisThread(cores); failed != 0) error = failed;
  };
  bind();
  ParallelFor(0, threads, 1, [&](std::int64_t, std::int64_t) { bind(); });
  if (error == 0) return OkStatus();
  return InternalError("threads cannot be bound to cores: " + std::string(std::strerror(error)));
}

StatusOr<BoundPool> BoundPool::Bind(const std::vector<int>& cores) {
  BoundPool bound;
  bound.threads_before_ = at::get_num_threads();
  DS_ASSIGN_OR_RETURN(bound.cores_before_, ListCoresOfThread());
  const int threads = std::min(static_cast<int>(cores.size()), bound.threads_before_);
  DS_RETURN_IF_ERROR(BindThreadAndPool(cores, threads));
  return bound;
}

BoundPool::BoundPool(BoundPool&& other) noexcept
    : cores_before_(std::exchange(other.cores_before_, {})),
      threads_before_(other.threads_before_) {}

BoundPool::~BoundPool() {
  if (!cores_before_.empty()) static_cast<void>(BindThreadAndPool(cores_before_, threads_before_));
}

}  // namespace ds::device
