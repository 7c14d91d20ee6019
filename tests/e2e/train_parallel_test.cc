// Tensor ranks, sequence ranks and stages of a pipeline, end to end: they train what one rank
// trains.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "tests/e2e/train_fixture.h"

namespace ds::testing {
namespace {
namespace fs = std::filesystem;
using ::testing::HasSubstr;

class TrainParallelTest : public TrainTest {
 protected:
  // Four ranks, in two pairs that `flag` makes, train two steps, and one rank goes on from there.
  void ExpectPairsTrainWhatOneRankTrains(const std::string& flag,
                                         const std::vector<std::string>& more = {}) const {
    ASSERT_EQ(RunProgram(DsrunCommand(RunDir("one"), Train(1, 0, {"--steps", "4"}))).status, 0);
    std::vector<std::string> flags = {flag, "2", "--steps", "2", "--save_every", "2"};
    flags.insert(flags.end(), more.begin(), more.end());
    const auto split = RunProgram(DsrunCommand(RunDir("cut"), Train(4, 2, flags)));
    ASSERT_EQ(split.status, 0) << split.out << split.err;
    const auto resumed =
        RunProgram({DS_BIN_DIR "/dsrun", "--num_gpus", "1", "resume", RunDir("cut").string(),
                    "--steps", "4", "--deepspeed_config", WriteConfig(0).string()});
    ASSERT_EQ(resumed.status, 0) << resumed.out << resumed.err;
    EXPECT_THAT(Losses("cut"), ::testing::Pointwise(::testing::DoubleNear(1e-5), Losses("one")));
  }
};

TEST_F(TrainParallelTest, TensorRanksMatchOneRankAndResume) {
  ExpectPairsTrainWhatOneRankTrains("--tp");
  const auto too_many = RunProgram(DsrunCommand(RunDir("no"), Train(5, 0, {"--tp", "5"})));
  EXPECT_EQ(too_many.status, 2);
  EXPECT_THAT(too_many.err, HasSubstr("cannot shard the model into 5 parts: it has 4 heads of the "
                                      "keys, in one weight with the queries; it can into 4"));
}

TEST_F(TrainParallelTest, SequenceRanksMatchOneRankAndResume) {
  ExpectPairsTrainWhatOneRankTrains("--sp");
  const auto too_many = RunProgram(DsrunCommand(RunDir("no"), Train(5, 0, {"--sp", "5"})));
  EXPECT_EQ(too_many.status, 2);
  EXPECT_THAT(too_many.err, HasSubstr("5 sequence ranks cannot share 4 heads of the queries"));
}

// The one rank goes on with a job that has no ring any more.
TEST_F(TrainParallelTest, RingRanksMatchOneRankAndResume) {
  ExpectPairsTrainWhatOneRankTrains("--sp", {"--sp_kind", "ring"});
  const auto of_eight = RunProgram(DsrunCommand(
      RunDir("eight"), Train(8, 0, {"--sp", "8", "--sp_kind", "ring", "--steps", "4"})));
  ASSERT_EQ(of_eight.status, 0) << of_eight.out << of_eight.err;
  EXPECT_THAT(Losses("eight"), ::testing::Pointwise(::testing::DoubleNear(1e-5), Losses("one")));
  const auto of_what = RunProgram(DsrunCommand(RunDir("no"), Train(2, 0, {"--sp_kind", "ring"})));
  EXPECT_EQ(of_what.status, 2);
  EXPECT_THAT(of_what.err,
              HasSubstr("--sp_kind needs sequence parallelism: set --sp or the config's"));
}

// Samples have six chunks, the last one shorter; what waits does so in a file.
TEST_F(TrainParallelTest, ChunkedAttentionTrainsTheSameAndResumes) {
  const fs::path offload = fs::path(RunDir("away"));
  fs::create_directories(offload);
  ExpectPairsTrainWhatOneRankTrains("--sp", {"--sp_chunk", "6", "--sp_offload", offload.string()});
  const auto of_what = RunProgram(DsrunCommand(RunDir("no"), Train(2, 0, {"--sp_offload", "cpu"})));
  EXPECT_EQ(of_what.status, 2);
  EXPECT_THAT(of_what.err, HasSubstr("--sp_offload requires --sp_chunk"));
  const auto in_ring = RunProgram(DsrunCommand(
      RunDir("no"), Train(2, 0, {"--sp", "2", "--sp_kind", "ring", "--sp_chunk", "8"})));
  EXPECT_EQ(in_ring.status, 2);
  EXPECT_THAT(in_ring.err, HasSubstr("(--sp_chunk) is built for --sp_kind ulysses"));
}

TEST_F(TrainParallelTest, StagesMatchOneRankAndResume) {
  ExpectPairsTrainWhatOneRankTrains("--pp");
  const auto too_many = RunProgram(DsrunCommand(RunDir("no"), Train(5, 0, {"--pp", "5"})));
  EXPECT_EQ(too_many.status, 2);
  EXPECT_THAT(too_many.err, HasSubstr("pipeline 5 asks for more stages than the model has layers"));
}

// Every schedule, and stages of tensor or sequence ranks.
TEST_F(TrainParallelTest, StagesInAnyOrderMatchOneRank) {
  ASSERT_EQ(RunProgram(DsrunCommand(RunDir("one"), Train(1, 0, {"--steps", "2"}))).status, 0);
  const auto expect_same = [&](const std::string& name, int ranks, std::vector<std::string> more) {
    more.insert(more.end(), {"--steps", "2", "--pp", "2", "--gradient_accumulation_steps", "4"});
    const auto run = RunProgram(DsrunCommand(RunDir(name), Train(ranks, 1, std::move(more))));
    ASSERT_EQ(run.status, 0) << run.out << run.err;
    EXPECT_THAT(Losses(name), ::testing::Pointwise(::testing::DoubleNear(1e-5), Losses("one")));
  };
  for (const std::string order : {"interleaved", "zb-h1", "zb-v"}) {
    expect_same(order, 2, {"--pp_schedule", order});
  }
  expect_same("tensor", 4, {"--tp", "2"});
  expect_same("sequence", 4, {"--sp", "2"});
  expect_same("ring", 4, {"--sp", "2", "--sp_kind", "ring"});
}

// A folder goes in and comes out, held-out data are looked at, and what two stages hold is once
// in the folder.
TEST_F(TrainParallelTest, StagesReadAFolderEvaluateAndWriteOne) {
  const auto run = [&](const std::string& name, int ranks, std::vector<std::string> more) {
    more.insert(more.end(), {"--steps", "2", "--eval_split", "0.2", "--freeze", "*.h.0.*",
                             "--save_hf", (folder_.path() / (name + "-hf")).string()});
    const auto result = RunProgram(DsrunCommand(RunDir(name), Train(ranks, 0, std::move(more))));
    EXPECT_EQ(result.status, 0) << result.out << result.err;
  };
  run("one", 1, {"--gradient_accumulation_steps", "4"});
  run("two", 2, {"--gradient_accumulation_steps", "4", "--pp", "2", "--pp_schedule", "gpipe"});
  EXPECT_THAT(Losses("two"), ::testing::Pointwise(::testing::DoubleNear(1e-5), Losses("one")));
  const auto evaluated = [&](const std::string& name) {
    return ReadJsonLines(RunDir(name) / "metrics.jsonl").back()["eval_loss"].get<double>();
  };
  EXPECT_NEAR(evaluated("two"), evaluated("one"), 1e-5);
  const fs::path folder = folder_.path() / "two-hf";
  EXPECT_EQ(fs::file_size(folder / "model.safetensors"),
            fs::file_size(folder_.path() / "one-hf" / "model.safetensors"));
  auto arguments = Train(2, 0, {"--pp", "2", "--steps", "1"});
  std::replace(arguments.begin(), arguments.end(), std::string("gpt2-demo"), folder.string());
  const auto again = RunProgram(DsrunCommand(RunDir("again"), arguments));
  ASSERT_EQ(again.status, 0) << again.err;
  EXPECT_LT(Losses("again")[0], Losses("one")[0]);
}

}  // namespace
}  // namespace ds::testing
