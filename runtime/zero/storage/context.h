#pragma once

// Context: the rank and job that every part of ZeRO on one rank needs to know.

#include <c10/core/Device.h>

#include <algorithm>
#include <memory>

#include "runtime/checkpoint/tensor_shard.h"
#include "runtime/comm/rank_groups.h"
#include "runtime/config/model_state.h"
#include "runtime/device/dtype_policy.h"
#include "runtime/device/gradient_reduction.h"
#include "runtime/device/memory_ledger.h"
#include "runtime/plan/mesh/mesh.h"
#include "runtime/plan/zero/residency_plan.h"
#include "runtime/plan/zero/step_windows.h"
#include "runtime/plan/zero/tiers.h"

namespace ds::device {
class CopyStreams;
}

namespace ds::zero {

// ZeRO++'s groups within RankGroups::shards: neighbours that have all secondary shards between them
// (hpZ), and the ranks of equal place in those. Both null: there are none.
struct SecondaryGroups {
  comm::Communicator* within = nullptr;
  comm::Communicator* across = nullptr;
};

struct Context {
  comm::RankGroups groups;
  topology::Mesh mesh = {};  // of groups.all
  // Flat buffers of dense parameters are cut among ranks along these: groups.shards.
  topology::AxisSet cut_axes = topology::kShardAxes;
  device::MemoryLedger* ledger = nullptr;  // borrowed
  c10::Device device = c10::kCPU;
  config::Sharding sharding;
  precision::DtypePolicy dtypes;
  precision::GradientReduction reduction;
  ResidencyBudgets budgets = {};
  StepWindows windows = {};
  SecondaryGroups secondary = {};
  bool quantized_weights = false;    // trained ones travel in 8 bits (shard_gather.h)
  bool quantized_frozen = false;     // frozen ones are kept so as well
  bool quantized_gradients = false;  // in 4 bits (quantized_reduction.h)
  std::optional<config::LocoConfig> loco = {};
  bool blockwise_state = false;  // the optimizer's is in 8 bits, in blocks of config::kStateBlock
  // Publishing brings at most so many elements by one call, through a buffer of as many. None: a
  // bucket by one call, in place.
  std::optional<std::int64_t> publish_elements = {};
  // Collectives of parameters and gradients go on beside the computation, until somebody needs what
  // they bring.
  bool overlap = false;
  Tiers tiers = {};
  // They bring what rests on the host, and take it back. Null, as on the CPU: whoever asks copies.
  std::shared_ptr<device::CopyStreams> copies = {};
  // Experts' parameters have this one, where ranks hold different ones; null: they are as dense.
  std::shared_ptr<const Context> of_experts = {};
  bool is_of_experts = false;

  // The context of parameters that are placed so.
  const Context& For(const checkpoint::Placement& placement) const {
    return placement.expert && of_experts != nullptr ? *of_experts : *this;
  }

  // Those along which ranks hold the same flat shard of a parameter, and the same whole of it.
  static topology::AxisSet WholeCopyAxes(const checkpoint::Placement& placement) {
    return placement.copy_axes.With(placement.gradient_axes);
  }
  topology::AxisSet ShardCopyAxes(const checkpoint::Placement& placement) const {
    return WholeCopyAxes(placement).Without(cut_axes);
  }
  checkpoint::Replica ReplicaAlong(topology::AxisSet axes) const {
    const topology::Member member = mesh.MemberOf(groups.all->rank(), axes);
    return {.index = member.index, .count = member.count};
  }
  // The same among the ranks that hold the tensor: of an expert's those with the same experts, and
  // of all stages.
  checkpoint::Replica ReplicaOf(const checkpoint::Placement& placement,
                                topology::AxisSet axes) const {
    const checkpoint::Replica own = placement.expert ? ReplicaOfExperts(axes) : ReplicaAlong(axes);
    if (placement.stages.empty()) return own;
    const auto& stages = placement.stages;
    const auto place = std::find(stages.begin(), stages.end(), stage()) - stages.begin();
    return {.index = static_cast<int>(place) * own.count + own.index,
            .count = static_cast<int>(stages.size()) * own.count};
  }
  // Counts the ranks that hold the same flat shard.
  int CountShardCopies(const checkpoint::Placement& placement) const {
    return ReplicaOf(placement, ShardCopyAxes(placement)).count;
  }
  // Tells whether this rank's stage is the first, or the only one, that holds the tensor.
  bool IsOfThisStage(const checkpoint::Placement& placement) const {
    return placement.stages.empty() || placement.stages.front() == stage();
  }
  int stage() const {
    return mesh.CoordinatesOf(
        groups.all->rank())[static_cast<std::size_t>(topology::Axis::kPipeline)];
  }
  checkpoint::Replica ReplicaOfExperts(topology::AxisSet axes) const {
    const int rank = groups.all->rank();
    const std::vector<int> holders = mesh.SameExpertsOf(rank, axes);
    const auto place = std::find(holders.begin(), holders.end(), rank) - holders.begin();
    return {.index = static_cast<int>(place), .count = static_cast<int>(holders.size())};
  }
  device::MemoryTier tier() const { return device::TierOf(device.is_cpu()); }
};

}  // namespace ds::zero
