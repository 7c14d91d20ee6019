#include "runtime/rank/step_report.h"

#include <system_error>
#include <utility>

#include "runtime/checkpoint/format/catalog.h"
#include "runtime/telemetry/step_metrics.h"

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

std::string DescribeBest(const engine::BestEvaluation::Best& best,
                         const std::filesystem::path& checkpoints) {
  const std::string step = std::to_string(best.step);
  std::error_code error;
  const bool is_kept =
      std::filesystem::exists(checkpoint::DirectoryOfStep(checkpoints, best.step), error);
  return "the best evaluation was that of step " + step + ", loss " + std::to_string(best.loss) +
         (is_kept ? ": its checkpoint is step-" + step
                  : ": it has no checkpoint, for the run did not keep the best one then");
}

std::string DescribeDoneRun(const engine::Evaluation& evaluation, std::int64_t steps) {
  return "the run has all its steps: eval loss " + std::to_string(evaluation.loss) + " at step " +
         std::to_string(steps);
}

}  // namespace ds::rank
