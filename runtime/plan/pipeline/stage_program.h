#pragma once

// StageProgram: one step of one stage, as the list of instructions that the engine's executor runs:
// the schedule's tasks, and between them sends to and receives from other stages. Plain data
// parallelism is the program of a single stage: F0 B0 F1 B1 ... Reduce Step. Pure. Thread-safe.
//
// Two stages share two channels in each direction, one for activations and one for gradients. A
// channel is FIFO: the n-th message received is the n-th sent. A send does not wait for its
// receiver. Because messages are received in the order of their sends, one may be received before
// the stage gets to the task that needs it.

#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/plan/pipeline/schedule.h"

namespace ds::pipeline {

struct Instruction {
  enum class Kind {
    kCompute,  // runs the task
    // Sends or receives tensors of the task's chunk and micro-batch; `peer` is the other stage.
    kSendActivation,
    kReceiveActivation,
    kSendGradient,
    kReceiveGradient,
    kReduce,  // reduces the complete gradients of the task's chunk
    kStep,
  };

  Kind kind = Kind::kStep;
  Task task = {};
  int peer = 0;

  friend bool operator==(const Instruction&, const Instruction&) = default;
};

using StageProgram = std::vector<Instruction>;

// Returns the programs of all stages, by stage. A chunk's gradients are reduced after its last
// task; the step is last. Data passed between chunks of one stage is not sent.
std::vector<StageProgram> PlanStagePrograms(const PipelineSchedule& schedule);

// Returns the program of a single stage. Each micro-batch's backward follows its forward, so that
// only one micro-batch's activations are held at a time. Requires micro_batches >= 1.
StageProgram PlanStep(int micro_batches);

// Refuses a list that is not exactly one full step of a stage. In each chunk, micro-batches begin
// in the order 0, 1, ...; each has one backward, in one or two parts, after its forward; one Reduce
// follows them all. One Step ends the list. A task's output is sent after the task, its input is
// received before it.
Status CheckStageProgram(const StageProgram& program);

// Returns "F0 >F0 <B0 B0 Reduce Step": `>` sends and `<` receives the output of task F0 or B0.
std::string DescribeStageProgram(const StageProgram& program, const PipelineShape& shape);

}  // namespace ds::pipeline
