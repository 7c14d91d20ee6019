#include "runtime/plan/pipeline/simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <tuple>

#include "runtime/base/check.h"

namespace ds::pipeline {
namespace {

using Step = Instruction::Kind;

// An activation or gradient of a micro-batch, as input of a virtual stage.
struct Input {
  bool is_gradient = false;
  int virtual_stage = 0;
  int micro_batch = 0;

  friend bool operator==(const Input&, const Input&) = default;
  friend auto operator<=>(const Input&, const Input&) = default;
};

struct Sent {
  Input input;  // as seen by its receiver
  double arrives = 0.0;
};

class StepSimulator {
 public:
  StepSimulator(const PipelineSchedule& schedule, const std::vector<StageProgram>& programs,
                const StepTimes& times)
      : schedule_(schedule), programs_(programs), times_(times), stages_(programs.size()) {
    timeline_.spans.resize(programs.size());
  }

  StatusOr<Timeline> Run();

 private:
  struct Stage {
    std::size_t next = 0;  // index of the next instruction
    double clock = 0.0;
    std::map<Input, double> inputs;           // and their arrival times
    std::map<std::pair<int, int>, int> seen;  // (virtual stage, micro-batch): tasks done
  };

  // Executes the stage's next instruction. Returns false if the stage waits for a message.
  StatusOr<bool> Continue(int stage);
  Status Compute(int stage, const Task& task);
  Status CheckOrder(int stage, const Task& task, int virtual_stage);
  void Send(int stage, const Instruction& instruction);
  StatusOr<bool> Receive(int stage, const Instruction& instruction);
  Status DescribeDeadlock() const;
  std::string Describe(int stage, const Task& task) const {
    return fmt::format("stage {}: {}", stage, DescribeTask(task, schedule_.shape()));
  }
  std::optional<Input> FindOutput(int virtual_stage, const Task& task) const;

  const PipelineSchedule& schedule_;
  const std::vector<StageProgram>& programs_;
  const StepTimes& times_;
  std::vector<Stage> stages_;
  std::map<std::tuple<int, int, bool>, std::deque<Sent>> channels_;  // (from, to, is_gradient)
  Timeline timeline_;
};

double TimeOf(const TaskTimes& times, Task::Kind kind) {
  switch (kind) {
    case Task::Kind::kForward:
      return times.forward;
    case Task::Kind::kBackward:
      return times.input_gradient + times.weight_gradient;
    case Task::Kind::kInputGradient:
      return times.input_gradient;
    case Task::Kind::kWeightGradient:
      return times.weight_gradient;
  }
  DS_CHECK(false);
}

// Returns the output of a task: an input of the next virtual stage in its direction.
std::optional<Input> StepSimulator::FindOutput(int virtual_stage, const Task& task) const {
  if (task.kind == Task::Kind::kWeightGradient) return std::nullopt;
  const bool is_gradient = task.kind != Task::Kind::kForward;
  const int next = virtual_stage + (is_gradient ? -1 : 1);
  if (next < 0 || next >= schedule_.shape().virtual_stages()) return std::nullopt;
  return Input{.is_gradient = is_gradient, .virtual_stage = next, .micro_batch = task.micro_batch};
}

// A micro-batch passes a virtual stage forward, then backward, in one task or in two halves.
Status StepSimulator::CheckOrder(int stage, const Task& task, int virtual_stage) {
  int& seen = stages_[static_cast<std::size_t>(stage)].seen[{virtual_stage, task.micro_batch}];
  const int expected = task.kind == Task::Kind::kForward          ? 0
                       : task.kind == Task::Kind::kWeightGradient ? 2
                                                                  : 1;
  if (seen != expected) return InternalError(Describe(stage, task) + " is out of order");
  seen = task.kind == Task::Kind::kBackward ? 3 : seen + 1;
  return OkStatus();
}

Status StepSimulator::Compute(int stage, const Task& task) {
  Stage& state = stages_[static_cast<std::size_t>(stage)];
  const int virtual_stage = schedule_.VirtualStageAt({.stage = stage, .chunk = task.chunk});
  DS_RETURN_IF_ERROR(CheckOrder(stage, task, virtual_stage));
  const bool is_gradient = task.kind != Task::Kind::kForward;
  const int last = schedule_.shape().virtual_stages() - 1;
  double begin = state.clock;
  if (task.kind != Task::Kind::kWeightGradient && virtual_stage != (is_gradient ? last : 0)) {
    const auto input = state.inputs.find({is_gradient, virtual_stage, task.micro_batch});
    if (input == state.inputs.end()) {
      return InternalError(Describe(stage, task) + " comes before its input");
    }
    begin = std::max(begin, input->second);
  }
  state.clock = begin + TimeOf(times_.tasks[static_cast<std::size_t>(virtual_stage)], task.kind);
  timeline_.spans[static_cast<std::size_t>(stage)].push_back({task, begin, state.clock});
  const auto output = FindOutput(virtual_stage, task);
  if (output && schedule_.LocationOf(output->virtual_stage).stage == stage) {
    state.inputs[*output] = state.clock;
  }
  return OkStatus();
}

void StepSimulator::Send(int stage, const Instruction& instruction) {
  const int virtual_stage =
      schedule_.VirtualStageAt({.stage = stage, .chunk = instruction.task.chunk});
  const auto output = FindOutput(virtual_stage, instruction.task);
  DS_CHECK(output.has_value());
  channels_[{stage, instruction.peer, output->is_gradient}].push_back(
      {*output, stages_[static_cast<std::size_t>(stage)].clock + times_.transfer});
}

StatusOr<bool> StepSimulator::Receive(int stage, const Instruction& instruction) {
  const bool is_gradient = instruction.kind == Step::kReceiveGradient;
  std::deque<Sent>& channel = channels_[{instruction.peer, stage, is_gradient}];
  if (channel.empty()) return false;
  const Input awaited{
      .is_gradient = is_gradient,
      .virtual_stage = schedule_.VirtualStageAt({.stage = stage, .chunk = instruction.task.chunk}),
      .micro_batch = instruction.task.micro_batch};
  if (channel.front().input != awaited) {
    return InternalError(Describe(stage, instruction.task) +
                         " is received in another order than it is sent");
  }
  stages_[static_cast<std::size_t>(stage)].inputs[awaited] = channel.front().arrives;
  channel.pop_front();
  return true;
}

StatusOr<bool> StepSimulator::Continue(int stage) {
  Stage& state = stages_[static_cast<std::size_t>(stage)];
  const StageProgram& program = programs_[static_cast<std::size_t>(stage)];
  if (state.next == program.size()) return false;
  const Instruction& instruction = program[state.next];
  switch (instruction.kind) {
    case Step::kCompute:
      DS_RETURN_IF_ERROR(Compute(stage, instruction.task));
      break;
    case Step::kSendActivation:
    case Step::kSendGradient:
      Send(stage, instruction);
      break;
    case Step::kReceiveActivation:
    case Step::kReceiveGradient: {
      DS_ASSIGN_OR_RETURN(const bool came, Receive(stage, instruction));
      if (!came) return false;
      break;
    }
    case Step::kReduce:
    case Step::kStep:
      break;
  }
  ++state.next;
  return true;
}

Status StepSimulator::DescribeDeadlock() const {
  std::string text;
  for (std::size_t stage = 0; stage < programs_.size(); ++stage) {
    if (stages_[stage].next == programs_[stage].size()) continue;
    const Instruction& waiting = programs_[stage][stages_[stage].next];
    text += fmt::format("{}stage {} waits for {} of stage {}", text.empty() ? "" : ", ", stage,
                        DescribeTask(waiting.task, schedule_.shape()), waiting.peer);
  }
  return InternalError("the stages wait for each other: " + text);
}

StatusOr<Timeline> StepSimulator::Run() {
  DS_CHECK(times_.tasks.size() == static_cast<std::size_t>(schedule_.shape().virtual_stages()));
  bool any = true;
  while (any) {
    any = false;
    for (int stage = 0; stage < schedule_.shape().stages; ++stage) {
      while (true) {
        DS_ASSIGN_OR_RETURN(const bool went_on, Continue(stage));
        if (!went_on) break;
        any = true;
      }
    }
  }
  for (std::size_t stage = 0; stage < programs_.size(); ++stage) {
    if (stages_[stage].next < programs_[stage].size()) return DescribeDeadlock();
  }
  for (const auto& [key, channel] : channels_) {
    if (channel.empty()) continue;
    return InternalError(fmt::format("stage {} sends stage {} a tensor that it does not receive",
                                     std::get<0>(key), std::get<1>(key)));
  }
  return std::move(timeline_);
}

}  // namespace

double Timeline::Length() const {
  double end = 0.0;
  for (const auto& of_stage : spans) {
    if (!of_stage.empty()) end = std::max(end, of_stage.back().end);
  }
  return end;
}

double Timeline::BubbleFraction() const {
  double busy = 0.0;
  for (const auto& of_stage : spans) {
    for (const TaskSpan& span : of_stage) busy += span.end - span.begin;
  }
  const double all = Length() * static_cast<double>(spans.size());
  return all == 0.0 ? 0.0 : 1.0 - busy / all;
}

StatusOr<Timeline> SimulateStep(const PipelineSchedule& schedule,
                                const std::vector<StageProgram>& programs, const StepTimes& times) {
  return StepSimulator(schedule, programs, times).Run();
}

}  // namespace ds::pipeline
