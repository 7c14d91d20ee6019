#pragma once

// StepSimulation: simulates a rank's memory through a step, by sizes (step_memory.h). Pure.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/plan/zero/residency_plan.h"
#include "runtime/plan/zero/simulated_bucket.h"
#include "runtime/plan/zero/step_memory.h"

namespace ds::zero {

// Simulates one rank.
class StepSimulation {
 public:
  // `input` must outlive this object.
  explicit StepSimulation(const StepMemoryInput& input);

  StepMemory Run();

 private:
  void AddUnit(const UnitShape& shape, const std::vector<BucketSizes>& sizes);
  void RunStep();
  void RunMicroBatches();
  void RunPasses();
  void BeginPass(const Pass& pass);
  void Forward(const Pass& pass);
  void Backward(const Pass& pass, bool is_last);
  bool IsHeld(const Pass& pass) const;
  void BringWeightGradients(const Pass& pass);
  void EndStep();
  void CountEnd();
  void Update();

  UnitRange UnitsOf(const Pass& pass) const {
    return pass.units.value_or(UnitRange{0, static_cast<int>(input_.units.size())});
  }
  std::vector<Place> ListBackward(const Pass& pass) const;
  struct PassEnd {
    std::vector<Place> expected = {};
    std::optional<UnitRange> units = {};
    bool is_last = false, later = false;  // later: weight gradients are delayed
    bool held = false;                    // sharded gradients stay unreduced
  };
  ResidencyPlan MakePlan(std::vector<Place> places, PassEnd end) const;
  void Execute(const ResidencyPlan& plan, int place);
  void Execute(const Action& action);
  void Gather(int unit);
  void Reduce(int unit);
  // Reduces at once, or begins to.
  void Reduce(SimulatedBucket* bucket, bool awaits);
  void EndReduction(SimulatedBucket* bucket);
  void AcquireGradients(int unit, bool of_experts);
  void AcquireGradientsOfAll(int unit) {  // and of units it also reads (no experts)
    const auto& reads = input_.units[static_cast<std::size_t>(unit)].also_reads;
    for (const int other : reads) AcquireGradients(other, /*of_experts=*/false);
    AcquireGradients(unit, /*of_experts=*/false);
  }
  const BlockActivations& ActivationsOf(int unit) const {
    return input_.activations[static_cast<std::size_t>(unit)];
  }
  int BlockOf(int unit) const {
    return input_.blocks.empty() ? unit : input_.blocks[static_cast<std::size_t>(unit)];
  }
  void UpdateEarly(SimulatedBucket* bucket);

  std::vector<SimulatedBucket>& buckets(int unit) {
    return buckets_[static_cast<std::size_t>(unit)];
  }
  template <typename Visit>
  void ForEachBucket(Visit visit) {
    for (std::vector<SimulatedBucket>& unit : buckets_) {
      for (SimulatedBucket& bucket : unit) visit(bucket);
    }
  }

  // The state that determines later results.
  struct State {
    RankBooks books;
    std::vector<int> present = {}, fetched = {};
    std::vector<SimulatedBucket::Presence> buckets = {};

    friend bool operator==(const State&, const State&) = default;
  };
  State Capture();
  StepTraffic AddUpTraffic() const;
  StepTraffic* traffic() { return &traffic_[micro_batch_]; }

  HeldMemory now(std::int64_t activations = 0, std::int64_t copies = 0) const;
  // Records a moment at which the rank also holds `activations` and `copies`.
  void Note(const std::string& when, std::int64_t activations, std::int64_t copies = 0);

  const StepMemoryInput& input_;
  int first_trained_ = 0;  // the backward pass ends at this unit
  bool updates_ = false;   // the current backward pass updates buckets
  bool keeps_parameters_ = false;
  std::int64_t last_micro_batch_ = 0;  // of the planned micro-batches
  std::vector<PlannedUnit> planned_;
  RankBooks books_;
  std::vector<std::vector<SimulatedBucket>> buckets_;  // by unit
  std::vector<int> present_, fetched_;
  std::int64_t kept_ = 0;         // activations of finished passes, needed by later passes
  std::int64_t returning_ = 0;    // of kept_: the gradient being sent to the previous stage
  std::int64_t micro_batch_ = 0;  // of the current pass
  std::map<std::int64_t, StepTraffic> traffic_;  // by micro-batch
  StepMemory result_;
};

}  // namespace ds::zero
