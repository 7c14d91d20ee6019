#include "runtime/engine/open_tiers.h"

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>

#include "runtime/comm/agreement.h"
#include "runtime/config/model_state.h"
#include "runtime/device/memory_ledger.h"
#include "runtime/zero/plan/residency_plan.h"

namespace ds::engine {
namespace {

using config::OffloadDevice;
using offload::FileTier;
using zero::Rest;

// The runtime's own sub-group, where the config has DeepSpeed's default: large enough for a drive.
constexpr std::int64_t kElementsAtOnce = std::int64_t{1} << 22;
// Sub-groups begin at whole pages of every dtype.
constexpr std::int64_t kPageElements = 2048;

std::int64_t ChooseMostElements(const config::ZeroConfig& zero) {
  if (zero.sub_group_size == config::ZeroConfig().sub_group_size) return kElementsAtOnce;
  return std::max(zero.sub_group_size / kPageElements * kPageElements, kPageElements);
}

offload::TierOptions MakeTierOptions(const config::DsConfig& config,
                                     const std::vector<std::string>& folders,
                                     device::MemoryLedger* ledger) {
  const config::ZeroConfig& zero = config.zero_optimization;
  const std::int64_t buffers = std::max<std::int64_t>(1, zero.offload_optimizer.buffer_count);
  const std::int64_t waiting = buffers * ChooseMostElements(zero) * 4;
  return {.folders = {folders.begin(), folders.end()},
          .io = {.block_bytes = config.aio.block_size,
                 .queue_depth = config.aio.queue_depth,
                 .threads = config.aio.intra_op_parallelism,
                 .single_submit = config.aio.single_submit,
                 .overlap_events = config.aio.overlap_events},
          .most_idle_bytes = waiting,
          .most_writing_bytes = waiting,
          .book = [ledger](std::int64_t change) {
            constexpr auto kUse = device::MemoryUse::kOther;
            if (change > 0) ledger->Add(kUse, device::MemoryTier::kHost, change);
            if (change < 0) ledger->Remove(kUse, device::MemoryTier::kHost, -change);
          }};
}

std::string Describe(const std::string& what, const FileTier& tier) {
  std::string text = what + " rest in";
  for (const offload::ScratchFile& file : tier.files()) {
    const offload::FolderFacts& facts = file.facts();
    text += (&file == &tier.files().front() ? " " : ", ") + facts.folder.string() + " (" +
            facts.file_system + (facts.direct ? ")" : ", through the page cache)");
    if (facts.in_memory) text += ", which is memory, too, and saves none";
  }
  text += ", by " + std::string(tier.queue().name());
  if (tier.why_not_ring().empty()) return text;
  return text + ": io_uring is not used, as " + tier.why_not_ring();
}

// The rank's side of OpenTiers.
class Opening {
 public:
  Opening(const config::DsConfig& config, const EngineOptions& options,
          std::vector<std::unique_ptr<FileTier>>* files)
      : config_(config), options_(options), files_(files) {}

  StatusOr<zero::Tiers> Open() {
    const config::ZeroConfig& zero = config_.zero_optimization;
    const auto& [optimizer, param] = std::tie(zero.offload_optimizer, zero.offload_param);
    zero::Tiers tiers{.parameters = RestOn(param.device),
                      .optimizer = RestOn(optimizer.device),
                      .smallest_bytes = config_.aio.block_size,
                      .reads_ahead = optimizer.pipeline_read,
                      .writes_behind = optimizer.pipeline_write};
    DS_ASSIGN_OR_RETURN(tiers.optimizer_files, OpenFiles(optimizer.device, optimizer.nvme_path,
                                                         "optimizer state and gradients"));
    if (tiers.optimizer_files != nullptr) {
      tiers.gradients = Rest::kFile;
      tiers.most_elements = ChooseMostElements(zero);
    }
    DS_ASSIGN_OR_RETURN(tiers.parameter_files,
                        OpenFiles(param.device, param.nvme_path, "parameters"));
    if (tiers.parameter_files != nullptr) {
      const bool narrow = config::ChooseStateTypes(config_).parameter != config::DataType::kFp32;
      tiers.kept_parameter_bytes = param.max_in_cpu * (narrow ? 2 : 4);
    }
    return tiers;
  }

 private:
  Rest RestOn(OffloadDevice device) const {
    if (device == OffloadDevice::kNvme) return Rest::kFile;
    // The host is where CPU ranks compute.
    return device == OffloadDevice::kCpu && !options_.device.is_cpu() ? Rest::kHost : Rest::kHere;
  }

  void Notify(const std::string& text) const {
    if (options_.notify) options_.notify(text);
  }

  // Null where nothing goes to files.
  StatusOr<FileTier*> OpenFiles(OffloadDevice device, const std::vector<std::string>& folders,
                                const std::string& what) {
    if (device == OffloadDevice::kCpu && options_.device.is_cpu()) {
      Notify("offload of " + what + " to the CPU moves nothing: the ranks compute there");
    }
    if (device != OffloadDevice::kNvme) return static_cast<FileTier*>(nullptr);
    if (!options_.device.is_cpu()) {
      return UnimplementedError(
          "offload to NVMe is built for CPU ranks only: offload to the CPU here");
    }
    const auto options = MakeTierOptions(config_, folders, options_.ledger);
    DS_ASSIGN_OR_RETURN(std::unique_ptr<FileTier> tier, FileTier::Open(options));
    Notify(Describe(what, *tier));
    files_->push_back(std::move(tier));
    return files_->back().get();
  }

  const config::DsConfig& config_;
  const EngineOptions& options_;
  std::vector<std::unique_ptr<FileTier>>* files_;
};

}  // namespace

StatusOr<zero::Tiers> OpenTiers(const config::DsConfig& config, const EngineOptions& options,
                                std::vector<std::unique_ptr<FileTier>>* files) {
  const config::ZeroConfig& zero = config.zero_optimization;
  if (zero.offload_param.device == OffloadDevice::kNone &&
      zero.offload_optimizer.device == OffloadDevice::kNone) {
    return zero::Tiers{};
  }
  StatusOr<zero::Tiers> tiers = Opening(config, options, files).Open();
  const Status opened = tiers.ok() ? OkStatus() : tiers.status();
  DS_RETURN_IF_ERROR(comm::AgreeOnStatus(opened, *options.world));
  return tiers;
}

std::int64_t ChooseFetchBytes(const config::ZeroConfig& zero, std::int64_t element_size) {
  const config::OffloadParamConfig& offload = zero.offload_param;
  const config::OffloadParamConfig defaults;
  if (offload.device == OffloadDevice::kNone) return 0;
  if (offload.buffer_count == defaults.buffer_count &&
      offload.buffer_size == defaults.buffer_size) {
    return zero::ResidencyBudgets::kLargestPlace;
  }
  // One buffer is that of the block which is gathered.
  return std::max<std::int64_t>(0, offload.buffer_count - 1) * offload.buffer_size * element_size;
}

}  // namespace ds::engine
