// What `dsrun estimate` refuses of a job: what `dsrun train` would refuse of it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

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
  EXPECT_THAT(Refusal({"--quantize_base", "nf4"}), HasSubstr("add adapters, --lora_rank or"));
  EXPECT_THAT(Refusal({"--lora_dora"}), HasSubstr("need --lora_rank or --lora_adapter"));
  EXPECT_THAT(Refusal({"--sp_kind", "ring"}),
              HasSubstr("--sp_kind: of what? --sp or the config's"));
  EXPECT_THAT(Refusal({"--pp_schedule", "zb-v"}),
              HasSubstr("--pp_schedule: of what? --pp or the config's"));
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

}  // namespace
}  // namespace ds::testing
