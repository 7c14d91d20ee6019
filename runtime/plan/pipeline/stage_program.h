#pragma once

// StageProgram: one step of one stage as the list that the engine's executor runs: the schedule's
// tasks, and between them what it sends to and receives from other stages. Plain data parallelism
// is the program of the only stage: F0 B0 F1 B1 ... Reduce Step. Pure; safe from any thread.
//
// Between two stages there are two channels in each direction, one for activations and one for
// gradients. A channel keeps the order: the n-th message that is received is the n-th that was
// sent. A send does not wait for its receiver. Messages are received in the order in which they
// are sent, so one may be received before the task that sends the stage on to it.

#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/plan/pipeline/schedule.h"

namespace ds::pipeline {

struct Instruction {
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

  friend bool operator==(const Instruction&, const Instruction&) = default;
};

using StageProgram = std::vector<Instruction>;

// The programs of all stages, by stage. A chunk's gradients are reduced behind its last task, the
// step follows behind all. What goes from a chunk to another of the same stage is not sent.
std::vector<StageProgram> PlanStagePrograms(const Schedule& schedule);

// The program of the only stage: each micro-batch's backward follows its forward, so that the
// activations of one are held at a time. Requires micro_batches >= 1.
StageProgram PlanStep(int micro_batches);

// Refuses a list that is not one whole step of a stage: of each chunk micro-batches are begun in
// the order 0, 1, ..., each has one backward, whole or in two parts, behind its forward, and behind
// all of them comes one Reduce; one Step ends the list. What a task makes is sent behind it, what
// it needs is received before it.
Status CheckStageProgram(const StageProgram& program);

// "F0 >F0 <B0 B0 Reduce Step": `>` sends and `<` receives what task F0 or B0 has made.
std::string DescribeStageProgram(const StageProgram& program, const PipelineShape& shape);

}  // namespace ds::pipeline
