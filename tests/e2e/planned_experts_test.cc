// The memory of models that send tokens through a part of them, which each rank has or ranks have
// between them, and of attention over narrow rows, is what was planned (planned_memory_test.cc).

#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <random>

#include "runtime/base/files.h"
#include "tests/e2e/dsrun.h"
#include "tests/e2e/planned_memory.h"

namespace ds::testing {
namespace {

using nlohmann::json;

json Common(int layers) {
  return {{"vocab_size", 3000},          {"hidden_size", 192},
          {"num_hidden_layers", layers}, {"num_attention_heads", 6},
          {"num_key_value_heads", 3},    {"max_position_embeddings", 128},
          {"num_experts_per_tok", 2},    {"tie_word_embeddings", false}};
}

json DeepSeek() {
  json model = Common(/*layers=*/4);
  model.update({{"model_type", "deepseek_v2"},
                {"num_key_value_heads", 6},
                {"intermediate_size", 512},
                {"moe_intermediate_size", 128},
                {"n_routed_experts", 8},
                {"n_shared_experts", 1},
                {"first_k_dense_replace", 1},
                {"kv_lora_rank", 64},
                {"q_lora_rank", nullptr},
                {"qk_rope_head_dim", 16},
                {"qk_nope_head_dim", 32},
                {"v_head_dim", 32},
                {"topk_method", "greedy"},
                {"norm_topk_prob", false},
                {"hidden_act", "silu"}});
  return model;
}

class PlannedExperts : public PlannedMemory {
 protected:
  void SetUp() override {
    PlannedMemory::SetUp();
    json mixtral = Common(/*layers=*/4), shared = mixtral, groups = DeepSeek();
    mixtral.update(
        {{"model_type", "mixtral"}, {"intermediate_size", 384}, {"num_local_experts", 8}});
    shared.update({{"model_type", "qwen2_moe"},
                   {"intermediate_size", 512},
                   {"moe_intermediate_size", 256},
                   {"shared_expert_intermediate_size", 384},
                   {"num_experts", 4},
                   {"decoder_sparse_step", 1},
                   {"norm_topk_prob", false},
                   {"mlp_only_layers", json::array()}});
    groups.update({{"q_lora_rank", 96},
                   {"n_group", 4},
                   {"topk_group", 2},
                   {"topk_method", "group_limited_greedy"}});
    Write("mixtral.json", mixtral);
    Write("qwen2_moe.json", shared);
    Write("deepseek.json", DeepSeek());
    Write("deepseek_groups.json", groups);
  }

  void WriteTokens(Job* job, const std::string& name, const std::function<unsigned()>& next) {
    std::string bytes;
    for (int i = 0; i < 200000; ++i) {
      const auto token = static_cast<std::uint16_t>(next());
      bytes.append(reinterpret_cast<const char*>(&token), sizeof token);
    }
    job->tokens = name;
    ASSERT_TRUE(WriteFileAtomically(PathOf(name), bytes).ok());
  }

  // Of tokens that are as frequent as one another, with routers that hardly learn: experts of all
  // ranks get about as many rows, as a plan takes them to.
  void ExpectPlannedOfEvenTokens(Job job) {
    std::mt19937 draw(5);
    WriteTokens(&job, "even.bin", [&] { return draw() % 3000; });
    job.config = kHardlyLearns;
    ExpectPlanned(job);
  }

  struct Loaded {
    double load = 0.0, measured = 0.0;  // of the first rank: over an even load; bytes
    std::string said;
  };
  // Trains on two tokens alone, which nearly all go to the same experts.
  Loaded TrainOnTwoTokens(Job* job, unsigned first) {
    std::mt19937 draw(5);
    WriteTokens(job, "two.bin", [&] { return first + draw() % 2; });
    job->config = kHardlyLearns;
    const auto run_dir = folder_.path() / (NameOf(*job) + "-" + std::to_string(first));
    const ProgramResult result = RunProgram(DsrunCommand(run_dir, TrainWords(*job)));
    EXPECT_EQ(result.status, 0) << result.err;
    const json step = ReadJsonLines(run_dir / "metrics.jsonl").back();
    Loaded rank{.measured = step["memory"]["tensors"]["peak"], .said = result.err};
    for (const json& layer : step["expert_routes"]) {
      const auto routes = layer.get<std::vector<double>>();
      const auto own = routes.begin() + static_cast<int>(routes.size()) / job->expert;
      const double share = std::accumulate(routes.begin(), own, 0.0) /
                           std::accumulate(routes.begin(), routes.end(), 0.0);
      rank.load += share * job->expert / static_cast<double>(step["expert_routes"].size());
    }
    return rank;
  }

  // With tokens that the first rank's experts get far more of than their share, it holds the memory
  // that is planned for this load, and more than is planned for an even load. `first` is such a
  // token with the usual first values of the routers; with others the search goes on from there.
  void ExpectPlannedOfItsLoad(Job job, unsigned first) {
    SCOPED_TRACE(NameOf(job));
    Loaded rank;
    for (unsigned token = first; token < first + 40 && rank.load < 1.3; token += 2) {
      rank = TrainOnTwoTokens(&job, token);
    }
    ASSERT_GE(rank.load, 1.3);
    const auto planned = [&](double load) {
      const auto flags = {std::string("--expert_load"), std::to_string(load)};
      return EstimateOf(job, flags)["planned"]["peak"].get<double>();
    };
    // What is computed again is of one layer at a time, and the load is the layers' mean.
    if (job.recompute == "none") {
      EXPECT_NEAR(rank.measured, planned(rank.load), 0.05 * rank.measured) << rank.load;
    }
    EXPECT_GT(rank.measured, 1.05 * planned(1.0)) << rank.load;
    const std::size_t said = rank.said.find("; its experts got the most, ");
    ASSERT_NE(said, std::string::npos) << rank.said;
    const std::size_t percent = rank.said.find('(', said);
    EXPECT_NEAR(std::stod(rank.said.substr(percent + 1)), 100.0, 5.0) << rank.said.substr(said);
  }

  const json kHardlyLearns = {{"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 1e-6}}}}}};
};

class PlannedExpertJobs : public PlannedExperts, public ModelChoice {};

INSTANTIATE_TEST_SUITE_P(Models, PlannedExpertJobs, ::testing::Bool(), NameModelChoice);

TEST_P(PlannedExpertJobs, AreMeasuredWhereEachRankHasAll) {
  for (const Job& job : WithModels({{.stage = 0, .micro_batch = 24},
                                    {.stage = 2, .bf16 = true, .micro_batch = 8},
                                    {.stage = 3, .micro_batch = 8},
                                    {.stage = 3, .micro_batch = 8, .recompute = "full"}},
                                   {"mixtral", "qwen2_moe"})) {
    ExpectPlanned(job);
  }
}

TEST_F(PlannedExperts, AreMeasuredNextToAResidualMlp) {
  const json residual = {{"moe", {{"enabled", true}, {"use_residual", true}}}};
  ExpectPlanned({.stage = 0, .micro_batch = 24, .model = "mixtral", .config = residual});
  ExpectPlanned(
      {.stage = 2, .bf16 = true, .micro_batch = 8, .model = "mixtral", .config = residual});
  ExpectPlanned(
      {.stage = 3, .micro_batch = 8, .recompute = "full", .model = "mixtral", .config = residual});
}

TEST_P(PlannedExpertJobs, AreMeasuredWhereRanksHaveThemBetweenThem) {
  for (const Job& job :
       WithModels({{.stage = 0, .micro_batch = 24, .expert = 2},
                   {.stage = 1, .bf16 = true, .micro_batch = 8, .ranks = 4, .expert = 4},
                   {.stage = 2,
                   .bf16 = true,
                   .micro_batch = 8,
                   .accumulation = 2,
                   .ranks = 4,
                   .expert = 2},
                   {.stage = 3, .micro_batch = 8, .ranks = 4, .expert = 2}},
                  {"mixtral", "qwen2_moe", "deepseek"})) {
    ExpectPlannedOfEvenTokens(job);
  }
  ExpectPlannedOfEvenTokens(
      {.stage = 3, .micro_batch = 8, .recompute = "full", .model = "mixtral", .expert = 2});
}

TEST_F(PlannedExperts, HoldMoreWhereMoreTokensCome) {
  ExpectPlannedOfItsLoad({.stage = 0, .micro_batch = 24, .model = "mixtral", .expert = 2}, 18);
  ExpectPlannedOfItsLoad(
      {.stage = 1, .bf16 = true, .micro_batch = 16, .model = "mixtral", .ranks = 4, .expert = 4},
      6);
  ExpectPlannedOfItsLoad({.stage = 3, .micro_batch = 16, .model = "qwen2_moe", .expert = 2}, 24);
  ExpectPlannedOfItsLoad({.stage = 3,
                          .micro_batch = 24,
                          .recompute = "full",
                          .model = "mixtral",
                          .ranks = 4,
                          .expert = 4},
                         6);
}

TEST_P(PlannedExpertJobs, AreMeasuredWithLatentKeysAndValues) {
  for (const Job& job :
       WithModels({{.stage = 0, .micro_batch = 16},
                   {.stage = 2, .bf16 = true, .micro_batch = 16},
                   {.stage = 3, .micro_batch = 16, .recompute = "full"},
                   {.stage = 3, .bf16 = true, .micro_batch = 8, .recompute = "attention"}},
                  {"deepseek", "deepseek_groups"})) {
    ExpectPlanned(job);
  }
}

}  // namespace
}  // namespace ds::testing
