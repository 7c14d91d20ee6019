#pragma once

// Context: the rank and job that every part of ZeRO on one rank needs to know.

#include <c10/core/Device.h>

#include "runtime/checkpoint/tensor_shard.h"
#include "runtime/comm/rank_groups.h"
#include "runtime/config/model_state.h"
#include "runtime/device/memory_ledger.h"
#include "runtime/precision/dtype_policy.h"
#include "runtime/precision/gradient_reduction.h"
#include "runtime/zero/residency_plan.h"

namespace ds::zero {

struct Context {
  comm::RankGroups groups;
  device::MemoryLedger* ledger = nullptr;  // borrowed
  c10::Device device = c10::kCPU;
  config::Sharding sharding;
  precision::DtypePolicy dtypes;
  precision::GradientReduction reduction;
  ResidencyBudgets budgets = {};

  // What this rank holds as a whole, the ranks of `gradients` hold, too.
  checkpoint::Replica WholeReplica() const {
    return {.index = groups.gradients->rank(), .count = groups.gradients->size()};
  }
  device::MemoryTier tier() const { return device::TierOf(device.is_cpu()); }
};

}  // namespace ds::zero
