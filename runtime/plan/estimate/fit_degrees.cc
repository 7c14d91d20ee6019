#include "runtime/plan/estimate/fit_degrees.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "runtime/base/byte_size.h"
#include "runtime/plan/estimate/predict_memory.h"

namespace ds::plan {
namespace {

constexpr int kMicroBatchesOfAStage = 4;  // stages then idle for a fifth of the time

// The config and job of a split that is tried.
struct Trial {
  config::DsConfig config;
  engine::JobShape job;
};

Trial MakeTrial(const FitQuestion& question, const Fit& candidate) {
  Trial trial{question.config, question.job};
  trial.config.parallel = {.pipeline = candidate.pipeline,
                           .sequence = candidate.sequence,
                           .tensor = candidate.tensor,
                           .expert = candidate.expert};
  trial.config.zero_optimization.stage = candidate.zero;
  trial.config.batch.train_micro_batch_size_per_gpu = 1;
  trial.config.batch.gradient_accumulation_steps =
      candidate.pipeline > 1 ? kMicroBatchesOfAStage * candidate.pipeline : 1;
  trial.job.sequence_kind = candidate.kind;
  if (candidate.recomputes) trial.job.recompute = {.kind = config::RecomputeChoice::Kind::kBlocks};
  return trial;
}

bool IsPossible(const FitQuestion& question, const Fit& candidate) {
  const int inside = candidate.tensor * candidate.sequence;
  if (question.job.setting.ranks % (inside * candidate.pipeline * candidate.expert) != 0)
    return false;
  if (question.ranks_of_a_host % inside != 0) return false;
  // The config refuses sequence ranks in combination with samples of varying length.
  const config::DataEfficiency& seen = question.job.efficiency;
  const bool lengths_differ = seen.curriculum || seen.random_ltd || seen.dynamic_batching;
  if (candidate.sequence > 1 && lengths_differ) return false;
  const Trial trial = MakeTrial(question, candidate);
  return engine::CheckMemoryIsKnown(trial.config, trial.job).ok();
}

std::optional<Fit> Try(const FitQuestion& question, Fit candidate) {
  if (!IsPossible(question, candidate)) return std::nullopt;
  const Trial trial = MakeTrial(question, candidate);
  candidate.bytes = PredictMemory(trial.config, trial.job).bytes();
  if (candidate.bytes > question.capacity) return std::nullopt;
  candidate.micro_batch = LargestMicroBatch(trial.config, trial.job, question.capacity);
  return candidate;
}

// Returns the lowest ZeRO stage that fits, preferably without recomputation.
std::optional<Fit> TryStages(const FitQuestion& question, Fit candidate) {
  for (const bool recomputes : {false, true}) {
    for (int zero = candidate.zero; zero <= 3; ++zero) {
      Fit tried = candidate;
      tried.recomputes = recomputes;
      tried.zero = zero;
      if (const auto fit = Try(question, tried)) return fit;
    }
  }
  return std::nullopt;
}

// Returns the smallest number of ranks along one axis that fits.
template <typename MakeCandidate>
std::optional<Fit> TryNumbers(const FitQuestion& question, const MakeCandidate& make_candidate) {
  for (int count = 2; count <= question.job.setting.ranks; ++count) {
    if (const auto fit = TryStages(question, make_candidate(count))) return fit;
  }
  return std::nullopt;
}

// Sequence ranks split the heads if possible, else they form a ring.
Fit SplitSamples(const FitQuestion& question, int count) {
  const Fit by_heads{.sequence = count};
  if (IsPossible(question, by_heads)) return by_heads;
  return {.sequence = count, .kind = models::SequenceKind::kRing};
}

}  // namespace

std::string Fit::Flags() const {
  std::string flags;
  const auto add = [&](const std::string& words) { flags += (flags.empty() ? "" : " ") + words; };
  if (tensor > 1) add("--tp " + std::to_string(tensor));
  if (sequence > 1) add("--sp " + std::to_string(sequence));
  if (sequence > 1 && kind == models::SequenceKind::kRing) add("--sp_kind ring");
  if (expert > 1) add("--ep " + std::to_string(expert));
  if (pipeline > 1) add("--pp " + std::to_string(pipeline));
  if (recomputes) add("--recompute full");
  return flags;
}

Status CheckFitIsKnown(const FitQuestion& question) {
  const Trial trial = MakeTrial(question, {});
  return engine::CheckMemoryIsKnown(trial.config, trial.job);
}

std::vector<Fit> FitDegrees(const FitQuestion& question) {
  std::vector<Fit> fits;
  const auto add = [&](const std::optional<Fit>& fit) {
    if (fit) fits.push_back(*fit);
  };
  add(TryStages(question, {}));
  add(TryNumbers(question, [&](int count) { return SplitSamples(question, count); }));
  add(TryNumbers(question, [](int count) { return Fit{.expert = count}; }));
  add(TryNumbers(question, [](int count) { return Fit{.tensor = count}; }));
  add(TryNumbers(question, [](int count) { return Fit{.pipeline = count}; }));
  if (question.ranks_of_a_host == 1) return fits;
  add(TryNumbers(question, [&](int count) {
    return Fit{.tensor = question.ranks_of_a_host, .pipeline = count};
  }));
  return fits;
}

std::string ToText(const std::vector<Fit>& fits, const FitQuestion& question) {
  const auto size = [](std::int64_t bytes) { return ByteSize(static_cast<std::uint64_t>(bytes)); };
  const std::string where = size(question.capacity) + " a rank, of " +
                            std::to_string(question.job.setting.ranks) +
                            (question.job.setting.ranks == 1 ? " rank, " : " ranks, ") +
                            std::to_string(question.ranks_of_a_host) + " on a host";
  if (fits.empty()) {
    return "nothing fits " + where +
           ": offload to the host or a drive (configs/recipes/zero3-offload.md), shorter samples, "
           "or more hosts\n";
  }
  std::string text = "settings that fit " + where + ", the simplest first:\n";
  for (const Fit& fit : fits) {
    text += "  zero_optimization.stage " + std::to_string(fit.zero);
    if (const std::string flags = fit.Flags(); !flags.empty()) text += "  " + flags;
    text += ": " + size(fit.bytes) + " a rank, a micro-batch of up to " +
            std::to_string(fit.micro_batch) + "\n";
  }
  const auto shares_experts = [](const Fit& fit) { return fit.expert > 1; };
  if (!std::any_of(fits.begin(), fits.end(), shares_experts)) return text;
  return text +
         fmt::format(
             "of --ep: for experts that get up to {:.3g} x their even share (--expert_load)\n",
             question.job.expert_load);
}

nlohmann::ordered_json ToJson(const std::vector<Fit>& fits) {
  auto list = nlohmann::ordered_json::array();
  for (const Fit& fit : fits) {
    list.push_back({{"zero_stage", fit.zero},
                    {"tp", fit.tensor},
                    {"sp", fit.sequence},
                    {"sp_kind", fit.kind == models::SequenceKind::kRing ? "ring" : "ulysses"},
                    {"pp", fit.pipeline},
                    {"ep", fit.expert},
                    {"recompute", fit.recomputes ? "full" : "none"},
                    {"bytes", fit.bytes},
                    {"micro_batch", fit.micro_batch},
                    {"flags", fit.Flags()}});
  }
  return list;
}

}  // namespace ds::plan
