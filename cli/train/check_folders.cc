#include "cli/train/check_folders.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <string>
#include <vector>

#include "runtime/base/file_system.h"
#include "runtime/base/path_exists.h"
#include "runtime/checkpoint_format/safetensors_layout.h"
#include "runtime/offload/scratch_file.h"
#include "runtime/plan/data/host_cache.h"
#include "runtime/plan/data/job_data.h"
#include "runtime/plan/data/token_cache.h"
#include "runtime/plan/model/weight_files.h"
#include "runtime/tokenizer/corpus/data_files.h"

namespace ds::cli {
namespace {

namespace fs = std::filesystem;

// Checks that MakeDirectories could create the folder and that files could be written into it. The
// errors are the same.
Status CheckCanMake(const fs::path& folder) {
  std::error_code ignored;
  fs::path nearest = folder;
  while (!fs::exists(nearest, ignored) && nearest.has_relative_path()) {
    nearest = nearest.parent_path();
  }
  if (!fs::is_directory(nearest, ignored)) return ErrnoError(ENOTDIR, nearest.string());
  if (::access(nearest.c_str(), W_OK | X_OK) == 0) return OkStatus();
  return ErrnoError(errno, folder.string());
}

// Checks the cache in which ranks store the tokens of texts.
Status CheckCache(const config::TrainJob& job) {
  bool are_tokenized = false;
  for (const std::vector<std::string>& paths : data::ListSources(job)) {
    DS_ASSIGN_OR_RETURN(const auto data, tokenizer::ListDataFiles(paths));
    are_tokenized = are_tokenized || data::IsTokenized(job, data.files);
  }
  if (!are_tokenized) return OkStatus();
  fs::path root = job.data_cache;
  if (root.empty()) {
    DS_ASSIGN_OR_RETURN(root, data::DefaultCacheRoot());
  }
  // An existing cache may already have the tokens, and then need not be writable.
  std::error_code ignored;
  return fs::is_directory(root, ignored) ? OkStatus() : data::AddLocationAdvice(CheckCanMake(root));
}

Status CheckScratch(const std::vector<std::string>& folders) {
  for (const std::string& folder : folders) {
    DS_RETURN_IF_ERROR(offload::ScratchFile::Create(folder, FileSystem::System()).status());
  }
  return OkStatus();
}

template <typename Offload>
Status CheckOffload(const Offload& offload) {
  if (offload.device != config::OffloadDevice::kNvme) return OkStatus();
  return CheckScratch(offload.nvme_path);
}

// transformers would apply an adapter in a model's folder to the saved weights, which include it
// already.
Status CheckHoldsNoAdapter(const config::TrainJob& job) {
  const bool writes_adapter = (job.lora_rank > 0 || !job.lora_adapter.empty()) && !job.lora_merge;
  if (writes_adapter) return OkStatus();
  DS_ASSIGN_OR_RETURN(const bool has_adapter,
                      PathExists(fs::path(job.save_hf_dir) / "adapter_config.json"));
  if (!has_adapter) return OkStatus();
  return FailedPreconditionError("--save_hf: " + job.save_hf_dir +
                                 " has an adapter (adapter_config.json), which transformers would "
                                 "apply to the saved weights: name another folder");
}

// Checks the data analyzer's files, which select samples.
Status CheckMetricFiles(const config::DataEfficiency& efficiency) {
  for (const config::SampleMetric& metric : efficiency.sample_metrics) {
    for (const std::string& path : {metric.index_to_sample_path, metric.index_to_metric_path}) {
      for (const char* ending : {".idx", ".bin"}) {
        if (path.empty()) continue;
        DS_ASSIGN_OR_RETURN(const bool exists, PathExists(path + ending));
        if (exists) continue;
        return NotFoundError("the metric " + metric.name + ": " + path + ending +
                             ": No such file or directory");
      }
    }
  }
  return OkStatus();
}

// True if dsrun wrote all weights or the adapter of the folder.
bool IsOwnExport(const fs::path& folder) {
  if (checkpoint::HasSafetensorsMark(folder / "adapter_model.safetensors")) return true;
  const auto files = models::WeightFiles::Open(folder);
  if (!files.ok() || !files->has_value()) return false;
  const std::vector<fs::path>& paths = (*files)->paths();
  return std::all_of(paths.begin(), paths.end(), checkpoint::HasSafetensorsMark);
}

// Rejects another program's model, because the end of the job would silently replace it.
Status CheckHoldsNoModel(const fs::path& folder) {
  DS_ASSIGN_OR_RETURN(const bool holds_export, HoldsExport(folder));
  if (!holds_export || IsOwnExport(folder)) return OkStatus();
  return FailedPreconditionError("--save_hf: " + folder.string() +
                                 " holds a model that dsrun has not written and would replace: "
                                 "name another folder, or move the model away");
}

}  // namespace

StatusOr<bool> HoldsExport(const fs::path& folder) {
  constexpr const char* kFiles[] = {"model.safetensors", "model.safetensors.index.json",
                                    "pytorch_model.bin", "pytorch_model.bin.index.json",
                                    "adapter_config.json"};
  for (const char* name : kFiles) {
    DS_ASSIGN_OR_RETURN(const bool exists, PathExists(folder / name));
    if (exists) return true;
  }
  return false;
}

Status CheckFolders(const TrainInputs& inputs) {
  const config::TrainJob& job = inputs.job;
  const auto& zero = inputs.config.zero_optimization;
  if (!job.save_hf_dir.empty()) {
    DS_RETURN_IF_ERROR(CheckCanMake(job.save_hf_dir).WithContext("--save_hf"));
    DS_RETURN_IF_ERROR(CheckHoldsNoAdapter(job));
    if (job.save_hf_dir != inputs.own_output)
      DS_RETURN_IF_ERROR(CheckHoldsNoModel(job.save_hf_dir));
  }
  DS_RETURN_IF_ERROR(CheckCache(job));
  if (!job.sp_offload.empty() && job.sp_offload != "cpu") {
    DS_RETURN_IF_ERROR(CheckScratch({job.sp_offload}));
  }
  DS_RETURN_IF_ERROR(CheckMetricFiles(inputs.data_efficiency));
  DS_RETURN_IF_ERROR(CheckOffload(zero.offload_optimizer));
  return CheckOffload(zero.offload_param);
}

}  // namespace ds::cli
