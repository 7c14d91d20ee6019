// A C++ user's own model trains under dsrun, sharded over its ranks.

#include <gtest/gtest.h>

#include "runtime/base/files.h"
#include "tests/places.h"
#include "tests/support/program.h"

namespace ds {
namespace {

using testing::RunProgram;
using testing::TemporaryFolder;

double LossOfStep100(const std::string& out) {
  const std::string label = "step 100  loss ";
  const std::size_t place = out.find(label);
  return place == std::string::npos ? 1e9 : std::stod(out.substr(place + label.size()));
}

// As it is, and with a layer in tiles.
class CustomModel : public ::testing::TestWithParam<std::vector<std::string>> {};

TEST_P(CustomModel, LearnsUnderDsrunAtStage3) {
  const TemporaryFolder folder;
  const std::string config = (folder.path() / "ds_config.json").string();
  ASSERT_TRUE(WriteFileAtomically(config, R"({
    "train_batch_size": 128, "gradient_accumulation_steps": 2,
    "optimizer": {"type": "AdamW", "params": {"lr": 0.01}},
    "zero_optimization": {"stage": 3}
  })")
                  .ok());
  std::vector<std::string> words = {DS_BIN_DIR "/dsrun",
                                    "--num_gpus",
                                    "2",
                                    "--device",
                                    "cpu",
                                    "--run_dir",
                                    (folder.path() / "run").string(),
                                    DS_BIN_DIR "/custom_model",
                                    config};
  words.insert(words.end(), GetParam().begin(), GetParam().end());
  const auto result = RunProgram(words, {.environment = {"OMP_NUM_THREADS=1"}});
  EXPECT_EQ(result.status, 0) << result.out << result.err;
  EXPECT_LT(LossOfStep100(result.out), 0.5) << result.out << result.err;  // ln 4 = 1.39 at first
}

INSTANTIATE_TEST_SUITE_P(Layers, CustomModel,
                         ::testing::Values(std::vector<std::string>{},
                                           std::vector<std::string>{"3"}),
                         [](const auto& info) { return info.param.empty() ? "whole" : "tiled"; });

TEST(CustomModelProgram, LearnsInEveryDtype) {
  for (const char* const precision :
       {R"("bf16": {"enabled": true})", R"("fp16": {"enabled": true})",
        R"("torch_autocast": {"enabled": true, "dtype": "bfloat16"})"}) {
    const TemporaryFolder folder;
    const std::string config = (folder.path() / "ds_config.json").string();
    ASSERT_TRUE(WriteFileAtomically(config, R"({"train_batch_size": 64, "optimizer": {
        "type": "AdamW", "params": {"lr": 0.01}}, )" +
                                                std::string(precision) + "}")
                    .ok());
    const auto result =
        RunProgram({DS_BIN_DIR "/custom_model", config}, {.environment = {"OMP_NUM_THREADS=1"}});
    EXPECT_EQ(result.status, 0) << precision << result.out << result.err;
    EXPECT_LT(LossOfStep100(result.out), 0.9) << precision << result.out;  // ln 4 = 1.39 at first
  }
}

TEST(CustomModelProgram, NamesErrorsInItsArguments) {
  const TemporaryFolder folder;
  const std::string config = (folder.path() / "ds_config.json").string();
  ASSERT_TRUE(WriteFileAtomically(config, R"({"train_batch_size": 2})").ok());
  const auto tiles = RunProgram({DS_BIN_DIR "/custom_model", config, "65"});
  EXPECT_EQ(tiles.status, 1);
  EXPECT_NE(tiles.err.find("layer.1: in_splits is 65, and 64 features"), std::string::npos)
      << tiles.err;
  const auto no_number = RunProgram({DS_BIN_DIR "/custom_model", config, "3x"});
  EXPECT_EQ(no_number.status, 1);
  EXPECT_NE(no_number.err.find("usage:"), std::string::npos) << no_number.err;
  const auto result = RunProgram({DS_BIN_DIR "/custom_model", "/no/such/ds_config.json"});
  EXPECT_EQ(result.status, 1);
  EXPECT_NE(result.err.find("/no/such/ds_config.json"), std::string::npos) << result.err;
}

}  // namespace
}  // namespace ds
