#include "runtime/data/sample_difficulty.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <optional>
#include <string>

#include "runtime/base/files.h"
#include "runtime/checkpoint_format/crc32c.h"
#include "runtime/data/indexed_rows.h"
#include "runtime/plan/data/host_cache.h"

namespace ds::data {
namespace {

namespace fs = std::filesystem;
using Json = HostCache::Json;
using Numbers = std::vector<std::int64_t>;

constexpr int kMetricFormat = 1;

// Ranking: samples, the easiest first, and each sample's metric, which percentiles do not need.
struct Ranking {
  Numbers samples, metrics;
};

Status CheckSamples(const std::string& path, const Numbers& named, const SampleSet& set) {
  const std::int64_t samples = set.size();
  std::vector<bool> seen(static_cast<std::size_t>(samples));
  for (const std::int64_t sample : named) {
    if (sample >= samples && sample < set.size_with_held_out()) {
      return InvalidArgumentError(
          path + " names sample " + std::to_string(sample) + ", which --eval_split holds out: of " +
          std::to_string(set.size_with_held_out()) + " samples " + std::to_string(samples) +
          " are trained on; make maps of these, or evaluate on --eval_data");
    }
    if (sample < 0 || sample >= samples) {
      return InvalidArgumentError(path + " names sample " + std::to_string(sample) +
                                  ", and the data has " + std::to_string(samples) +
                                  ": it is of other data, or of another seq_len");
    }
    if (seen[static_cast<std::size_t>(sample)]) {
      return InvalidArgumentError(path + " names sample " + std::to_string(sample) + " twice");
    }
    seen[static_cast<std::size_t>(sample)] = true;
  }
  return OkStatus();
}

StatusOr<Ranking> ReadRanking(const config::SampleMetric& metric, const SampleSet& samples) {
  DS_ASSIGN_OR_RETURN(IndexedRows rows, ReadIndexedRows(metric.index_to_sample_path));
  DS_RETURN_IF_ERROR(CheckSamples(metric.index_to_sample_path, rows.numbers, samples));
  Ranking ranking{.samples = std::move(rows.numbers), .metrics = {}};
  if (metric.by_percentile) return ranking;
  DS_ASSIGN_OR_RETURN(const IndexedRows metrics, ReadIndexedRows(metric.index_to_metric_path));
  if (metrics.numbers.size() != rows.ends.size()) {
    return InvalidArgumentError(metric.index_to_metric_path + " has " +
                                std::to_string(metrics.numbers.size()) + " metrics, and " +
                                metric.index_to_sample_path + " " +
                                std::to_string(rows.ends.size()) + " rows of samples");
  }
  for (std::size_t row = 0; row < rows.ends.size(); ++row) {
    ranking.metrics.resize(static_cast<std::size_t>(rows.ends[row]), metrics.numbers[row]);
  }
  return ranking;
}

StatusOr<Numbers> ComputeLengths(const SampleSet& samples) {
  Numbers lengths;
  for (std::int64_t i = 0; i < samples.size(); ++i) lengths.push_back(samples.CountInputs(i));
  return lengths;
}

StatusOr<Numbers> ComputeRarities(const SampleSet& samples) {
  std::vector<double> counts;  // count of each token; later its information
  double all = 0.0;
  Numbers tokens;
  for (std::int64_t i = 0; i < samples.size(); ++i) {
    DS_RETURN_IF_ERROR(samples.ReadInputs(i, &tokens));
    for (const std::int64_t token : tokens) {
      const auto id = static_cast<std::size_t>(token);
      if (id >= counts.size()) counts.resize(id + 1);
      counts[id] += 1.0;
    }
    all += static_cast<double>(tokens.size());
  }
  for (double& count : counts) count = count > 0.0 ? std::log(all / count) : 0.0;
  Numbers rarities;
  for (std::int64_t i = 0; i < samples.size(); ++i) {
    DS_RETURN_IF_ERROR(samples.ReadInputs(i, &tokens));
    double rarity = 0.0;
    for (const std::int64_t token : tokens) rarity += counts[static_cast<std::size_t>(token)];
    rarities.push_back(static_cast<std::int64_t>(rarity));
  }
  return rarities;
}

// Returns the file of a cache entry: one number per sample.
fs::path FileOf(const fs::path& folder) { return folder / "metrics.bin"; }

StatusOr<Json> WriteMetrics(const fs::path& folder, const Numbers& metrics) {
  const std::string bytes(reinterpret_cast<const char*>(metrics.data()),
                          metrics.size() * sizeof(metrics[0]));
  DS_RETURN_IF_ERROR(WriteFileAtomically(FileOf(folder), bytes));
  return Json{{"samples", metrics.size()}, {"crc32c", checkpoint::Crc32c(bytes)}};
}

// Returns nothing if the file does not match the manifest.
std::optional<Numbers> ReadMetrics(const HostCache::Folder& folder, std::int64_t samples) {
  Numbers metrics(static_cast<std::size_t>(samples));
  const std::size_t size = metrics.size() * sizeof(metrics[0]);
  const auto bytes = ReadFile(FileOf(folder.path), size);
  if (!bytes.ok() || bytes->size() != size) return std::nullopt;
  if (folder.manifest.value("crc32c", Json()) != checkpoint::Crc32c(*bytes)) return std::nullopt;
  std::memcpy(metrics.data(), bytes->data(), size);
  return metrics;
}

// Without a usable cache each rank computes the metrics itself, which costs only time.
StatusOr<Numbers> FindRarities(const SampleSet& samples, const MetricCache& cache) {
  if (cache.root.empty()) return ComputeRarities(samples);
  DS_ASSIGN_OR_RETURN(Json files, DescribeFiles(samples.ListFiles()));
  const Json description{
      {"format", kMetricFormat},         {"metric", "vocabularyrarity"},
      {"files", std::move(files)},       {"tokens_crc32c", samples.fingerprints().ends},
      {"seq_len", cache.seq_len},        {"packing", NamePacking(cache.packing)},
      {"first_sample", samples.first()}, {"samples", samples.size()}};
  std::optional<Numbers> metrics;
  (void)HostCache(cache.root)
      .FindOrMake(
          description,
          [&](const HostCache::Folder& folder) {
            metrics = ReadMetrics(folder, samples.size());
            return metrics.has_value();
          },
          [&](const fs::path& folder) -> StatusOr<Json> {
            DS_ASSIGN_OR_RETURN(metrics, ComputeRarities(samples));
            return WriteMetrics(folder, *metrics);
          });
  if (metrics) return *std::move(metrics);
  return ComputeRarities(samples);
}

StatusOr<Ranking> ComputeRanking(const config::SampleMetric& metric, const SampleSet& samples,
                                 const MetricCache& cache) {
  DS_ASSIGN_OR_RETURN(const Numbers metrics, metric.name == "seqlen"
                                                 ? ComputeLengths(samples)
                                                 : FindRarities(samples, cache));
  Ranking ranking{.samples = Numbers(metrics.size()), .metrics = {}};
  std::iota(ranking.samples.begin(), ranking.samples.end(), std::int64_t{0});
  const auto metric_of = [&](std::int64_t i) { return metrics[static_cast<std::size_t>(i)]; };
  std::stable_sort(ranking.samples.begin(), ranking.samples.end(),
                   [&](std::int64_t a, std::int64_t b) { return metric_of(a) < metric_of(b); });
  for (const std::int64_t sample : ranking.samples) ranking.metrics.push_back(metric_of(sample));
  return ranking;
}

// Returns the prefix of the analyzer's files with the samples' lengths, without .idx and .bin.
std::string LengthsIn(const config::DynamicBatching& batching) {
  return batching.metrics_path + "/seqlen/seqlen_sample_to_metric";
}

}  // namespace

StatusOr<Numbers> FindDifficulties(const config::SampleMetric& metric, const SampleSet& samples,
                                   const MetricCache& cache) {
  DS_ASSIGN_OR_RETURN(const Ranking ranking, metric.index_to_sample_path.empty()
                                                 ? ComputeRanking(metric, samples, cache)
                                                 : ReadRanking(metric, samples));
  Numbers difficulties(static_cast<std::size_t>(samples.size()), kNever);
  const auto count = std::ssize(ranking.samples);
  const std::int64_t parts = metric.difficulty.max_difficulty, each = count / parts;
  for (std::int64_t place = 0; place < count; ++place) {
    const auto at = static_cast<std::size_t>(place);
    const std::int64_t part = each == 0 ? parts : std::min(place / each + 1, parts);
    difficulties[static_cast<std::size_t>(ranking.samples[at])] =
        metric.by_percentile ? part : ranking.metrics[at];
  }
  return difficulties;
}

bool HasLengthFiles(const config::DynamicBatching& batching) {
  std::error_code error;
  return !batching.metrics_path.empty() && fs::exists(LengthsIn(batching) + ".idx", error);
}

StatusOr<Numbers> FindLengths(const config::DynamicBatching& batching, const SampleSet& samples) {
  if (!HasLengthFiles(batching)) return ComputeLengths(samples);
  const std::string prefix = LengthsIn(batching);
  DS_ASSIGN_OR_RETURN(IndexedRows rows, ReadIndexedRows(prefix));
  const std::int64_t found = std::ssize(rows.numbers);
  const bool is_of_samples =
      (found == samples.size() || found == samples.size_with_held_out()) &&
      std::ssize(rows.ends) == found &&
      std::adjacent_find(rows.ends.begin(), rows.ends.end()) == rows.ends.end();
  if (!is_of_samples) {
    return InvalidArgumentError(prefix + " has " + std::to_string(found) + " lengths in " +
                                std::to_string(rows.ends.size()) + " rows, and the data " +
                                std::to_string(samples.size()) +
                                " samples: it is of other data, or of another seq_len");
  }
  // Training samples come before held-out ones.
  rows.numbers.resize(static_cast<std::size_t>(samples.size()));
  for (const std::int64_t length : rows.numbers) {
    if (length < 0)
      return InvalidArgumentError(prefix + " has the length " + std::to_string(length));
  }
  return std::move(rows.numbers);
}

}  // namespace ds::data
