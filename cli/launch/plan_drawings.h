#pragma once

// Drawings for `dsrun plan`: the mesh of ranks, the pipeline schedule and its stages.
//
// Pure; safe from any thread.

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/plan/mesh/mesh.h"
#include "runtime/plan/pipeline/partition.h"
#include "runtime/plan/pipeline/schedule.h"
#include "runtime/plan/pipeline/simulation.h"

namespace ds::cli {

// MeshDrawing shows a mesh of ranks: the coordinates of each rank and its groups.
//
// Pure; safe from any thread.

class MeshDrawing {
 public:
  explicit MeshDrawing(topology::Mesh mesh) : mesh_(mesh) {}

  const topology::Degrees& degrees() const { return mesh_.degrees(); }

  // Returns the coordinates of a rank along the axes with a degree above 1, outermost first:
  // "pipeline 0 shard 3".
  std::string DescribeRank(int rank) const;
  nlohmann::ordered_json CoordinatesJson(int rank) const;

  // Draws the degrees, one line per kind of group with more than one rank, and the parts of the
  // mesh that training does not support yet. Ends with a newline.
  std::string DrawGroups() const;
  // {"order": [axes], "degrees": {axis: N}, "groups": {kind: [[ranks]]}}
  nlohmann::ordered_json ToJson() const;

 private:
  topology::Mesh mesh_;
};

// ScheduleDrawing shows one pipeline step: the work of every stage over time, and its idle time. A
// forward, the input gradients and the weight gradients take one time unit each.
//
// Pure; safe from any thread.

class ScheduleDrawing {
 public:
  // Returns the errors of pipeline::PipelineSchedule.
  static StatusOr<ScheduleDrawing> Create(pipeline::ScheduleKind kind,
                                          const pipeline::PipelineShape& shape);

  // Draws two lines per stage, or three if it has chunks. Each time unit has a letter (F forward, B
  // backward, I and W its halves), the chunk number and the last digit of the micro-batch number.
  // Output beyond `columns` is cut off and counted. Ends with a newline.
  std::string DrawText(int columns) const;
  // Draws the same schedule as an SVG picture.
  std::string DrawSvg() const;
  // {"kind", "stages", "chunks", "micro_batches", "units", "bubble", "held": [by stage],
  //  "programs": [by stage: "F0 >F0 ..."]}
  nlohmann::ordered_json ToJson() const;

  const pipeline::PipelineSchedule& schedule() const { return schedule_; }

 private:
  ScheduleDrawing(pipeline::PipelineSchedule schedule, std::vector<pipeline::StageProgram> programs,
                  pipeline::Timeline timeline)
      : schedule_(std::move(schedule)),
        programs_(std::move(programs)),
        timeline_(std::move(timeline)) {}
  struct Summary {
    std::string times, memory;
  };
  Summary Summarize() const;

  pipeline::PipelineSchedule schedule_;
  std::vector<pipeline::StageProgram> programs_;
  pipeline::Timeline timeline_;
};

// StageDrawing shows the assignment of model blocks to pipeline stages.
//
// Pure; safe from any thread.

class StageDrawing {
 public:
  // Partitions the blocks into the virtual stages of the schedule by a method of
  // pipeline::PartitionBlocks. Returns the errors of PartitionBlocks.
  static StatusOr<StageDrawing> Create(const pipeline::PipelineSchedule& schedule,
                                       const std::string& method,
                                       std::vector<pipeline::WeighedBlock> blocks);
  // Draws a partition made by engine::PartitionStages for the schedule.
  StageDrawing(const pipeline::PipelineSchedule& schedule, const std::vector<int>& split,
               std::vector<pipeline::WeighedBlock> blocks);

  // Draws one line per chunk of each stage, with its blocks and their parameters. Ends with a
  // newline.
  std::string DrawText() const;
  // Returns [{"stage", "chunk", "first", "end", "parameters"}], by stage and chunk.
  nlohmann::ordered_json ToJson() const;

 private:
  struct Run {
    pipeline::VirtualStageLocation location;
    int first = 0, end = 0;  // blocks
  };
  std::string NameBlocks(const Run& run) const;
  std::int64_t CountParameters(const Run& run) const;

  std::vector<pipeline::WeighedBlock> blocks_;
  std::vector<Run> runs_;
  int chunks_;  // per stage
};

}  // namespace ds::cli
