#pragma once

// Context: the properties of the rank and the job that all parts of ZeRO on one rank share.

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

// ZeRO++'s groups within RankGroups::shards. `within`: neighbours that hold all secondary shards
// together (hpZ). `across`: the ranks with the same index in those groups. Null: there are none.
struct SecondaryGroups {
  comm::Communicator* within = nullptr;
  comm::Communicator* across = nullptr;
};

struct Context {
  comm::RankGroups groups;
  topology::Mesh mesh = {};  // of groups.all
  // The mesh axes that flat buffers of dense parameters are sharded along: groups.shards.
  topology::AxisSet shard_axes = topology::kShardAxes;
  device::MemoryLedger* ledger = nullptr;  // borrowed
  c10::Device device = c10::kCPU;
  config::Sharding sharding;
  precision::DtypePolicy dtypes;
  precision::GradientReduction reduction;
  ResidencyBudgets budgets = {};
  StepWindows windows = {};
  SecondaryGroups secondary = {};
  bool quantized_weights = false;    // trained ones are sent in 8 bits (shard_gather.h)
  bool quantized_frozen = false;     // frozen ones are also stored in 8 bits
  bool quantized_gradients = false;  // sent in 4 bits (quantized_reduction.h)
  std::optional<config::LocoConfig> loco = {};
  bool blockwise_state = false;  // 8-bit optimizer state, in blocks of config::kStateBlock
  // Maximum number of elements that publishing gathers in one call, through a buffer of that size.
  // None: one call for a bucket, in place.
  std::optional<std::int64_t> publish_elements = {};
  // Collectives of parameters and gradients overlap with computation, until their results are
  // needed.
  bool overlap = false;
  Tiers tiers = {};
  // Copies offloaded state from and to the host. Null, as on the CPU: copies are synchronous.
  std::shared_ptr<device::CopyStreams> copies = {};
  // The context of expert parameters, if ranks hold different experts. Null: this context applies.
  std::shared_ptr<const Context> of_experts = {};
  bool is_of_experts = false;

  // Returns the context of parameters with this placement.
  const Context& For(const checkpoint::Placement& placement) const {
    return placement.expert && of_experts != nullptr ? *of_experts : *this;
  }

  // The axes along which ranks hold the same full copy of a parameter; ShardCopyAxes: the axes
  // along which they hold the same flat shard.
  static topology::AxisSet FullCopyAxes(const checkpoint::Placement& placement) {
    return placement.copy_axes.With(placement.gradient_axes);
  }
  topology::AxisSet ShardCopyAxes(const checkpoint::Placement& placement) const {
    return FullCopyAxes(placement).Without(shard_axes);
  }
  checkpoint::Replica ReplicaAlong(topology::AxisSet axes) const {
    const topology::Member member = mesh.MemberOf(groups.all->rank(), axes);
    return {.index = member.index, .count = member.count};
  }
  // The same among all ranks that hold the tensor: for an expert, the ranks with the same experts;
  // and all pipeline stages that hold it.
  checkpoint::Replica ReplicaOf(const checkpoint::Placement& placement,
                                topology::AxisSet axes) const {
    const checkpoint::Replica own = placement.expert ? ReplicaOfExperts(axes) : ReplicaAlong(axes);
    if (placement.stages.empty()) return own;
    const auto& stages = placement.stages;
    const auto stage_index = std::find(stages.begin(), stages.end(), stage()) - stages.begin();
    return {.index = static_cast<int>(stage_index) * own.count + own.index,
            .count = static_cast<int>(stages.size()) * own.count};
  }
  // Returns the number of ranks that hold the same flat shard.
  int CountShardCopies(const checkpoint::Placement& placement) const {
    return ReplicaOf(placement, ShardCopyAxes(placement)).count;
  }
  // Returns whether this rank's stage is the first or only one that holds the tensor.
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
    const auto stage_index = std::find(holders.begin(), holders.end(), rank) - holders.begin();
    return {.index = static_cast<int>(stage_index), .count = static_cast<int>(holders.size())};
  }
  device::MemoryTier tier() const { return device::TierOf(device.is_cpu()); }
};

}  // namespace ds::zero
