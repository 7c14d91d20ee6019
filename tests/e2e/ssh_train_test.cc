// `dsrun train` on several hosts: the same numbers as on one, and what is refused.

#include <gmock/gmock.h>

#include <regex>

#include "runtime/base/files.h"
#include "tests/e2e/ssh_train_job.h"
#include "tests/places.h"

namespace ds::testing {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

class SshTrainTest : public SshTrainJob {
 protected:
  // The losses of three steps on hosts with so many ranks each are, bit for bit, those of as many
  // ranks here.
  void ExpectSameLosses(int slots, int stage, bool bf16, bool encrypt = false) {
    WriteHostfile(slots);
    std::vector<std::string> words = Train(stage, bf16, 3);
    if (encrypt) words.emplace_back("--encrypt");
    const ProgramResult apart = RunJob(OnHosts(words));
    ASSERT_EQ(apart.status, 0) << apart.out << apart.err;
    const std::vector<double> losses = Losses();
    ASSERT_EQ(losses.size(), 3u);
    const ProgramResult together =
        RunJob(OnThisHost(slots * options_.count, Train(stage, bf16, 3)));
    ASSERT_EQ(together.status, 0) << together.out << together.err;
    EXPECT_THAT(Losses(), ElementsAreArray(losses))
        << slots << " ranks on each host, stage " << stage << (bf16 ? ", bf16" : "");
  }
};

// Parameter: whether each stage trains in both precisions (in the nightly entry), or in one of
// them.
class SshTrainStagesTest : public SshTrainTest, public ::testing::WithParamInterface<bool> {
 protected:
  void ExpectSameLossesOfStages(int slots, bool even_stages_in_bf16) {
    for (const int stage : {0, 1, 2, 3}) {
      const bool usual = (stage % 2 == 0) == even_stages_in_bf16;
      ExpectSameLosses(slots, stage, /*bf16=*/usual);
      if (GetParam()) ExpectSameLosses(slots, stage, /*bf16=*/!usual);
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Precisions, SshTrainStagesTest, ::testing::Bool(),
                         [](const ::testing::TestParamInfo<bool>& info) {
                           return info.param ? "EveryPrecision" : "PrecisionsInTurn";
                         });

TEST_P(SshTrainStagesTest, TwoHostsOfOneRankTrainAsTwoRanksOfOneHost) {
  ExpectSameLossesOfStages(/*slots=*/1, /*even_stages_in_bf16=*/true);
}

TEST_P(SshTrainStagesTest, TwoHostsOfTwoRanksTrainAsFourRanksOfOneHost) {
  ExpectSameLossesOfStages(/*slots=*/2, /*even_stages_in_bf16=*/false);
}

TEST_P(SshTrainStagesTest, ThreeHostsOfOneRankTrainAsThreeRanksOfOneHost) {
  options_.count = 3;
  ExpectSameLossesOfStages(/*slots=*/1, /*even_stages_in_bf16=*/true);
}

TEST_F(SshTrainTest, EncryptedLinksTrainTheSame) {
  ExpectSameLosses(1, 2, /*bf16=*/false, /*encrypt=*/true);
}

TEST_F(SshTrainTest, CallsThatBlockTrainTheSame) {
  overlap_comm_ = false;
  for (const int stage : {1, 3}) ExpectSameLosses(1, stage, /*bf16=*/false);
}

// What the example prints of its steps, in order.
std::vector<std::string> StepsOf(const ProgramResult& result) {
  EXPECT_EQ(result.status, 0) << result.out << result.err;
  const std::regex step("step [0-9]+  loss [0-9.]+");
  const std::sregex_token_iterator first(result.out.begin(), result.out.end(), step), last;
  return {first, last};
}

// Engine::create finds the other hosts by itself.
TEST_F(SshTrainTest, AProgramOfTheUsersOwnTrainsOnTwoHostsAsOnOne) {
  const SharedFolder shared;
  const std::string config = (shared.path() / "ds.json").string();
  ASSERT_TRUE(WriteFileAtomically(config, R"({
    "train_batch_size": 128, "gradient_accumulation_steps": 2,
    "optimizer": {"type": "AdamW", "params": {"lr": 0.01}},
    "zero_optimization": {"stage": 3}
  })")
                  .ok());
  WriteHostfile(1);
  const std::vector<std::string> words = {DS_BIN_DIR "/custom_model", config};
  const std::vector<std::string> apart = StepsOf(RunJob(OnHosts(words)));
  EXPECT_EQ(apart.size(), 5u);
  EXPECT_EQ(StepsOf(RunJob(OnThisHost(2, words))), apart);
}

// /tmp is each host's own.
TEST_F(SshTrainTest, CheckpointsInAFolderThatHostsDoNotShareAreRefusedBeforeTheFirstStep) {
  if (!hosts().namespaces()) return SkipWithout("namespaces", hosts().why_not());
  WriteHostfile(1);
  std::vector<std::string> words = Train(0, false, 2);
  words.insert(words.end(), {"--save_every", "1"});
  const ProgramResult result = RunJob(OnHosts(words));
  EXPECT_EQ(result.status, 6) << result.err;
  EXPECT_THAT(JobVerdict()["message"].get<std::string>(),
              HasSubstr("differs from the folder on the host"));
  EXPECT_TRUE(JobVerdict()["step"].is_null());
}

TEST_F(SshTrainTest, BenchMeasuresBetweenHosts) {
  WriteHostfile(1);
  const ProgramResult result =
      RunJob(OnHosts({"bench", "comm", "--json", "--max_size", "2K", "--trials", "2"}));
  ASSERT_EQ(result.status, 0) << result.err;
  const auto document = nlohmann::json::parse(result.out, nullptr, /*allow_exceptions=*/false);
  ASSERT_FALSE(document.is_discarded()) << result.out;
  EXPECT_EQ(document["world_size"], 2);
  EXPECT_EQ(document["collectives"].size(), 6u);
  EXPECT_EQ(document["collectives"]["pt2pt"].size(), 2u);
}

TEST_F(SshTrainTest, AnInterfaceThatAHostHasNotIsRefused) {
  WriteHostfile(1);
  const ProgramResult result = RunJob(OnHosts(Train(0, false, 1), {"--interface", "nosuch0"}));
  EXPECT_EQ(result.status, 1) << result.err;
  EXPECT_THAT(JobVerdict()["message"].get<std::string>(),
              HasSubstr("no network interface or address nosuch0"));
}

// One host has both, the other one lacks the second.
TEST_F(SshTrainTest, AHostThatLacksOneOfSeveralInterfacesIsNamed) {
  if (!hosts().namespaces()) return SkipWithout("namespaces", hosts().why_not());
  OnHost(0,
         "ip link add spare type bridge && ip addr add 10.79.0.1/24 dev spare && "
         "ip link set spare up");
  WriteHostfile(1);
  const ProgramResult result = RunJob(OnHosts(Train(0, false, 1), {"--interface", "eth0,spare"}));
  EXPECT_EQ(result.status, 1) << result.err;
  EXPECT_EQ(JobVerdict()["host"], "h1");
  EXPECT_THAT(JobVerdict()["message"].get<std::string>(),
              HasSubstr("this host has no network interface or address spare; it has "));
}

}  // namespace
}  // namespace ds::testing
