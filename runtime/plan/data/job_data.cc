#include "runtime/plan/data/job_data.h"

#include <algorithm>
#include <limits>

namespace ds::data {

std::vector<std::vector<std::string>> ListSources(const config::TrainJob& job) {
  if (job.data_weights.empty()) return {job.data};
  std::vector<std::vector<std::string>> sources;
  for (const std::string& path : job.data) sources.push_back({path});
  return sources;
}

bool IsTokenized(const config::TrainJob& job, const std::vector<tokenizer::DataFile>& files) {
  return !job.tokenizer.empty() && std::none_of(files.begin(), files.end(), [](const auto& file) {
    return file.kind == tokenizer::DataKind::kTokens;
  });
}

std::vector<std::string> ListPaths(const std::vector<tokenizer::DataFile>& files) {
  std::vector<std::string> paths;
  for (const tokenizer::DataFile& file : files) paths.push_back(file.path.string());
  return paths;
}

tokenizer::DocumentOptions FindDocumentOptions(const config::TrainJob& job) {
  return {.rows = {.text_field = job.text_field,
                   .messages_field = job.messages_field,
                   .prompt_field = job.prompt_field,
                   .completion_field = job.completion_field,
                   .tools_field = job.tools_field,
                   .role_field = job.role_field,
                   .content_field = job.content_field,
                   .prompt_style = job.prompt_style},
          .max_length = job.max_length,
          .keeps_end = job.truncation_mode == "keep_end",
          .assistant_only = job.assistant_only_loss};
}

TokenRequest MakeTokenRequest(const config::TrainJob& job,
                              const std::vector<tokenizer::DataFile>& files) {
  return {.files = ListPaths(files),
          .tokenizer = job.tokenizer,
          .data_field = job.data_field,
          .documents = FindDocumentOptions(job),
          .skip_bad_data = job.on_bad_data == "skip"};
}

StatusOr<std::int64_t> CountSteps(const config::TrainJob& job, std::int64_t positions_per_epoch,
                                  std::int64_t batch) {
  std::int64_t samples = 0;
  const auto refuse = [](const std::string& flag, std::int64_t count, std::int64_t each) {
    return InvalidArgumentError(flag + " " + std::to_string(count) + " of " + std::to_string(each) +
                                " samples are more than can be counted");
  };
  if (job.steps > 0) {
    if (__builtin_mul_overflow(job.steps, batch, &samples)) {
      return refuse("--steps", job.steps, batch);
    }
    return job.steps;
  }
  if (__builtin_mul_overflow(positions_per_epoch, job.epochs, &samples) ||
      samples > std::numeric_limits<std::int64_t>::max() - batch) {
    return refuse("--epochs", job.epochs, positions_per_epoch);
  }
  // The last step of an epoch is completed with samples from the start of the data.
  return samples / batch + (samples % batch == 0 ? 0 : 1);
}

}  // namespace ds::data
