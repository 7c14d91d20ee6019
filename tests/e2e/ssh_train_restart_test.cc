// A training job that loses a host goes on from its last checkpoint on a spare, and learns what an
// undisturbed one learns.

#include <gmock/gmock.h>

#include "tests/e2e/dsrun.h"
#include "tests/e2e/ssh_train_job.h"
#include "tests/places.h"

namespace ds::testing {
namespace {

using ::testing::HasSubstr;

constexpr int kSteps = 200;

class SshTrainRestartTest : public SshTrainJob {
 protected:
  SshTrainRestartTest() { options_.count = 3; }
  void SetUp() override {
    SshTrainJob::SetUp();
    if (!IsSkipped() && !hosts().namespaces()) SkipWithout("namespaces", hosts().why_not());
    jobs_folder_ = shared_.path();
  }

  // Two ranks, with h2 as spare; returns when checkpoints are there.
  std::unique_ptr<Program> StartWithSpare() {
    WriteHostfile(hosts().HostfileLine(0, 1) + "\n" + hosts().HostfileLine(1, 1) + "\n" +
                  hosts().HostfileLine(2, 1, "spare") + "\n");
    std::vector<std::string> words = Train(2, false, kSteps);
    words.insert(words.end(), {"--save_every", "10"});
    auto dsrun = StartJob(OnHosts(words, {"--lease_seconds", "4", "--max_restarts", "1"}));
    EXPECT_TRUE(dsrun->WaitForOutput("step-20\n")) << dsrun->err();
    return dsrun;
  }

  // Every step that was made, before the loss, again after it and behind it.
  void ExpectUndisturbed() {
    const std::vector<nlohmann::json> lines = ReadJsonLines(job() / "metrics.jsonl");
    ASSERT_EQ(RunJob(OnThisHost(2, Train(2, false, kSteps))).status, 0);
    const std::vector<double> losses = Losses();
    ASSERT_EQ(losses.size(), static_cast<std::size_t>(kSteps));
    int restarts = 0;
    int last = 0;
    for (const nlohmann::json& line : lines) {
      const int step = line["step"];
      EXPECT_EQ(line["loss"].get<double>(), losses.at(step - 1)) << "step " << step;
      if (step == last + 1) {
        last = step;
        continue;
      }
      ++restarts;
      EXPECT_EQ(step % 10, 1) << "it goes on behind a checkpoint";
      EXPECT_GT(step, 1) << "and not from the start";
      last = step;
    }
    EXPECT_EQ(last, kSteps);
    EXPECT_LE(restarts, 1);
  }

 private:
  SharedFolder shared_;
};

TEST_F(SshTrainRestartTest, ASpareResumesTheLastCheckpointWhenACableIsPulled) {
  const auto dsrun = StartWithSpare();
  hosts().CutLink(1);
  const ProgramResult result = dsrun->Wait();
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("spare host h2 replaces host h1"));
  EXPECT_THAT(result.err, HasSubstr("resuming from "));
  ExpectUndisturbed();
  for (const int host : {0, 1, 2}) {
    EXPECT_TRUE(BecomesEmpty(host));
    RemoveLastMessages(host);
    ExpectNothingLeft(host);
  }
}

TEST_F(SshTrainRestartTest, ASpareReplacesTheFirstHostWhenItsDaemonIsKilled) {
  const auto dsrun = StartWithSpare();
  OnHost(0, "kill -9 $(pgrep -x dsrund-.*)");
  const ProgramResult result = dsrun->Wait();
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("spare host h2 replaces host h0"));
  ExpectUndisturbed();
  for (const int host : {0, 1, 2}) {
    EXPECT_TRUE(BecomesEmpty(host));
    RemoveLastMessages(host);
    ExpectNothingLeft(host);
  }
}

}  // namespace
}  // namespace ds::testing
