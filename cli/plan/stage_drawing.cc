#include "cli/plan/stage_drawing.h"

#include <fmt/format.h>

namespace ds::cli {

StatusOr<StageDrawing> StageDrawing::Create(const pipeline::Schedule& schedule,
                                            const std::string& method,
                                            std::vector<pipeline::WeighedBlock> blocks) {
  const pipeline::PipelineShape& shape = schedule.shape();
  DS_ASSIGN_OR_RETURN(const std::vector<int> cut,
                      pipeline::CutBlocks(method, blocks, shape.virtual_stages()));
  std::vector<Run> runs;
  for (int stage = 0; stage < shape.stages; ++stage) {
    for (int chunk = 0; chunk < shape.chunks; ++chunk) {
      const pipeline::ChunkPlace place{stage, chunk};
      const auto virtual_stage = static_cast<std::size_t>(schedule.VirtualStageAt(place));
      runs.push_back({place, cut[virtual_stage], cut[virtual_stage + 1]});
    }
  }
  return StageDrawing(std::move(blocks), std::move(runs), shape.chunks);
}

// "DecoderEmbedding, 3 DecoderLayer".
std::string StageDrawing::NameBlocks(const Run& run) const {
  std::string text;
  for (int i = run.first; i < run.end;) {
    const std::string& name = blocks_[static_cast<std::size_t>(i)].name;
    int count = 0;
    while (i < run.end && blocks_[static_cast<std::size_t>(i)].name == name) ++count, ++i;
    text += (text.empty() ? "" : ", ") + (count > 1 ? std::to_string(count) + " " : "") + name;
  }
  return text.empty() ? "no block" : text;
}

std::int64_t StageDrawing::CountParameters(const Run& run) const {
  std::int64_t count = 0;
  for (int i = run.first; i < run.end; ++i) count += blocks_[static_cast<std::size_t>(i)].trained;
  return count;
}

std::string StageDrawing::DrawText() const {
  std::string text = "blocks of the stages:\n";
  for (const Run& run : runs_) {
    const std::string chunk = chunks_ > 1 ? fmt::format(" chunk {}", run.place.chunk) : "";
    text += fmt::format("  stage {}{}: {}; {:.2f} M parameters\n", run.place.stage, chunk,
                        NameBlocks(run), static_cast<double>(CountParameters(run)) / 1e6);
  }
  return text;
}

nlohmann::ordered_json StageDrawing::ToJson() const {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const Run& run : runs_) {
    json.push_back({{"stage", run.place.stage},
                    {"chunk", run.place.chunk},
                    {"first", run.first},
                    {"end", run.end},
                    {"parameters", CountParameters(run)}});
  }
  return json;
}

}  // namespace ds::cli
