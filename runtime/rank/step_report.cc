#include "runtime/rank/step_report.h"

#include <utility>

#include "runtime/engine/report/step_metrics.h"

namespace ds::rank {

std::string DescribeRecompute(const std::vector<DeepSpeedApi::RecomputeTimes>& times) {
  const auto microseconds = [](std::chrono::nanoseconds time) {
    return std::to_string(std::chrono::duration_cast<std::chrono::microseconds>(time).count());
  };
  std::string text;
  for (const DeepSpeedApi::RecomputeTimes& each : times) {
    text += (text.empty() ? "" : ", ") + each.block + " " + microseconds(each.first) + " + " +
            microseconds(each.again) + " us";
  }
  return text;
}

nlohmann::ordered_json MakeStepReport(Engine& engine, const StepResult& result, StepSeconds seconds,
                                      const comm::Traffic& communicated,
                                      nlohmann::ordered_json memory) {
  const nlohmann::ordered_json& breakdown = engine.memory_breakdown();
  // Empty without memory_breakdown.
  if (!breakdown.empty()) memory["breakdown"] = breakdown;
  const telemetry::StepMetrics metrics{.step = result.step,
                                       .loss = result.loss,
                                       .grad_norm = result.grad_norm,
                                       .lr = result.lr,
                                       .loss_scale = result.loss_scale,
                                       .skipped = result.skipped,
                                       .tokens = result.tokens,
                                       .samples = result.samples,
                                       .step_seconds = seconds.step,
                                       .data_seconds = seconds.data.count()};
  nlohmann::ordered_json report = telemetry::ToJson(
      metrics, {.communicated = comm::ToJson(communicated), .memory = std::move(memory)});
  if (const auto& times = DeepSpeedApi(engine).wall_clock_timers()) {
    const auto in_seconds = [](std::chrono::duration<double> time) { return time.count(); };
    telemetry::AddPhases({.forward = in_seconds(times->forward),
                          .backward = in_seconds(times->backward),
                          .backward_inner = in_seconds(times->backward_inner),
                          .backward_allreduce = in_seconds(times->backward_allreduce),
                          .step = in_seconds(times->step)},
                         &report);
  }
  if (!result.expert_routes.empty()) telemetry::AddExpertLoad(result.expert_routes, &report);
  if (const auto& evaluation = result.evaluation) {
    telemetry::AddEvaluation({.loss = evaluation->loss,
                              .accuracy = evaluation->accuracy,
                              .labels = evaluation->labels,
                              .seconds = evaluation->seconds},
                             &report);
  }
  return report;
}

std::string DescribeSkip(const StepResult& result) {
  // Only fp16's loss scaling sets `overflow`.
  const std::string cause =
      result.overflow.empty() ? "" : "gradients overflowed in fp16, and " + result.overflow + ": ";
  return "step " + std::to_string(result.step) + " is skipped: " + cause + result.non_finite;
}

std::string DescribeRewind(const StepResult& result, const std::filesystem::path& checkpoint) {
  return "step " + std::to_string(result.step) + ": back to " + checkpoint.filename().string() +
         "; training continues after the data of this step";
}

std::string DescribeForeign(const std::string& directory, const checkpoint::Manifest& manifest,
                            std::int64_t position, bool has_schedule) {
  const auto program = manifest.written_by.find("program");
  const bool is_named = program != manifest.written_by.end() && program->is_string();
  std::string text = directory + ", written by " +
                     (is_named ? program->get<std::string>() : "another program") +
                     ", has no position in the data: this run goes on with its sample " +
                     std::to_string(position + 1) + ", as " + std::to_string(position) +
                     " samples have been seen, of whatever data";
  const nlohmann::json::json_pointer set_lr("/engine/set_lr");
  if (manifest.state.contains(set_lr)) {
    text += "; the learning rate " + manifest.state[set_lr].dump() +
            ", which the program has set, stays" +
            (has_schedule ? " for a step, and the schedule of ds_config follows"
                          : ", as ds_config has no schedule");
  }
  return text;
}

std::string DescribeDoneRun(const engine::Evaluation& evaluation, std::int64_t steps) {
  return "the run has all its steps: eval loss " + std::to_string(evaluation.loss) + " at step " +
         std::to_string(steps);
}

}  // namespace ds::rank
