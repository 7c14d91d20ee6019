// The activation_checkpointing section of a ds_config, judged against the model before ranks start.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/cli/train_folder.h"

namespace ds::cli {
namespace {

using ::testing::HasSubstr;

using TrainCheckpointingTest = TrainFolderTest;

TEST_F(TrainCheckpointingTest, ABufferHasAPartForEachLayerThatARankRecomputes) {
  Write("model/config.json", R"({"model_type": "llama", "hidden_size": 24, "vocab_size": 32,
      "intermediate_size": 32, "num_attention_heads": 6, "num_hidden_layers": 8})");
  const auto section = [](int parts) {
    return R"({"train_batch_size": 4, "tensor_parallel": {"tp_size": 2},
        "activation_checkpointing": {"partition_activations": true,
            "contiguous_memory_optimization": true, "number_checkpoints": )" +
           std::to_string(parts) + "}}";
  };
  Write("four.json", section(4));
  Write("eight.json", section(8));
  TrainFlags flags{.model = Path("model"), .deepspeed_config = Path("four.json")};
  EXPECT_THAT(Error(flags),
              HasSubstr("number_checkpoints is 4, and a rank recomputes 8 layers in a "
                        "pass: write 8 or more"));
  flags.recompute = "every:2";
  EXPECT_EQ(Error(flags), "accepted");
  flags.recompute = "none";
  EXPECT_EQ(Error(flags), "accepted");
  flags.recompute.reset();
  flags.training.pp = 2;
  const auto cut = GatherTrainInputs(flags, share_, 4);
  EXPECT_TRUE(cut.ok()) << "4 layers a stage: " << cut.status().message();
  flags.training.pp.reset();
  flags.deepspeed_config = Path("eight.json");
  EXPECT_EQ(Error(flags), "accepted");
}

}  // namespace
}  // namespace ds::cli
