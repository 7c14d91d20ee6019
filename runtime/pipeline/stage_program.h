#pragma once

// StageProgram: one step of one stage as the list that it runs: the schedule's tasks, and between
// them what it sends to and receives from other stages. Pure; safe from any thread.
//
// Between two stages there are two channels in each direction, one for activations and one for
// gradients. A channel keeps the order: the n-th message that is received is the n-th that was
// sent. A send does not wait for its receiver. Messages are received in the order in which they
// are sent, so one may be received before the task that sends the stage on to it.

#include <string>
#include <vector>

#include "runtime/pipeline/schedule.h"

namespace ds::pipeline {

struct StageInstruction {
  enum class Kind {
    kCompute,  // the task
    // Tensors of the task's chunk and micro-batch go to the stage `peer`, or come from it.
    kSendActivation,
    kReceiveActivation,
    kSendGradient,
    kReceiveGradient,
    kReduce,  // the gradients of the task's chunk, which are complete
    kStep,
  };

  Kind kind = Kind::kStep;
  Task task = {};
  int peer = 0;

  friend bool operator==(const StageInstruction&, const StageInstruction&) = default;
};

using StageProgram = std::vector<StageInstruction>;

// The programs of all stages, by stage. A chunk's gradients are reduced behind its last task, the
// step follows behind all. What goes from a chunk to another of the same stage is not sent.
std::vector<StageProgram> PlanStagePrograms(const Schedule& schedule);

// "F0 >F0 <B0 B0 Reduce Step": `>` sends and `<` receives what task F0 or B0 has made.
std::string DescribeStageProgram(const StageProgram& program, const PipelineShape& shape);

}  // namespace ds::pipeline
