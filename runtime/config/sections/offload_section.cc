#include "runtime/config/sections/sections.h"

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "runtime/config/keys/keys.h"
#include "runtime/config/sections/optimizer_section.h"
#include "runtime/config/sections/zero_section.h"

namespace ds::config {
namespace {

using Json = nlohmann::ordered_json;

constexpr Key kStage = keys::kZeroOptimizationStage;
constexpr Key kBlockSize = keys::kAioBlockSize;

constexpr Key kSuperOffload = keys::kZeroOptimizationOffloadOptimizerSuperOffload;
constexpr Key kUpdateCores = keys::kZeroOptimizationOffloadOptimizerCpuadamCoresPerc;

struct Target {
  Key device, path;
};
constexpr Target kOptimizer{keys::kZeroOptimizationOffloadOptimizerDevice,
                            keys::kZeroOptimizationOffloadOptimizerNvmePath};
constexpr Target kParam{keys::kZeroOptimizationOffloadParamDevice,
                        keys::kZeroOptimizationOffloadParamNvmePath};

// DeepSpeed rejects it, too: without ZeRO the state belongs to the training program.
void CheckOptimizerOffloadStage(RuleContext& context) {
  const Json device = context.values.Get(kOptimizer.device);
  if (device == "none" || ZeroStage(context.values) > 0) return;
  context.Refuse(kOptimizer.device, device.dump() + " needs zero_optimization.stage 1, 2 or 3");
}

// DeepSpeed ignores it silently below stage 3.
void CheckParameterOffloadStage(RuleContext& context) {
  if (context.values.Get(kParam.device) == "none" || ZeroStage(context.values) == 3) return;
  context.issues.Warning(kParam.device,
                         std::string(kParam.device) + " has no effect below ZeRO stage 3",
                         context.values.PositionOf(kParam.device));
}

// Splits the folders at commas; none may be empty.
std::vector<std::string> ListFolders(const Json& path) {
  std::vector<std::string> folders;
  if (!path.is_string()) return folders;
  std::istringstream text(path.get<std::string>());
  for (std::string folder; std::getline(text, folder, ',');) folders.push_back(folder);
  return folders;
}

void CheckNvmeFolders(RuleContext& context) {
  for (const Target& target : {kOptimizer, kParam}) {
    if (context.values.Get(target.device) != "nvme") continue;
    const std::vector<std::string> folders = ListFolders(context.values.Get(target.path));
    const bool has_empty =
        std::any_of(folders.begin(), folders.end(), [](const auto& each) { return each.empty(); });
    if (!folders.empty() && !has_empty) continue;
    context.Refuse(target.path, "must name the folder of a drive, or several separated by commas");
  }
}

void CheckIoBlockSize(RuleContext& context) {
  if (context.values.Get(kBlockSize).get<std::int64_t>() % 4096 == 0) return;
  context.Refuse(kBlockSize, "must be a multiple of 4096: transfers pass by the page cache");
}

// Rejects settings that need all gradients before the first block is updated. Exempt is the
// gradient norm, by which a step is clipped or skipped: it rolls the update back
// (Tiers::rolls_back).
void CheckUpdatesInBackward(RuleContext& context) {
  if (!context.IsOn(kSuperOffload)) return;
  const auto refuse = [&](Key key, std::string_view problem) {
    context.Refuse(
        key, std::string(problem) +
                 ": super_offload updates blocks in the backward pass, as their gradients arrive");
  };
  if (context.values.Get(kOptimizer.device) == "none") {
    context.Refuse(kSuperOffload, "needs offload_optimizer.device \"cpu\" or \"nvme\"");
  }
  if (!context.IsOn(keys::kManagedGradientAccumulation)) {
    refuse(keys::kManagedGradientAccumulation,
           "must be true, or no micro-batch is known as the last");
  }
  if (!context.IsOn(keys::kZeroOptimizationIgnoreUnusedParameters)) {
    refuse(keys::kZeroOptimizationIgnoreUnusedParameters,
           "must be true: false rejects a step after its backward pass");
  }
  const OptimizerType* const optimizer = OptimizerTypeOf(context.values);
  if (optimizer == nullptr || optimizer->is_elementwise) return;
  refuse(keys::kOptimizerType, "must be " + ListOptimizers(&OptimizerType::is_elementwise));
}

constexpr Rule kRules[] = {
    {"CheckOptimizerOffloadStage", {kOptimizer.device, kStage}, CheckOptimizerOffloadStage},
    {"CheckParameterOffloadStage", {kParam.device, kStage}, CheckParameterOffloadStage},
    {"CheckNvmeFolders",
     {kOptimizer.device, kOptimizer.path, kParam.device, kParam.path},
     CheckNvmeFolders},
    {"CheckUpdatesInBackward",
     {kSuperOffload, kOptimizer.device, keys::kOptimizerType},
     CheckUpdatesInBackward},
    {"CheckIoBlockSize", {kBlockSize}, CheckIoBlockSize},
};

OffloadDevice DeviceOf(const Json& name) {
  if (name == "nvme") return OffloadDevice::kNvme;
  return name == "cpu" ? OffloadDevice::kCpu : OffloadDevice::kNone;
}

}  // namespace

std::span<const Rule> OffloadRules() { return kRules; }

void FillOffload(const Values& values, DsConfig* config) {
  ZeroConfig& zero = config->zero_optimization;
  zero.sub_group_size = values.Get(keys::kZeroOptimizationSubGroupSize);
  zero.offload_param = {
      .device = zero.stage == 3 ? DeviceOf(values.Get(kParam.device)) : OffloadDevice::kNone,
      .nvme_path = ListFolders(values.Get(kParam.path)),
      .buffer_count = values.Get(keys::kZeroOptimizationOffloadParamBufferCount),
      .buffer_size = values.Get(keys::kZeroOptimizationOffloadParamBufferSize),
      .max_in_cpu = values.Get(keys::kZeroOptimizationOffloadParamMaxInCpu)};
  zero.offload_optimizer = {
      .device = DeviceOf(values.Get(kOptimizer.device)),
      .nvme_path = ListFolders(values.Get(kOptimizer.path)),
      .buffer_count = values.Get(keys::kZeroOptimizationOffloadOptimizerBufferCount),
      .pipeline_read = values.Get(keys::kZeroOptimizationOffloadOptimizerPipelineRead),
      .pipeline_write = values.Get(keys::kZeroOptimizationOffloadOptimizerPipelineWrite),
      .ratio = values.Get(keys::kZeroOptimizationOffloadOptimizerRatio),
      .super_offload = values.Get(kSuperOffload)};
  if (IsChosen(values, kUpdateCores)) {
    zero.offload_optimizer.update_cores = values.Get(kUpdateCores).get<double>();
  }
  config->aio = {.block_size = values.Get(kBlockSize),
                 .queue_depth = values.Get(keys::kAioQueueDepth),
                 .intra_op_parallelism = values.Get(keys::kAioIntraOpParallelism),
                 .single_submit = values.Get(keys::kAioSingleSubmit),
                 .overlap_events = values.Get(keys::kAioOverlapEvents)};
}

}  // namespace ds::config
