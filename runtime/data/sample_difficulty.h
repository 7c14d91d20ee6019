#pragma once

// Says how difficult samples are by a metric of a ds_config's curriculum: out of the maps that
// DeepSpeed's data analyzer has written, or computed over the samples themselves.

#include <cstdint>
#include <filesystem>
#include <limits>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/config/curriculum.h"
#include "runtime/config/dynamic_batching.h"
#include "runtime/data/sample_set.h"

namespace ds::data {

// It stands for a sample that is never seen, since the maps do not name it.
inline constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

// Says where metrics are kept (host_cache.h), found by the data's files (path, size, time of
// change) and by what makes samples of them.
struct MetricCache {
  std::filesystem::path root = {};  // "": nowhere, each rank computes them
  std::int64_t seq_len = 0;         // of the samples
  Packing packing = Packing::kStream;
};

// Finds the difficulty from which on each of the samples is seen. By value that is its metric; by
// percentile its place p among n samples, the easiest first, counts: with P the metric's
// max_difficulty it is min(p / (n / P) + 1, P), as DeepSpeed's DeepSpeedDataSampler cuts it.
//
// vocabularyrarity is the negative sum of ln p(token) over a sample's tokens, rounded down, with p
// the token's share of all samples' tokens; it reads all samples twice, once on a host, and is kept
// in `cache`. seqlen is the tokens' number and reads nothing. Refuses maps that are damaged and
// those that name samples that are not there, or one twice.
StatusOr<std::vector<std::int64_t>> FindDifficulties(const config::SampleMetric& metric,
                                                     const SampleSet& samples,
                                                     const MetricCache& cache = {});

// Tells whether the folder of the config has the data analyzer's files of the metric seqlen.
bool HasLengthFiles(const config::DynamicBatching& batching);

// Finds how many tokens each sample is counted as: out of these files, or by the samples where they
// are not there. Refuses files that are damaged, and those of another number of samples, with those
// that are held out or without.
StatusOr<std::vector<std::int64_t>> FindLengths(const config::DynamicBatching& batching,
                                                const SampleSet& samples);

}  // namespace ds::data
