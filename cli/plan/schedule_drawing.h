#pragma once

// ScheduleDrawing shows a step of a pipeline: what every stage does when, and how long it waits.
// A forward, the gradients of what came in and those of the weights count one unit of time each.
//
// Pure; safe from any thread.

#include <nlohmann/json.hpp>
#include <string>

#include "runtime/base/status.h"
#include "runtime/pipeline/simulation.h"

namespace ds::cli {

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

}  // namespace ds::cli
