// Ranks with experts of their own, end to end: they train what one rank trains, the job goes on on
// other numbers of ranks, a folder comes out whole, and a lost one is named and replaced.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include "tests/e2e/train_fixture.h"

namespace ds::testing {
namespace {
namespace fs = std::filesystem;
using ::testing::DoubleNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;

class TrainExpertsTest : public TrainTest {
 protected:
  // A small Mixtral; every micro-batch is of one sample, as its balance is judged by micro-batch.
  std::vector<std::string> TrainExperts(int ranks, int stage, std::vector<std::string> more) const {
    more.insert(more.end(), {"--gradient_accumulation_steps", std::to_string(4 / ranks)});
    auto arguments = Train(ranks, stage, std::move(more));
    std::replace(arguments.begin(), arguments.end(), std::string("gpt2-demo"),
                 std::string("mixtral-tiny"));
    return arguments;
  }
  ProgramResult RunExperts(const std::string& name, int ranks, int stage,
                           std::vector<std::string> more) const {
    return RunProgram(DsrunCommand(RunDir(name), TrainExperts(ranks, stage, std::move(more))));
  }
  ProgramResult Resume(const std::string& name, int ranks, std::vector<std::string> more) const {
    std::vector<std::string> words{DS_BIN_DIR "/dsrun",   "--num_gpus",
                                   std::to_string(ranks), "resume",
                                   RunDir(name).string(), "--steps"};
    words.insert(words.end(), more.begin(), more.end());
    return RunProgram(words);
  }
};

TEST_F(TrainExpertsTest, MatchOneRankAndResume) {
  ASSERT_EQ(RunExperts("one", 1, 0, {"--steps", "6"}).status, 0);
  const auto split = RunExperts("cut", 4, 2, {"--ep", "2", "--steps", "2", "--save_every", "2"});
  ASSERT_EQ(split.status, 0) << split.out << split.err;
  const auto other = Resume("cut", 4, {"4", "--ep", "4", "--save_every", "2"});
  ASSERT_EQ(other.status, 0) << other.out << other.err;
  fs::path config = WriteConfig(0);
  const auto resumed = Resume("cut", 1,
                              {"6", "--deepspeed_config", config.string(),
                               "--gradient_accumulation_steps", "4", "--ep", "1"});
  ASSERT_EQ(resumed.status, 0) << resumed.out << resumed.err;
  EXPECT_THAT(Losses("cut"), Pointwise(DoubleNear(1e-5), Losses("one")));
}

// Routes of a step are those of all ranks' tokens: two of each in each of the four layers.
TEST_F(TrainExpertsTest, ReportsTheLoadOfAllExpertsInEveryStep) {
  ASSERT_EQ(RunExperts("run", 2, 3, {"--ep", "2", "--steps", "2"}).status, 0);
  for (const auto& step : ReadJsonLines(RunDir("run") / "metrics.jsonl")) {
    ASSERT_EQ(step["expert_routes"].size(), 4U);
    for (const auto& layer : step["expert_routes"]) {
      const auto routes = layer.get<std::vector<std::int64_t>>();
      EXPECT_EQ(routes.size(), 8U);
      EXPECT_EQ(std::accumulate(routes.begin(), routes.end(), std::int64_t{0}),
                2 * step["tokens"].get<std::int64_t>());
    }
  }
}

// A folder goes in, of which a rank reads its experts alone, and comes out with all of them.
TEST_F(TrainExpertsTest, SavesACompleteFolder) {
  const auto folder = [&](const std::string& name) { return folder_.path() / (name + "-hf"); };
  const auto save = [&](const std::string& name, int ranks, int stage,
                        std::vector<std::string> more) {
    more.insert(more.end(), {"--steps", "2", "--save_hf", folder(name).string()});
    const auto run = RunExperts(name, ranks, stage, std::move(more));
    EXPECT_EQ(run.status, 0) << run.out << run.err;
  };
  save("one", 1, 0, {});
  save("two", 4, 3, {"--ep", "2"});
  EXPECT_EQ(fs::file_size(folder("two") / "model.safetensors"),
            fs::file_size(folder("one") / "model.safetensors"));
  const auto go_on = [&](const std::string& name, int ranks, std::vector<std::string> more) {
    auto words = TrainExperts(ranks, 1, std::move(more));
    std::replace(words.begin(), words.end(), std::string("mixtral-tiny"), folder("two").string());
    const auto run = RunProgram(DsrunCommand(RunDir(name), words));
    EXPECT_EQ(run.status, 0) << run.out << run.err;
  };
  go_on("whole", 1, {"--steps", "2"});
  go_on("cut", 4, {"--steps", "2", "--ep", "4"});
  EXPECT_THAT(Losses("cut"), Pointwise(DoubleNear(1e-5), Losses("whole")));
  EXPECT_LT(Losses("whole")[0], Losses("one")[0]);
}

// The config's moe section puts an MLP next to the experts, with the model's own routing or a gate.
TEST_F(TrainExpertsTest, ResidualExpertsTrainAndResumeOnOtherRanks) {
  const auto own_routes = nlohmann::json::object();
  const auto config = [&](int stage, const nlohmann::json& more) {
    nlohmann::json keys = ReadJson(WriteConfig(stage));
    keys["moe"] = {{"enabled", true}, {"use_residual", true}};
    keys["moe"].update(more);
    const fs::path path = folder_.path() / ("residual" + std::to_string(stage) + ".json");
    EXPECT_TRUE(WriteFileAtomically(path, keys.dump()).ok());
    return path.string();
  };
  const auto train = [&](const std::string& name, int ranks, int stage,
                         const nlohmann::json& section, std::vector<std::string> more) {
    auto words = TrainExperts(ranks, stage, std::move(more));
    std::replace(words.begin(), words.end(), WriteConfig(stage).string(), config(stage, section));
    const auto run = RunProgram(DsrunCommand(RunDir(name), words));
    EXPECT_EQ(run.status, 0) << run.out << run.err;
  };
  train("one", 1, 0, own_routes, {"--steps", "12", "--save_every", "12"});
  EXPECT_LT(Losses("one").back(), Losses("one").front() - 0.3);
  train("cut", 4, 2, {{"ep_size", 2}}, {"--steps", "6", "--save_every", "6"});
  const auto resumed = Resume(
      "cut", 2,
      {"12", "--deepspeed_config", config(3, own_routes), "--gradient_accumulation_steps", "2"});
  ASSERT_EQ(resumed.status, 0) << resumed.out << resumed.err;
  EXPECT_THAT(Losses("cut"), Pointwise(DoubleNear(1e-5), Losses("one")));
  train("gated", 2, 1, {{"capacity_factor", 1.0}, {"noisy_gate_policy", "Jitter"}},
        {"--steps", "12"});
  EXPECT_LT(Losses("gated").back(), Losses("gated").front() - 0.3);
  // A checkpoint holds what a folder cannot, and is no other model's.
  const fs::path plain = WriteConfig(0);
  const auto other = Resume(
      "one", 1, {"14", "--deepspeed_config", plain.string(), "--gradient_accumulation_steps", "4"});
  EXPECT_EQ(other.status, 6) << other.out << other.err;
  EXPECT_THAT(other.err, HasSubstr("residual_mlp"));
}

TEST_F(TrainExpertsTest, DegreesThatDoNotFitAreRefusedWithThoseThatDo) {
  const auto too_many = RunExperts("no", 4, 2, {"--ep", "3"});
  EXPECT_EQ(too_many.status, 2);
  EXPECT_THAT(too_many.err, HasSubstr("share the state, 4, and is 3: take 2 or 4"));
  auto words = Train(4, 2, {"--ep", "2"});
  const auto dense = RunProgram(DsrunCommand(RunDir("no"), words));
  EXPECT_EQ(dense.status, 2);
  EXPECT_THAT(dense.err, HasSubstr("the model has no experts that 2 ranks could have"));
}

// The last rank is the second of its expert group, which then lacks half of the experts.
TEST_F(TrainExpertsTest, ALostRankIsNamedAndTheOthersEnd) {
  ExpectALostRankIsNamed(TrainExperts(4, 2, {"--ep", "2", "--steps", "100000"}), /*ranks=*/4,
                         /*lost=*/3);
}

TEST_F(TrainExpertsTest, TheJobIsRestartedAndItsLossesAreThoseOfAnUndisturbedOne) {
  ExpectARestartChangesNoLoss(TrainExperts(4, 3, {"--ep", "2", "--steps", "24"}), /*save_every=*/6,
                              /*lost=*/1);
}

}  // namespace
}  // namespace ds::testing
