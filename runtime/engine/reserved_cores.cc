#include "runtime/engine/reserved_cores.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/base/allowed_cores.h"
#include "runtime/base/host_name.h"
#include "runtime/base/philox.h"
#include "runtime/comm/agreement.h"
#include "runtime/plan/zero/core_split.h"

namespace ds::engine {
namespace {

// The key that asks for reserved cores, and the computation's share of the rank's cores.
struct Wanted {
  const char* key;
  double compute_share;
};

std::optional<Wanted> FindWanted(const config::ZeroConfig& zero) {
  const auto& optimizer = zero.offload_optimizer;
  if (optimizer.super_offload && optimizer.update_cores) {
    return Wanted{"zero_optimization.offload_optimizer.cpuadam_cores_perc",
                  1.0 - *optimizer.update_cores};
  }
  if (zero.zenflow && zero.zenflow->overlap_step && zero.zenflow->compute_cores) {
    return Wanted{"zero_optimization.zenflow.pt_reserved_cores_perc", *zero.zenflow->compute_cores};
  }
  return std::nullopt;
}

// Returns a hash that ranks have in common if they share their cores.
std::uint64_t HashOf(const std::vector<int>& cores) {
  return ExtendKey(0, fmt::format("{} {}", HostName(), fmt::join(cores, ",")));
}

// The cores of this rank, and the smallest number that any rank has. Collective.
struct RankCores {
  std::vector<int> own;
  int poorest = 0;
  std::size_t least = 0;
};
RankCores FindCoresOfRanks(const std::vector<int>& allowed, comm::Communicator& world) {
  const auto hash = static_cast<std::int64_t>(HashOf(allowed) >> 1);
  const std::vector<std::int64_t> hashes = comm::GatherNumber(hash, world);
  const auto counts = comm::GatherNumber(static_cast<std::int64_t>(allowed.size()), world);
  RankCores cores;
  for (int rank = 0; rank < world.size(); ++rank) {
    const auto at = hashes.begin() + rank;
    const auto index = static_cast<int>(std::count(hashes.begin(), at, *at));
    const auto sharing = static_cast<int>(std::count(hashes.begin(), hashes.end(), *at));
    // Only the count matters here, not the core numbers.
    const std::vector<int> numbers(
        static_cast<std::size_t>(counts[static_cast<std::size_t>(rank)]));
    const std::size_t count = zero::TakeOwnCores(numbers, index, sharing).size();
    if (rank == 0 || count < cores.least)
      std::tie(cores.poorest, cores.least) = std::tuple(rank, count);
    if (rank == world.rank()) cores.own = zero::TakeOwnCores(allowed, index, sharing);
  }
  return cores;
}

// Limits computation to the smallest number of cores of any rank. Tensor ranks must compute with
// equal numbers of threads (CheckTensorRanksAreEqual), and leftover cores would make them differ.
// Collective.
zero::CoreSplit MakeEqual(zero::CoreSplit split, comm::Communicator& world) {
  const auto counts = comm::GatherNumber(static_cast<std::int64_t>(split.compute.size()), world);
  const std::int64_t least = *std::min_element(counts.begin(), counts.end());
  return zero::LimitCompute(std::move(split), static_cast<std::size_t>(least));
}

Status Bind(const zero::CoreSplit& split, ReservedCores* reserved) {
  reserved->update_thread = std::make_unique<zero::UpdateThread>(split.update);
  DS_ASSIGN_OR_RETURN(auto bound, device::BoundPool::Bind(split.compute));
  reserved->compute_cores.emplace(std::move(bound));
  return OkStatus();
}

}  // namespace

Status ReserveCores(const config::DsConfig& config, const EngineOptions& options,
                    zero::Tiers* tiers, ReservedCores* reserved) {
  const std::optional<Wanted> wanted = FindWanted(config.zero_optimization);
  if (!wanted) return OkStatus();
  const auto notify = [&](const std::string& what) {
    if (options.notify) options.notify(fmt::format("{}: {}", wanted->key, what));
  };
  const bool updates_on_gpu = tiers->updates_in_backward && !options.device.is_cpu();
  if (updates_on_gpu) {
    notify("no cores are reserved, as the GPU updates");
    return OkStatus();
  }
  const auto allowed = ListCoresOfThread();
  DS_RETURN_IF_ERROR(
      comm::AgreeOnStatus(allowed.ok() ? OkStatus() : allowed.status(), *options.world));
  const RankCores cores = FindCoresOfRanks(*allowed, *options.world);
  zero::CoreSplit split = zero::SplitCores(cores.own, wanted->compute_share);
  if (cores.least < 2 && split.why_not.empty()) {
    split.why_not = fmt::format("rank {} has one core, and ranks do alike", cores.poorest);
  }
  tiers->overlaps_update = tiers->updates_in_backward && split.why_not.empty();
  if (!split.why_not.empty()) {
    notify("no cores are reserved: " + split.why_not);
    return OkStatus();
  }
  if (config.parallel.tensor > 1) split = MakeEqual(std::move(split), *options.world);
  DS_RETURN_IF_ERROR(comm::AgreeOnStatus(Bind(split, reserved), *options.world));
  tiers->update_thread = reserved->update_thread.get();
  notify(fmt::format("the update has cores {}, the model's computation cores {}",
                     fmt::join(split.update, ", "), fmt::join(split.compute, ", ")));
  return OkStatus();
}

}  // namespace ds::engine
