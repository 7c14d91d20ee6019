#pragma once

// StageDrawing shows which blocks of a model the stages of a pipeline have.
//
// Pure; safe from any thread.

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/pipeline/partition.h"
#include "runtime/pipeline/schedule.h"

namespace ds::cli {

class StageDrawing {
 public:
  // The blocks cut by a method of pipeline::CutBlocks into the virtual stages of the schedule.
  // Refuses what CutBlocks does.
  static StatusOr<StageDrawing> Create(const pipeline::Schedule& schedule,
                                       const std::string& method,
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
  StageDrawing(std::vector<pipeline::WeighedBlock> blocks, std::vector<Run> runs, int chunks)
      : blocks_(std::move(blocks)), runs_(std::move(runs)), chunks_(chunks) {}
  std::string NameBlocks(const Run& run) const;
  std::int64_t CountParameters(const Run& run) const;

  std::vector<pipeline::WeighedBlock> blocks_;
  std::vector<Run> runs_;
  int chunks_;  // of a stage
};

}  // namespace ds::cli
