#include "runtime/data/sample_difficulty.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "runtime/data/indexed_rows.h"

namespace ds::data {
namespace {

using Numbers = std::vector<std::int64_t>;

// Samples, the easiest first, and each one's metric, which percentiles do not need.
struct Ranking {
  Numbers samples, metrics;
};

Status CheckSamples(const std::string& path, const Numbers& named, std::int64_t samples) {
  std::vector<bool> seen(static_cast<std::size_t>(samples));
  for (const std::int64_t sample : named) {
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

StatusOr<Ranking> ReadRanking(const config::SampleMetric& metric, std::int64_t samples) {
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
  std::vector<double> counts;  // of each token; information then
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

StatusOr<Ranking> ComputeRanking(const config::SampleMetric& metric, const SampleSet& samples) {
  DS_ASSIGN_OR_RETURN(const Numbers metrics,
                      metric.name == "seqlen" ? ComputeLengths(samples) : ComputeRarities(samples));
  Ranking ranking{.samples = Numbers(metrics.size()), .metrics = {}};
  std::iota(ranking.samples.begin(), ranking.samples.end(), std::int64_t{0});
  const auto metric_of = [&](std::int64_t i) { return metrics[static_cast<std::size_t>(i)]; };
  std::stable_sort(ranking.samples.begin(), ranking.samples.end(),
                   [&](std::int64_t a, std::int64_t b) { return metric_of(a) < metric_of(b); });
  for (const std::int64_t sample : ranking.samples) ranking.metrics.push_back(metric_of(sample));
  return ranking;
}

}  // namespace

StatusOr<Numbers> FindDifficulties(const config::SampleMetric& metric, const SampleSet& samples) {
  DS_ASSIGN_OR_RETURN(const Ranking ranking, metric.index_to_sample_path.empty()
                                                 ? ComputeRanking(metric, samples)
                                                 : ReadRanking(metric, samples.size()));
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

}  // namespace ds::data
