#include "runtime/offload/bandwidth.h"

#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <span>
#include <thread>

#include "runtime/base/check.h"

namespace ds::offload {
namespace {

// Bytes of one transfer, the size of an optimizer sub-group.
constexpr std::int64_t kTransferBytes = std::int64_t{16} << 20;

// Transfers the full extent with two transfers in flight. Returns bytes per second.
StatusOr<double> Transfer(FileTier& tier, const Extent& extent, bool writes) {
  std::array<AlignedBuffer, 2> buffers{tier.pool().Take(kTransferBytes),
                                       tier.pool().Take(kTransferBytes)};
  for (const AlignedBuffer& buffer : buffers) {
    std::memset(buffer.bytes().data(), 0x5a, buffer.bytes().size());
  }
  std::array<FileTransfer, 2> in_flight;
  Status status;
  const auto start = std::chrono::steady_clock::now();
  for (std::int64_t at = 0, round = 0; at < extent.bytes(); at += kTransferBytes, ++round) {
    const auto side = static_cast<std::size_t>(round % 2);
    if (in_flight[side]) status = tier.Wait(in_flight[side]);
    if (!status.ok()) break;
    const std::int64_t count = std::min(kTransferBytes, extent.bytes() - at);
    in_flight[side] = writes ? tier.Write(extent, at, buffers[side], count)
                             : tier.Read(extent, at, buffers[side], count);
  }
  // Both transfers must end before the buffers are destroyed.
  for (const FileTransfer& transfer : in_flight) {
    if (!transfer) continue;
    const Status ended = tier.Wait(transfer);
    if (status.ok()) status = ended;
  }
  if (!status.ok()) return status;
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  return static_cast<double>(extent.bytes()) / seconds.count();
}

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

StatusOr<TierSpeed> MeasureTier(const TierOptions& options, std::int64_t bytes) {
  DS_ASSIGN_OR_RETURN(const std::unique_ptr<FileTier> tier, FileTier::Open(options));
  DS_ASSIGN_OR_RETURN(const Extent extent, tier->Allocate(bytes));
  DS_RETURN_IF_ERROR(Transfer(*tier, extent, /*writes=*/true).status());
  TierSpeed speed{.io = options.io};
  DS_ASSIGN_OR_RETURN(speed.write_bytes_per_second, Transfer(*tier, extent, /*writes=*/true));
  DS_ASSIGN_OR_RETURN(speed.read_bytes_per_second, Transfer(*tier, extent, /*writes=*/false));
  return speed;
}

std::vector<IoOptions> ListIoSettings() {
  std::vector<IoOptions> all;
  for (const int threads : {1, 2, 4}) {
    for (const int queue_depth : {8, 32}) {
      for (const int block_shift : {18, 20, 23}) {
        all.push_back({.block_bytes = std::int64_t{1} << block_shift,
                       .queue_depth = queue_depth,
                       .threads = threads});
      }
    }
  }
  return all;
}

const TierSpeed& ChooseFastest(std::span<const TierSpeed> speeds) {
  return *std::max_element(
      speeds.begin(), speeds.end(),
      [](const TierSpeed& a, const TierSpeed& b) { return a.both() < b.both(); });
}

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
