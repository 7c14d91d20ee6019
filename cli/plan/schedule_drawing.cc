#include "cli/plan/schedule_drawing.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace ds::cli {
namespace {

using pipeline::TaskSpan;
using TaskKind = pipeline::Task::Kind;

struct Look {
  char letter;
  std::string_view color;
};

Look LookOf(TaskKind kind) {
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

// One line of a stage: what `mark` says of the task that is under way in each unit of time.
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

// Without the blanks at its end.
std::string Trim(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

}  // namespace

StatusOr<ScheduleDrawing> ScheduleDrawing::Create(pipeline::ScheduleKind kind,
                                                  const pipeline::PipelineShape& shape) {
  DS_ASSIGN_OR_RETURN(pipeline::Schedule schedule, pipeline::Schedule::Create(kind, shape));
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
  const std::size_t room =
      static_cast<std::size_t>(std::max(columns - static_cast<int>(indent.size()), 10));
  const Summary summary = Summarize();
  std::string text = "schedule " + summary.times + "\n" + indent + summary.memory + "\n";
  for (std::size_t stage = 0; stage < timeline_.spans.size(); ++stage) {
    const auto draw = [&](const std::string& head, auto mark) {
      const std::string line = DrawLine(timeline_.spans[stage], units, mark).substr(0, room);
      text += Trim(fmt::format("{:<10}", head) + line) + "\n";
    };
    draw(fmt::format("stage {}", stage), [](const auto& task) { return LookOf(task.kind).letter; });
    if (has_chunks) draw("   chunk", [](const auto& task) { return LastDigit(task.chunk); });
    draw("   batch", [](const auto& task) { return LastDigit(task.micro_batch); });
  }
  if (units > room) {
    text += fmt::format("{}(the first {} of {} units of time; --svg FILE draws all)\n", indent,
                        room, units);
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
          x, y, wide, kRow - 6, LookOf(span.task.kind).color, x + wide / 2, y + 16,
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

}  // namespace ds::cli
