#pragma once

// Schedules of data that grow with the steps of training. Three features use them: curriculum
// learning on sample length (https://arxiv.org/abs/2108.06084), random layerwise token dropping
// (https://arxiv.org/abs/2211.11586), and selection of samples by their metrics
// (https://arxiv.org/abs/2212.03597).
//
// The schedules are DeepSpeed's (CurriculumScheduler, RandomLTDScheduler). They are pure functions
// of the step, so a resumed run continues exactly.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/config/dynamic_batching.h"

namespace ds::config {

// A difficulty that grows: the length that samples are truncated to, or a bound of their metric.
// fixed_discrete fills the lists; fixed_linear and fixed_root fill the steps (root_degree is 1 for
// fixed_linear).
struct CurriculumConfig {
  std::int64_t min_difficulty = 1, max_difficulty = 1;
  std::int64_t total_curriculum_step = 1, difficulty_step = 1, root_degree = 1;
  std::vector<std::int64_t> difficulty, max_step;

  friend bool operator==(const CurriculumConfig&, const CurriculumConfig&) = default;
};

// Returns the difficulty of a step, counted from 1.
std::int64_t DifficultyAt(const CurriculumConfig& curriculum, std::int64_t step);

// Returns the first step with at least this difficulty, or nothing if none of the first 2^40 steps
// reaches it. Requires a curriculum that never falls.
std::optional<std::int64_t> FirstStepAt(const CurriculumConfig& curriculum,
                                        std::int64_t difficulty);

// Selects samples by a metric: a sample is used once the difficulty reaches its metric. With
// `by_percentile`, the difficulty is compared with the sample's position among all samples instead,
// the easiest first, in units of 1 / max_difficulty of their number.
struct SampleMetric {
  std::string name;
  // Paths of files written by DeepSpeed's data analyzer, without .idx and .bin. The first has a row
  // for each metric value, in ascending order, with the samples of that value. The second has the
  // metric of each row; percentiles do not need it. Empty: the metric is computed here.
  std::string index_to_sample_path = {}, index_to_metric_path = {};
  bool by_percentile = false;
  CurriculumConfig difficulty = {};

  friend bool operator==(const SampleMetric&, const SampleMetric&) = default;
};

// Random layerwise token dropping: the listed layers process a random subset of a sample's tokens,
// drawn again in each step.
struct RandomLtdConfig {
  std::int64_t total_layer_num = 1;
  std::vector<std::int64_t> layers;
  std::int64_t min_value = 1, max_value = 1;
  std::int64_t require_steps = 1, seq_per_step = 1;

  friend bool operator==(const RandomLtdConfig&, const RandomLtdConfig&) = default;
};

// The data settings of a ds_config, which the training loop reads, not the engine.
struct DataEfficiency {
  std::optional<CurriculumConfig> curriculum;  // of the length that samples are truncated to
  std::optional<RandomLtdConfig> random_ltd;
  std::vector<SampleMetric> sample_metrics = {};  // a sample must satisfy all of these
  std::optional<DynamicBatching> dynamic_batching = {};
};

// Returns the number of tokens that such a layer keeps after `finished_steps` steps.
std::int64_t KeptTokensAt(const RandomLtdConfig& random_ltd, std::int64_t finished_steps);

}  // namespace ds::config
