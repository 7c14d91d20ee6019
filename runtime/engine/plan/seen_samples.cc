#include "runtime/engine/plan/seen_samples.h"

#include <algorithm>

namespace ds::engine {

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

JobShape AtMost(JobShape job) {
  if (auto& curriculum = job.efficiency.curriculum) {
    std::int64_t most = std::max(curriculum->min_difficulty, curriculum->max_difficulty);
    for (const std::int64_t difficulty : curriculum->difficulty) most = std::max(most, difficulty);
    job.seq_len = std::min(job.seq_len, most);
    curriculum.reset();
  }
  if (auto& drops = job.efficiency.random_ltd) {
    drops->min_value = drops->max_value = std::max(drops->min_value, drops->max_value);
  }
  return job;
}

}  // namespace ds::engine
