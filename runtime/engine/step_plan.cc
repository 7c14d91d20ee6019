#include "runtime/engine/step_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/check.h"

namespace ds::engine {
namespace {

using Kind = Instruction::Kind;

std::string Describe(const Instruction& instruction) {
  switch (instruction.kind) {
    case Kind::kForward:
      return fmt::format("F{}", instruction.micro_batch);
    case Kind::kBackward:
      return fmt::format("B{}", instruction.micro_batch);
    case Kind::kReduce:
      return "Reduce";
    case Kind::kStep:
      return "Step";
  }
  DS_CHECK(false);
}

Status Refuse(const StepPlan& plan, std::size_t place, const char* why) {
  return InvalidArgumentError(
      fmt::format("instruction {} of the step \"{}\" {}", place + 1, DescribeStepPlan(plan), why));
}

// The micro-batches that a list has begun and ended up to some place.
class MicroBatches {
 public:
  // Null, or why the list cannot go on with a forward or backward like this.
  const char* Take(const Instruction& instruction) {
    const std::int64_t number = instruction.micro_batch;
    if (instruction.kind == Kind::kForward) {
      if (number != static_cast<std::int64_t>(ended_.size())) return "begins out of order";
      ended_.push_back(false);
      return nullptr;
    }
    if (number < 0 || number >= static_cast<std::int64_t>(ended_.size())) {
      return "comes before its forward";
    }
    if (ended_[static_cast<std::size_t>(number)]) return "is there twice";
    ended_[static_cast<std::size_t>(number)] = true;
    return nullptr;
  }

  bool all_ended() const {
    return !ended_.empty() && std::find(ended_.begin(), ended_.end(), false) == ended_.end();
  }

 private:
  std::vector<bool> ended_;  // by micro-batch
};

}  // namespace

StepPlan PlanStep(std::int64_t micro_batches) {
  DS_CHECK(micro_batches >= 1);
  StepPlan plan;
  for (std::int64_t i = 0; i < micro_batches; ++i) {
    plan.push_back({Kind::kForward, i});
    plan.push_back({Kind::kBackward, i});
  }
  plan.push_back({Kind::kReduce});
  plan.push_back({Kind::kStep});
  return plan;
}

Status CheckStepPlan(const StepPlan& plan) {
  MicroBatches micro_batches;
  const std::size_t ends = plan.size() < 2 ? 0 : plan.size() - 2;
  for (std::size_t i = 0; i < plan.size(); ++i) {
    const Kind kind = plan[i].kind;
    if (kind == Kind::kForward || kind == Kind::kBackward) {
      if (i >= ends) return Refuse(plan, i, "stands where Reduce and Step end the step");
      if (const char* why = micro_batches.Take(plan[i])) return Refuse(plan, i, why);
    } else if (kind != (i == ends ? Kind::kReduce : Kind::kStep) || i < ends) {
      return Refuse(plan, i, "does not stand where Reduce and Step end the step");
    }
  }
  if (micro_batches.all_ended()) return OkStatus();
  return InvalidArgumentError(fmt::format(
      "the step \"{}\" has no micro-batch, or one without its backward", DescribeStepPlan(plan)));
}

std::string DescribeStepPlan(const StepPlan& plan) {
  std::string text;
  for (const Instruction& instruction : plan) {
    text += (text.empty() ? "" : " ") + Describe(instruction);
  }
  return text;
}

}  // namespace ds::engine
