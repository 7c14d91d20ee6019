#include "runtime/config/sections/elasticity.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <string>

#include "runtime/base/check.h"

#include "runtime/config/keys/keys.h"

namespace ds::config {
namespace {

using Counts = std::vector<std::int64_t>;
using Version = ElasticityConfig::Version;

// Beyond these limits the search takes long and the result is of little use.
constexpr std::int64_t kLargestBatch = std::int64_t{1} << 40;
constexpr std::size_t kMostMicroBatchSizes = 256;

// The 38 smallest highly composite numbers: each has more divisors than any smaller number.
constexpr std::int64_t kHighlyComposite[] = {
    1,      2,      4,      6,      12,     24,     36,     48,    60,    120,
    180,    240,    360,    720,    840,    1260,   1680,   2520,  5040,  7560,
    10080,  15120,  20160,  25200,  27720,  45360,  50400,  55440, 83160, 110880,
    166320, 221760, 277200, 332640, 498960, 554400, 665280, 720720};

std::string Text(std::int64_t number) { return std::to_string(number); }

std::string Text(const Counts& numbers) {
  std::string text;
  for (const std::int64_t number : numbers) text += (text.empty() ? "" : ", ") + Text(number);
  return text;
}

// Returns the data-parallel ranks per unit of counting. The unit is a node in version 0.2.
std::int64_t RanksPerUnit(const ElasticityConfig& config) {
  const bool by_node = config.version == Version::k02;
  return by_node ? config.num_gpus_per_node / config.model_parallel_size : 1;
}

// The input of the search for candidates. In version 0.2 all counts are divided by the size of a
// node.
struct Search {
  const Counts& micro_batches;
  std::int64_t max_batch;
  std::int64_t min_units;
  std::int64_t max_units;
  bool prefer_larger;
};

Search SearchOf(const ElasticityConfig& config) {
  const std::int64_t gpus = config.version == Version::k02 ? config.num_gpus_per_node : 1;
  return {.micro_batches = config.micro_batch_sizes,
          .max_batch = config.max_train_batch_size / RanksPerUnit(config),
          .min_units = std::max<std::int64_t>(config.min_gpus / gpus, 1),
          .max_units = config.max_gpus / gpus,
          .prefer_larger = config.prefer_larger_batch};
}

Status CheckMicroBatches(const ElasticityConfig& config) {
  const Counts& sizes = config.micro_batch_sizes;
  if (sizes.empty()) return InvalidArgumentError("elasticity.micro_batch_sizes is empty");
  if (sizes.size() > kMostMicroBatchSizes) {
    return InvalidArgumentError("elasticity.micro_batch_sizes has more than " +
                                Text(kMostMicroBatchSizes) + " entries");
  }
  const std::int64_t least = *std::min_element(sizes.begin(), sizes.end());
  if (least >= 1) return OkStatus();
  return InvalidArgumentError("elasticity.micro_batch_sizes must be 1 or more, not " + Text(least));
}

Status CheckBatch(const ElasticityConfig& config) {
  const std::int64_t max_batch = config.max_train_batch_size;
  if (max_batch >= 1 && max_batch <= kLargestBatch) return OkStatus();
  return InvalidArgumentError("elasticity.max_train_batch_size must be between 1 and " +
                              Text(kLargestBatch) + ", not " + Text(max_batch));
}

Status CheckGpus(const ElasticityConfig& config) {
  if (config.min_gpus < 1) {
    return InvalidArgumentError("elasticity.min_gpus must be at least 1, not " +
                                Text(config.min_gpus));
  }
  if (config.max_gpus >= config.min_gpus) return OkStatus();
  return InvalidArgumentError("elasticity.max_gpus " + Text(config.max_gpus) +
                              " is less than min_gpus " + Text(config.min_gpus));
}

Status CheckModelParallel(const ElasticityConfig& config) {
  const std::int64_t size = config.model_parallel_size;
  if (size < 1) {
    return InvalidArgumentError("elasticity.model_parallel_size must be at least 1, not " +
                                Text(size));
  }
  if (size == 1 || config.version == Version::k02) return OkStatus();
  return InvalidArgumentError("elasticity.model_parallel_size " + Text(size) +
                              " needs version 0.2: version 0.1 has no model parallelism");
}

Status CheckNode(const ElasticityConfig& config) {
  const std::int64_t gpus = config.num_gpus_per_node;
  if (gpus < 1) {
    return InvalidArgumentError("elasticity.num_gpus_per_node must be at least 1, not " +
                                Text(gpus));
  }
  if (config.version == Version::k01) return OkStatus();
  if (config.model_parallel_size >= 1 && gpus % config.model_parallel_size != 0) {
    return InvalidArgumentError("elasticity.num_gpus_per_node " + Text(gpus) +
                                " is not a multiple of model_parallel_size " +
                                Text(config.model_parallel_size));
  }
  if (config.max_gpus >= gpus) return OkStatus();
  return InvalidArgumentError("elasticity.max_gpus " + Text(config.max_gpus) +
                              " is less than one node: num_gpus_per_node is " + Text(gpus));
}

// Runs after the other checks have passed.
Status CheckMicroBatchesFit(const ElasticityConfig& config) {
  const Search search = SearchOf(config);
  const std::int64_t largest =
      *std::max_element(search.micro_batches.begin(), search.micro_batches.end());
  if (largest <= search.max_batch) return OkStatus();
  std::string limit = "max_train_batch_size " + Text(config.max_train_batch_size);
  const std::int64_t ranks = RanksPerUnit(config);
  if (ranks > 1) limit += " / " + Text(ranks) + " data-parallel ranks of a node";
  return InvalidArgumentError("elasticity.micro_batch_sizes has " + Text(largest) + ", more than " +
                              limit);
}

constexpr ElasticityCheck kChecks[] = {
    {keys::kElasticityMicroBatchSizes, CheckMicroBatches},
    {keys::kElasticityMaxTrainBatchSize, CheckBatch},
    {keys::kElasticityMaxGpus, CheckGpus},
    {keys::kElasticityModelParallelSize, CheckModelParallel},
    {keys::kElasticityNumGpusPerNode, CheckNode},
};

// Returns the least common multiple of `numbers`, or nothing if it exceeds `most`.
std::optional<std::int64_t> LeastCommonMultiple(const Counts& numbers, std::int64_t most) {
  std::int64_t multiple = 1;
  for (const std::int64_t number : numbers) {
    const std::int64_t factor = number / std::gcd(multiple, number);
    if (factor > most / multiple) return std::nullopt;
    multiple *= factor;
  }
  return multiple;
}

// Returns every base times the largest highly composite number that the cap allows.
std::set<std::int64_t> Candidates(const Search& search) {
  Counts bases = search.micro_batches;
  if (const auto common = LeastCommonMultiple(search.micro_batches, search.max_batch)) {
    bases.push_back(*common);
  }
  std::set<std::int64_t> candidates;
  for (const std::int64_t base : bases) {
    const auto* const next = std::upper_bound(std::begin(kHighlyComposite),
                                              std::end(kHighlyComposite), search.max_batch / base);
    candidates.insert(base * *std::prev(next));
  }
  return candidates;
}

Counts Divisors(std::int64_t number) {
  Counts divisors;
  for (std::int64_t i = 1; i * i <= number; ++i) {
    if (number % i != 0) continue;
    divisors.push_back(i);
    if (i != number / i) divisors.push_back(number / i);
  }
  std::sort(divisors.begin(), divisors.end());
  return divisors;
}

// Returns the numbers of units that divide `batch` evenly into micro-batches of one of the sizes.
Counts ValidUnits(const Search& search, std::int64_t batch) {
  Counts units = Divisors(batch);
  std::erase_if(units, [&](std::int64_t count) {
    const bool in_range = count >= search.min_units && count <= search.max_units;
    return !in_range || std::none_of(search.micro_batches.begin(), search.micro_batches.end(),
                                     [&](std::int64_t m) { return batch / count % m == 0; });
  });
  return units;
}

// Returns the candidate that suits most numbers of units; nothing if none suits any.
std::optional<ElasticBatch> BestCandidate(const Search& search) {
  std::optional<ElasticBatch> best;
  for (const std::int64_t batch : Candidates(search)) {
    Counts units = ValidUnits(search, batch);
    const std::size_t most = best ? best->valid_gpus.size() : 0;
    // Candidates come in ascending order, so a later one is larger.
    const bool tie_won = !units.empty() && units.size() == most && search.prefer_larger;
    if (units.size() > most || tie_won) best = {batch, std::move(units), std::nullopt};
  }
  return best;
}

std::optional<std::int64_t> LargestMicroBatch(const Counts& sizes, std::int64_t samples) {
  std::optional<std::int64_t> largest;
  for (const std::int64_t size : sizes) {
    if (samples % size == 0 && size > largest.value_or(0)) largest = size;
  }
  return largest;
}

bool Contains(const Counts& sorted, std::int64_t number) {
  return std::binary_search(sorted.begin(), sorted.end(), number);
}

Status NoGpuCountFits(const ElasticityConfig& config) {
  return InvalidArgumentError("elasticity: no number of GPUs between " + Text(config.min_gpus) +
                              " and " + Text(config.max_gpus) + " can share a batch of at most " +
                              Text(config.max_train_batch_size) + " samples in micro-batches of " +
                              Text(config.micro_batch_sizes));
}

// Returns " (the nearest are 64 and 144)" around a number that is not in the list.
std::string Nearest(const Counts& sorted, std::int64_t number) {
  const auto above = std::upper_bound(sorted.begin(), sorted.end(), number);
  if (above == sorted.begin()) return "the nearest is " + Text(*above);
  if (above == sorted.end()) return "the nearest is " + Text(*std::prev(above));
  return "the nearest are " + Text(*std::prev(above)) + " and " + Text(*above);
}

StatusOr<ElasticBatch> SolveByGpus(const ElasticityConfig& config,
                                   std::optional<std::int64_t> num_gpus) {
  std::optional<ElasticBatch> best = BestCandidate(SearchOf(config));
  if (!best) return NoGpuCountFits(config);
  if (!num_gpus) return *best;
  if (!Contains(best->valid_gpus, *num_gpus)) {
    return InvalidArgumentError(
        "elasticity: " + Text(*num_gpus) + " is not one of the " +
        std::to_string(best->valid_gpus.size()) + " valid numbers of GPUs for a batch of " +
        Text(best->final_batch_size) + ": " + Nearest(best->valid_gpus, *num_gpus));
  }
  best->micro_batch_size =
      LargestMicroBatch(config.micro_batch_sizes, best->final_batch_size / *num_gpus);
  return *best;
}

// Returns the batch for a number of ranks that does not suit the best candidate: as many full
// micro-batches on every rank as the cap allows.
StatusOr<ElasticBatch> BatchForRanks(const ElasticityConfig& config, std::int64_t ranks) {
  std::optional<std::int64_t> chosen;
  for (const std::int64_t micro_batch : config.micro_batch_sizes) {
    if (micro_batch > config.max_train_batch_size / ranks) continue;
    const std::int64_t unit = micro_batch * ranks;
    const std::int64_t batch = config.max_train_batch_size / unit * unit;
    const std::int64_t best = chosen.value_or(batch);
    chosen = config.prefer_larger_batch ? std::max(best, batch) : std::min(best, batch);
  }
  if (chosen) return ElasticBatch{*chosen, {ranks}, std::nullopt};
  return InvalidArgumentError("elasticity: one micro-batch on each of " + Text(ranks) +
                              " data-parallel ranks is more than max_train_batch_size " +
                              Text(config.max_train_batch_size));
}

StatusOr<ElasticBatch> SolveByNodes(const ElasticityConfig& config,
                                    std::optional<std::int64_t> num_gpus) {
  if (!num_gpus) {
    return InvalidArgumentError("elasticity: version 0.2 needs the number of GPUs of the job");
  }
  if (*num_gpus % config.model_parallel_size != 0) {
    return InvalidArgumentError("elasticity: " + Text(*num_gpus) +
                                " GPUs are not a multiple of model_parallel_size " +
                                Text(config.model_parallel_size));
  }
  const std::int64_t ranks = *num_gpus / config.model_parallel_size;
  const std::int64_t per_node = RanksPerUnit(config);
  std::optional<ElasticBatch> batch = BestCandidate(SearchOf(config));
  if (batch) {
    batch->final_batch_size *= per_node;
    for (std::int64_t& count : batch->valid_gpus) count *= per_node;
  }
  if (!batch || !Contains(batch->valid_gpus, ranks)) {
    DS_ASSIGN_OR_RETURN(batch, BatchForRanks(config, ranks));
  }
  batch->micro_batch_size =
      LargestMicroBatch(config.micro_batch_sizes, batch->final_batch_size / ranks);
  return *batch;
}

}  // namespace

std::span<const ElasticityCheck> ElasticityChecks() { return kChecks; }

StatusOr<ElasticBatch> SolveElasticity(const ElasticityConfig& config,
                                       std::optional<std::int64_t> num_gpus) {
  for (const ElasticityCheck& check : kChecks) DS_RETURN_IF_ERROR(check.check(config));
  DS_RETURN_IF_ERROR(CheckMicroBatchesFit(config));
  if (num_gpus && *num_gpus < 1) {
    return InvalidArgumentError("elasticity: the number of GPUs must be at least 1, not " +
                                Text(*num_gpus));
  }
  StatusOr<ElasticBatch> batch = config.version == Version::k01 ? SolveByGpus(config, num_gpus)
                                                                : SolveByNodes(config, num_gpus);
  // A valid number of GPUs divides the batch into micro-batches of some size.
  DS_CHECK(!batch.ok() || !num_gpus || batch->micro_batch_size.has_value());
  return batch;
}

}  // namespace ds::config
