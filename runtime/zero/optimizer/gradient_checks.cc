#include "runtime/zero/optimizer/gradient_checks.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/comm/agreement.h"
#include "runtime/device/finite_check.h"

namespace ds::zero {
namespace {

constexpr double kNowhere = std::numeric_limits<double>::infinity();

// The location of a non-finite value. `parameter` is its ordinal among the trainable parameters in
// model order. All fields are doubles for GatherNumbers; in lexicographic order the first in time
// is the smallest.
struct NonFiniteValue {
  double micro_step = kNowhere;
  double rank = 0.0;
  double parameter = 0.0;  // ordinal
  double element = 0.0;
  double value = 0.0;

  std::vector<double> numbers() const { return {micro_step, rank, parameter, element, value}; }
};

// Finds the name of the trainable parameter with this ordinal.
std::string FindName(const ShardedModel& model, double ordinal) {
  std::string name;
  ForEachTrainableBucket(model, [&](const Bucket& bucket, std::int64_t first) {
    const std::int64_t index = static_cast<std::int64_t>(ordinal) - first;
    if (index < 0 || index >= bucket.parameters().layout().size()) return;
    name = bucket.parameters().parameter(static_cast<int>(index)).name;
  });
  DS_CHECK(!name.empty());
  return name;
}

constexpr double kNone = -1.0;  // as a parameter: the value was a loss

// Finds the first non-finite gradient that arrived on this rank, or its non-finite loss.
NonFiniteValue FindFirstArrival(const ShardedModel& model, std::optional<std::int64_t> first_loss) {
  NonFiniteValue first_value;
  if (first_loss) {
    first_value = {.micro_step = static_cast<double>(*first_loss) + 0.5,  // after its gradients
                   .rank = static_cast<double>(model.context().groups.all->rank()),
                   .parameter = kNone};
  }
  ForEachTrainableBucket(model, [&](const Bucket& bucket, std::int64_t first) {
    const auto& arrival = bucket.gradients().first_non_finite();
    if (!arrival || static_cast<double>(arrival->micro_step) >= first_value.micro_step) return;
    first_value = {.micro_step = static_cast<double>(arrival->micro_step),
                   .rank = static_cast<double>(model.context().groups.all->rank()),
                   .parameter = static_cast<double>(first + arrival->parameter),
                   .element = static_cast<double>(arrival->element),
                   .value = arrival->value};
  });
  return first_value;
}

// Searches a rank's shard of a bucket's mean; the bucket's first parameter has ordinal `first`.
NonFiniteValue FindFirstIn(const at::Tensor& shard, const std::vector<Piece>& pieces,
                           std::int64_t first) {
  for (const Piece& piece : pieces) {
    const at::Tensor values = shard.narrow(0, piece.range_start, piece.count);
    const auto found = precision::FindFirstNonFinite(values);
    if (!found) continue;
    return {.micro_step = 0.0,
            .parameter = static_cast<double>(first + piece.parameter),
            .element = static_cast<double>(piece.parameter_start + found->index),
            .value = values[found->index].item<double>()};
  }
  return {};
}

// Searches the gradients that this rank's optimizer reads. micro_step is 0, so that ranks are
// ordered by parameter.
NonFiniteValue FindFirstInMean(const ShardedModel& model) {
  NonFiniteValue first_value;
  ForEachTrainableBucket(model, [&](const Bucket& bucket, std::int64_t first) {
    if (std::isfinite(first_value.micro_step) || !bucket.gradients().has_mean()) return;
    const FlatLayout& layout = bucket.parameters().layout();
    const FlatRange own = bucket.context().sharding.optimizer
                              ? layout.shard(bucket.context().groups.shards->rank())
                              : layout.full_range();
    FlatGradients& gradients = bucket.gradients();
    first_value = FindFirstIn(gradients.for_optimizer(gradients.optimizer_range()).tensor(),
                              layout.FindPieces(own), first);
    gradients.Offload(gradients.optimizer_range());
  });
  return first_value;
}

struct NamedValue {
  NonFiniteValue value;
  std::string parameter;
};

// Only the rank that found the value is certain to have the parameter, which may be an expert's.
std::optional<NamedValue> FindFirstOfAllRanks(const ShardedModel& model,
                                              const NonFiniteValue& mine) {
  comm::Communicator& ranks = model.context().groups.of_stage();
  const auto values = comm::GatherNumbers(mine.numbers(), ranks);
  const auto first = std::min_element(values.begin(), values.end());
  if (!std::isfinite((*first)[0])) return std::nullopt;
  const auto finder = static_cast<int>(first - values.begin());
  const bool names = finder == ranks.rank() && (*first)[2] != kNone;
  const std::string name = names ? FindName(model, (*first)[2]) : "";
  return NamedValue{{(*first)[0], (*first)[1], (*first)[2], (*first)[3], (*first)[4]},
                    comm::BroadcastText(name, finder, ranks)};
}

std::string DescribeValue(const NonFiniteValue& found) {
  const char* kind = std::isnan(found.value) ? "NaN" : found.value > 0 ? "+Inf" : "-Inf";
  return std::string(kind) + " at element " +
         std::to_string(static_cast<std::int64_t>(found.element));
}

constexpr std::size_t kNamedAtMost = 5;

struct Trained {
  std::vector<std::string> unused;
  std::size_t count = 0;  // of all trained parameters, in model order
};

Trained FindUnused(const ShardedModel& model) {
  const Context& context = model.context();
  std::vector<std::string> names;
  std::vector<bool> of_experts;
  std::vector<double> received;
  ForEachTrainableBucket(model, [&](const Bucket& bucket, std::int64_t) {
    const std::vector<bool>& of_group = bucket.gradients().received_in_step();
    for (std::size_t i = 0; i < of_group.size(); ++i) {
      names.push_back(bucket.parameters().parameter(static_cast<int>(i)).name);
      of_experts.push_back(bucket.context().is_of_experts);
      received.push_back(of_group[i] ? 1.0 : 0.0);
    }
  });
  const double own_part = context.mesh.ExpertPartOf(context.groups.all->rank());
  received.push_back(own_part);
  const auto ranks = comm::GatherNumbers(received, context.groups.of_stage());
  Trained trained{.count = names.size()};
  for (std::size_t i = 0; i < names.size(); ++i) {
    const bool used = std::any_of(ranks.begin(), ranks.end(), [&](const auto& of_rank) {
      return of_rank[i] != 0.0 && (!of_experts[i] || of_rank.back() == own_part);
    });
    if (!used) trained.unused.push_back(names[i]);
  }
  return trained;
}

}  // namespace

std::optional<std::string> FindNonFiniteGradient(const ShardedModel& model,
                                                 std::optional<std::int64_t> first_loss) {
  const auto first = FindFirstOfAllRanks(model, FindFirstArrival(model, first_loss));
  const std::string location =
      first ? "rank " + std::to_string(static_cast<int>(first->value.rank)) + ", micro-step " +
                  std::to_string(static_cast<std::int64_t>(first->value.micro_step) + 1)
            : "";
  if (const auto found = FindFirstOfAllRanks(model, FindFirstInMean(model))) {
    return found->parameter + " (" + DescribeValue(found->value) + " of the mean over ranks" +
           (location.empty() ? "" : ", first on " + location) + ")";
  }
  if (!first || first->parameter.empty()) return std::nullopt;
  return first->parameter + " (" + DescribeValue(first->value) + ", " + location + ")";
}

Status CheckNoneIsUnused(const ShardedModel& model) {
  const auto [unused, count] = FindUnused(model);
  if (unused.empty()) return OkStatus();
  std::string text = std::to_string(unused.size()) + " of " + std::to_string(count) +
                     " trained parameters without a part in the loss";
  const std::size_t named = std::min(kNamedAtMost, unused.size());
  for (std::size_t i = 0; i < named; ++i) text += (i == 0 ? ": " : ", ") + unused[i];
  if (unused.size() > named) text += " and " + std::to_string(unused.size() - named) + " more";
  return FailedPreconditionError(text +
                                 "; use them, freeze them (requires_grad false), or leave "
                                 "zero_optimization.ignore_unused_parameters at true");
}

}  // namespace ds::zero
