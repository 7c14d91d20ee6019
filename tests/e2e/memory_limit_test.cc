// A model whose state is four times what a rank may have is made, trained, written, read and
// trained again at stage 3.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/files.h"
#include "tests/e2e/dsrun.h"
#include "tests/places.h"

namespace ds::testing {
namespace {

using ::testing::HasSubstr;

constexpr int kRanks = 16;
// RLIMIT_DATA: what a process may write to, of which LibTorch and the threads' stacks take about a
// third.
constexpr std::int64_t kLimitMib = 256;

class MemoryLimit : public ::testing::Test {
 protected:
  void SetUp() override {
    const nlohmann::json config = {{"model_type", "llama"},    {"vocab_size", 256},
                                   {"hidden_size", 512},       {"intermediate_size", 1408},
                                   {"num_hidden_layers", 21},  {"num_attention_heads", 8},
                                   {"num_key_value_heads", 8}, {"max_position_embeddings", 64},
                                   {"hidden_act", "silu"},     {"rms_norm_eps", 1e-5},
                                   {"rope_theta", 10000.0},    {"tie_word_embeddings", true}};
    ASSERT_TRUE(WriteFileAtomically(folder_.path() / "config.json", config.dump()).ok());
  }

  std::filesystem::path RunDir(const std::string& name) const { return folder_.path() / name; }

  // Two steps under the limit.
  ProgramResult Train(const std::string& run, int ranks, int stage, const std::string& model,
                      const std::vector<std::string>& more = {}) const {
    const std::filesystem::path config = folder_.path() / (run + ".json");
    const nlohmann::json ds_config = {
        {"train_micro_batch_size_per_gpu", 1},
        {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 1e-3}}}}},
        {"zero_optimization", {{"stage", stage}}}};
    EXPECT_TRUE(WriteFileAtomically(config, ds_config.dump()).ok());
    std::vector<std::string> arguments = {"--num_gpus",
                                          std::to_string(ranks),
                                          "train",
                                          "--model",
                                          model,
                                          "--data",
                                          DS_SOURCE_DIR "/LICENSE",
                                          "--deepspeed_config",
                                          config.string(),
                                          "--seq_len",
                                          "32",
                                          "--steps",
                                          "2"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    std::vector<std::string> command = {
        "/bin/sh", "-c", "ulimit -d " + std::to_string(kLimitMib * 1024) + " && exec \"$@\"", "sh"};
    const std::vector<std::string> dsrun = DsrunCommand(RunDir(run), arguments);
    command.insert(command.end(), dsrun.begin(), dsrun.end());
    return RunProgram(command);
  }

  std::vector<nlohmann::json> Steps(const std::string& run) const {
    return ReadJsonLines(RunDir(run) / "metrics.jsonl");
  }

  const TemporaryFolder folder_;
};

// The most that rank 0 has had of the state.
std::int64_t PeakOfState(const nlohmann::json& step) {
  std::int64_t bytes = 0;
  for (const char* use : {"parameters", "gradients", "optimizer_state"}) {
    bytes += step["memory"][use]["host"]["peak"].get<std::int64_t>();
  }
  return bytes;
}

TEST_F(MemoryLimit, AModelOfFourTimesTheLimitIsMadeAndTrainedAndReadAgain) {
  const std::string saved = (folder_.path() / "saved").string();
  const ProgramResult made =
      Train("made", kRanks, 3, (folder_.path() / "config.json").string(), {"--save_hf", saved});
  ASSERT_EQ(made.status, 0) << made.err;
  const auto first = Steps("made");
  ASSERT_EQ(first.size(), 2u);
  EXPECT_GE(PeakOfState(first.back()) * kRanks, 4 * kLimitMib << 20);

  const ProgramResult read = Train("read", kRanks, 3, saved);
  ASSERT_EQ(read.status, 0) << read.err;
  EXPECT_LT(Steps("read").front()["loss"], first.front()["loss"])
      << "the weights are the trained ones";

  // The limit is one.
  const ProgramResult whole = Train("whole", 1, 0, saved);
  EXPECT_EQ(whole.status, 1);
  EXPECT_THAT(whole.err, HasSubstr("build the model: out of memory"));
  EXPECT_THAT(whole.err, HasSubstr("a higher ZeRO stage or more ranks need less memory on each"));
}

}  // namespace
}  // namespace ds::testing
