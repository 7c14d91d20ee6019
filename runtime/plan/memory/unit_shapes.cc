#include "runtime/plan/memory/unit_shapes.h"

#include <algorithm>
#include <functional>
#include <utility>
#include <variant>

#include "runtime/config/muon_memory.h"

namespace ds::engine {
namespace {

using models::ParameterSize;

// Groups parameters by the value of `is`, in order of first appearance.
template <typename Is>
std::vector<std::vector<ParameterSize>> SortBy(const std::vector<ParameterSize>& parameters,
                                               Is is) {
  std::vector<std::vector<ParameterSize>> lists;
  for (const bool first : {true, false}) {
    std::vector<ParameterSize> list;
    for (const ParameterSize& parameter : parameters) {
      if ((is(parameter) == is(parameters.front())) == first) list.push_back(parameter);
    }
    if (!list.empty()) lists.push_back(std::move(list));
  }
  return lists;
}

// UnitList: see ListUnitShapes.
class UnitList {
 public:
  UnitList(const config::DsConfig& config, const zero::StepMemoryInput& step)
      : muon_(std::get_if<config::MuonConfig>(&config.optimizer.algorithm)),
        experts_are_apart_(step.of_experts.has_value()),
        rounds_(step.rounds_weights || step.rounds_gradients),
        keeps_rounded_(step.keeps_rounded) {}

  std::vector<zero::UnitShape> List(const std::vector<models::BlockSizes>& blocks) const {
    std::vector<zero::UnitShape> units;
    for (const models::BlockSizes& block : blocks) {
      units.push_back({.also_reads = block.also_reads, .backward_reads = block.backward_reads});
      for (const auto& alike : SortBy(block.parameters, IsTrained)) {
        AddBuckets(alike, &units.back().buckets);
      }
    }
    return units;
  }

 private:
  static bool IsTrained(const ParameterSize& each) { return each.trained; }

  void AddBuckets(const std::vector<ParameterSize>& list,
                  std::vector<zero::BucketShape>* buckets) const {
    if (list.empty()) return;
    if (!list.front().trained) return AddFrozen(list, buckets);
    const auto rounds = [&](const ParameterSize& each) { return rounds_ && each.is_matrix; };
    const auto on_two_stages = [](const ParameterSize& each) { return each.on_two_stages; };
    for (const auto& of_stages : SortBy(list, on_two_stages)) {
      for (const auto& of_ranks : SortBy(of_stages, std::bind_front(&UnitList::IsApart, this))) {
        for (const auto& parameters : SortBy(of_ranks, rounds)) {
          buckets->push_back(MakeBucket(parameters));
          buckets->back().rounded = rounds(parameters.front());
          buckets->back().on_two_stages = on_two_stages(parameters.front());
        }
      }
    }
  }

  bool IsApart(const ParameterSize& each) const { return experts_are_apart_ && each.expert >= 0; }

  void AddFrozen(const std::vector<ParameterSize>& list,
                 std::vector<zero::BucketShape>* buckets) const {
    const auto rounds = [&](const ParameterSize& each) {
      return keeps_rounded_ && each.is_matrix && each.bytes == 0;
    };
    const auto is_bytes = [](const ParameterSize& each) { return each.bytes > 0; };
    for (const auto& of_kind : SortBy(list, is_bytes)) {
      for (const auto& parameters : SortBy(of_kind, rounds)) {
        buckets->push_back(MakeBucket(parameters));
        buckets->back().trained = false;
        buckets->back().of_bytes = is_bytes(parameters.front());
        buckets->back().rounded = rounds(parameters.front());
      }
    }
  }

  bool IsMuons(const ParameterSize& each) const {
    return muon_ != nullptr && each.is_matrix && config::IsMuonName(each.module);
  }

  zero::BucketShape MakeBucket(const std::vector<ParameterSize>& parameters) const {
    zero::BucketShape bucket{.of_experts = IsApart(parameters.front())};
    for (const auto& alike : SortBy(parameters, std::bind_front(&UnitList::IsMuons, this))) {
      zero::RangeShape range{.first = static_cast<int>(bucket.numels.size()),
                             .muon = IsMuons(alike.front())};
      for (const ParameterSize& each : alike) {
        bucket.numels.push_back(each.held());
        if (!range.muon) continue;
        const bool gram = muon_->newton_schulz == config::NewtonSchulz::kGram;
        range.iteration = std::max(range.iteration,
                                   config::CountIterationElements(each.rows, each.columns, gram));
      }
      bucket.ranges.push_back(range);
    }
    return bucket;
  }

  const config::MuonConfig* muon_;
  bool experts_are_apart_, rounds_, keeps_rounded_;
};

}  // namespace

std::vector<zero::UnitShape> ListUnitShapes(const config::DsConfig& config,
                                            const zero::StepMemoryInput& step,
                                            const std::vector<models::BlockSizes>& blocks) {
  return UnitList(config, step).List(blocks);
}

}  // namespace ds::engine
