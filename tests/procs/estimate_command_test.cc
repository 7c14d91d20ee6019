// What `dsrun estimate` refuses of a job: what `dsrun train` would refuse of it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "runtime/base/files.h"
#include "tests/places.h"
#include "tests/support/program.h"

namespace ds::testing {
namespace {

using ::testing::HasSubstr;

std::string Refusal(std::vector<std::string> flags) {
  flags.insert(flags.begin(),
               {DS_BIN_DIR "/dsrun", "estimate", "--model", "gpt2-demo", "--deepspeed_config",
                DS_SOURCE_DIR "/configs/default_ds_config.json"});
  const ProgramResult result = RunProgram(flags);
  EXPECT_EQ(result.status, 2) << result.out;
  return result.err;
}

TEST(EstimateCommand, RefusesSamplesThatDoNotFitTheModel) {
  EXPECT_THAT(Refusal({"--seq_len", "512"}),
              HasSubstr("--model gpt2-demo: a sequence of 512 tokens does not fit the model, which "
                        "has 256 positions; --seq_len 256 fits"));
}

TEST(EstimateCommand, RefusesFlagsThatWouldChangeNothing) {
  EXPECT_THAT(Refusal({"--quantize_base", "nf4"}), HasSubstr("add adapters by --lora_rank or"));
  EXPECT_THAT(Refusal({"--lora_dora"}), HasSubstr("need --lora_rank or --lora_adapter"));
  EXPECT_THAT(Refusal({"--sp_kind", "ring"}),
              HasSubstr("--sp_kind needs sequence parallelism: set --sp or the config's"));
  EXPECT_THAT(Refusal({"--pp_schedule", "zb-v"}),
              HasSubstr("--pp_schedule needs pipeline stages: set --pp or the config's"));
  EXPECT_THAT(Refusal({"--expert_load", "2"}),
              HasSubstr("--expert_load needs expert parallelism: set --ep or the config's"));
}

TEST(EstimateCommand, RefusesFlagsOfAJobWithoutAConfig) {
  const auto result =
      RunProgram({DS_BIN_DIR "/dsrun", "estimate", "--model", "gpt2-demo", "--ep", "2"});
  EXPECT_EQ(result.status, 2) << result.out;
  EXPECT_THAT(result.err, HasSubstr("estimate: --ep is of a job: give --deepspeed_config, too"));
}

TEST(EstimateCommand, CountsTheExpertsThatARankHas) {
  const auto parameters = [](const std::string& ep) {
    const ProgramResult result =
        RunProgram({DS_BIN_DIR "/dsrun", "estimate", "--model", "mixtral-tiny", "--num_gpus", "2",
                    "--deepspeed_config", DS_SOURCE_DIR "/configs/default_ds_config.json", "--ep",
                    ep, "--json"});
    EXPECT_EQ(result.status, 0) << result.err;
    return nlohmann::json::parse(result.out)["planned"]["parameters"].get<std::int64_t>();
  };
  EXPECT_LT(parameters("2"), parameters("1"));
}

// In fp32 an MLP of 3 x 128 x 176 and a product of 2 x 128 with its bias in each of four layers.
TEST(EstimateCommand, CountsTheMlpNextToExperts) {
  const TemporaryFolder folder;
  const std::string config = (folder.path() / "ds.json").string();
  const auto parameters = [&](const std::string& moe) {
    EXPECT_TRUE(WriteFileAtomically(config, R"({"train_batch_size": 1, "moe": )" + moe + "}").ok());
    const ProgramResult result =
        RunProgram({DS_BIN_DIR "/dsrun", "estimate", "--model", "mixtral-tiny",
                    "--deepspeed_config", config, "--json"});
    EXPECT_EQ(result.status, 0) << result.err;
    return nlohmann::json::parse(result.out)["planned"]["parameters"].get<std::int64_t>();
  };
  const std::int64_t more =
      parameters(R"({"enabled": true, "use_residual": true})") - parameters("{}");
  EXPECT_NEAR(static_cast<double>(more), 4.0 * 4 * (3 * 128 * 176 + 2 * 128 + 2), 4 * 256.0)
      << "each parameter is padded";
}

// Nothing bounds what comes but the router: it can be asked for, here as in the plan of stages.
TEST(EstimateCommand, PlansForExpertsThatGetMoreThanTheirShare) {
  const auto peak = [](std::vector<std::string> words) {
    words.insert(words.begin(), {DS_BIN_DIR "/dsrun"});
    words.insert(words.end(),
                 {"--num_gpus", "4", "--device", "cpu", "--json", "--model", "mixtral-tiny",
                  "--deepspeed_config", DS_SOURCE_DIR "/configs/default_ds_config.json"});
    const ProgramResult result = RunProgram(words);
    EXPECT_EQ(result.status, 0) << result.err;
    const auto json = nlohmann::json::parse(result.out);
    const auto& step = json.contains("planned") ? json["planned"] : json["stage_steps"][0];
    return step["peak"].get<std::int64_t>();
  };
  const std::vector<std::string> estimate = {"estimate", "--ep", "2"};
  const std::vector<std::string> plan = {"plan", "--mesh", "pipeline=2,expert=2"};
  for (std::vector<std::string> words : {estimate, plan}) {
    const std::int64_t even = peak(words);
    words.insert(words.end(), {"--expert_load", "1.5"});
    EXPECT_GT(peak(words), even) << words.front();
  }
}

}  // namespace
}  // namespace ds::testing
