#pragma once

// Context: the rank and job that every part of ZeRO on one rank needs to know; tensors that are
// booked in its ledger.

#include <ATen/core/Tensor.h>
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

// A flat tensor whose bytes are in the ledger for as long as it lives.
struct BookedTensor {
  at::Tensor tensor;
  device::LedgerEntry entry;
  at::Tensor on_host;  // the values, while MoveToHost has taken the tensor's bytes

  bool defined() const { return tensor.defined(); }
};

struct FlatSpec {
  std::int64_t count = 0;
  c10::ScalarType dtype = c10::kFloat;
  device::MemoryUse use = device::MemoryUse::kOther;
};

// Makes a flat tensor of undefined values.
BookedTensor MakeBooked(const Context& context, const FlatSpec& spec);

// Takes the bytes to host memory (pinned, where the device is not the CPU) and back; the tensor,
// its storage object and all views of it stay, and must not be read in between. Both do nothing
// when the bytes are there already, or the tensor is not defined.
void MoveToHost(const Context& context, BookedTensor& booked);
void MoveBack(const Context& context, BookedTensor& booked);

}  // namespace ds::zero
