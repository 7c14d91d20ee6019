#pragma once

// Says what a step sees of the data, where that grows: how many tokens of its samples, by
// curriculum learning on the length of samples (https://arxiv.org/abs/2108.06084) and random
// layerwise token dropping (https://arxiv.org/abs/2211.11586), and which samples, by curriculum
// learning on their metrics (https://arxiv.org/abs/2212.03597). Schedules are DeepSpeed's
// (CurriculumScheduler, RandomLTDScheduler): pure functions of the step, so that a resumed run goes
// on exactly.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/config/dynamic_batching.h"

namespace ds::config {

// A difficulty that grows: the tokens that samples are cut to, or a bound of their metric. There
// are lists, of fixed_discrete, or steps (fixed_linear and fixed_root, of degree 1 and others).
struct CurriculumConfig {
  std::int64_t min_difficulty = 1, max_difficulty = 1;
  std::int64_t total_curriculum_step = 1, difficulty_step = 1, root_degree = 1;
  std::vector<std::int64_t> difficulty, max_step;

  friend bool operator==(const CurriculumConfig&, const CurriculumConfig&) = default;
};

// Finds the difficulty of a step, counted from 1.
std::int64_t DifficultyAt(const CurriculumConfig& curriculum, std::int64_t step);

// Finds the first step whose difficulty is at least this; nothing if none of the first 2^40 has it.
// Requires a curriculum that never falls.
std::optional<std::int64_t> FirstStepAt(const CurriculumConfig& curriculum,
                                        std::int64_t difficulty);

// Samples are seen once a difficulty has come to their metric, or to their place among all samples,
// the easiest first, counted in parts of max_difficulty (`by_percentile`).
struct SampleMetric {
  std::string name;
  // These are files that DeepSpeed's data analyzer has written, without .idx and .bin: rows of
  // samples that have the same metric, from the easiest on, and each row's metric, which
  // percentiles do not need. Empty: the metric is computed here.
  std::string index_to_sample_path = {}, index_to_metric_path = {};
  bool by_percentile = false;
  CurriculumConfig difficulty = {};

  friend bool operator==(const SampleMetric&, const SampleMetric&) = default;
};

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
  std::optional<CurriculumConfig> curriculum;  // of the length that samples are cut to
  std::optional<RandomLtdConfig> random_ltd;
  std::vector<SampleMetric> sample_metrics = {};  // all of which a sample is held to
  std::optional<DynamicBatching> dynamic_batching = {};
};

// Finds the tokens that such a layer keeps behind so many finished steps.
std::int64_t KeptTokensAt(const RandomLtdConfig& random_ltd, std::int64_t finished_steps);

}  // namespace ds::config
