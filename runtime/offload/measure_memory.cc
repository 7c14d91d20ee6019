#include "runtime/offload/measure_memory.h"

#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <barrier>
#include <cerrno>
#include <chrono>
#include <span>
#include <thread>

#include "runtime/base/check.h"

namespace ds::offload {
namespace {

constexpr int kPasses = 6;

// This vector is wide enough for one thread to be bound by memory.
using Vector [[gnu::vector_size(32)]] = float;

class Mapping {
 public:
  explicit Mapping(std::size_t bytes)
      : bytes_(bytes),
        start_(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    if (is_there()) static_cast<void>(::madvise(start_, bytes, MADV_HUGEPAGE));
  }
  ~Mapping() {
    if (is_there()) ::munmap(start_, bytes_);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  bool is_there() const { return start_ != MAP_FAILED; }
  std::span<Vector> vectors() const {
    return {static_cast<Vector*>(start_), bytes_ / sizeof(Vector)};
  }

 private:
  const std::size_t bytes_;
  void* const start_;
};

void UpdateInPlace(std::span<Vector> part) {
  for (Vector& each : part) each = each * 0.5F + 1.0F;
}

}  // namespace

StatusOr<MemorySpeed> MeasureMemory(int threads, std::int64_t bytes) {
  DS_CHECK(threads > 0 && bytes > 0);
  const Mapping memory(static_cast<std::size_t>(bytes));
  if (!memory.is_there()) return ErrnoError(errno, "memory to measure");
  const std::size_t each = memory.vectors().size() / static_cast<std::size_t>(threads);
  // The last thread to arrive reads the clock, before and after each pass.
  std::vector<std::chrono::steady_clock::time_point> times;
  std::barrier all(threads, [&]() noexcept { times.push_back(std::chrono::steady_clock::now()); });
  times.reserve(kPasses + 1);
  std::vector<std::thread> workers;
  for (int i = 0; i < threads; ++i) {
    workers.emplace_back(
        [&, part = memory.vectors().subspan(static_cast<std::size_t>(i) * each, each)] {
          std::fill(part.begin(), part.end(), Vector{});
          for (int pass = 0; pass < kPasses; ++pass) {
            all.arrive_and_wait();
            UpdateInPlace(part);
          }
          all.arrive_and_wait();
        });
  }
  for (std::thread& worker : workers) worker.join();
  std::chrono::duration<double> best = times[1] - times[0];
  for (std::size_t i = 1; i + 1 < times.size(); ++i) {
    best = std::min<std::chrono::duration<double>>(best, times[i + 1] - times[i]);
  }
  const auto moved = static_cast<double>(2 * each * sizeof(Vector)) * threads;
  return MemorySpeed{.threads = threads, .bytes_per_second = moved / best.count()};
}

std::vector<int> ListThreadCounts() {
  cpu_set_t usable;
  const bool known = ::sched_getaffinity(0, sizeof usable, &usable) == 0;
  const int most = known ? CPU_COUNT(&usable) : 1;
  std::vector<int> counts;
  for (int count = 1; count < most; count *= 2) counts.push_back(count);
  counts.push_back(most);
  return counts;
}

}  // namespace ds::offload
