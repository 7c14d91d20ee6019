#include "runtime/config/sections/parallel_section.h"

#include <algorithm>

#include "runtime/config/keys/keys.h"

namespace ds::config {
namespace {

using Json = nlohmann::ordered_json;

constexpr Key kPipeline = keys::kPipelineStages;
constexpr Key kSequence = keys::kSequenceParallelSize;
constexpr Key kTensor = keys::kTensorParallelAutotpSize;
constexpr Key kExpert = keys::kExpertParallelAutoepSize;

// No job has more; products of three stay numbers.
constexpr std::int64_t kMostRanks = std::int64_t{1} << 20;

// 0 and "auto" are "off".
int DegreeOf(const Values& values, Key key) {
  const Json value = values.Get(key);
  if (!value.is_number()) return 1;
  return static_cast<int>(std::clamp<std::int64_t>(value, 1, kMostRanks));
}

// The first key that cuts anything.
Key FirstCut(const Values& values) {
  for (const Key key : {kPipeline, kTensor, kSequence}) {
    if (DegreeOf(values, key) > 1) return key;
  }
  return kSequence;
}

void DegreesDivideTheRanks(RuleContext& context) {
  if (DataRanks(context)) return;
  const ParallelConfig parallel = ReadParallel(context.values);
  context.Refuse(FirstCut(context.values),
                 "does not fit: pipeline.stages x tensor_parallel.autotp_size x "
                 "sequence_parallel_size, " +
                     std::to_string(parallel.ranks_of_a_sample()) +
                     ", must divide the number of ranks, " +
                     std::to_string(context.facts.world_size));
}

void ExpertsDivideTheStateRanks(RuleContext& context) {
  const int experts = ReadParallel(context.values).expert;
  const auto ranks = StateRanks(context);
  if (!ranks || *ranks % experts == 0) return;
  context.Refuse(kExpert, "must divide the number of ranks that share the state, " +
                              std::to_string(*ranks) + ", and is " + std::to_string(experts));
}

constexpr Rule kRules[] = {
    {"DegreesDivideTheRanks", {kPipeline, kSequence, kTensor}, DegreesDivideTheRanks},
    {"ExpertsDivideTheStateRanks",
     {kExpert, kPipeline, kSequence, kTensor},
     ExpertsDivideTheStateRanks}};

}  // namespace

std::span<const Rule> ParallelRules() { return kRules; }

ParallelConfig ReadParallel(const Values& values) {
  const bool experts = values.Get(keys::kExpertParallelEnabled) == true;
  return {.pipeline = DegreeOf(values, kPipeline),
          .sequence = DegreeOf(values, kSequence),
          .tensor = DegreeOf(values, kTensor),
          .expert = experts ? DegreeOf(values, kExpert) : 1};
}

void FillParallel(const Values& values, DsConfig* config) {
  config->parallel = ReadParallel(values);
}

std::optional<std::int64_t> DataRanks(const RuleContext& context) {
  const std::int64_t together = ReadParallel(context.values).ranks_of_a_sample();
  const std::int64_t all = context.facts.world_size;
  return all % together == 0 ? std::optional(all / together) : std::nullopt;
}

std::optional<std::int64_t> StateRanks(const RuleContext& context) {
  const auto ranks = DataRanks(context);
  if (!ranks) return std::nullopt;
  return *ranks * ReadParallel(context.values).sequence;
}

std::string NameDataRanks(const RuleContext& context) {
  const std::int64_t together = ReadParallel(context.values).ranks_of_a_sample();
  std::string name = "world size " + std::to_string(context.facts.world_size);
  if (together > 1) name += " / " + std::to_string(together) + " ranks of a sample";
  return name;
}

}  // namespace ds::config
