#include "runtime/plan/pipeline/schedule.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "runtime/base/check.h"

namespace ds::pipeline {
namespace {

using TaskKind = Task::Kind;

constexpr std::array<std::pair<ScheduleKind, std::string_view>, 5> kKindNames = {{
    {ScheduleKind::kGPipe, "gpipe"},
    {ScheduleKind::kOneForwardOneBackward, "1f1b"},
    {ScheduleKind::kInterleaved, "interleaved"},
    {ScheduleKind::kZeroBubbleH1, "zb-h1"},
    {ScheduleKind::kZeroBubbleV, "zb-v"},
}};

// Appends a stage's tasks; each kind's micro-batches come in ascending order.
class TaskWriter {
 public:
  // Tasks of micro-batches from `micro_batches` on are dropped, so that a schedule may be written
  // for more micro-batches than exist.
  explicit TaskWriter(int micro_batches) : micro_batches_(micro_batches) {}

  void Add(TaskKind kind, int chunk) {
    const int micro_batch = next(kind, chunk)++;
    if (micro_batch < micro_batches_) tasks_.push_back({kind, chunk, micro_batch});
  }
  int count(TaskKind kind, int chunk) const { return next_[Index(kind, chunk)]; }
  std::vector<Task> Take() { return std::move(tasks_); }

 private:
  static std::size_t Index(TaskKind kind, int chunk) {
    return static_cast<std::size_t>(kind) * 2 + static_cast<std::size_t>(chunk);
  }
  int& next(TaskKind kind, int chunk) { return next_[Index(kind, chunk)]; }

  int micro_batches_;
  std::array<int, 8> next_ = {};  // by kind and chunk, at most two chunks here
  std::vector<Task> tasks_;
};

std::vector<Task> PlanGPipe(int micro_batches) {
  TaskWriter writer(micro_batches);
  for (int i = 0; i < micro_batches; ++i) writer.Add(TaskKind::kForward, 0);
  for (int i = 0; i < micro_batches; ++i) writer.Add(TaskKind::kBackward, 0);
  return writer.Take();
}

// With `split`, ZB-H1: weight gradients lag by as many micro-batches as there are stages before
// this one, and fill the time in which it would wait for the gradients that those stages send.
std::vector<Task> PlanOneForwardOneBackward(const PipelineShape& shape, int stage, bool split) {
  TaskWriter writer(shape.micro_batches);
  const int ahead = std::min(shape.stages - stage - 1, shape.micro_batches);
  for (int i = 0; i < ahead; ++i) writer.Add(TaskKind::kForward, 0);
  for (int i = 0; i < shape.micro_batches; ++i) {
    writer.Add(TaskKind::kForward, 0);
    writer.Add(split ? TaskKind::kInputGradient : TaskKind::kBackward, 0);
    if (split && i >= stage) writer.Add(TaskKind::kWeightGradient, 0);
  }
  while (split && writer.count(TaskKind::kWeightGradient, 0) < shape.micro_batches) {
    writer.Add(TaskKind::kWeightGradient, 0);
  }
  return writer.Take();
}

// Returns the i-th pass of a stage in an interleaved schedule: `stages` micro-batches go through
// one chunk, then through the next.
Task InterleavedTask(TaskKind kind, int i, const PipelineShape& shape) {
  const int in_round = i % shape.virtual_stages();
  const int chunk = in_round / shape.stages;
  return {.kind = kind,
          .chunk = kind == TaskKind::kForward ? chunk : shape.chunks - 1 - chunk,
          .micro_batch = i / shape.virtual_stages() * shape.stages + in_round % shape.stages};
}

std::vector<Task> PlanInterleaved(const PipelineShape& shape, int stage) {
  const int passes = shape.micro_batches * shape.chunks;
  const int ahead =
      std::min((shape.stages - stage - 1) * 2 + (shape.chunks - 1) * shape.stages, passes);
  std::vector<Task> tasks;
  for (int i = 0; i < ahead; ++i) tasks.push_back(InterleavedTask(TaskKind::kForward, i, shape));
  for (int i = 0; i < passes; ++i) {
    if (ahead + i < passes) {
      tasks.push_back(InterleavedTask(TaskKind::kForward, ahead + i, shape));
    }
    tasks.push_back(InterleavedTask(TaskKind::kBackward, i, shape));
  }
  return tasks;
}

// Written for enough micro-batches to fill the pipeline; the writer drops those that do not exist.
std::vector<Task> PlanZeroBubbleV(const PipelineShape& shape, int stage) {
  const int below = shape.stages - stage;  // this stage and the later ones
  const int filled = std::max(shape.micro_batches, 2 * shape.stages - 1);
  TaskWriter writer(shape.micro_batches);
  const auto backward = [&](int chunk) {
    writer.Add(TaskKind::kInputGradient, chunk);
    writer.Add(TaskKind::kWeightGradient, chunk);
  };
  for (int i = 0; i < 2 * below - 1; ++i) writer.Add(TaskKind::kForward, 0);
  for (int i = 0; i < stage; ++i) {
    writer.Add(TaskKind::kForward, 1);
    writer.Add(TaskKind::kForward, 0);
  }
  for (int i = 0; i < below; ++i) {
    writer.Add(TaskKind::kForward, 1);
    backward(1);
  }
  while (writer.count(TaskKind::kForward, 1) < filled) {
    if (writer.count(TaskKind::kForward, 0) < filled) writer.Add(TaskKind::kForward, 0);
    backward(0);
    writer.Add(TaskKind::kForward, 1);
    backward(1);
  }
  for (int i = 0; i < stage; ++i) {
    writer.Add(TaskKind::kInputGradient, 0);
    writer.Add(TaskKind::kInputGradient, 1);
  }
  for (int i = 0; i < below; ++i) backward(0);
  for (const int chunk : {1, 0}) {
    while (writer.count(TaskKind::kWeightGradient, chunk) < filled) {
      writer.Add(TaskKind::kWeightGradient, chunk);
    }
  }
  return writer.Take();
}

std::vector<Task> PlanTasks(ScheduleKind kind, const PipelineShape& shape, int stage) {
  switch (kind) {
    case ScheduleKind::kGPipe:
      return PlanGPipe(shape.micro_batches);
    case ScheduleKind::kOneForwardOneBackward:
      return PlanOneForwardOneBackward(shape, stage, /*split=*/false);
    case ScheduleKind::kInterleaved:
      return PlanInterleaved(shape, stage);
    case ScheduleKind::kZeroBubbleH1:
      return PlanOneForwardOneBackward(shape, stage, /*split=*/true);
    case ScheduleKind::kZeroBubbleV:
      return PlanZeroBubbleV(shape, stage);
  }
  DS_CHECK(false);
}

Status CheckShape(ScheduleKind kind, const PipelineShape& shape) {
  const std::string name(NameOf(kind));
  if (shape.stages < 1 || shape.chunks < 1 || shape.micro_batches < 1) {
    return InvalidArgumentError(fmt::format(
        "a pipeline has at least one stage, chunk and micro-batch, and not {}, {} and {}",
        shape.stages, shape.chunks, shape.micro_batches));
  }
  const bool interleaved = kind == ScheduleKind::kInterleaved;
  if (kind == ScheduleKind::kZeroBubbleV && shape.chunks != 2) {
    return InvalidArgumentError(
        fmt::format("a {} schedule has 2 chunks a stage, not {}", name, shape.chunks));
  }
  if (interleaved && shape.chunks < 2) {
    return InvalidArgumentError(
        "an interleaved schedule has 2 chunks a stage or more; with 1 it is 1f1b");
  }
  if (!interleaved && kind != ScheduleKind::kZeroBubbleV && shape.chunks != 1) {
    return InvalidArgumentError(fmt::format(
        "a {} schedule has 1 chunk a stage, not {}; interleaved has several", name, shape.chunks));
  }
  if (interleaved && shape.micro_batches % shape.stages != 0) {
    return InvalidArgumentError(
        fmt::format("an interleaved schedule of {} stages takes a multiple of {} micro-batches (as "
                    "{}), not {}",
                    shape.stages, shape.stages,
                    (shape.micro_batches / shape.stages + 1) * shape.stages, shape.micro_batches));
  }
  return OkStatus();
}

}  // namespace

std::string_view NameOf(ScheduleKind kind) {
  for (const auto& [known, name] : kKindNames) {
    if (known == kind) return name;
  }
  DS_CHECK(false);
}

std::vector<std::string> ScheduleNames() {
  std::vector<std::string> names;
  for (const auto& [kind, name] : kKindNames) names.emplace_back(name);
  return names;
}

StatusOr<ScheduleKind> ParseScheduleKind(std::string_view name) {
  for (const auto& [kind, known] : kKindNames) {
    if (known == name) return kind;
  }
  return InvalidArgumentError(fmt::format("\"{}\" is no schedule of a pipeline; there are {}", name,
                                          fmt::join(ScheduleNames(), ", ")));
}

StatusOr<PipelineSchedule> PipelineSchedule::Create(ScheduleKind kind, const PipelineShape& shape) {
  DS_RETURN_IF_ERROR(CheckShape(kind, shape));
  PipelineSchedule schedule(kind, shape);
  for (int stage = 0; stage < shape.stages; ++stage) {
    schedule.tasks_.push_back(PlanTasks(kind, shape, stage));
  }
  return schedule;
}

VirtualStageLocation VirtualStages::LocationOf(int virtual_stage) const {
  const int row = virtual_stage / stages;
  const int in_row = virtual_stage % stages;
  const bool goes_up = kind == ScheduleKind::kZeroBubbleV && row == 1;
  return {.stage = goes_up ? stages - 1 - in_row : in_row, .chunk = row};
}

int VirtualStages::At(const VirtualStageLocation& location) const {
  const bool goes_up = kind == ScheduleKind::kZeroBubbleV && location.chunk == 1;
  return location.chunk * stages + (goes_up ? stages - 1 - location.stage : location.stage);
}

int DefaultChunksOf(ScheduleKind kind) {
  return kind == ScheduleKind::kInterleaved || kind == ScheduleKind::kZeroBubbleV ? 2 : 1;
}

int PipelineSchedule::CountHeld(int stage) const {
  int held = 0, most = 0;
  for (const Task& task : tasks_of(stage)) {
    if (task.kind == TaskKind::kForward) most = std::max(most, ++held);
    if (task.kind == TaskKind::kBackward || task.kind == TaskKind::kWeightGradient) --held;
  }
  return most;
}

std::string DescribeTask(const Task& task, const PipelineShape& shape) {
  constexpr std::string_view kLetters = "FBIW";
  const char letter = kLetters[static_cast<std::size_t>(task.kind)];
  if (shape.chunks == 1) return fmt::format("{}{}", letter, task.micro_batch);
  return fmt::format("{}{}.{}", letter, task.chunk, task.micro_batch);
}

}  // namespace ds::pipeline
