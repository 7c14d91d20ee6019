#pragma once

// Schedule: the tasks that every stage of a pipeline computes in one step, in order. Pure integers.
// Thread-safe.
//
// A model's blocks are split into virtual stages: runs of neighbouring blocks, numbered in the
// order of the forward pass. A stage (the ranks with one coordinate along the pipeline axis) has
// `chunks` virtual stages, and numbers its own from 0. Every micro-batch goes forward through all
// virtual stages and then backward through them.
//
// Kinds, for S stages and M micro-batches. A forward takes time F; a backward takes B for the input
// gradients and W for the weight gradients.
//
//   GPipe        all forwards, then all backwards. Idle (S-1)(F+B+W); every stage holds M
//                micro-batches. Huang et al., 2019.
//   1F1B         each backward as early as possible: the same idle time, stage s holds at most S-s
//                micro-batches. Narayanan et al., 2019 (PipeDream-flush).
//   interleaved  1F1B over several chunks, virtual stage v on stage v mod S: idle (S-1)(F+B+W) of
//                one chunk, for more sends. Narayanan et al., 2021 (Megatron-LM).
//   ZB-H1        1F1B with W separate from B, placed where a stage would wait: idle (S-1)(F+B-W),
//   at
//                most S micro-batches are held. Qi et al., 2023.
//   ZB-V         like ZB-H1 over two chunks; the second runs through the stages in reverse order
//   (the
//                first stage has the first and the last blocks). No stage waits between its first
//                and its last task if F = B = W and M >= 2S-1; at most 2S chunks are held. Qi et
//                al., 2024.

#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace ds::pipeline {

enum class ScheduleKind {
  kGPipe,
  kOneForwardOneBackward,
  kInterleaved,
  kZeroBubbleH1,
  kZeroBubbleV,
};

// Converts between kinds and "gpipe", "1f1b", "interleaved", "zb-h1", "zb-v". The error of
// ParseScheduleKind lists the names.
std::string_view NameOf(ScheduleKind kind);
std::vector<std::string> ScheduleNames();
StatusOr<ScheduleKind> ParseScheduleKind(std::string_view name);

struct PipelineShape {
  int stages = 1;
  int chunks = 1;  // per stage
  int micro_batches = 1;

  int virtual_stages() const { return stages * chunks; }
};

struct Task {
  enum class Kind {
    kForward,
    kBackward,        // both gradients
    kInputGradient,   // B only
    kWeightGradient,  // W only, after B
  };

  Kind kind = Kind::kForward;
  int chunk = 0;
  int micro_batch = 0;

  friend bool operator==(const Task&, const Task&) = default;
};

// The location of a virtual stage.
struct VirtualStageLocation {
  int stage = 0;
  int chunk = 0;

  friend bool operator==(const VirtualStageLocation&, const VirtualStageLocation&) = default;
};

// VirtualStages: maps virtual stages to their locations.
struct VirtualStages {
  ScheduleKind kind = ScheduleKind::kOneForwardOneBackward;
  int stages = 1;
  int chunks = 1;  // per stage

  int count() const { return stages * chunks; }
  VirtualStageLocation LocationOf(int virtual_stage) const;
  int At(const VirtualStageLocation& location) const;
};

// Returns the number of chunks per stage that a kind has by default.
int DefaultChunksOf(ScheduleKind kind);

class PipelineSchedule {
 public:
  // Refuses sizes below 1, a number of chunks that the kind does not have (two for ZB-V, two or
  // more for interleaved, one for the others), and an interleaved schedule with micro-batches that
  // are not a multiple of the stages.
  static StatusOr<PipelineSchedule> Create(ScheduleKind kind, const PipelineShape& shape);

  ScheduleKind kind() const { return kind_; }
  const PipelineShape& shape() const { return shape_; }
  const std::vector<Task>& tasks_of(int stage) const {
    return tasks_[static_cast<std::size_t>(stage)];
  }

  VirtualStages virtual_stages() const { return {kind_, shape_.stages, shape_.chunks}; }
  VirtualStageLocation LocationOf(int virtual_stage) const {
    return virtual_stages().LocationOf(virtual_stage);
  }
  int VirtualStageAt(const VirtualStageLocation& location) const {
    return virtual_stages().At(location);
  }
  // Returns the most activations that the stage holds at once, in micro-batches, counted once per
  // chunk.
  int CountHeld(int stage) const;

 private:
  PipelineSchedule(ScheduleKind kind, const PipelineShape& shape) : kind_(kind), shape_(shape) {}

  ScheduleKind kind_;
  PipelineShape shape_;
  std::vector<std::vector<Task>> tasks_;  // by stage
};

// Returns "F0.1" (forward of chunk 0, micro-batch 1), "B...", "I..." (input gradient) or "W...".
// The chunk is omitted if stages have one.
std::string DescribeTask(const Task& task, const PipelineShape& shape);

}  // namespace ds::pipeline
