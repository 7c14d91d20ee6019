#pragma once

// The drawings of dsrun plan: the mesh of ranks, the schedule of a pipeline and its stages.
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

// MeshDrawing shows a mesh of ranks: where each of them stands and which of them work together.
//
// Pure; safe from any thread.

class MeshDrawing {
 public:
  explicit MeshDrawing(topology::Mesh mesh) : mesh_(mesh) {}

  const topology::Degrees& degrees() const { return mesh_.degrees(); }

  // Says where a rank stands along the axes that have a degree above 1, outermost first:
  // "pipeline 0  shard 3".
  std::string DescribeRank(int rank) const;
  nlohmann::ordered_json CoordinatesJson(int rank) const;

  // The degrees, then a line for every kind of group of more than one rank, then what training
  // still refuses of it. Ends with a newline.
  std::string DrawGroups() const;
  // {"order": [axes], "degrees": {axis: N}, "groups": {kind: [[ranks]]}}
  nlohmann::ordered_json ToJson() const;

 private:
  topology::Mesh mesh_;
};

// ScheduleDrawing shows a step of a pipeline: what every stage does when, and how long it waits.
// A forward, the gradients of what came in and those of the weights count one unit of time each.
//
// Pure; safe from any thread.

class ScheduleDrawing {
 public:
  // Refuses what pipeline::Schedule does.
  static StatusOr<ScheduleDrawing> Create(pipeline::ScheduleKind kind,
                                          const pipeline::PipelineShape& shape);

  // A stage takes two lines, and three where it has chunks: a letter per unit of time (F forward,
  // B backward, I and W its halves), the number of the chunk and the last digit of the
  // micro-batch's. What goes beyond `columns` is cut off and counted. Ends with a newline.
  std::string DrawText(int columns) const;
  // The same as a picture.
  std::string DrawSvg() const;
  // {"kind", "stages", "chunks", "micro_batches", "units", "bubble", "held": [by stage],
  //  "programs": [by stage: "F0 >F0 ..."]}
  nlohmann::ordered_json ToJson() const;

  const pipeline::Schedule& schedule() const { return schedule_; }

 private:
  ScheduleDrawing(pipeline::Schedule schedule, std::vector<pipeline::StageProgram> programs,
                  pipeline::Timeline timeline)
      : schedule_(std::move(schedule)),
        programs_(std::move(programs)),
        timeline_(std::move(timeline)) {}
  struct Summary {
    std::string times, memory;
  };
  Summary Summarize() const;

  pipeline::Schedule schedule_;
  std::vector<pipeline::StageProgram> programs_;
  pipeline::Timeline timeline_;
};

// StageDrawing shows which blocks of a model the stages of a pipeline have.
//
// Pure; safe from any thread.

class StageDrawing {
 public:
  // The blocks cut by a method of pipeline::CutBlocks into the virtual stages of the schedule.
  // Refuses what CutBlocks does.
  static StatusOr<StageDrawing> Create(const pipeline::Schedule& schedule,
                                       const std::string& method,
                                       std::vector<pipeline::WeighedBlock> blocks);
  // The blocks cut as engine::CutStages has it for the schedule.
  StageDrawing(const pipeline::Schedule& schedule, const std::vector<int>& cut,
               std::vector<pipeline::WeighedBlock> blocks);

  // A line for each chunk of each stage, with its blocks and their parameters. Ends with a newline.
  std::string DrawText() const;
  // [{"stage", "chunk", "first", "end", "parameters"}], by stage and chunk.
  nlohmann::ordered_json ToJson() const;

 private:
  struct Run {
    pipeline::ChunkPlace place;
    int first = 0, end = 0;  // blocks
  };
  std::string NameBlocks(const Run& run) const;
  std::int64_t CountParameters(const Run& run) const;

  std::vector<pipeline::WeighedBlock> blocks_;
  std::vector<Run> runs_;
  int chunks_;  // of a stage
};

}  // namespace ds::cli
