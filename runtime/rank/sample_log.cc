#include "runtime/rank/sample_log.h"

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

namespace ds::rank {

StatusOr<SampleLog> SampleLog::Open(int rank, bool is_blend) {
  SampleLog log;
  const char* const folder = std::getenv("DSRUN_SAMPLE_LOG");
  if (folder == nullptr || *folder == '\0') return log;
  const std::string name = "rank-" + std::to_string(rank) + ".jsonl";
  auto file = AppendFile::Open(std::filesystem::path(folder) / name);
  if (!file.ok()) return file.status().WithContext("DSRUN_SAMPLE_LOG");
  log.file_ = *std::move(file);
  log.is_blend_ = is_blend;
  return log;
}

Status SampleLog::Write(std::int64_t step, const data::Batch& batch) {
  if (!file_) return OkStatus();
  nlohmann::json samples = nlohmann::json::array();
  for (const auto& [source, sample] : batch.samples) {
    samples.push_back(is_blend_ ? nlohmann::json({source, sample}) : nlohmann::json(sample));
  }
  const nlohmann::json line = {{"step", step}, {"place", batch.place}, {"samples", samples}};
  return file_->Append(line.dump() + "\n").WithContext("DSRUN_SAMPLE_LOG");
}

}  // namespace ds::rank
