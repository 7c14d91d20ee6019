#include "runtime/plan/memory/job_memory_parts.h"

#include <algorithm>
#include <limits>

namespace ds::engine {
namespace {

// Returns the most tokens of a sample in any step, as config::DifficultyAt computes them.
std::int64_t FindMost(const config::CurriculumConfig& curriculum) {
  const std::int64_t least = curriculum.min_difficulty, end = curriculum.max_difficulty;
  if (least >= end) return least;
  if (curriculum.difficulty.empty()) return end;
  std::int64_t most = 1;
  for (const std::int64_t difficulty : curriculum.difficulty) {
    most = std::max(most, difficulty);
    if (difficulty >= end) break;  // the difficulty stays at its end
  }
  return most;
}

}  // namespace

JobShape AtFirstStep(JobShape job) {
  if (auto& curriculum = job.efficiency.curriculum) {
    job.seq_len = std::min(job.seq_len, config::DifficultyAt(*curriculum, 1));
    curriculum.reset();
  }
  if (auto& drops = job.efficiency.random_ltd) {
    drops->min_value = drops->max_value = config::KeptTokensAt(*drops, 0);
  }
  return job;
}

std::int64_t RowsOfMicroBatch(const JobShape& job, std::int64_t micro_batch) {
  const auto& batching = job.efficiency.dynamic_batching;
  if (!batching) return micro_batch;
  const std::int64_t full = (batching->max_tokens - 1) / job.seq_len + 1;
  std::int64_t rows = 0;
  const bool is_too_many = __builtin_mul_overflow(
      micro_batch, std::min(full, batching->max_batch_size.value_or(full)), &rows);
  return is_too_many ? std::numeric_limits<std::int64_t>::max() : rows;
}

JobShape AtMost(JobShape job) {
  if (auto& curriculum = job.efficiency.curriculum) {
    job.seq_len = std::min(job.seq_len, FindMost(*curriculum));
    curriculum.reset();
  }
  if (auto& drops = job.efficiency.random_ltd) {
    drops->min_value = drops->max_value = std::max(drops->min_value, drops->max_value);
  }
  return job;
}

}  // namespace ds::engine
