// What happens to a drive while a job trains from it: the verdict says what and where, nothing is
// left on the drive, and a job that goes on from its checkpoint has the losses of one that nothing
// happened to.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <fstream>
#include <random>
#include <thread>

#include "runtime/base/files.h"
#include "runtime/base/unique_fd.h"
#include "tests/e2e/dsrun.h"
#include "tests/places.h"
#include "tests/support/fuse_mount.h"
#include "tests/support/requirement.h"

namespace ds::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Words = std::vector<std::string>;

constexpr int kNoMount = 99;

class OffloadFaults : public ::testing::Test {
 protected:
  void SetUp() override { fs::create_directory(drive_); }

  fs::path RunDir(const std::string& name) const { return folder_.path() / name; }

  // Two ranks, state and parameters on the drive.
  Words Train(const std::string& run, int steps, const Words& more = {}) const {
    const nlohmann::json drive = {{"device", "nvme"}, {"nvme_path", drive_.string()}};
    nlohmann::json parameters = drive;
    parameters["max_in_cpu"] = 0;
    const nlohmann::json config = {
        {"train_batch_size", 4},
        {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 1e-3}}}}},
        {"aio", {{"block_size", 65536}}},
        {"zero_optimization",
         {{"stage", 3}, {"offload_optimizer", drive}, {"offload_param", parameters}}}};
    const fs::path file = folder_.path() / "ds.json";
    EXPECT_TRUE(WriteFileAtomically(file, config.dump()).ok());
    Words words = {"--num_gpus",
                   "2",
                   "train",
                   "--model",
                   "gpt2-demo",
                   "--data",
                   DS_SOURCE_DIR "/LICENSE",
                   "--deepspeed_config",
                   file.string(),
                   "--seq_len",
                   "32",
                   "--steps",
                   std::to_string(steps)};
    words.insert(words.end(), more.begin(), more.end());
    return DsrunCommand(RunDir(run), words);
  }

  // The same in a mount namespace, with the drive mounted by `mount`. Both may hold no quote.
  Words TrainMounted(const std::string& run, int steps, const std::string& mount) const {
    Words words = {"unshare", "--mount", "/bin/sh", "-c", mount + " \"$DRIVE\" && exec \"$@\"",
                   "sh"};
    const Words train = Train(run, steps);
    words.insert(words.end(), train.begin(), train.end());
    return words;
  }
  ProgramResult RunMounted(const std::string& run, int steps, const std::string& mount) const {
    return RunProgram(TrainMounted(run, steps, mount),
                      {.environment = {"DRIVE=" + drive_.string()}});
  }
  bool CanMount() const {
    return RunProgram({"unshare", "--mount", "mount", "-t", "tmpfs", "none", drive_.string()})
               .status == 0;
  }

  std::string Verdict(const std::string& run) const {
    return ReadJson(RunDir(run) / "verdict.json").value("message", "");
  }
  std::vector<nlohmann::json> Steps(const std::string& run) const {
    return ReadJsonLines(RunDir(run) / "metrics.jsonl");
  }
  // The events that are whole, of a run that may go on.
  std::vector<nlohmann::json> Events(const std::string& run) const {
    std::ifstream stream(RunDir(run) / "events.jsonl");
    std::vector<nlohmann::json> events;
    for (std::string line; std::getline(stream, line) && !stream.eof();) {
      events.push_back(nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false));
      EXPECT_FALSE(events.back().is_discarded()) << line;
    }
    return events;
  }
  // Kills a rank of the job, unless it has ended: nobody else's process, whoever has its number
  // now.
  bool KillRank(const std::string& run, int rank) const {
    pid_t pid = 0;
    for (const auto& event : Events(run)) {
      if (event.value("rank", -1) != rank) continue;
      if (event.value("event", "") == "rank_started") pid = event.at("pid").get<pid_t>();
      if (event.value("event", "") == "rank_exited") pid = 0;
    }
    if (pid <= 1) return false;
    const UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    const auto environment = ReadFile("/proc/" + std::to_string(pid) + "/environ");
    const std::string job =
        "DSRUN_JOB_ID=" + ReadJson(RunDir(run) / "job.json").at("job").get<std::string>();
    if (!process.valid() || !environment.ok() || environment->find(job) == std::string::npos) {
      return false;
    }
    return ::syscall(SYS_pidfd_send_signal, process.get(), SIGKILL, nullptr, 0) == 0;
  }

  const TemporaryFolder folder_;
  const fs::path drive_ = folder_.path() / "drive";
};

TEST_F(OffloadFaults, NamesAFullDriveBeforeTheFirstStep) {
  if (!CanMount()) return SkipWithout("mounts", "mounting is not permitted here");
  const ProgramResult result = RunMounted("full", 2, "mount -t tmpfs -o size=2m none");
  EXPECT_EQ(result.status, 2) << result.err;
  EXPECT_THAT(Verdict("full"), AllOf(HasSubstr("reserving space for"), HasSubstr(drive_.string()),
                                     HasSubstr("(tmpfs) on host "), HasSubstr(" free")));
  EXPECT_FALSE(fs::exists(RunDir("full") / "metrics.jsonl") && !Steps("full").empty());
}

// There is room for what rests there from the start, and none for the gradients beside it.
TEST_F(OffloadFaults, NamesADriveTooSmallForGradientsBeforeTheFirstStep) {
  if (!CanMount()) return SkipWithout("mounts", "mounting is not permitted here");
  ASSERT_EQ(RunProgram(Train("whole", 1)).status, 0);
  const nlohmann::json memory = Steps("whole")[0]["memory"];
  const auto peak = [&](const char* use) { return memory[use]["file"]["peak"].get<double>(); };
  const double resting = peak("parameters") + peak("optimizer_state");
  const double bytes = 2 * (resting + peak("gradients") / 2);
  const ProgramResult result = RunMounted(
      "full", 1, "mount -t tmpfs -o size=" + std::to_string(std::llround(bytes)) + " none");
  EXPECT_EQ(result.status, 2) << result.err;
  EXPECT_THAT(Verdict("full"), AllOf(HasSubstr("reserving space for"), HasSubstr(drive_.string()),
                                     HasSubstr("on host "), HasSubstr(" free")));
  EXPECT_FALSE(fs::exists(RunDir("full") / "metrics.jsonl") && !Steps("full").empty());
}

TEST_F(OffloadFaults, ADriveThatMayOnlyBeReadIsNamed) {
  if (!CanMount()) return SkipWithout("mounts", "mounting is not permitted here");
  const ProgramResult result = RunMounted("closed", 2, "mount -t tmpfs -o ro none");
  EXPECT_EQ(result.status, 2) << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("a file for offload in " + drive_.string()),
                                HasSubstr("on host "), HasSubstr("Read-only file system")));
  EXPECT_FALSE(fs::exists(RunDir("closed"))) << "dsrun has tried it before it starts ranks";
}

TEST_F(OffloadFaults, ARemovedFolderRemovesNothingElse) {
  constexpr int kSteps = 40;
  ASSERT_EQ(RunProgram(Train("whole", kSteps)).status, 0);
  Program program(Train("moved", kSteps));
  ASSERT_TRUE(program.WaitForOutput("step 1")) << program.err();
  fs::permissions(drive_, fs::perms::none);
  ASSERT_TRUE(fs::remove(drive_)) << "it is empty";
  const ProgramResult result = program.Wait();
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(Column(Steps("moved"), "loss"), Column(Steps("whole"), "loss"));
}

TEST_F(OffloadFaults, AReadThatFailsIsNamed) {
  const fs::path backing = folder_.path() / "backing", why_file = folder_.path() / "why_not";
  fs::create_directory(backing);
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a test that is ended leaves no mount
    const FuseMount mount(backing, drive_, {.reads = 200});
    if (!mount.why_not().empty()) {
      std::ofstream(why_file) << mount.why_not();
      ::_exit(kNoMount);
    }
    const int ended = RunProgram(Train("failing", 40)).status;
    // FUSE hides what is unlinked while it is open, and removes it when the kernel says that it was
    // closed, which may be after the process that had it.
    const auto longest = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!fs::is_empty(backing) && std::chrono::steady_clock::now() < longest) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ::_exit(ended);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << status;
  if (WEXITSTATUS(status) == kNoMount) return SkipWithout("fuse", ReadFile(why_file).value());
  EXPECT_EQ(WEXITSTATUS(status), 1);
  EXPECT_THAT(Verdict("failing"),
              AllOf(HasSubstr("reading "), HasSubstr("the offload file of " + drive_.string()),
                    HasSubstr("on host "), HasSubstr("Input/output error")));
  EXPECT_TRUE(fs::is_empty(backing)) << "nothing is left";
}

// Rank after rank is killed somewhere in the steps behind a checkpoint, and the job goes on.
TEST_F(OffloadFaults, KillsAtRandomInstantsChangeNoLossAndLeaveNothing) {
  constexpr int kEvery = 4;
  const int kills = CountKills(/*usual=*/10), all_steps = (kills + 1) * kEvery;
  ASSERT_EQ(RunProgram(Train("whole", all_steps)).status, 0);
  const std::vector<double> expected = Column(Steps("whole"), "loss");
  const double seconds = Column(Steps("whole"), "step_seconds").back();
  Words words = Train("killed", all_steps, {"--save_every", std::to_string(kEvery)});
  words.insert(words.begin() + 1, {"--max_restarts", std::to_string(kills)});
  Program program(words);
  std::mt19937 random(18);
  int killed = 0;
  for (int i = 1; i <= kills; ++i) {
    ASSERT_TRUE(program.WaitForOutput("step-" + std::to_string(i * kEvery))) << program.err();
    // The instant is what is tried, not an order: any is right.
    const auto wait = std::uniform_real_distribution<>(0, seconds * kEvery)(random);
    ::usleep(static_cast<useconds_t>(wait * 1e6));
    if (KillRank("killed", static_cast<int>(random() % 2))) ++killed;
  }
  const ProgramResult result = program.Wait();
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_TRUE(fs::is_empty(drive_)) << "nothing is left";
  EXPECT_GE(killed, kills / 2) << "some instants may lie behind the end of a rank";
  int generations = 0;
  for (const auto& event : Events("killed")) {
    generations = std::max(generations, event.value("generation", 0) + 1);
  }
  EXPECT_GT(generations, killed / 2) << "two kills may end one of them";
  // Steps behind a checkpoint may appear twice, in two generations: the same numbers.
  const auto steps = Steps("killed");
  for (const auto& step : steps) {
    EXPECT_EQ(step["loss"], expected.at(step["step"].get<std::size_t>() - 1)) << step;
  }
  EXPECT_EQ(steps.back()["step"], all_steps);
}

}  // namespace
}  // namespace ds::testing
