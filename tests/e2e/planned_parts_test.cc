// The memory of jobs that train a part of their model, or hold it in fewer bits, is what was
// planned (planned_memory_test.cc).

#include <gtest/gtest.h>

#include "tests/e2e/planned_memory.h"

namespace ds::testing {
namespace {

class PlannedFrozenPart : public PlannedMemory {};

class PlannedParts : public PlannedMemory, public ModelChoice {};

INSTANTIATE_TEST_SUITE_P(Models, PlannedParts, ::testing::Bool(), NameModelChoice);

TEST_P(PlannedParts, IsMeasuredWithAdaptersOnAFrozenModel) {
  const std::vector<std::string> all = {"--lora_rank", "8"};
  for (const Job& job : WithModels({{.stage = 0, .micro_batch = 16, .trained = all},
                                    {.stage = 2, .bf16 = true, .micro_batch = 16, .trained = all},
                                    {.stage = 3,
                                    .micro_batch = 16,
                                    .accumulation = 2,
                                    .recompute = "full",
                                    .trained = all}})) {
    ExpectPlanned(job);
  }
  const std::vector<std::string> some = {"--lora_rank", "4", "--lora_targets", "q_proj", "v_proj"};
  ExpectPlanned({.stage = 3, .micro_batch = 16, .model = "llama", .trained = some});
  ExpectPlanned({.stage = 1, .bf16 = true, .micro_batch = 16, .model = "llama", .trained = some});
}

TEST_P(PlannedParts, IsMeasuredWithMagnitudesOfAdapters) {
  const std::vector<std::string> dora = {"--lora_rank", "8", "--lora_dora"};
  for (const Job& job : WithModels({{.stage = 0, .micro_batch = 16, .trained = dora},
                                    {.stage = 2, .bf16 = true, .micro_batch = 16, .trained = dora},
                                    {.stage = 3,
                                    .micro_batch = 16,
                                    .accumulation = 2,
                                    .recompute = "full",
                                    .trained = dora}})) {
    ExpectPlanned(job);
  }
}

TEST_P(PlannedParts, IsMeasuredOverAQuantizedBase) {
  std::vector<Job> jobs;
  for (const char* base : {"nf4", "nf4-double", "int8"}) {
    const std::vector<std::string> words = {"--lora_rank", "8", "--quantize_base", base};
    jobs.push_back({.stage = 2, .bf16 = true, .micro_batch = 16, .trained = words});
  }
  // The weights that products make of bytes are much of it.
  for (const char* base : {"nf4", "nf4-double", "int8"}) {
    const std::vector<std::string> words = {"--lora_rank", "8", "--quantize_base", base};
    jobs.push_back({.stage = 3, .micro_batch = 2, .trained = words});
  }
  for (const Job& job : WithModels(jobs)) ExpectPlanned(job);
  ExpectPlanned({.stage = 3,
                 .bf16 = true,
                 .micro_batch = 16,
                 .accumulation = 2,
                 .recompute = "full",
                 .model = "llama",
                 .trained = {"--lora_rank", "8", "--quantize_base", "nf4"}});
  ExpectPlanned({.stage = 1,
                 .bf16 = true,
                 .micro_batch = 16,
                 .model = "llama",
                 .trained = {"--lora_rank", "8", "--lora_dora", "--quantize_base", "nf4"}});
}

// The second step sees the most.
TEST_P(PlannedParts, IsMeasuredWhereStepsSeeMoreAndMore) {
  const nlohmann::json growing = {
      {"curriculum_learning",
       {{"enabled", true},
        {"curriculum_type", "seqlen"},
        {"min_difficulty", 32},
        {"max_difficulty", 128},
        {"schedule_type", "fixed_linear"},
        {"schedule_config", {{"total_curriculum_step", 2}, {"difficulty_step", 8}}}}}};
  const auto dropping = [](int least, int most) -> nlohmann::json {
    const nlohmann::json schedule = {
        {"min_value", least},
        {"max_value", most},
        {"schedule_type", "fixed_linear"},
        {"schedule_config", {{"require_steps", 1}, {"seq_per_step", 32}}}};
    const nlohmann::json drops = {{"enabled", true},
                                  {"total_layer_num", 6},
                                  {"random_ltd_layer_num", 4},
                                  {"random_ltd_layer_id", {1, 2, 3, 4}},
                                  {"model_type", "decoder"},
                                  {"hidden_state_order", "batch_seq_dim"},
                                  {"random_ltd_schedule", schedule}};
    return {{"data_efficiency",
             {{"enabled", true}, {"data_routing", {{"enabled", true}, {"random_ltd", drops}}}}}};
  };
  for (const Job& job : WithModels(
           {{.stage = 2, .micro_batch = 16, .config = growing},
            {.stage = 2, .micro_batch = 16, .config = dropping(32, 64)},
            {.stage = 3, .bf16 = true, .micro_batch = 16, .config = dropping(64, 64)},
            {.stage = 3, .micro_batch = 16, .recompute = "full", .config = dropping(32, 96)}})) {
    ExpectPlanned(job);
  }
}

TEST_P(PlannedParts, IsMeasuredWithFrozenWeightsInEightBits) {
  const nlohmann::json rounded = {{"zero_quantized_nontrainable_weights", true}};
  const std::vector<std::string> adapters = {"--lora_rank", "8"};
  std::vector<Job> jobs;
  for (const int ranks : {1, 2}) {
    jobs.push_back({.stage = 3,
                    .bf16 = ranks == 2,
                    .micro_batch = 2,
                    .ranks = ranks,
                    .trained = adapters,
                    .zero = rounded});
  }
  for (const Job& job : WithModels(jobs)) ExpectPlanned(job);
  nlohmann::json near = rounded;
  near["zero_hpz_partition_size"] = 2;
  ExpectPlanned({.stage = 3, .ranks = 4, .trained = adapters, .zero = near});
}

TEST_F(PlannedFrozenPart, IsMeasured) {
  const std::vector<std::string> front = {"--freeze", "transformer.wte.weight",
                                          "transformer.wpe.weight", "transformer.h.[0-3].*"};
  const std::vector<std::string> matrices = {"--freeze", "model.*_proj.weight", "*embed*"};
  for (const int stage : {0, 3}) {
    ExpectPlanned({.stage = stage, .micro_batch = 16, .trained = front});
    ExpectPlanned({.stage = stage, .micro_batch = 16, .model = "llama", .trained = matrices});
  }
  ExpectPlanned({.stage = 0, .micro_batch = 8, .accumulation = 3, .stages = 2, .trained = front});
}

}  // namespace
}  // namespace ds::testing
