// `dsrund --serve`: jobs that take a waiting daemon are like those whose daemon dsrun starts.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/local_daemon.h"
#include "runtime/base/files.h"
#include "tests/support/program.h"

namespace ds::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// Where a process's parent's command can be read: who started the ranks.
constexpr const char* kSayDaemon = "tr '\\0' ' ' < /proc/$PPID/cmdline; echo";

class ServeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directory(runtime());
    fs::permissions(runtime(), fs::perms::owner_all);
  }
  fs::path runtime() const { return folder_.path() / "runtime"; }

  std::unique_ptr<Program> Serve(const std::vector<std::string>& flags = {}) const {
    std::vector<std::string> command = {DS_BIN_DIR "/dsrund", "--serve"};
    command.insert(command.end(), flags.begin(), flags.end());
    auto server = std::make_unique<Program>(
        command, ProgramOptions{.environment = {"XDG_RUNTIME_DIR=" + runtime().string()}});
    EXPECT_TRUE(server->WaitForOutput("dsrund serves at ")) << server->err();
    return server;
  }
  // `prefix` wraps dsrun; `script` is what each rank runs.
  ProgramResult Run(const std::string& prefix, const std::string& script,
                    const std::string& flags = "") {
    const std::string dsrun = prefix + " " DS_BIN_DIR "/dsrun --device cpu --run_dir '" +
                              (folder_.path() / ("run-" + std::to_string(++runs_))).string() +
                              "' " + flags + " -- /bin/sh -c \"$SCRIPT\"";
    return RunProgram({"/bin/sh", "-c", dsrun},
                      {.environment = {"XDG_RUNTIME_DIR=" + runtime().string(), "SCRIPT=" + script,
                                       "GREETING=a b"},
                       .working_directory = folder_.path()});
  }

  TemporaryFolder folder_;
  int runs_ = 0;
};

TEST_F(ServeTest, AJobTakesAWaitingDaemonAndStillGetsItsOwnSurroundings) {
  const auto server = Serve();
  const ProgramResult result =
      Run("umask 027; ulimit -n 777; cd /usr;",
          std::string(kSayDaemon) + "; echo $GREETING; umask; ulimit -n; pwd");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("0@localhost: dsrund --wait_for_job"));
  EXPECT_THAT(result.out, HasSubstr("0@localhost: a b\n"));
  EXPECT_THAT(result.out, HasSubstr("0@localhost: 0027\n"));
  EXPECT_THAT(result.out, HasSubstr("0@localhost: 777\n"));
  EXPECT_THAT(result.out, HasSubstr("0@localhost: /usr\n"));
}

// As dsrun itself takes one.
class HandoverTest : public ServeTest {
 protected:
  void SetUp() override {
    ServeTest::SetUp();
    ::setenv("XDG_RUNTIME_DIR", runtime().c_str(), 1);
    question_.set_job_id("job");
    question_.set_rank_count(1);
    question_.set_program("/bin/sh");
    question_.set_working_directory("/");
  }
  void TearDown() override { ::unsetenv("XDG_RUNTIME_DIR"); }

  StatusOr<std::unique_ptr<cli::LocalDaemon>> Start() const {
    return cli::LocalDaemon::Start(
        {.job_id = "job", .dsrund = DS_BIN_DIR "/dsrund", .take_warm = true, .prepare = question_});
  }
  static std::vector<std::string> Failures(const cli::v1::PrepareResponse& response) {
    std::vector<std::string> names;
    for (const auto& finding : response.findings()) {
      if (finding.level() == cli::v1::Finding::FAIL) names.push_back(finding.name());
    }
    return names;
  }

  cli::v1::PrepareRequest question_;
};

TEST_F(HandoverTest, TheHostIsLookedAtAlongWithTakingTheJob) {
  const auto server = Serve();
  const auto daemon = Start();
  ASSERT_TRUE(daemon.ok()) << daemon.status().message();
  ::kill((*daemon)->pid(), SIGSTOP);  // a call would get no answer
  const auto answer = (*daemon)->Prepare(question_);
  ::kill((*daemon)->pid(), SIGCONT);
  ASSERT_TRUE(answer.ok()) << answer.status().message();
  EXPECT_GT(answer->core_count(), 0u);
  EXPECT_THAT(Failures(*answer), IsEmpty());
}

TEST_F(HandoverTest, AnotherQuestionIsAskedByACall) {
  const auto server = Serve();
  const auto daemon = Start();
  ASSERT_TRUE(daemon.ok()) << daemon.status().message();
  question_.set_program("/no/such/program");
  const auto answer = (*daemon)->Prepare(question_);
  ASSERT_TRUE(answer.ok()) << answer.status().message();
  EXPECT_THAT(Failures(*answer), ElementsAre("program"));
}

TEST_F(HandoverTest, ARefusalComesWithTheCall) {
  const auto server = Serve();
  question_.set_job_id("another");
  const auto daemon = Start();
  ASSERT_TRUE(daemon.ok()) << daemon.status().message();
  EXPECT_EQ((*daemon)->Prepare(question_).status().code(), StatusCode::kNotFound);
  question_.set_job_id("job");
  EXPECT_TRUE((*daemon)->Prepare(question_).ok());
}

TEST_F(ServeTest, WithoutAPoolDsrunStartsItsOwnDaemon) {
  const ProgramResult result = Run("", kSayDaemon);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, Not(HasSubstr("--wait_for_job")));
  EXPECT_TRUE(fs::is_empty(runtime()));
}

TEST_F(ServeTest, MoreJobsThanWaitingDaemons) {
  const auto server = Serve({"--waiting", "1"});
  for (int i = 0; i < 5; ++i) EXPECT_EQ(Run("", "exit 0", "--num_gpus 2").status, 0);
  EXPECT_EQ(Run("", "exit 7").status, 7);
}

TEST_F(ServeTest, JobsShareNothing) {
  const auto server = Serve();
  const std::string daemon = "echo $PPID > ";
  ASSERT_EQ(Run("", daemon + "first; cd /; umask 0").status, 0);
  ASSERT_EQ(Run("", daemon + "second; umask > mask").status, 0);
  const auto first = ReadFile(folder_.path() / "first");
  const auto second = ReadFile(folder_.path() / "second");
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_NE(*first, *second) << "each job has a daemon of its own";
  EXPECT_NE(ReadFile(folder_.path() / "mask").value(), "0000\n");
}

TEST_F(ServeTest, AnotherBuildIsNotTaken) {
  const auto server = Serve();
  const fs::path other = folder_.path() / "bin";
  fs::create_directory(other);
  for (const char* name : {"dsrun", "dsrund"})
    fs::copy_file(fs::path(DS_BIN_DIR) / name, other / name);
  const ProgramResult result =
      RunProgram({(other / "dsrun").string(), "--device", "cpu", "--", "/bin/sh", "-c", kSayDaemon},
                 {.environment = {"XDG_RUNTIME_DIR=" + runtime().string()},
                  .working_directory = folder_.path()});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr((other / "dsrund").string()));
}

TEST_F(ServeTest, ADaemonThatDoesNotAnswerIsNotWaitedForLong) {
  const auto server = Serve({"--waiting", "1"});
  const std::string pool = std::to_string(server->pid());
  const auto children = ReadFile("/proc/" + pool + "/task/" + pool + "/children");
  ASSERT_TRUE(children.ok()) << children.status().message();
  const pid_t waiting = std::stoi(*children);
  ::kill(waiting, SIGSTOP);
  // It finds its offer while the job runs, and ends, for nobody reads its answer.
  const std::string pid = std::to_string(waiting);
  const ProgramResult result = Run("", std::string(kSayDaemon) + "; kill -CONT " + pid +
                                           "; while kill -0 " + pid + "; do sleep 0.01; done");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, Not(HasSubstr("--wait_for_job")));
}

TEST_F(ServeTest, AFolderThatOthersMayEnterIsNotTrusted) {
  const auto server = Serve();
  fs::permissions(runtime() / "dsrund-serve", fs::perms::all);
  const ProgramResult result = Run("", kSayDaemon);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, Not(HasSubstr("--wait_for_job")));
}

TEST_F(ServeTest, ASecondPoolIsRefused) {
  const auto server = Serve();
  const ProgramResult second =
      RunProgram({DS_BIN_DIR "/dsrund", "--serve"},
                 {.environment = {"XDG_RUNTIME_DIR=" + runtime().string()}});
  EXPECT_EQ(second.status, 1);
  EXPECT_THAT(second.err, HasSubstr("another dsrund --serve has "));
  EXPECT_EQ(Run("", "exit 0").status, 0) << "the first one goes on";
}

TEST_F(ServeTest, AKilledPoolIsReplacedByTheNext) {
  auto server = Serve();
  server->Signal(SIGKILL);
  server->Wait();
  server = Serve();
  const ProgramResult result = Run("", kSayDaemon);
  EXPECT_THAT(result.out, HasSubstr("--wait_for_job"));
}

TEST_F(ServeTest, TheRanksEndWithTheirDsrun) {
  const auto server = Serve();
  Program dsrun(
      {DS_BIN_DIR "/dsrun", "--device", "cpu", "--run_dir", (folder_.path() / "run").string(), "--",
       "/bin/sh", "-c", "echo pid $$; exec sleep 600"},
      {.environment = {"XDG_RUNTIME_DIR=" + runtime().string()},
       .working_directory = folder_.path()});
  ASSERT_TRUE(dsrun.WaitForOutput("pid "));
  ASSERT_TRUE(dsrun.WaitForOutput("\n"));
  const pid_t rank = std::stoi(dsrun.out().substr(dsrun.out().find("pid ") + 4));
  const int rank_fd = static_cast<int>(::syscall(SYS_pidfd_open, rank, 0));
  ASSERT_GE(rank_fd, 0);
  dsrun.Signal(SIGKILL);
  dsrun.Wait();
  pollfd ended{rank_fd, POLLIN, 0};
  EXPECT_EQ(::poll(&ended, 1, 20'000), 1) << "the rank outlives its dsrun";
  ::close(rank_fd);
}

TEST_F(ServeTest, NothingIsLeftWhenItEnds) {
  auto server = Serve();
  EXPECT_EQ(Run("", "exit 0").status, 0);
  server->Signal(SIGTERM);
  EXPECT_EQ(server->Wait().status, 0);
  EXPECT_FALSE(fs::exists(runtime() / "dsrund-serve"));
}

}  // namespace
}  // namespace ds::testing
