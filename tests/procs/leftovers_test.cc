// What is there when it is over: after 64 ranks have started and stopped a hundred times, and after
// their daemon was killed.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/unique_fd.h"
#include "runtime/process/cgroups.h"
#include "tests/places.h"
#include "tests/support/program.h"
#include "tests/support/requirement.h"
#include "tests/support/without_cgroups.h"

namespace ds::testing {
namespace {

namespace fs = std::filesystem;

constexpr int kRanks = 64;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kTimes = 10;
#else
constexpr int kTimes = 100;
#endif

class LeftoversTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directory(runtime());
    fs::permissions(runtime(), fs::perms::owner_all);
    mark_ = "DSRUN_TEST_MARK=" + folder_.path().string();
  }
  fs::path runtime() const { return folder_.path() / "runtime"; }
  std::vector<std::string> Environment() const {
    return {mark_, "XDG_RUNTIME_DIR=" + runtime().string()};
  }
  // Rank 63 fails once it runs, which stops the others.
  ProgramResult StartAndStop(int time, std::vector<std::string> wrapper = {}) const {
    wrapper.insert(
        wrapper.end(),
        {DS_BIN_DIR "/dsrun", "--device", "cpu", "--num_gpus", std::to_string(kRanks), "--run_dir",
         (folder_.path() / ("run-" + std::to_string(time))).string(), "--quiet", "--", "/bin/sh",
         "-c", "if [ $RANK = 63 ]; then exit 7; fi; exec sleep 600"});
    return RunProgram(wrapper, {.environment = Environment(), .working_directory = folder_.path()});
  }

  // A job whose ranks have children, in their groups and in sessions of their own; up.
  std::unique_ptr<Program> StartFamily(std::vector<std::string> wrapper = {}) const {
    wrapper.insert(wrapper.end(), {DS_BIN_DIR "/dsrun", "--device", "cpu", "--num_gpus", "2",
                                   "--run_dir", (folder_.path() / "run").string(), "--", "/bin/sh",
                                   "-c", "setsid sleep 900 & sleep 900 & echo up $RANK; wait"});
    auto dsrun = std::make_unique<Program>(
        wrapper, ProgramOptions{.environment = Environment(), .working_directory = folder_.path()});
    EXPECT_TRUE(dsrun->WaitForOutput("0@localhost: up 0\n")) << dsrun->err();
    EXPECT_TRUE(dsrun->WaitForOutput("1@localhost: up 1\n")) << dsrun->err();
    return dsrun;
  }
  static std::string NameOf(pid_t pid) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/comm");
    std::string name;
    std::getline(file, name);
    return name;
  }
  // The v2 control group that dsrund has made for the process; "" when there is none.
  static std::string GroupOf(pid_t pid) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/cgroup");
    for (std::string line; std::getline(file, line);) {
      const std::size_t name = line.find("/dsrun-");
      if (line.starts_with("0::") && name != std::string::npos) return line.substr(name + 1);
    }
    return "";
  }
  // The process of the job that is called so.
  pid_t Find(const std::string& name) const {
    for (const pid_t pid : ProcessesWith(mark_)) {
      if (NameOf(pid) == name) return pid;
    }
    ADD_FAILURE() << "there is no " << name;
    return 0;
  }
  // Never of 0, which would be all that runs with this test.
  static void Signal(pid_t pid, int signal) {
    if (pid > 0) ::kill(pid, signal);
  }
  void KillDaemonAndGuardian() const {
    const pid_t daemon = Find("dsrund");
    const pid_t guardian = Find("dsrun-guard");
    Signal(daemon, SIGSTOP);  // else its guardian's end would have it begin to stop
    for (const pid_t pid : {guardian, daemon}) Signal(pid, SIGKILL);
  }

  TemporaryFolder folder_;
  std::string mark_;
};

// A control group below which a test's jobs make theirs, so that no job of another test looks after
// them.
class GroupOfJobs {
 public:
  GroupOfJobs() {
    const fs::path own = FindOwnCgroups().unified;
    if (!own.empty()) path_ = own / ("test-leftovers-" + std::to_string(::getpid()));
    made_ = !own.empty() && ::mkdir(path_.c_str(), 0755) == 0;
  }
  ~GroupOfJobs() {
    if (made_) ::rmdir(path_.c_str());
  }
  GroupOfJobs(const GroupOfJobs&) = delete;
  GroupOfJobs& operator=(const GroupOfJobs&) = delete;

  bool made() const { return made_; }
  const fs::path& path() const { return path_; }
  // In front of a program's words: it runs there.
  std::vector<std::string> Enter() const {
    return {"/bin/sh", "-c", "echo 0 >\"$0/cgroup.procs\" && exec \"$@\"", path_.string()};
  }

 private:
  fs::path path_;
  bool made_ = false;
};

std::vector<fs::path> FoldersIn(const fs::path& folder) {
  std::vector<fs::path> folders;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.is_directory()) folders.push_back(entry.path());
  }
  return folders;
}

constexpr char kNoGroups[] = "ranks get no control group of their own here";

TEST_F(LeftoversTest, OfAHundredJobsOf64Ranks) {
  for (int time = 0; time < kTimes; ++time) {
    const ProgramResult result = StartAndStop(time);
    ASSERT_EQ(result.status, 7) << "time " << time << ": " << result.err;
    ASSERT_TRUE(fs::is_empty(runtime())) << "sockets or folders after time " << time;
  }
  EXPECT_EQ(ProcessesWith(mark_), std::vector<pid_t>());
}

TEST_F(LeftoversTest, OfAKilledDaemon) {
  const auto dsrun = StartFamily();
  const std::string group = GroupOf(Find("sh"));
  EXPECT_TRUE(!group.empty() || !IsRequired("cgroups")) << "the ranks have no group of their own";
  Signal(Find("dsrund"), SIGKILL);
  EXPECT_EQ(dsrun->Wait().status, 4) << dsrun->err();
  if (!group.empty()) EXPECT_FALSE(fs::exists(FindOwnCgroups().unified / group));
  EXPECT_EQ(ProcessesWith(mark_), std::vector<pid_t>());
  EXPECT_TRUE(fs::is_empty(runtime()));
}

TEST_F(LeftoversTest, OfAKilledDaemonWithoutControlGroups) {
  if (!CanHideControlGroups()) {
    return SkipWithout("mounts", "control groups cannot be hidden here");
  }
  const auto dsrun = StartFamily(WithoutControlGroups());
  Signal(Find("dsrund"), SIGKILL);
  EXPECT_EQ(dsrun->Wait().status, 4) << dsrun->err();
  EXPECT_EQ(ProcessesWith(mark_), std::vector<pid_t>());
}

// The ranks end with their daemon. Nothing proves whose those are that they have started: they
// stay.
TEST_F(LeftoversTest, OfADaemonThatWasKilledWithItsGuardianWithoutControlGroupsAreNoRanks) {
  if (!CanHideControlGroups()) {
    return SkipWithout("mounts", "control groups cannot be hidden here");
  }
  const auto dsrun = StartFamily(WithoutControlGroups());
  std::vector<UniqueFd> ranks;
  for (const pid_t pid : ProcessesWith(mark_)) {
    // A rank leads a session. Its children are called "sh", too, until they execute sleep.
    const bool is_rank = NameOf(pid) == "sh" && ::getsid(pid) == pid;
    if (is_rank) ranks.emplace_back(::syscall(SYS_pidfd_open, pid, 0));
  }
  ASSERT_EQ(ranks.size(), 2U);
  KillDaemonAndGuardian();
  EXPECT_EQ(dsrun->Wait().status, 4) << dsrun->err();
  for (const UniqueFd& rank : ranks) {
    pollfd ended{rank.get(), POLLIN, 0};
    EXPECT_EQ(::poll(&ended, 1, /*timeout=*/60'000), 1) << "a rank outlives its daemon";
  }
  EXPECT_EQ(StartAndStop(1).status, 7);
  EXPECT_TRUE(fs::is_empty(runtime()));
  for (const pid_t pid : ProcessesWith(mark_)) {
    EXPECT_EQ(NameOf(pid), "sleep");
    ::kill(pid, SIGKILL);
  }
}

TEST_F(LeftoversTest, OfADaemonThatWasKilledWithItsGuardianAreEndedByDsrun) {
  const GroupOfJobs groups;
  if (!groups.made()) return SkipWithout("cgroups", kNoGroups);
  const auto dsrun = StartFamily(groups.Enter());
  const std::string group = GroupOf(Find("sh"));
  if (group.empty()) return SkipWithout("cgroups", kNoGroups);
  KillDaemonAndGuardian();
  EXPECT_EQ(dsrun->Wait().status, 4) << dsrun->err();
  EXPECT_EQ(ProcessesWith(mark_), std::vector<pid_t>());
  EXPECT_FALSE(fs::exists(groups.path() / group)) << group;
  EXPECT_TRUE(fs::is_empty(runtime()));
}

// The folders of a job are ours by their mark, not by their name.
TEST_F(LeftoversTest, KeepsAUsersFolderWithASimilarName) {
  const fs::path results = runtime() / "dsrun-job-results-2026";
  fs::create_directory(results);
  std::ofstream(results / "metrics.csv") << "a week";
  const fs::path run = runtime() / "dsrun-job-42";
  for (const fs::path& folder : {run, folder_.path() / "another"}) {
    const ProgramResult result =
        RunProgram({DS_BIN_DIR "/dsrun", "--device", "cpu", "--num_gpus", "1", "--run_dir",
                    folder.string(), "--", "/bin/sh", "-c", "echo result"},
                   {.environment = Environment(), .working_directory = folder_.path()});
    EXPECT_EQ(result.status, 0) << result.err;
  }
  EXPECT_TRUE(fs::exists(results / "metrics.csv"));
  EXPECT_TRUE(fs::exists(run / "job.json"));
  fs::remove_all(results);
  fs::remove_all(run);
  EXPECT_TRUE(fs::is_empty(runtime()));
}

// Nobody of the job is left to clean up: the next one does, because the group says whose it was.
TEST_F(LeftoversTest, OfAJobOfWhichAllWereKilledGoWithTheNextJob) {
  const GroupOfJobs groups;
  if (!groups.made()) return SkipWithout("cgroups", kNoGroups);
  const auto dsrun = StartFamily(groups.Enter());
  if (GroupOf(Find("sh")).empty()) return SkipWithout("cgroups", kNoGroups);
  const pid_t agent = Find("dsrun-agent");
  Signal(agent, SIGSTOP);  // else it would see the ends of the others
  KillDaemonAndGuardian();
  dsrun->Signal(SIGKILL);
  Signal(Find("dsrun-keeper"), SIGKILL);  // else it would start another agent
  Signal(agent, SIGKILL);
  EXPECT_EQ(dsrun->Wait().status, 128 + SIGKILL);
  EXPECT_GE(ProcessesWith(mark_).size(), 4U) << "what the ranks have started";
  ASSERT_EQ(StartAndStop(1, groups.Enter()).status, 7);
  EXPECT_EQ(ProcessesWith(mark_), std::vector<pid_t>());
  EXPECT_TRUE(FoldersIn(groups.path()).empty());
}

// Where the other's mark proves nothing: its pid means somebody else here, or nobody.
TEST_F(LeftoversTest, OfAJobInOnePidNamespaceAreNotSeenInOneThatLivesInAnother) {
  const std::vector<std::string> apart = {"unshare", "--pid", "--fork", "--mount-proc"};
  std::vector<std::string> probe = apart;
  probe.push_back("true");
  if (RunProgram(probe).status != 0) return SkipWithout("namespaces", "unshare --pid fails here");
  const GroupOfJobs groups;
  if (!groups.made()) return SkipWithout("cgroups", kNoGroups);
  std::vector<std::string> wrapper = groups.Enter();
  wrapper.insert(wrapper.end(), apart.begin(), apart.end());

  const std::string go = (folder_.path() / "go").string();
  ASSERT_EQ(::mkfifo(go.c_str(), 0600), 0);
  const UniqueFd pipe(::open(go.c_str(), O_RDWR | O_CLOEXEC));
  std::vector<std::string> command = wrapper;
  command.insert(command.end(), {DS_BIN_DIR "/dsrun", "--device", "cpu", "--run_dir",
                                 (folder_.path() / "living").string(), "--", "/bin/sh", "-c",
                                 "echo up; read go <'" + go + "'; echo lives"});
  Program living(command, {.environment = Environment(), .working_directory = folder_.path()});
  ASSERT_TRUE(living.WaitForOutput("up\n")) << living.err();
  if (GroupOf(Find("sh")).empty()) return SkipWithout("cgroups", kNoGroups);
  EXPECT_EQ(StartAndStop(1, wrapper).status, 7);
  ASSERT_EQ(::write(pipe.get(), "go\n", 3), 3);
  const ProgramResult result = living.Wait();
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_NE(result.out.find("lives\n"), std::string::npos) << result.out;
  EXPECT_EQ(ProcessesWith(mark_), std::vector<pid_t>());
  EXPECT_TRUE(FoldersIn(groups.path()).empty());
}

}  // namespace
}  // namespace ds::testing
