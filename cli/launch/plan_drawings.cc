#include "cli/launch/plan_drawings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <string_view>

#include "runtime/base/number_list.h"

namespace ds::cli {
namespace {

using Json = nlohmann::ordered_json;
using topology::Axis;
using topology::Mesh;
using Groups = std::vector<std::vector<int>>;

constexpr std::size_t kMostGroupsInALine = 16;

struct Kind {
  std::string_view name;
  std::string_view what;  // a verb phrase about its ranks
  std::function<std::vector<int>(const Mesh&, int rank)> group_of;
};

std::function<std::vector<int>(const Mesh&, int)> Over(topology::AxisSet axes) {
  return [axes](const Mesh& mesh, int rank) { return mesh.GroupOf(rank, axes); };
}

const std::array<Kind, 9>& Kinds() {
  static const std::array<Kind, 9> kinds{{
      {"pipeline", "have the stages of one model, first to last", Over({Axis::kPipeline})},
      {"data", "have samples of their own", Over(topology::kDataAxes)},
      {"gradients", "add up their gradients", Over(topology::kGradientAxes)},
      {"shard", "shard dense parameters", Over(topology::kShardAxes)},
      {"replicate", "have equal shards", Over(topology::kReplicaAxes)},
      {"sequence", "have parts of the same samples", Over({Axis::kSequence})},
      {"tensor", "have parts of every matrix", Over({Axis::kTensor})},
      {"experts", "have all experts together", std::mem_fn(&Mesh::ExpertGroupOf)},
      {"expert_shard", "shard the same experts",
       [](const Mesh& mesh, int rank) { return mesh.SameExpertsOf(rank, topology::kShardAxes); }},
  }};
  return kinds;
}

// Lists each group once, by its first rank.
Groups ListGroups(const Mesh& mesh, const Kind& kind) {
  Groups groups;
  for (int rank = 0; rank < mesh.world_size(); ++rank) {
    std::vector<int> group = kind.group_of(mesh, rank);
    if (group.front() == rank) groups.push_back(std::move(group));
  }
  return groups;
}

// False for expert groups if there are no experts.
bool IsOfUse(const Mesh& mesh, const Kind& kind) {
  return mesh.degrees().expert > 1 || !kind.name.starts_with("expert");
}

std::string Line(const Kind& kind, const Groups& groups) {
  std::string line = "  " + std::string(kind.name) + " (" + std::string(kind.what) + "):";
  for (std::size_t i = 0; i < groups.size() && i < kMostGroupsInALine; ++i) {
    line += (i == 0 ? " " : " | ") + FormatNumberList(groups[i]);
  }
  if (groups.size() > kMostGroupsInALine) {
    line += " and " + std::to_string(groups.size() - kMostGroupsInALine) + " more";
  }
  return line + "\n";
}

}  // namespace

std::string MeshDrawing::DescribeRank(int rank) const {
  const topology::Coordinates at = mesh_.CoordinatesOf(rank);
  std::string text;
  for (const Axis axis : mesh_.degrees().order) {
    if (mesh_.degrees().along(axis) == 1) continue;
    text += (text.empty() ? "" : "  ") + std::string(NameOf(axis)) + " " +
            std::to_string(at[static_cast<std::size_t>(axis)]);
  }
  return text;
}

Json MeshDrawing::CoordinatesJson(int rank) const {
  const topology::Coordinates at = mesh_.CoordinatesOf(rank);
  Json json = Json::object();
  for (const Axis axis : mesh_.degrees().order) {
    json[std::string(NameOf(axis))] = at[static_cast<std::size_t>(axis)];
  }
  return json;
}

std::string MeshDrawing::DrawGroups() const {
  std::string text = "mesh, outermost first:";
  for (const Axis axis : mesh_.degrees().order) {
    text += " " + std::string(NameOf(axis)) + " " + std::to_string(mesh_.degrees().along(axis));
  }
  text += "; expert " + std::to_string(mesh_.degrees().expert) + "\n";
  for (const Kind& kind : Kinds()) {
    const Groups groups = ListGroups(mesh_, kind);
    if (groups.front().size() > 1 && IsOfUse(mesh_, kind)) text += Line(kind, groups);
  }
  return text;
}

Json MeshDrawing::ToJson() const {
  Json order = Json::array(), degrees = Json::object(), groups = Json::object();
  for (const Axis axis : mesh_.degrees().order) {
    order.push_back(NameOf(axis));
    degrees[std::string(NameOf(axis))] = mesh_.degrees().along(axis);
  }
  degrees["expert"] = mesh_.degrees().expert;
  for (const Kind& kind : Kinds()) {
    if (IsOfUse(mesh_, kind)) groups[std::string(kind.name)] = ListGroups(mesh_, kind);
  }
  return {{"order", order}, {"degrees", degrees}, {"groups", groups}};
}

namespace {

using pipeline::TaskSpan;
using TaskKind = pipeline::Task::Kind;

struct TaskStyle {
  char letter;
  std::string_view color;
};

TaskStyle StyleOf(TaskKind kind) {
  switch (kind) {
    case TaskKind::kForward:
      return {'F', "#8db4e2"};
    case TaskKind::kBackward:
      return {'B', "#a8d08d"};
    case TaskKind::kInputGradient:
      return {'I', "#a8d08d"};
    case TaskKind::kWeightGradient:
      return {'W', "#ffd966"};
  }
  return {'?', "#ffffff"};
}

// Draws one line of a stage. `mark` returns the character of the active task for each unit of time.
template <typename Mark>
std::string DrawLine(const std::vector<TaskSpan>& spans, std::size_t units, Mark mark) {
  std::string line(units, ' ');
  for (const TaskSpan& span : spans) {
    for (auto unit = static_cast<std::size_t>(span.begin);
         unit < static_cast<std::size_t>(span.end); ++unit) {
      line[unit] = mark(span.task);
    }
  }
  return line;
}

char LastDigit(int number) { return static_cast<char>('0' + number % 10); }

// Removes trailing blanks.
std::string Trim(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

}  // namespace

StatusOr<ScheduleDrawing> ScheduleDrawing::Create(pipeline::ScheduleKind kind,
                                                  const pipeline::PipelineShape& shape) {
  DS_ASSIGN_OR_RETURN(pipeline::PipelineSchedule schedule,
                      pipeline::PipelineSchedule::Create(kind, shape));
  std::vector<pipeline::StageProgram> programs = PlanStagePrograms(schedule);
  const pipeline::StepTimes times{
      .tasks = std::vector<pipeline::TaskTimes>(static_cast<std::size_t>(shape.virtual_stages()))};
  DS_ASSIGN_OR_RETURN(pipeline::Timeline timeline, SimulateStep(schedule, programs, times));
  return ScheduleDrawing(std::move(schedule), std::move(programs), std::move(timeline));
}

ScheduleDrawing::Summary ScheduleDrawing::Summarize() const {
  const pipeline::PipelineShape& shape = schedule_.shape();
  std::string held;
  for (int stage = 0; stage < shape.stages; ++stage) {
    held += (stage == 0 ? "" : " ") + std::to_string(schedule_.CountHeld(stage));
  }
  const bool has_chunks = shape.chunks > 1;
  return {.times = fmt::format("{}: {} stages, {}{} micro-batches; {:.0f} % of the time is waiting",
                               NameOf(schedule_.kind()), shape.stages,
                               has_chunks ? fmt::format("{} chunks each, ", shape.chunks) : "",
                               shape.micro_batches, 100.0 * timeline_.BubbleFraction()),
          .memory = fmt::format("activations held by stage, in micro-batches{}: {}",
                                has_chunks ? " of a chunk" : "", held)};
}

std::string ScheduleDrawing::DrawText(int columns) const {
  const bool has_chunks = schedule_.shape().chunks > 1;
  const auto units = static_cast<std::size_t>(timeline_.Length());
  const std::string indent(10, ' ');
  const std::size_t capacity =
      static_cast<std::size_t>(std::max(columns - static_cast<int>(indent.size()), 10));
  const Summary summary = Summarize();
  std::string text = "schedule " + summary.times + "\n" + indent + summary.memory + "\n";
  for (std::size_t stage = 0; stage < timeline_.spans.size(); ++stage) {
    const auto draw = [&](const std::string& head, auto mark) {
      const std::string line = DrawLine(timeline_.spans[stage], units, mark).substr(0, capacity);
      text += Trim(fmt::format("{:<10}", head) + line) + "\n";
    };
    draw(fmt::format("stage {}", stage),
         [](const auto& task) { return StyleOf(task.kind).letter; });
    if (has_chunks) draw("   chunk", [](const auto& task) { return LastDigit(task.chunk); });
    draw("   batch", [](const auto& task) { return LastDigit(task.micro_batch); });
  }
  if (units > capacity) {
    text += fmt::format("{}(the first {} of {} units of time; --svg FILE draws all)\n", indent,
                        capacity, units);
  }
  return text;
}

std::string ScheduleDrawing::DrawSvg() const {
  constexpr int kUnit = 22, kRow = 30, kLeft = 70, kTop = 34;
  const int width = kLeft + static_cast<int>(timeline_.Length()) * kUnit + 10;
  const int height = kTop + static_cast<int>(timeline_.spans.size()) * kRow + 10;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" "
      "font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" "
      "fill=\"#ffffff\"/>\n<text x=\"8\" y=\"18\">{}</text>\n",
      width, height, Summarize().times);
  for (std::size_t stage = 0; stage < timeline_.spans.size(); ++stage) {
    const int y = kTop + static_cast<int>(stage) * kRow;
    svg += fmt::format("<text x=\"8\" y=\"{}\">stage {}</text>\n", y + 17, stage);
    for (const TaskSpan& span : timeline_.spans[stage]) {
      const double x = kLeft + span.begin * kUnit, wide = (span.end - span.begin) * kUnit;
      svg += fmt::format(
          "<rect x=\"{:.1f}\" y=\"{}\" width=\"{:.1f}\" height=\"{}\" fill=\"{}\" "
          "stroke=\"#404040\"/><text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
          x, y, wide, kRow - 6, StyleOf(span.task.kind).color, x + wide / 2, y + 16,
          DescribeTask(span.task, schedule_.shape()));
    }
  }
  return svg + "</svg>\n";
}

nlohmann::ordered_json ScheduleDrawing::ToJson() const {
  const pipeline::PipelineShape& shape = schedule_.shape();
  nlohmann::ordered_json json = {{"kind", NameOf(schedule_.kind())},
                                 {"stages", shape.stages},
                                 {"chunks", shape.chunks},
                                 {"micro_batches", shape.micro_batches},
                                 {"units", timeline_.Length()},
                                 {"bubble", timeline_.BubbleFraction()},
                                 {"held", nlohmann::ordered_json::array()},
                                 {"programs", nlohmann::ordered_json::array()}};
  for (int stage = 0; stage < shape.stages; ++stage) {
    json["held"].push_back(schedule_.CountHeld(stage));
    json["programs"].push_back(
        DescribeStageProgram(programs_[static_cast<std::size_t>(stage)], shape));
  }
  return json;
}

StatusOr<StageDrawing> StageDrawing::Create(const pipeline::PipelineSchedule& schedule,
                                            const std::string& method,
                                            std::vector<pipeline::WeighedBlock> blocks) {
  DS_ASSIGN_OR_RETURN(const std::vector<int> split,
                      pipeline::PartitionBlocks(method, blocks, schedule.shape().virtual_stages()));
  return StageDrawing(schedule, split, std::move(blocks));
}

StageDrawing::StageDrawing(const pipeline::PipelineSchedule& schedule,
                           const std::vector<int>& split,
                           std::vector<pipeline::WeighedBlock> blocks)
    : blocks_(std::move(blocks)), chunks_(schedule.shape().chunks) {
  for (int stage = 0; stage < schedule.shape().stages; ++stage) {
    for (int chunk = 0; chunk < chunks_; ++chunk) {
      const pipeline::VirtualStageLocation location{stage, chunk};
      const auto virtual_stage = static_cast<std::size_t>(schedule.VirtualStageAt(location));
      runs_.push_back({location, split[virtual_stage], split[virtual_stage + 1]});
    }
  }
}

// Returns a list like "DecoderEmbedding, 3 DecoderLayer".
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
    const std::string chunk = chunks_ > 1 ? fmt::format(" chunk {}", run.location.chunk) : "";
    text += fmt::format("  stage {}{}: {}; {:.2f} M parameters\n", run.location.stage, chunk,
                        NameBlocks(run), static_cast<double>(CountParameters(run)) / 1e6);
  }
  return text;
}

nlohmann::ordered_json StageDrawing::ToJson() const {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const Run& run : runs_) {
    json.push_back({{"stage", run.location.stage},
                    {"chunk", run.location.chunk},
                    {"first", run.first},
                    {"end", run.end},
                    {"parameters", CountParameters(run)}});
  }
  return json;
}

}  // namespace ds::cli
