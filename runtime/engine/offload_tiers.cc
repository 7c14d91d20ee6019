#include "runtime/engine/offload_tiers.h"

#include <fmt/format.h>

#include <span>
#include <string>
#include <tuple>
#include <utility>

#include "runtime/comm/agreement.h"
#include "runtime/device/memory_ledger.h"
#include "runtime/device/rank_device.h"

namespace ds::engine {
namespace {

using config::OffloadDevice;
using offload::FileTier;

constexpr std::int64_t kOffloadedChunkBytes = std::int64_t{64} << 20;  // of attention chunks

offload::TierOptions MakeTierOptions(const config::DsConfig& config, std::int64_t buffer_bytes,
                                     const std::vector<std::string>& folders,
                                     device::MemoryLedger* ledger) {
  return {.folders = {folders.begin(), folders.end()},
          .io = {.block_bytes = config.aio.block_size,
                 .queue_depth = config.aio.queue_depth,
                 .threads = config.aio.intra_op_parallelism,
                 .single_submit = config.aio.single_submit,
                 .overlap_events = config.aio.overlap_events},
          .most_idle_bytes = buffer_bytes,
          .most_writing_bytes = buffer_bytes,
          .book = [ledger](std::int64_t change) {
            constexpr auto kUse = device::MemoryUse::kOther;
            if (change > 0) ledger->Add(kUse, device::MemoryTier::kMapped, change);
            if (change < 0) ledger->Remove(kUse, device::MemoryTier::kMapped, -change);
          }};
}

// Pins buffers that the GPU copies from and to.
StatusOr<offload::AlignedPool::Pinning> PinForDevice() {
  DS_ASSIGN_OR_RETURN(const device::CudaPlugin* const cuda, device::LoadCudaPlugin());
  return offload::AlignedPool::Pinning{
      .pin = [cuda](std::span<std::byte> bytes) { return cuda->Pin(bytes.data(), bytes.size()); },
      .unpin = [cuda](std::span<std::byte> bytes) { cuda->Unpin(bytes.data()); }};
}

std::string Describe(const std::string& what, const FileTier& tier) {
  std::string text = what + " are stored in";
  for (const offload::ScratchFile& file : tier.files()) {
    const offload::FolderFacts& facts = file.facts();
    text += (&file == &tier.files().front() ? " " : ", ") + facts.folder.string() + " (" +
            facts.file_system + (facts.direct ? ")" : ", through the page cache)");
    if (facts.in_memory) text += ", a file system in memory, which saves none";
  }
  text += ", by " + std::string(tier.queue().name());
  if (tier.why_not_ring().empty()) return text;
  return text + ": io_uring is not used, as " + tier.why_not_ring();
}

StatusOr<activation::Keeper> OpenOwnKeeper(const config::DsConfig& config,
                                           const EngineOptions& options,
                                           std::vector<std::unique_ptr<FileTier>>* files) {
  const std::string what = "keys, values and results of chunked attention";
  const auto notify = [&](const std::string& text) {
    if (options.notify) options.notify(text);
  };
  if (options.sp_offload == "cpu") {
    if (options.device.is_cpu()) {
      notify("offload of " + what + " to the CPU moves nothing: the ranks compute there");
    }
    return activation::Keeper(activation::KeepIn::kHost);
  }
  auto tier_options =
      MakeTierOptions(config, kOffloadedChunkBytes, {options.sp_offload}, options.ledger);
  if (!options.device.is_cpu()) {
    DS_ASSIGN_OR_RETURN(tier_options.pinning, PinForDevice());
  }
  DS_ASSIGN_OR_RETURN(std::unique_ptr<FileTier> tier, FileTier::Open(tier_options));
  notify(Describe(what, *tier));
  files->push_back(std::move(tier));
  return activation::Keeper(activation::KeepIn::kFile, files->back().get());
}

// This rank's part of OpenTiers.
class Opening {
 public:
  Opening(const config::DsConfig& config, const EngineOptions& options,
          std::vector<std::unique_ptr<FileTier>>* files)
      : config_(config), options_(options), files_(files) {}

  StatusOr<zero::Tiers> Open() {
    const config::ZeroConfig& zero = config_.zero_optimization;
    const auto& [optimizer, param] = std::tie(zero.offload_optimizer, zero.offload_param);
    zero::Tiers tiers = zero::PlanTiers(config_, !options_.device.is_cpu());
    waiting_bytes_ = tiers.waiting_bytes;
    std::string state = "optimizer state and gradients";
    if (optimizer.ratio < 1.0) state = fmt::format("{:.4g} % of {}", 100 * optimizer.ratio, state);
    DS_ASSIGN_OR_RETURN(tiers.optimizer_files,
                        OpenFiles(optimizer.device, optimizer.nvme_path, state));
    DS_ASSIGN_OR_RETURN(tiers.parameter_files,
                        OpenFiles(param.device, param.nvme_path, "parameters"));
    return tiers;
  }

 private:
  void Notify(const std::string& text) const {
    if (options_.notify) options_.notify(text);
  }

  // Returns null if nothing is stored in files.
  StatusOr<FileTier*> OpenFiles(OffloadDevice device, const std::vector<std::string>& folders,
                                const std::string& what) {
    if (device == OffloadDevice::kCpu && options_.device.is_cpu()) {
      Notify("offload of " + what + " to the CPU moves nothing: the ranks compute there");
    }
    if (device != OffloadDevice::kNvme) return static_cast<FileTier*>(nullptr);
    auto options = MakeTierOptions(config_, waiting_bytes_, folders, options_.ledger);
    if (!options_.device.is_cpu()) {
      DS_ASSIGN_OR_RETURN(options.pinning, PinForDevice());
    }
    DS_ASSIGN_OR_RETURN(std::unique_ptr<FileTier> tier, FileTier::Open(options));
    Notify(Describe(what, *tier));
    files_->push_back(std::move(tier));
    return files_->back().get();
  }

  const config::DsConfig& config_;
  const EngineOptions& options_;
  std::vector<std::unique_ptr<FileTier>>* files_;
  std::int64_t waiting_bytes_ = 0;
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

StatusOr<activation::Keeper> OpenKeeper(const config::DsConfig& config,
                                        const EngineOptions& options,
                                        std::vector<std::unique_ptr<FileTier>>* files) {
  if (options.sp_offload.empty()) return activation::Keeper();
  StatusOr<activation::Keeper> keeper = OpenOwnKeeper(config, options, files);
  DS_RETURN_IF_ERROR(
      comm::AgreeOnStatus(keeper.ok() ? OkStatus() : keeper.status(), *options.world));
  return keeper;
}

}  // namespace ds::engine
