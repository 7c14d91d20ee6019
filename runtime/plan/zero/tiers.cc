#include "runtime/plan/zero/tiers.h"

#include <algorithm>
#include <numeric>

#include "runtime/config/model_state.h"
#include "runtime/plan/zero/residency_plan.h"

namespace ds::zero {
namespace {

using config::OffloadDevice;

// The runtime's sub-group size if the config has DeepSpeed's default: large enough for a drive.
constexpr std::int64_t kElementsAtOnce = std::int64_t{1} << 22;
// Sub-groups begin at page boundaries for every dtype.
constexpr std::int64_t kPageElements = 2048;
// The size limit of buffers for any sub-group size: "never split" is configured as a number beyond
// any memory.
constexpr std::int64_t kMostBufferElements = kElementsAtOnce * 16;

// Weights, two state values and their low-precision copy, in fp32.
constexpr std::int64_t kMostBytesOfElement = 16;

// Multiplies non-negative numbers; saturates at the largest number.
std::int64_t Product(std::int64_t a, std::int64_t b) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  return b != 0 && a > kMost / b ? kMost : a * b;
}

std::int64_t ChooseMostElements(const config::ZeroConfig& zero) {
  if (zero.sub_group_size == config::ZeroConfig().sub_group_size) return kElementsAtOnce;
  return std::max(zero.sub_group_size / kPageElements * kPageElements, kPageElements);
}

StorageTier StorageTierOn(OffloadDevice device, bool on_gpu) {
  if (device == OffloadDevice::kNvme) return StorageTier::kFile;
  return device == OffloadDevice::kCpu && on_gpu ? StorageTier::kHost : StorageTier::kHere;
}

// True if the update of a step can depend on all its gradients.
bool ClipsOrSkips(const config::DsConfig& config) {
  return config.gradient_clipping != 0.0 || config.fp16.enabled ||
         (config.bf16.enabled && config.bf16.check_grad_overflow);
}

}  // namespace

Tiers PlanTiers(const config::DsConfig& config, bool on_gpu) {
  const config::ZeroConfig& zero = config.zero_optimization;
  const config::OffloadOptimizerConfig& optimizer = zero.offload_optimizer;
  Tiers tiers{.parameters = StorageTierOn(zero.offload_param.device, on_gpu),
              .optimizer = StorageTierOn(optimizer.device, on_gpu),
              .smallest_bytes = config.aio.block_size,
              .copies_from_files = on_gpu,
              .waiting_bytes = Product(std::max<std::int64_t>(1, optimizer.buffer_count),
                                       std::min(ChooseMostElements(zero), kMostBufferElements) * 4),
              .optimizer_share = optimizer.ratio,
              .reads_ahead = optimizer.pipeline_read,
              .writes_behind = optimizer.pipeline_write,
              .updates_in_backward = optimizer.super_offload,
              .rolls_back = optimizer.super_offload && ClipsOrSkips(config),
              .overlaps_update = optimizer.super_offload && optimizer.update_cores && !on_gpu};
  if (tiers.optimizer == StorageTier::kFile) {
    tiers.gradients = StorageTier::kFile;
    tiers.most_elements = ChooseMostElements(zero);
  }
  if (on_gpu) tiers.resident_parameters = StorageTier::kHost;
  if (tiers.parameters == StorageTier::kFile) {
    tiers.resident_parameter_bytes =
        Product(zero.offload_param.max_in_cpu, Width(config::ChooseStateTypes(config).parameter));
  }
  // Partial copies between a device and its host cost no more than full ones. Only three sub-groups
  // are on the device at a time: one arrives, one is updated, one leaves.
  const bool updates_from_host =
      tiers.optimizer == StorageTier::kHost || tiers.parameters == StorageTier::kHost;
  if (updates_from_host && tiers.optimizer != StorageTier::kFile) {
    tiers.most_elements = ChooseMostElements(zero);
    tiers.reads_ahead = true;
  }
  if (on_gpu) {
    tiers.leaving_bytes =
        Product(std::min(ChooseMostElements(zero), kMostBufferElements), kMostBytesOfElement);
  }
  return tiers;
}

std::vector<bool> ChooseResident(const std::vector<std::int64_t>& shard_numels,
                                 double optimizer_share) {
  const auto all = std::accumulate(shard_numels.begin(), shard_numels.end(), std::int64_t{0});
  auto left = static_cast<std::int64_t>((1.0 - optimizer_share) * static_cast<double>(all));
  std::vector<bool> resident;
  for (const std::int64_t numel : shard_numels) {
    resident.push_back(numel <= left);
    if (resident.back()) left -= numel;
  }
  return resident;
}

std::int64_t ChooseFetchBytes(const config::ZeroConfig& zero, std::int64_t element_size) {
  const config::OffloadParamConfig& offload = zero.offload_param;
  const config::OffloadParamConfig defaults;
  if (offload.device == OffloadDevice::kNone) return 0;
  if (offload.buffer_count == defaults.buffer_count &&
      offload.buffer_size == defaults.buffer_size) {
    return ResidencyBudgets::kLargestNeed;
  }
  // One buffer belongs to the block that is gathered.
  return Product(std::max<std::int64_t>(0, offload.buffer_count - 1),
                 Product(offload.buffer_size, element_size));
}

}  // namespace ds::zero
