// For how many ranks `dsrun check` judges a ds_config, and for which model.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/files.h"
#include "tests/places.h"
#include "tests/support/program.h"

namespace ds::testing {
namespace {

using ::testing::HasSubstr;

TEST(CheckCommand, TakesTheFewestRanksThatDegreesAllow) {
  const TemporaryFolder folder;
  const std::string config = (folder.path() / "cut.json").string();
  ASSERT_TRUE(WriteFileAtomically(config, R"({"train_micro_batch_size_per_gpu": 2,
      "tensor_parallel": {"autotp_size": 4}, "pipeline": {"stages": 2}})")
                  .ok());
  const ProgramResult checked = RunProgram({DS_BIN_DIR "/dsrun", "check", config});
  EXPECT_EQ(checked.status, 0) << checked.err;
  EXPECT_THAT(checked.out, HasSubstr("is good for 8 ranks: 2 samples a step"));
  const ProgramResult too_few =
      RunProgram({DS_BIN_DIR "/dsrun", "check", config, "--world_size", "4"});
  EXPECT_EQ(too_few.status, 2);
  EXPECT_THAT(too_few.err, HasSubstr("must divide the number of ranks, 4"));
}

// What a job would be refused for after its ranks have started, or before that by train alone.
TEST(CheckCommand, HoldsWhatIsSaidOfAModelAgainstIt) {
  const TemporaryFolder folder;
  const auto check = [&](const std::string& sections, const std::string& model) {
    const std::string config = (folder.path() / "ds.json").string();
    EXPECT_TRUE(
        WriteFileAtomically(config, R"({"train_micro_batch_size_per_gpu": 2, )" + sections + "}")
            .ok());
    return RunProgram(
        {DS_BIN_DIR "/dsrun", "check", config, "--world_size", "2", "--model", model});
  };
  const auto cut_by = [](const std::string& type) {
    return R"("tensor_parallel": {"autotp_size": 2, "partition_config": {"layer_specs": [
        {"patterns": [".*q_proj"], "partition_type": ")" +
           type + R"("}]}})";
  };
  const auto routed_to = [](const std::string& experts) {
    return R"("expert_parallel": {"enabled": true, "autoep_size": 2, "top_k": )" + experts + "}";
  };
  EXPECT_EQ(check(cut_by("column"), "llama-tiny").status, 0);
  EXPECT_EQ(check(routed_to("2"), "mixtral-tiny").status, 0);
  const ProgramResult refused = check(cut_by("row"), "llama-tiny");
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.err, HasSubstr(R"(error: tensor_parallel.partition_config: )"
                                     R"(model.layers.0.self_attn.q_proj is "row" by layer_specs)"));
  const ProgramResult routed = check(routed_to("3"), "mixtral-tiny");
  EXPECT_EQ(routed.status, 2);
  EXPECT_THAT(routed.err, HasSubstr("error: expert_parallel.top_k is 3, and mixtral has 2 as"));
  const ProgramResult shared_out =
      check(R"("expert_parallel": {"enabled": true, "autoep_size": 2})", "llama-tiny");
  EXPECT_EQ(shared_out.status, 2);
  EXPECT_THAT(shared_out.err, HasSubstr("error: --model llama-tiny: "));
}

// A flag of training says of which kind sequence ranks are; what all kinds refuse is said here.
TEST(CheckCommand, RefusesSequenceRanksThatNoKindTakes) {
  const TemporaryFolder folder;
  const auto check = [&](const std::string& rope) {
    const std::string config = (folder.path() / "ds.json").string();
    const std::string model = (folder.path() / "model.json").string();
    EXPECT_TRUE(WriteFileAtomically(config, R"({"train_micro_batch_size_per_gpu": 2,
        "sequence_parallel_size": 3})")
                    .ok());
    EXPECT_TRUE(WriteFileAtomically(model, R"({"model_type": "llama", "vocab_size": 64,
        "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2,
        "num_attention_heads": 2, "max_position_embeddings": 64, "rope_scaling": )" +
                                               rope + "}")
                    .ok());
    return RunProgram({DS_BIN_DIR "/dsrun", "check", config, "--model", model});
  };
  const ProgramResult ring = check("null");
  EXPECT_EQ(ring.status, 0) << ring.err;
  const ProgramResult refused = check(R"({"rope_type": "dynamic", "factor": 2.0})");
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.err, HasSubstr("not built for rotary positions that depend on the length"));
}

}  // namespace
}  // namespace ds::testing
