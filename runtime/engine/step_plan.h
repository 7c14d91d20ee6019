#pragma once

// StepPlan: one optimizer step as a list of instructions, which the Executor runs in order. Of one
// pipeline stage it is F0 B0 F1 B1 ... Reduce Step. Pure.

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/status.h"

namespace ds::engine {

struct Instruction {
  enum class Kind {
    kForward,   // takes the next batch as this micro-batch
    kBackward,  // of this micro-batch's loss
    kReduce,    // what the backward passes have left: the mean over ranks is there after it
    kStep,      // norm, clip, update, schedule
  };

  Kind kind = Kind::kStep;
  std::int64_t micro_batch = 0;  // of a forward or backward, counted from 0 in the step

  friend bool operator==(const Instruction&, const Instruction&) = default;
};

using StepPlan = std::vector<Instruction>;

// Plans a step of one stage: each micro-batch's backward follows its forward, so that the
// activations of one are held at a time. Requires micro_batches >= 1.
StepPlan PlanStep(std::int64_t micro_batches);

// Refuses a list that is not one whole step: micro-batches are begun in the order 0, 1, ..., each
// has one backward behind its forward, and behind all of them come one Reduce and one Step.
Status CheckStepPlan(const StepPlan& plan);

// "F0 B0 F1 B1 Reduce Step".
std::string DescribeStepPlan(const StepPlan& plan);

}  // namespace ds::engine
