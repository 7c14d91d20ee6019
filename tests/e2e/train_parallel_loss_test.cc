// Ranks that have one model and the same samples between them, one of which is killed, end to end:
// first stage, tensor peer, last stage, a peer of the same samples that has other heads, one that
// keys and values go past. It is named, all others end, and the job goes on to the numbers of one
// that lost nobody.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <string>
#include <vector>

#include "tests/e2e/train_fixture.h"

namespace ds::testing {
namespace {

struct Role {
  const char* name;
  int rank;
  std::vector<std::string> cut;
};

class ParallelLossTest : public TrainTest, public ::testing::WithParamInterface<Role> {
 protected:
  static int lost() { return GetParam().rank; }
  std::vector<std::string> TrainCut(std::vector<std::string> more) const {
    more.insert(more.end(), {"--gradient_accumulation_steps", "2"});
    more.insert(more.end(), GetParam().cut.begin(), GetParam().cut.end());
    return Train(4, 1, std::move(more));
  }
};

TEST_P(ParallelLossTest, ALostRankIsNamedAndTheOthersEnd) {
  Program program(DsrunCommand(RunDir("lost"), TrainCut({"--steps", "100000"})));
  ASSERT_TRUE(program.WaitForOutput("step 2"));
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < 4; ++rank) ranks.push_back(RankPid("lost", rank));
  ASSERT_EQ(::kill(ranks[static_cast<std::size_t>(lost())], SIGKILL), 0);
  const auto result = program.Wait();
  EXPECT_EQ(result.status, 137) << result.out << result.err;
  const auto verdict = ReadJson(RunDir("lost") / "verdict.json");
  EXPECT_EQ(verdict["rank"], lost());
  EXPECT_EQ(verdict["signal"], SIGKILL);
  for (const pid_t rank : ranks) EXPECT_NE(::kill(rank, 0), 0) << "a rank is still there";
}

TEST_P(ParallelLossTest, TheJobIsRestartedAndItsLossesAreThoseOfAnUndisturbedOne) {
  const auto whole = RunProgram(DsrunCommand(RunDir("whole"), TrainCut({"--steps", "40"})));
  ASSERT_EQ(whole.status, 0) << whole.out << whole.err;
  auto command =
      DsrunCommand(RunDir("restarted"), TrainCut({"--steps", "40", "--save_every", "10"}));
  command.insert(command.begin() + 1, {"--max_restarts", "1"});
  Program program(command);
  ASSERT_TRUE(program.WaitForOutput("step-10"));
  ASSERT_EQ(::kill(RankPid("restarted", lost()), SIGKILL), 0);
  const auto result = program.Wait();
  ASSERT_EQ(result.status, 0) << result.out << result.err;
  const auto expected = Losses("whole");
  const auto lines = ReadJsonLines(RunDir("restarted") / "metrics.jsonl");
  ASSERT_GE(lines.size(), expected.size());
  for (const auto& line : lines) {
    EXPECT_EQ(line["loss"].get<double>(), expected.at(line["step"].get<std::size_t>() - 1)) << line;
  }
}

std::string NameRole(const ::testing::TestParamInfo<Role>& info) { return info.param.name; }

const std::vector<std::string> kStagesOfTensorRanks = {"--pp", "2", "--tp", "2"};

INSTANTIATE_TEST_SUITE_P(
    Roles, ParallelLossTest,
    ::testing::Values(Role{"FirstStage", 0, kStagesOfTensorRanks},
                      Role{"TensorPeer", 1, kStagesOfTensorRanks},
                      Role{"LastStage", 3, kStagesOfTensorRanks},
                      Role{"SequencePeer", 2, {"--sp", "2"}},
                      Role{"PlaceOfARing", 1, {"--sp", "4", "--sp_kind", "ring"}}),
    NameRole);

}  // namespace
}  // namespace ds::testing
