#include "runtime/offload/measure_tier.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>

namespace ds::offload {
namespace {

// Bytes of one transfer, the size of an optimizer sub-group.
constexpr std::int64_t kTransferBytes = std::int64_t{16} << 20;

// Transfers the full extent with two transfers in flight. Returns bytes per second.
StatusOr<double> Pass(FileTier& tier, const Extent& extent, bool writes) {
  std::array<AlignedBuffer, 2> buffers{tier.pool().Take(kTransferBytes),
                                       tier.pool().Take(kTransferBytes)};
  for (const AlignedBuffer& buffer : buffers) {
    std::memset(buffer.bytes().data(), 0x5a, buffer.bytes().size());
  }
  std::array<FileTransfer, 2> under_way;
  Status status;
  const auto start = std::chrono::steady_clock::now();
  for (std::int64_t at = 0, turn = 0; at < extent.bytes(); at += kTransferBytes, ++turn) {
    const auto side = static_cast<std::size_t>(turn % 2);
    if (under_way[side]) status = tier.Wait(under_way[side]);
    if (!status.ok()) break;
    const std::int64_t count = std::min(kTransferBytes, extent.bytes() - at);
    under_way[side] = writes ? tier.Write(extent, at, buffers[side], count)
                             : tier.Read(extent, at, buffers[side], count);
  }
  // Both transfers must end before the buffers are destroyed.
  for (const FileTransfer& transfer : under_way) {
    if (!transfer) continue;
    const Status ended = tier.Wait(transfer);
    if (status.ok()) status = ended;
  }
  if (!status.ok()) return status;
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  return static_cast<double>(extent.bytes()) / seconds.count();
}

}  // namespace

StatusOr<TierSpeed> MeasureTier(const TierOptions& options, std::int64_t bytes) {
  DS_ASSIGN_OR_RETURN(const std::unique_ptr<FileTier> tier, FileTier::Open(options));
  DS_ASSIGN_OR_RETURN(const Extent extent, tier->Allocate(bytes));
  DS_RETURN_IF_ERROR(Pass(*tier, extent, /*writes=*/true).status());
  TierSpeed speed{.io = options.io};
  DS_ASSIGN_OR_RETURN(speed.write_bytes_per_second, Pass(*tier, extent, /*writes=*/true));
  DS_ASSIGN_OR_RETURN(speed.read_bytes_per_second, Pass(*tier, extent, /*writes=*/false));
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

}  // namespace ds::offload
