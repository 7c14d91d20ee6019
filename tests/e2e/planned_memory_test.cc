// What a job's memory is planned to be, by `dsrun estimate` and by its own rank, is what the rank
// then measures.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/files.h"
#include "tests/e2e/dsrun.h"
#include "tests/places.h"

namespace ds::testing {
namespace {

using ::testing::HasSubstr;

struct Job {
  int stage = 0;
  bool bf16 = false;
  std::int64_t micro_batch = 1;
  std::int64_t accumulation = 1;
  std::string recompute = "none";
  std::string model = "gpt2";
  int ranks = 2;
};

std::string NameOf(const Job& job) {
  return job.model + "-" + std::to_string(job.ranks) + "-stage" + std::to_string(job.stage) +
         (job.bf16 ? "-bf16-" : "-fp32-") + std::to_string(job.micro_batch) + "x" +
         std::to_string(job.accumulation) + "-" + job.recompute;
}

class PlannedMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    Write("gpt2.json", {{"model_type", "gpt2"},
                        {"vocab_size", 4000},
                        {"n_positions", 128},
                        {"n_embd", 192},
                        {"n_layer", 6},
                        {"n_head", 6},
                        {"resid_pdrop", 0.0},
                        {"embd_pdrop", 0.0},
                        {"attn_pdrop", 0.0}});
    Write("llama.json", {{"model_type", "llama"},
                         {"vocab_size", 3000},
                         {"hidden_size", 192},
                         {"intermediate_size", 512},
                         {"num_hidden_layers", 6},
                         {"num_attention_heads", 6},
                         {"num_key_value_heads", 3},
                         {"max_position_embeddings", 128},
                         {"tie_word_embeddings", false}});
  }

  void Write(const std::string& name, const nlohmann::json& content) const {
    ASSERT_TRUE(WriteFileAtomically(folder_.path() / name, content.dump()).ok());
  }
  std::string PathOf(const std::string& name) const { return (folder_.path() / name).string(); }

  // Writes its config.
  std::vector<std::string> TrainWords(const Job& job) const {
    const std::string config = NameOf(job) + ".ds.json";
    Write(config, {{"train_micro_batch_size_per_gpu", job.micro_batch},
                   {"gradient_accumulation_steps", job.accumulation},
                   {"bf16", {{"enabled", job.bf16}}},
                   {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 1e-3}}}}},
                   {"zero_optimization", {{"stage", job.stage}}}});
    return {"--num_gpus",
            std::to_string(job.ranks),
            "train",
            "--model",
            PathOf(job.model + ".json"),
            "--data",
            DS_SOURCE_DIR "/LICENSE",
            "--deepspeed_config",
            PathOf(config),
            "--seq_len",
            "128",
            "--steps",
            "2",
            "--recompute",
            job.recompute};
  }
  nlohmann::json EstimateOf(const Job& job, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> command = {DS_BIN_DIR "/dsrun",
                                        "estimate",
                                        "--json",
                                        "--device",
                                        "cpu",
                                        "--model",
                                        PathOf(job.model + ".json"),
                                        "--deepspeed_config",
                                        PathOf(NameOf(job) + ".ds.json"),
                                        "--num_gpus",
                                        std::to_string(job.ranks),
                                        "--seq_len",
                                        "128",
                                        "--recompute",
                                        job.recompute};
    command.insert(command.end(), more.begin(), more.end());
    const ProgramResult result = RunProgram(command);
    EXPECT_EQ(result.status, 0) << result.err;
    return nlohmann::json::parse(result.out);
  }

  void ExpectPlanned(const Job& job) {
    SCOPED_TRACE(NameOf(job));
    const auto run_dir = folder_.path() / NameOf(job);
    const ProgramResult result = RunProgram(DsrunCommand(run_dir, TrainWords(job)));
    ASSERT_EQ(result.status, 0) << result.err;
    EXPECT_THAT(result.err, HasSubstr("memory of a rank's tensors: planned "));
    const auto steps = ReadJsonLines(run_dir / "metrics.jsonl");
    ASSERT_EQ(steps.size(), 2u);
    for (const nlohmann::json& step : steps) {
      const nlohmann::json& memory = step["memory"];
      const double planned = memory["planned"]["peak"], measured = memory["tensors"]["peak"];
      EXPECT_NEAR(measured, planned, 0.05 * planned) << memory;
      const double activations = memory["activations"]["host"]["peak"];
      const double planned_activations = memory["planned"]["peak_activations"];
      EXPECT_NEAR(activations, planned_activations, 0.05 * planned) << memory;
    }
    EXPECT_EQ(EstimateOf(job)["planned"], steps[0]["memory"]["planned"]);
  }

  const TemporaryFolder folder_;
};

TEST_F(PlannedMemory, IsMeasuredAtEveryStageInBothPrecisions) {
  for (const bool bf16 : {false, true}) {
    for (const int stage : {0, 1, 2, 3}) ExpectPlanned({.stage = stage, .bf16 = bf16});
  }
}

TEST_F(PlannedMemory, IsMeasuredWithLargerAndMoreMicroBatches) {
  ExpectPlanned({.stage = 0, .micro_batch = 4});
  ExpectPlanned({.stage = 1, .micro_batch = 2, .accumulation = 2});
  ExpectPlanned({.stage = 3, .micro_batch = 8});
  ExpectPlanned({.stage = 2, .bf16 = true, .micro_batch = 2, .accumulation = 3});
}

TEST_F(PlannedMemory, IsMeasuredWhereActivationsAreComputedAgain) {
  for (const char* recompute : {"full", "attention", "every:2"}) {
    ExpectPlanned({.stage = 2, .micro_batch = 8, .recompute = recompute});
  }
  ExpectPlanned({.stage = 3, .micro_batch = 8, .recompute = "full"});
}

TEST_F(PlannedMemory, IsMeasuredInAnotherFamilyAndOnOneRank) {
  ExpectPlanned({.stage = 3, .micro_batch = 4, .model = "llama"});
  ExpectPlanned({.stage = 0, .bf16 = true, .micro_batch = 2, .model = "llama", .ranks = 1});
}

TEST_F(PlannedMemory, TheLargestMicroBatchFitsInWhatARankMayHave) {
  const Job job{.stage = 2, .micro_batch = 2};
  TrainWords(job);
  const nlohmann::json tight = EstimateOf(job, {"--memory", "300M"});
  EXPECT_TRUE(tight["fits"]) << tight;
  const std::int64_t largest = tight["largest_micro_batch"];
  EXPECT_GT(largest, 2);
  const auto bytes_with = [&](std::int64_t samples) {
    return EstimateOf(job, {"--micro_batch", std::to_string(samples)})["rank_host"]
        .get<std::int64_t>();
  };
  EXPECT_LE(bytes_with(largest), 300 << 20);
  EXPECT_GT(bytes_with(largest + 1), 300 << 20);
  EXPECT_FALSE(EstimateOf(job, {"--memory", "1M"})["fits"]);
  EXPECT_FALSE(EstimateOf(job)["changes"].empty());
}

}  // namespace
}  // namespace ds::testing
