// What a step of training sends between two hosts, held against a formula for each stage, over
// links as fast as they are and over emulated ones.

#include <gmock/gmock.h>

#include <regex>

#include "runtime/base/files.h"
#include "tests/e2e/dsrun.h"
#include "tests/e2e/ssh_train_job.h"

namespace ds::testing {
namespace {

using ::testing::ElementsAreArray;

// gpt2-demo: two embeddings, four layers, the last norm; its head is the token embedding.
constexpr double kParameters = 256 * 128 + 256 * 128 + 4 * (12 * 128 * 128 + 13 * 128) + 2 * 128;

// Bytes that a step of fp32 training, one micro-batch, sends between two hosts, both ways together,
// however many ranks they have. Every parameter is 4 bytes of gradient, whose sums go from the
// first host to the last. The results go back: all of them at stage 0, those of the first host's
// shard at the others, where each host then sends its half of the parameters: behind the update at
// stages 1 and 2, before both passes at stage 3.
double BytesOfStep(int stage) {
  const double all = 4 * kParameters;
  if (stage == 0) return 2 * all;
  const double reduced = all + all / 2;
  const int gathers = stage == 3 ? 2 : 1;
  return reduced + gathers * all;
}

class SshTrainBytesTest : public SshTrainJob {
 protected:
  void SetUp() override {
    SshTrainJob::SetUp();
    if (!IsSkipped() && !hosts().namespaces()) SkipWithout("namespaces", hosts().why_not());
  }

  // What the ranks say that they have sent to other hosts in a job of so many steps.
  double BytesOfJob(int slots, int stage, int steps) {
    WriteHostfile(slots);
    const ProgramResult result =
        RunJob(OnHosts(Train(stage, false, steps), {"-x", "DSRUN_LOG_LEVEL=debug"}));
    EXPECT_EQ(result.status, 0) << result.err;
    const std::regex said("sent ([0-9]+) bytes to other hosts");
    double bytes = 0;
    for (int rank = 0; rank < 2 * slots; ++rank) {
      const auto log =
          ReadFile(job() / "logs" / "0" / ("rank-0000" + std::to_string(rank) + ".err"));
      std::smatch match;
      EXPECT_TRUE(log.ok() && std::regex_search(*log, match, said)) << "rank " << rank;
      if (!match.empty()) bytes += std::stod(match[1]);
    }
    return bytes;
  }

  void ExpectBytes(int slots, int stage) {
    const double bytes = (BytesOfJob(slots, stage, 6) - BytesOfJob(slots, stage, 2)) / 4;
    EXPECT_NEAR(bytes, BytesOfStep(stage), 0.03 * BytesOfStep(stage))
        << slots << " ranks on each host, stage " << stage;
  }
};

TEST_F(SshTrainBytesTest, AStepSendsWhatTheFormulaOfItsStageSays) {
  for (const int slots : {1, 2}) {
    for (const int stage : {0, 1, 2, 3}) ExpectBytes(slots, stage);
  }
}

TEST_F(SshTrainBytesTest, ThinLinksChangeNeitherBytesNorLosses) {
  WriteHostfile(1);
  ASSERT_EQ(RunJob(OnHosts(Train(2, false, 3))).status, 0);
  const std::vector<double> losses = Losses();
  for (const std::uint64_t megabits : {1000, 100}) {
    hosts().Slow(1, {.bytes_per_second = megabits * 1'000'000 / 8});
    ExpectBytes(1, 2);
    ASSERT_EQ(RunJob(OnHosts(Train(2, false, 3))).status, 0);
    EXPECT_THAT(Losses(), ElementsAreArray(losses)) << megabits << " Mbit/s";
  }
}

}  // namespace
}  // namespace ds::testing
