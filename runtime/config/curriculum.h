#pragma once

// Says how many tokens of its samples a step sees, where that grows: curriculum learning on the
// length of samples (https://arxiv.org/abs/2108.06084), and random layerwise token dropping
// (https://arxiv.org/abs/2211.11586), with DeepSpeed's schedules (CurriculumScheduler,
// RandomLTDScheduler). Pure functions of the step, so that a resumed run goes on exactly.

#include <cstdint>
#include <optional>
#include <vector>

namespace ds::config {

// Samples are cut to so many tokens. There are lists, of fixed_discrete, or steps (fixed_linear and
// fixed_root, of degree 1 and others).
struct CurriculumConfig {
  std::int64_t min_difficulty = 1, max_difficulty = 1;
  std::int64_t total_curriculum_step = 1, difficulty_step = 1, root_degree = 1;
  std::vector<std::int64_t> difficulty, max_step;

  friend bool operator==(const CurriculumConfig&, const CurriculumConfig&) = default;
};

// Finds the tokens of a sample in a step, counted from 1.
std::int64_t DifficultyAt(const CurriculumConfig& curriculum, std::int64_t step);

// Some layers see so many tokens of a sample, chosen anew.
struct RandomLtdConfig {
  std::int64_t total_layer_num = 1;
  std::vector<std::int64_t> layers;
  std::int64_t min_value = 1, max_value = 1;
  std::int64_t require_steps = 1, seq_per_step = 1;

  friend bool operator==(const RandomLtdConfig&, const RandomLtdConfig&) = default;
};

// Holds what the training loop, not the engine, reads of a ds_config.
struct DataEfficiency {
  std::optional<CurriculumConfig> curriculum;
  std::optional<RandomLtdConfig> random_ltd;
};

// Finds the tokens that such a layer keeps behind so many finished steps.
std::int64_t KeptTokensAt(const RandomLtdConfig& random_ltd, std::int64_t finished_steps);

}  // namespace ds::config
