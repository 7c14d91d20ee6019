#include "runtime/data/sample_difficulty.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/files.h"
#include "runtime/checkpoint_format/crc32c.h"
#include "runtime/plan/data/host_cache.h"
#include "runtime/plan/data/index_format.h"

namespace ds::data {
namespace {

namespace fs = std::filesystem;
using Json = HostCache::Json;
using Numbers = std::vector<std::int64_t>;

// IndexedRows: rows of integers from the two files that DeepSpeed's data analyzer writes
// (deepspeed/runtime/data_pipeline/data_sampling/indexed_dataset.py, MMapIndexedDataset).
// PREFIX.bin holds the numbers of all rows in sequence. PREFIX.idx holds their dtype and the length
// of each row.
//
// index_format.h describes the layout of the .idx file; its documents are not used here. The dtype
// codes differ from the codes in Megatron-LM's token files (megatron_index.h).
struct IndexedRows {
  std::vector<std::int64_t> numbers;
  std::vector<std::int64_t> ends;  // end of each row, as an index into `numbers`
};

constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 40;

struct Dtype {
  std::size_t bytes = 0;
  bool is_signed = false;
};
// Indexed by the index file's code.
constexpr std::array<Dtype, 9> kDtypes = {{{},
                                           {1, false},
                                           {1, true},
                                           {2, true},
                                           {4, true},
                                           {8, true},
                                           {2, false},
                                           {4, false},
                                           {8, false}}};

Status DamagedMap(const fs::path& path, const std::string& what) {
  return DataLossError(ShortenPath(path) + ": " + what +
                       "; it is damaged, or was not written by DeepSpeed's data analyzer");
}

// Returns an element as int64. A uint64 beyond int64 becomes negative, which no valid sample or
// metric is.
std::int64_t IntegerAt(const char* bytes, Dtype dtype) {
  const bool is_signed = dtype.is_signed;
  switch (dtype.bytes) {
    case 1:
      return is_signed ? NumberAt<std::int8_t>(bytes) : NumberAt<std::uint8_t>(bytes);
    case 2:
      return is_signed ? NumberAt<std::int16_t>(bytes) : NumberAt<std::uint16_t>(bytes);
    case 4:
      return is_signed ? std::int64_t{NumberAt<std::int32_t>(bytes)}
                       : std::int64_t{NumberAt<std::uint32_t>(bytes)};
    default:
      return NumberAt<std::int64_t>(bytes);
  }
}

struct RowIndex {
  Dtype dtype;
  std::vector<std::int64_t> ends;
};

StatusOr<RowIndex> ParseIndex(const fs::path& path, std::string_view bytes) {
  if (bytes.size() < kIndexHeaderBytes || !bytes.starts_with(kIndexMagic) ||
      NumberAt<std::uint64_t>(bytes.data() + 9) != 1) {
    return DamagedMap(path, "it does not begin like such an index");
  }
  const auto code = static_cast<std::uint8_t>(bytes[17]);
  if (code == 0 || code >= kDtypes.size()) {
    return DamagedMap(path, "nothing is known of its dtype " + std::to_string(code));
  }
  const auto rows = NumberAt<std::uint64_t>(bytes.data() + 18);
  const auto documents = NumberAt<std::uint64_t>(bytes.data() + 26);
  const std::size_t capacity = bytes.size() - kIndexHeaderBytes;
  if (rows > capacity / 12 || documents > capacity / 8 || capacity != 12 * rows + 8 * documents) {
    return DamagedMap(path, "it has " + std::to_string(bytes.size()) +
                                " bytes, which does not match its number of rows");
  }
  RowIndex index{.dtype = kDtypes[code], .ends = {}};
  std::int64_t end = 0;
  for (std::size_t row = 0; row < rows; ++row) {
    const auto length = NumberAt<std::int32_t>(bytes.data() + kIndexHeaderBytes + 4 * row);
    const auto first =
        NumberAt<std::int64_t>(bytes.data() + kIndexHeaderBytes + 4 * rows + 8 * row);
    if (length < 0 || first != end * static_cast<std::int64_t>(index.dtype.bytes)) {
      return DamagedMap(path, "row " + std::to_string(row) + " does not follow the one before it");
    }
    index.ends.push_back(end += length);
  }
  return index;
}

// Reads both files completely. Errors name the file and the problem.
StatusOr<IndexedRows> ReadIndexedRows(const std::string& prefix) {
  const fs::path index_path = prefix + ".idx", numbers_path = prefix + ".bin";
  DS_ASSIGN_OR_RETURN(const std::string index_bytes, ReadFile(index_path, kMaxBytes));
  DS_ASSIGN_OR_RETURN(RowIndex index, ParseIndex(index_path, index_bytes));
  DS_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(numbers_path, kMaxBytes));
  const auto count = static_cast<std::size_t>(index.ends.empty() ? 0 : index.ends.back());
  if (bytes.size() != count * index.dtype.bytes) {
    return DamagedMap(numbers_path, "it has " + std::to_string(bytes.size()) +
                                        " bytes, and its index counts " + std::to_string(count) +
                                        " numbers of " + std::to_string(index.dtype.bytes));
  }
  IndexedRows rows{.numbers = std::vector<std::int64_t>(count), .ends = std::move(index.ends)};
  for (std::size_t i = 0; i < count; ++i) {
    rows.numbers[i] = IntegerAt(bytes.data() + i * index.dtype.bytes, index.dtype);
  }
  return rows;
}

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
  for (std::int64_t position = 0; position < count; ++position) {
    const auto at = static_cast<std::size_t>(position);
    const std::int64_t part = each == 0 ? parts : std::min(position / each + 1, parts);
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
