#include "runtime/plan/pipeline/stage_program.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <tuple>

#include "runtime/base/check.h"

namespace ds::pipeline {
namespace {

using Step = Instruction::Kind;

// Message: the output of a task, for the next virtual stage in its direction.
struct Message {
  Task task;  // the sender's task
  VirtualStageLocation from, to;
  bool is_gradient = false;
};

std::optional<Message> FindMessageOf(const PipelineSchedule& schedule, int stage,
                                     const Task& task) {
  if (task.kind == Task::Kind::kWeightGradient) return std::nullopt;
  const bool is_gradient = task.kind != Task::Kind::kForward;
  const VirtualStageLocation from{.stage = stage, .chunk = task.chunk};
  const int next = schedule.VirtualStageAt(from) + (is_gradient ? -1 : 1);
  if (next < 0 || next >= schedule.shape().virtual_stages()) return std::nullopt;
  return Message{
      .task = task, .from = from, .to = schedule.LocationOf(next), .is_gradient = is_gradient};
}

// (from, to, is_gradient)
using ChannelKey = std::tuple<int, int, bool>;

// The messages of a channel in the order of their sends, and the number received so far.
struct Channel {
  std::vector<Message> messages;
  std::size_t received = 0;
};
using Channels = std::map<ChannelKey, Channel>;

Channels ListMessages(const PipelineSchedule& schedule) {
  Channels channels;
  for (int stage = 0; stage < schedule.shape().stages; ++stage) {
    for (const Task& task : schedule.tasks_of(stage)) {
      const auto message = FindMessageOf(schedule, stage, task);
      if (!message || message->to.stage == stage) continue;
      channels[{stage, message->to.stage, message->is_gradient}].messages.push_back(*message);
    }
  }
  return channels;
}

// Returns the source of a task's input, if it is on another stage.
std::optional<VirtualStageLocation> FindSource(const PipelineSchedule& schedule, int stage,
                                               const Task& task) {
  if (task.kind == Task::Kind::kWeightGradient) return std::nullopt;
  const int before = schedule.VirtualStageAt({.stage = stage, .chunk = task.chunk}) +
                     (task.kind == Task::Kind::kForward ? -1 : 1);
  if (before < 0 || before >= schedule.shape().virtual_stages()) return std::nullopt;
  const VirtualStageLocation location = schedule.LocationOf(before);
  if (location.stage == stage) return std::nullopt;
  return location;
}

// Receives the channel's messages up to the task's input, unless that has been received.
void AppendReceives(const PipelineSchedule& schedule, int stage, const Task& task,
                    Channels* channels, StageProgram* program) {
  const auto source = FindSource(schedule, stage, task);
  if (!source) return;
  const bool is_gradient = task.kind != Task::Kind::kForward;
  Channel& channel = channels->at({source->stage, stage, is_gradient});
  const auto is_awaited = [&](const Message& message) {
    return message.to.chunk == task.chunk && message.task.micro_batch == task.micro_batch;
  };
  for (std::size_t i = 0; i < channel.received; ++i) {
    if (is_awaited(channel.messages[i])) return;
  }
  while (true) {
    DS_CHECK(channel.received < channel.messages.size());
    const Message& message = channel.messages[channel.received++];
    const Task made_by = message.task;
    program->push_back({is_gradient ? Step::kReceiveGradient : Step::kReceiveActivation,
                        {made_by.kind, message.to.chunk, made_by.micro_batch},
                        source->stage});
    if (is_awaited(message)) return;
  }
}

// OpenGradients: counts the micro-batches with outstanding gradients, by chunk.
class OpenGradients {
 public:
  explicit OpenGradients(const PipelineShape& shape)
      : open_(static_cast<std::size_t>(shape.chunks), shape.micro_batches) {}

  // True if the task completes its chunk's gradients.
  bool EndsWith(const Task& task) {
    const bool ends =
        task.kind == Task::Kind::kBackward || task.kind == Task::Kind::kWeightGradient;
    return ends && --open_[static_cast<std::size_t>(task.chunk)] == 0;
  }

 private:
  std::vector<int> open_;  // by chunk
};

StageProgram PlanStage(const PipelineSchedule& schedule, int stage, Channels* channels) {
  StageProgram program;
  OpenGradients open(schedule.shape());
  for (const Task& task : schedule.tasks_of(stage)) {
    AppendReceives(schedule, stage, task, channels, &program);
    program.push_back({Step::kCompute, task, stage});
    const auto message = FindMessageOf(schedule, stage, task);
    if (message && message->to.stage != stage) {
      program.push_back({message->is_gradient ? Step::kSendGradient : Step::kSendActivation, task,
                         message->to.stage});
    }
    if (open.EndsWith(task)) program.push_back({Step::kReduce, task, stage});
  }
  program.push_back({.kind = Step::kStep, .peer = stage});
  return program;
}

std::string Describe(const Instruction& instruction, const PipelineShape& shape) {
  const std::string task = DescribeTask(instruction.task, shape);
  switch (instruction.kind) {
    case Step::kCompute:
      return task;
    case Step::kSendActivation:
    case Step::kSendGradient:
      return ">" + task;
    case Step::kReceiveActivation:
    case Step::kReceiveGradient:
      return "<" + task;
    case Step::kReduce:
      return shape.chunks == 1 ? "Reduce" : "Reduce" + std::to_string(instruction.task.chunk);
    case Step::kStep:
      return "Step";
  }
  DS_CHECK(false);
}

// ChunkProgress: the state of one chunk at some point of a program. Methods return null, or the
// reason why the program is invalid.
class ChunkProgress {
 public:
  const char* Compute(const Task& task) {
    if (reduced_) return "comes after the Reduce of its chunk";
    const auto number = static_cast<std::size_t>(task.micro_batch);
    if (task.kind == Task::Kind::kForward) {
      if (task.micro_batch < 0 || number != begun_.size()) return "begins out of order";
      begun_.push_back(Gradients::kNone);
      return nullptr;
    }
    if (task.micro_batch < 0 || number >= begun_.size()) return "comes before its forward";
    const bool second = task.kind == Task::Kind::kWeightGradient;
    if (second && begun_[number] == Gradients::kNone) return "comes before its other half";
    if (begun_[number] != (second ? Gradients::kOfInput : Gradients::kNone))
      return "is there twice";
    const bool first = task.kind == Task::Kind::kInputGradient;
    begun_[number] = first ? Gradients::kOfInput : Gradients::kAll;
    return nullptr;
  }
  const char* Send(const Task& task) const {
    return HasMade(task) ? nullptr : "comes before the task that makes its tensor";
  }
  const char* Receive(const Task& task) const {
    return HasMade(task) ? "comes after the task that needs it" : nullptr;
  }
  const char* Reduce() {
    if (reduced_) return "is there twice";
    const bool all_ended = std::all_of(begun_.begin(), begun_.end(), [](Gradients gradients) {
      return gradients == Gradients::kAll;
    });
    if (!all_ended) return "leaves a micro-batch without its backward";
    reduced_ = true;
    return begun_.empty() ? "has no micro-batch" : nullptr;
  }
  bool is_reduced() const { return reduced_; }

 private:
  enum class Gradients { kNone, kOfInput, kAll };

  bool HasMade(const Task& task) const {
    const auto number = static_cast<std::size_t>(task.micro_batch);
    if (task.micro_batch < 0 || number >= begun_.size()) return false;
    return task.kind == Task::Kind::kForward || begun_[number] != Gradients::kNone;
  }

  std::vector<Gradients> begun_;  // by micro-batch
  bool reduced_ = false;
};

using ChunksProgress = std::map<int, ChunkProgress>;

const char* Follow(const Instruction& instruction, bool is_last, ChunksProgress* chunks) {
  if (instruction.kind == Step::kStep) {
    for (const auto& [number, chunk] : *chunks) {
      if (!chunk.is_reduced()) return "comes before a Reduce";
    }
    return is_last ? nullptr : "does not end the step";
  }
  ChunkProgress& chunk = (*chunks)[instruction.task.chunk];
  switch (instruction.kind) {
    case Step::kCompute:
      return chunk.Compute(instruction.task);
    case Step::kSendActivation:
    case Step::kSendGradient:
      return chunk.Send(instruction.task);
    case Step::kReceiveActivation:
    case Step::kReceiveGradient:
      return chunk.Receive(instruction.task);
    case Step::kReduce:
      return chunk.Reduce();
    case Step::kStep:
      break;
  }
  DS_CHECK(false);
}

std::string DescribeForError(const StageProgram& program) {
  PipelineShape shape;
  for (const Instruction& each : program)
    shape.chunks = std::max(shape.chunks, each.task.chunk + 1);
  return DescribeStageProgram(program, shape);
}

}  // namespace

StageProgram PlanStep(int micro_batches) {
  DS_CHECK(micro_batches >= 1);
  const auto schedule = PipelineSchedule::Create(ScheduleKind::kOneForwardOneBackward,
                                                 {.micro_batches = micro_batches});
  return PlanStagePrograms(schedule.value()).front();
}

Status CheckStageProgram(const StageProgram& program) {
  ChunksProgress chunks;
  for (std::size_t i = 0; i < program.size(); ++i) {
    if (const char* why = Follow(program[i], i + 1 == program.size(), &chunks)) {
      return InvalidArgumentError("instruction " + std::to_string(i + 1) + " of the step \"" +
                                  DescribeForError(program) + "\" " + why);
    }
  }
  if (!chunks.empty() && program.back().kind == Step::kStep) return OkStatus();
  return InvalidArgumentError("the step \"" + DescribeForError(program) +
                              "\" has no micro-batch, or does not end with Step");
}

std::vector<StageProgram> PlanStagePrograms(const PipelineSchedule& schedule) {
  Channels channels = ListMessages(schedule);
  std::vector<StageProgram> programs;
  for (int stage = 0; stage < schedule.shape().stages; ++stage) {
    programs.push_back(PlanStage(schedule, stage, &channels));
  }
  return programs;
}

std::string DescribeStageProgram(const StageProgram& program, const PipelineShape& shape) {
  std::string text;
  for (const Instruction& instruction : program) {
    text += (text.empty() ? "" : " ") + Describe(instruction, shape);
  }
  return text;
}

}  // namespace ds::pipeline
