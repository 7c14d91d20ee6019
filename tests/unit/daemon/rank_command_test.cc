#include "daemon/ranks/rank_command.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <string>
#include <vector>

#include "daemon/inspect/find_program.h"
#include "tests/support/program.h"

namespace ds::daemon {
namespace {

using Strings = std::vector<std::string>;

constexpr char kErrorFile[] = "TORCHELASTIC_ERROR_FILE=/job/error-0.json";

class RankCommandTest : public ::testing::Test {
 protected:
  RankCommandTest() {
    request_.set_working_directory("/");
    request_.add_ranks()->add_argv("/bin/true");
    host_.environment = {"PATH=/bin", "HOME=/root", "KEPT=1"};
    host_.job_directory = "/job";
  }
  static void Set(v1::EnvironmentVariable* variable, const char* name, const char* value) {
    variable->set_name(name);
    variable->set_value(value);
  }
  StatusOr<RankCommand> Make() const { return MakeRankCommand(request_, 0, host_); }
  StatusCode Refusal() const { return Make().status().code(); }

  v1::LaunchRequest request_;
  HostContext host_;
};

TEST_F(RankCommandTest, RankVariablesOverrideTheJobsAndThoseTheDaemons) {
  request_.set_inherit_environment(true);
  Set(request_.add_environment(), "HOME", "/job-home");
  Set(request_.add_environment(), "JOB", "1");
  Set(request_.mutable_ranks(0)->add_environment(), "JOB", "2");
  EXPECT_EQ(Make()->environment, Strings({"DSRUN_LINK_FD=3", "HOME=/job-home", "JOB=2", "KEPT=1",
                                          "PATH=/bin", kErrorFile}));
}

TEST_F(RankCommandTest, WithoutInheritanceTheDaemonsVariablesAreNotThere) {
  Set(request_.add_environment(), "JOB", "1");
  EXPECT_EQ(Make()->environment, Strings({"DSRUN_LINK_FD=3", "JOB=1", kErrorFile}));
}

TEST_F(RankCommandTest, CommonArgumentsAreThoseOfEachRankWithItsOwnAmongThem) {
  request_.mutable_ranks(0)->clear_argv();
  for (const char* word : {"/bin/true", "a", "b"}) request_.add_argv(word);
  EXPECT_EQ(Make()->argv, Strings({"/bin/true", "a", "b"}));
  request_.mutable_ranks(0)->set_own_argument("--local_rank=0");
  EXPECT_EQ(Make()->argv, Strings({"/bin/true", "a", "b"})) << "it has no position";
  request_.set_own_argument_position(1);
  EXPECT_EQ(Make()->argv, Strings({"/bin/true", "--local_rank=0", "a", "b"}));
  request_.set_own_argument_position(3);
  EXPECT_EQ(Make()->argv, Strings({"/bin/true", "a", "b", "--local_rank=0"}));
  request_.mutable_ranks(0)->add_argv("/bin/echo");
  EXPECT_EQ(Make()->argv, Strings({"/bin/echo"})) << "the rank's own";
}

TEST_F(RankCommandTest, TheSearchForACommonProgramIsTold) {
  request_.mutable_ranks(0)->clear_argv();
  request_.add_argv("true");
  std::vector<std::string> steps;
  const auto commands =
      MakeRankCommands(request_, host_, [&](const std::string& step) { steps.push_back(step); });
  ASSERT_TRUE(commands.ok()) << commands.status().message();
  EXPECT_EQ(steps, Strings({"rank 0: looking for program true in PATH"}));
}

TEST_F(RankCommandTest, TheJobDirectoryIsPutIntoArguments) {
  request_.mutable_ranks(0)->add_argv("@DSRUN_JOB_DIR@/a:@DSRUN_JOB_DIR@/b");
  request_.mutable_ranks(0)->add_argv("@DSRUN_JOB_DIR");
  request_.add_files()->set_name("a");
  EXPECT_EQ(Make()->argv, Strings({"/bin/true", "/job/a:/job/b", "@DSRUN_JOB_DIR"}));
}

TEST_F(RankCommandTest, AProgramOfTheUsersKeepsTheTextOfTheJobDirectory) {
  request_.mutable_ranks(0)->add_argv("@DSRUN_JOB_DIR@");
  EXPECT_EQ(Make()->argv, Strings({"/bin/true", "@DSRUN_JOB_DIR@"}));
}

TEST_F(RankCommandTest, MaskAndLimits) {
  EXPECT_EQ(Make()->settings.umask, kInheritedUmask);
  request_.set_umask(027);
  v1::RankLimit* limit = request_.add_limits();
  limit->set_name("nofile");
  limit->set_soft(10);
  limit->set_hard(20);
  EXPECT_EQ(Make()->settings.umask, 027U);
  EXPECT_EQ(Make()->limits.at(0).resource, RLIMIT_NOFILE);
  EXPECT_EQ(Make()->limits.at(0).amounts.rlim_max, 20U);
  limit->set_soft(21);
  EXPECT_EQ(Refusal(), StatusCode::kInvalidArgument);
  limit->set_name("files");
  limit->set_soft(1);
  EXPECT_EQ(Refusal(), StatusCode::kInvalidArgument);
}

TEST_F(RankCommandTest, RanksLeaveThreadsForTheirDaemon) {
  EXPECT_TRUE(Make()->limits.empty()) << "there is no limit";
  host_.processes = {100, 200};
  ASSERT_EQ(Make()->limits.size(), 1U);
  EXPECT_EQ(Make()->limits[0].resource, RLIMIT_NPROC);
  EXPECT_EQ(Make()->limits[0].amounts.rlim_cur, 84U);
  EXPECT_EQ(Make()->limits[0].amounts.rlim_max, 200U);
  host_.processes.rlim_cur = 20;
  EXPECT_EQ(Make()->limits[0].amounts.rlim_cur, 15U);
  v1::RankLimit* limit = request_.add_limits();
  limit->set_name("nproc");
  limit->set_soft(90);
  limit->set_hard(95);
  ASSERT_EQ(Make()->limits.size(), 1U);
  EXPECT_EQ(Make()->limits[0].amounts.rlim_cur, 90U) << "the user's own wish";
}

TEST_F(RankCommandTest, RanksGetTheUsersLimitOfOpenFiles) {
  host_.open_files = {1024, 4096};
  ASSERT_EQ(Make()->limits.size(), 1U);
  EXPECT_EQ(Make()->limits[0].resource, RLIMIT_NOFILE);
  EXPECT_EQ(Make()->limits[0].amounts.rlim_cur, 1024U);
  EXPECT_EQ(Make()->limits[0].amounts.rlim_max, 4096U);
  v1::RankLimit* limit = request_.add_limits();
  limit->set_name("nofile");
  limit->set_soft(10);
  limit->set_hard(20);
  ASSERT_EQ(Make()->limits.size(), 1U);
  EXPECT_EQ(Make()->limits[0].amounts.rlim_cur, 10U) << "the user's own wish";
}

TEST_F(RankCommandTest, AnEmptyProgramIsDsrank) {
  request_.mutable_ranks(0)->set_argv(0, "");
  EXPECT_EQ(Refusal(), StatusCode::kNotFound);
  host_.dsrank = "/opt/dsrun/dsrank";
  EXPECT_EQ(Make()->executable, "/opt/dsrun/dsrank");
  EXPECT_EQ(Make()->argv, Strings({"/opt/dsrun/dsrank"}));
}

TEST_F(RankCommandTest, APlainNameIsSearchedInTheRanksPath) {
  request_.mutable_ranks(0)->set_argv(0, "true");
  request_.set_inherit_environment(true);
  EXPECT_EQ(Make()->executable, "/bin/true");
  EXPECT_EQ(Make()->argv, Strings({"true"}));
  Set(request_.add_environment(), "PATH", "/no/such/folder");
  EXPECT_EQ(Refusal(), StatusCode::kNotFound);
}

TEST_F(RankCommandTest, RefusesArgumentsTooLongForExecve) {
  request_.mutable_ranks(0)->add_argv(std::string("a\0b", 3));
  EXPECT_EQ(Refusal(), StatusCode::kInvalidArgument);
  request_.mutable_ranks(0)->clear_argv();
  EXPECT_EQ(Refusal(), StatusCode::kInvalidArgument);
}

TEST_F(RankCommandTest, BadVariablesAreRefused) {
  for (const std::string& name : {std::string(), std::string("A=B"), std::string("A\0B", 3)}) {
    request_.clear_environment();
    Set(request_.add_environment(), "", "value");
    request_.mutable_environment(0)->set_name(name);
    EXPECT_EQ(Refusal(), StatusCode::kInvalidArgument) << name;
  }
  request_.clear_environment();
  request_.add_environment()->set_name("A");
  request_.mutable_environment(0)->set_value(std::string("\0", 1));
  EXPECT_EQ(Refusal(), StatusCode::kInvalidArgument);
}

class FindProgramTest : public ::testing::Test {
 protected:
  void MakeFile(const std::string& name, mode_t mode) const {
    const auto path = folder_.path() / name;
    std::ofstream(path) << "#!/bin/true\n";
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
  }
  ds::testing::TemporaryFolder folder_;
};

TEST_F(FindProgramTest, TheFirstExecutableInPathIsTaken) {
  std::filesystem::create_directory(folder_.path() / "one");
  std::filesystem::create_directory(folder_.path() / "two");
  MakeFile("one/program", 0644);
  MakeFile("two/program", 0755);
  const std::string path =
      (folder_.path() / "one").string() + ":" + (folder_.path() / "two").string();
  EXPECT_EQ(*FindProgram("program", path, "/"), (folder_.path() / "two/program").string());
}

TEST_F(FindProgramTest, DistinguishesForbiddenFromMissingPrograms) {
  MakeFile("program", 0644);
  EXPECT_EQ(FindProgram("program", folder_.path().string(), "/").status().code(),
            StatusCode::kPermissionDenied);
  EXPECT_EQ(FindProgram("./program", "", folder_.path()).status().code(),
            StatusCode::kPermissionDenied);
  EXPECT_EQ(FindProgram("./other", "", folder_.path()).status().code(), StatusCode::kNotFound);
}

TEST_F(FindProgramTest, AProgramInTheWorkingDirectoryIsSuggested) {
  MakeFile("program", 0755);
  const auto found = FindProgram("program", "/bin", folder_.path());
  EXPECT_EQ(found.status().code(), StatusCode::kNotFound);
  EXPECT_NE(found.status().message().find("'./program'"), std::string::npos);
  EXPECT_EQ(*FindProgram("./program", "/bin", folder_.path()), "./program");
  EXPECT_EQ(*FindProgram("program", "/bin:", folder_.path()), "./program");
}

}  // namespace
}  // namespace ds::daemon
