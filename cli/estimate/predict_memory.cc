#include "cli/estimate/predict_memory.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "runtime/base/files.h"
#include "runtime/models/memory/read_decoder_shape.h"

namespace ds::cli {
namespace {

namespace fs = std::filesystem;
using config::RecomputeChoice;

// Measured: what dsrank holds before its first tensor, on a CPU and with the libraries of CUDA.
constexpr std::int64_t kCpuProcessBytes = std::int64_t{160} << 20;
constexpr std::int64_t kCudaProcessBytes = std::int64_t{480} << 20;

}  // namespace

StatusOr<models::DecoderShape> ReadJobModel(const fs::path& model) {
  std::error_code ignored;
  const fs::path path = fs::is_directory(model, ignored) ? model / "config.json" : model;
  DS_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxConfigBytes));
  const auto config = nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto shape = models::ReadDecoderShape(config);
  return shape.ok() ? shape : shape.status().WithContext(path.string());
}

RankMemory PredictMemory(const config::DsConfig& config, const engine::JobShape& job) {
  const bool on_gpu = job.setting.calls.on_gpu;
  return {.step = engine::PlanJobMemory(config, job),
          .process_bytes = on_gpu ? kCudaProcessBytes : kCpuProcessBytes,
          .on_gpu = on_gpu};
}

std::int64_t LargestMicroBatch(const config::DsConfig& config, const engine::JobShape& job,
                               std::int64_t bytes) {
  const std::int64_t process = job.setting.calls.on_gpu ? 0 : kCpuProcessBytes;
  return engine::FindLargestMicroBatch(config, job, bytes - process);
}

std::vector<Change> ListChanges(const config::DsConfig& config, const engine::JobShape& job) {
  const std::int64_t now = PredictMemory(config, job).bytes();
  std::vector<Change> changes;
  const auto add = [&](const std::string& what, const config::DsConfig& other,
                       const engine::JobShape& shape) {
    const std::int64_t bytes = PredictMemory(other, shape).bytes();
    if (bytes < now) changes.push_back({what, bytes});
  };
  config::DsConfig other = config;
  for (int stage = config.zero_optimization.stage + 1; stage <= 3; ++stage) {
    other.zero_optimization.stage = stage;
    add("zero_optimization.stage " + std::to_string(stage), other, job);
  }
  engine::JobShape recomputed = job;
  recomputed.recompute = {.kind = RecomputeChoice::Kind::kAttention};
  add("--recompute attention", config, recomputed);
  recomputed.recompute = {.kind = RecomputeChoice::Kind::kBlocks};
  add("--recompute full", config, recomputed);
  other.zero_optimization.stage = 3;
  add("zero_optimization.stage 3 and --recompute full", other, recomputed);
  other = config;
  other.batch.train_micro_batch_size_per_gpu = 1;
  add("a micro-batch of 1", other, job);
  other.zero_optimization.stage = 3;
  add("all three", other, recomputed);
  std::stable_sort(changes.begin(), changes.end(),
                   [](const Change& a, const Change& b) { return a.bytes < b.bytes; });
  return changes;
}

}  // namespace ds::cli
