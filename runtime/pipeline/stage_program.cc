#include "runtime/pipeline/stage_program.h"

#include <cstddef>
#include <map>
#include <optional>
#include <tuple>

#include "runtime/base/check.h"

namespace ds::pipeline {
namespace {

using Step = StageInstruction::Kind;

// What a task passes on to the next virtual stage of its direction.
struct Message {
  Task task;  // that makes it
  ChunkPlace from, to;
  bool is_gradient = false;
};

std::optional<Message> FindMessageOf(const Schedule& schedule, int stage, const Task& task) {
  if (task.kind == Task::Kind::kWeightGradient) return std::nullopt;
  const bool is_gradient = task.kind != Task::Kind::kForward;
  const ChunkPlace from{.stage = stage, .chunk = task.chunk};
  const int next = schedule.VirtualStageAt(from) + (is_gradient ? -1 : 1);
  if (next < 0 || next >= schedule.shape().virtual_stages()) return std::nullopt;
  return Message{
      .task = task, .from = from, .to = schedule.PlaceOf(next), .is_gradient = is_gradient};
}

// (from, to, is_gradient)
using ChannelKey = std::tuple<int, int, bool>;

// Every channel's messages in the order in which they are sent, and how many of them are received.
struct Channel {
  std::vector<Message> messages;
  std::size_t received = 0;
};
using Channels = std::map<ChannelKey, Channel>;

Channels ListMessages(const Schedule& schedule) {
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

// The virtual stage whose message a task waits for, if it is on another stage.
std::optional<ChunkPlace> FindSource(const Schedule& schedule, int stage, const Task& task) {
  if (task.kind == Task::Kind::kWeightGradient) return std::nullopt;
  const int before = schedule.VirtualStageAt({.stage = stage, .chunk = task.chunk}) +
                     (task.kind == Task::Kind::kForward ? -1 : 1);
  if (before < 0 || before >= schedule.shape().virtual_stages()) return std::nullopt;
  const ChunkPlace place = schedule.PlaceOf(before);
  if (place.stage == stage) return std::nullopt;
  return place;
}

// Receives what has been sent up to the message that the task waits for, unless it is there.
void AppendReceives(const Schedule& schedule, int stage, const Task& task, Channels* channels,
                    StageProgram* program) {
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

// How many of a chunk's gradients are still to come.
class OpenGradients {
 public:
  explicit OpenGradients(const PipelineShape& shape)
      : open_(static_cast<std::size_t>(shape.chunks), shape.micro_batches) {}

  // Tells whether the task has completed its chunk's gradients.
  bool EndsWith(const Task& task) {
    const bool ends =
        task.kind == Task::Kind::kBackward || task.kind == Task::Kind::kWeightGradient;
    return ends && --open_[static_cast<std::size_t>(task.chunk)] == 0;
  }

 private:
  std::vector<int> open_;  // by chunk
};

StageProgram PlanStage(const Schedule& schedule, int stage, Channels* channels) {
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

std::string Describe(const StageInstruction& instruction, const PipelineShape& shape) {
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

}  // namespace

std::vector<StageProgram> PlanStagePrograms(const Schedule& schedule) {
  Channels channels = ListMessages(schedule);
  std::vector<StageProgram> programs;
  for (int stage = 0; stage < schedule.shape().stages; ++stage) {
    programs.push_back(PlanStage(schedule, stage, &channels));
  }
  return programs;
}

std::string DescribeStageProgram(const StageProgram& program, const PipelineShape& shape) {
  std::string text;
  for (const StageInstruction& instruction : program) {
    text += (text.empty() ? "" : " ") + Describe(instruction, shape);
  }
  return text;
}

}  // namespace ds::pipeline
