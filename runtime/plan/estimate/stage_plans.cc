#include "runtime/plan/estimate/stage_plans.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "runtime/base/byte_size.h"
#include "runtime/plan/estimate/predict_memory.h"
#include "runtime/plan/memory/stage_partition.h"

namespace ds::plan {
namespace {

std::string Show(std::int64_t bytes) { return ByteSize(static_cast<std::uint64_t>(bytes)); }

std::string DescribeTraffic(const zero::StepTraffic& traffic) {
  const std::pair<std::int64_t, const char*> calls[] = {
      {traffic.all_gather, "gathered"},
      {traffic.reduce_scatter, "reduced into shards"},
      {traffic.all_reduce, "reduced on all ranks"},
      {traffic.all_to_all, "reduced in rounded form"},
      {traffic.between_stages, "to and from other stages"}};
  std::string text;
  for (const auto& [bytes, what] : calls) {
    if (bytes > 0) text += (text.empty() ? "" : ", ") + Show(bytes) + " " + what;
  }
  return text.empty() ? "nothing sent" : text;
}

}  // namespace

StatusOr<StagePlans> PlanStages(const config::DsConfig& config, const engine::JobShape& job) {
  DS_RETURN_IF_ERROR(engine::CheckMemoryIsKnown(config, job));
  const engine::StageOrder order{job.schedule, job.chunks, job.seq_len, job.recompute, job.trained};
  DS_ASSIGN_OR_RETURN(std::vector<int> split, engine::PartitionStages(job.model, config, order));
  StagePlans plans{config, job, std::move(split), {}};
  for (int stage = 0; stage < config.parallel.pipeline; ++stage) {
    plans.job.stage = stage;
    plans.stages.push_back(engine::PlanJobMemory(config, plans.job));
  }
  return plans;
}

std::string ToText(const StagePlans& plans) {
  const config::BatchConfig& batch = plans.config.batch;
  std::string text = fmt::format(
      "a rank's step of {} micro-batch{} of {}, ZeRO stage {}:\n",
      batch.gradient_accumulation_steps, batch.gradient_accumulation_steps == 1 ? "" : "es",
      DescribeMicroBatch(batch, plans.job), plans.config.zero_optimization.stage);
  for (std::size_t i = 0; i < plans.stages.size(); ++i) {
    const zero::StepMemory& stage = plans.stages[i];
    text +=
        fmt::format("  stage {}: holds {} at the most; {}\n    {}\n", i, Show(stage.peak.total()),
                    DescribeTraffic(stage.traffic), DescribeWindows(stage.windows));
  }
  return text;
}

nlohmann::ordered_json ToJson(const StagePlans& plans) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const zero::StepMemory& stage : plans.stages) json.push_back(engine::ToJson(stage));
  return json;
}

}  // namespace ds::plan
