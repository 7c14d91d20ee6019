// Supervised fine-tuning with the real programs gives what TRL's SFTTrainer computes on the same
// data (scripts/goldens/make_sft_goldens.py): the same tokens are learnt, and no other.

#include <gtest/gtest.h>

#include <filesystem>

#include "runtime/base/files.h"
#include "tests/e2e/dsrun.h"
#include "tests/places.h"

namespace ds::testing {
namespace {

constexpr char kChatGoldens[] = DS_SOURCE_DIR "/tests/numerics/goldens/";
constexpr char kConfig[] = R"({"train_batch_size": 4, "gradient_clipping": 1.0,
    "zero_optimization": {"stage": 2},
    "optimizer": {"type": "AdamW", "params": {"lr": 0.01, "weight_decay": 0.0}}})";

class TrainSftTest : public ::testing::TestWithParam<const char*> {
 protected:
  std::vector<nlohmann::json> Train(const std::string& ranks) const {
    EXPECT_TRUE(WriteFileAtomically(folder_.path() / "ds.json", kConfig).ok());
    const std::string sft = std::string(kChatGoldens) + "sft";
    const ProgramResult result =
        RunProgram(DsrunCommand(folder_.path() / ranks, {"--num_gpus",
                                                         ranks,
                                                         "train",
                                                         "--model",
                                                         std::string(kChatGoldens) + "llama",
                                                         "--tokenizer",
                                                         sft,
                                                         "--data",
                                                         sft + "/" + GetParam() + ".jsonl",
                                                         "--data_cache",
                                                         (folder_.path() / "cache").string(),
                                                         "--packing",
                                                         "none",
                                                         "--no_shuffle",
                                                         "--seq_len",
                                                         "32",
                                                         "--steps",
                                                         "20",
                                                         "--deepspeed_config",
                                                         (folder_.path() / "ds.json").string()}));
    EXPECT_EQ(result.status, 0) << result.out << result.err;
    return ReadJsonLines(folder_.path() / ranks / "metrics.jsonl");
  }

  TemporaryFolder folder_;
};

TEST_P(TrainSftTest, TwentyStepsAreThoseOfTrl) {
  const nlohmann::json golden = ReadJson(std::string(kChatGoldens) + "sft/trl.json").at(GetParam());
  for (const char* const ranks : {"1", "2"}) {
    const auto steps = Train(ranks);
    ASSERT_EQ(steps.size(), golden["losses"].size());
    for (std::size_t i = 0; i < steps.size(); ++i) {
      EXPECT_NEAR(steps[i]["loss"].get<double>(), golden["losses"][i].get<double>(), 2e-5)
          << "step " << i + 1 << " on " << ranks;
      const double norm = golden["grad_norms"][i];
      EXPECT_NEAR(steps[i]["grad_norm"].get<double>(), norm, 1e-4 * norm)
          << "step " << i + 1 << " on " << ranks;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Data, TrainSftTest, ::testing::Values("prompts", "chats"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace ds::testing
