#pragma once

// Computes the difficulty of samples by a metric of a ds_config's curriculum: from the maps that
// DeepSpeed's data analyzer has written, or from the samples themselves.

#include <cstdint>
#include <filesystem>
#include <limits>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/config/curriculum.h"
#include "runtime/config/dynamic_batching.h"
#include "runtime/data/sample_set.h"

namespace ds::data {

// Difficulty of a sample that is never used, because the maps do not name it.
inline constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

// MetricCache: where metrics are cached (host_cache.h). The key is the data's files (path, size,
// modification time) and the settings that define its samples.
struct MetricCache {
  std::filesystem::path root = {};  // "": no cache, each rank computes the metrics
  std::int64_t seq_len = 0;         // of the samples
  Packing packing = Packing::kStream;
};

// Returns the difficulty from which on each sample is used. By value this is its metric. By
// percentile it depends on the sample's rank p among n samples, easiest first: with P the metric's
// max_difficulty it is min(p / (n / P) + 1, P), as in DeepSpeed's DeepSpeedDataSampler.
//
// vocabularyrarity is the negative sum of ln p(token) over a sample's tokens, rounded down, with p
// the token's share of all samples' tokens. It reads all samples twice, once per host, and is
// stored in `cache`. seqlen is the number of tokens and reads nothing. Returns an error for maps
// that are damaged, that name missing samples, or that name a sample twice.
StatusOr<std::vector<std::int64_t>> FindDifficulties(const config::SampleMetric& metric,
                                                     const SampleSet& samples,
                                                     const MetricCache& cache = {});

// Returns whether the config's folder has the data analyzer's files of the metric seqlen.
bool HasLengthFiles(const config::DynamicBatching& batching);

// Returns the number of tokens to count for each sample: from these files, or from the samples if
// there are no files. Returns an error for damaged files, and for files with a number of samples
// that equals neither all samples nor those without the held-out samples.
StatusOr<std::vector<std::int64_t>> FindLengths(const config::DynamicBatching& batching,
                                                const SampleSet& samples);

}  // namespace ds::data
