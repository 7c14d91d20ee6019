// How ranks are started: argv and environment, what they inherit, and what is refused.

#include <gmock/gmock.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include "proto/message_line.h"
#include "runtime/base/files.h"
#include "tests/procs/daemon_job.h"
#include "tests/support/daemon_calls.h"
#include "tests/support/program.h"

namespace ds::procs {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class LaunchTest : public DaemonJob {
 protected:
  // Launches ranks of which one cannot start, and returns what the daemon says about that. No
  // process is left.
  v1::StartFailed FailToStart(const v1::LaunchRequest& request) {
    const auto launched = testing::Launch(client(), request);
    EXPECT_TRUE(launched.ok()) << launched.status().message();
    if (!launched.ok()) return {};
    std::vector<v1::StartFailed> failures;
    Watch(request.generation(), [&](const v1::Event& event) {
      if (event.has_start_failed()) failures.push_back(event.start_failed());
      if (event.has_rank_exited()) {
        EXPECT_TRUE(event.rank_exited().stopping());
      }
    });
    for (const auto pid : launched->pids()) EXPECT_FALSE(Exists(static_cast<pid_t>(pid)));
    EXPECT_EQ(failures.size(), 1U);
    return failures.empty() ? v1::StartFailed() : failures.front();
  }
};

std::vector<std::string> SplitAtNul(const std::string& text) {
  std::vector<std::string> parts;
  for (std::size_t start = 0; start < text.size();) {
    const std::size_t end = text.find('\0', start);
    parts.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  return parts;
}

// Every byte a C string can hold.
std::string AllBytes() {
  std::string bytes;
  for (int c = 1; c < 256; ++c) bytes.push_back(static_cast<char>(c));
  return bytes;
}

TEST_F(LaunchTest, ArgumentsArriveByteForByte) {
  const std::vector<std::string> arguments = {"arguments",       "",  "a b", "$HOME",    "`id`",
                                              "it's \"quoted\"", "*", ";|&", AllBytes(), ""};
  const Outcome outcome = Run(Request(1, arguments));
  EXPECT_EQ(SplitAtNul(outcome.out.at(0)),
            std::vector<std::string>(arguments.begin() + 1, arguments.end()));
}

TEST_F(LaunchTest, TheEnvironmentMatchesTheRequest) {
  v1::LaunchRequest request = Request(1, {"environment"});
  request.set_inherit_environment(false);
  const auto add = [](v1::EnvironmentVariable* variable, const char* name, std::string value) {
    variable->set_name(name);
    variable->set_value(std::move(value));
  };
  add(request.add_environment(), "BYTES", AllBytes());
  add(request.add_environment(), "RANK", "common");
  add(request.add_environment(), "EMPTY", "");
  add(request.mutable_ranks(0)->add_environment(), "RANK", "own");
  const Outcome outcome = Run(request);
  EXPECT_THAT(
      SplitAtNul(outcome.out.at(0)),
      ElementsAre("BYTES=" + AllBytes(), "DSRUN_LINK_FD=3", "EMPTY=", "RANK=own",
                  AllOf(StartsWith("TORCHELASTIC_ERROR_FILE=/"), EndsWith("/error-0.json"))));
}

TEST_F(LaunchTest, ARankInheritsNothingElse) {
  const Outcome outcome = Run(Request(1, {"process"}));
  const std::string& text = outcome.out.at(0);
  EXPECT_NE(text.find("descriptors 0 1 2 3\n"), std::string::npos) << text;
  EXPECT_NE(text.find("has_terminal 0\n"), std::string::npos) << text;
  EXPECT_NE(text.find("leads_group 1\n"), std::string::npos) << text;
  EXPECT_NE(text.find("leads_session 1\n"), std::string::npos) << text;
  EXPECT_NE(text.find("blocks_sigterm 0\n"), std::string::npos) << text;
  EXPECT_NE(text.find("ignores_sigpipe 0\n"), std::string::npos) << text;
  EXPECT_NE(text.find("ignores_sigxfsz 0\n"), std::string::npos) << text;
  EXPECT_NE(text.find("stdin_bytes 0\n"), std::string::npos) << text;
  EXPECT_NE(text.find("working_directory /\n"), std::string::npos) << text;
}

// What calls itself dsrund names a process that is not the guardian's child, as the number of one
// that has ended may be: nobody waits for that process, names it or kills it.
TEST(DaemonStartTest, AProcessThatOnlyHasTheDaemonsNumberIsLeftAlone) {
  const ds::testing::TemporaryFolder folder;
  const std::string dsrund = (folder.path() / "dsrund").string();
  ds::testing::Program stranger({"/bin/sleep", "600"});
  v1::ListenResponse ready;
  ready.set_pid(static_cast<std::uint32_t>(stranger.pid()));
  const std::string script =
      "#!/bin/sh\ncat >&5 <<'END'\n" + v1::EncodeLine(ready) + "END\nexec 5>&-\nexec sleep 600\n";
  ASSERT_TRUE(WriteFileAtomically(dsrund, script, 0700).ok());
  auto daemon = cli::LocalDaemon::Start({.job_id = kJob, .dsrund = dsrund});
  ASSERT_TRUE(daemon.ok()) << daemon.status().message();
  std::string told;
  static_cast<void>((*daemon)->Close([&](const std::string& text) {
    told = text;
    EXPECT_TRUE((*daemon)->Kill());
  }));
  EXPECT_THAT(told, StartsWith("waiting for the guardian of dsrund, process "));
  EXPECT_TRUE(Exists(stranger.pid()));
  stranger.Signal(SIGTERM);
  EXPECT_EQ(stranger.Wait().status, 128 + SIGTERM) << "nobody else has ended it";
}

TEST_F(LaunchTest, ARankIsBoundToItsCores) {
  v1::LaunchRequest request = Request(1, {"process"});
  request.mutable_ranks(0)->add_cores(0);
  const Outcome outcome = Run(request);
  EXPECT_NE(outcome.out.at(0).find("cores 1\n"), std::string::npos) << outcome.out.at(0);
}

TEST_F(LaunchTest, CoresOfWhichOnlySomeAreThereAreRefused) {
  v1::LaunchRequest request = Request(2, {"wait"});
  request.mutable_ranks(0)->add_cores(0);
  request.mutable_ranks(1)->add_cores(0);
  for (const int core : {1021, 1022, 1023}) request.mutable_ranks(1)->add_cores(core);
  const v1::StartFailed failed = FailToStart(request);
  EXPECT_EQ(failed.rank(), 1U);
  EXPECT_EQ(failed.code(), static_cast<int>(StatusCode::kInvalidArgument));
  EXPECT_THAT(
      failed.message(),
      AllOf(StartsWith("rank 1: "),
            HasSubstr("to cores 0,1021-1023; this host allows some of them only, or none")));
}

TEST_F(LaunchTest, JobFilesAreThereAndGoneAtTheEnd) {
  v1::LaunchRequest request = Request(1, {"cat", "@DSRUN_JOB_DIR@/train.json"});
  v1::JobFile* file = request.add_files();
  file->set_name("train.json");
  file->set_content(std::string("{\"a\":\0}", 7));
  const Outcome outcome = Run(request);
  EXPECT_EQ(outcome.out.at(0), file->content());
  const std::filesystem::path folder = daemon().folder();
  EXPECT_FALSE(std::filesystem::exists(folder / "generation-1"));
  EXPECT_EQ(std::filesystem::status(folder).permissions(), std::filesystem::perms::owner_all);
}

TEST_F(LaunchTest, AJobFileMayNotLeaveItsFolder) {
  v1::LaunchRequest request = Request(1, {"exit", "0"});
  request.add_files()->set_name("../escape");
  EXPECT_EQ(testing::Launch(client(), request).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(LaunchTest, SixtyFourRanksStart) {
  const Outcome outcome = Run(Request(64, {"exit", "0"}));
  EXPECT_EQ(outcome.exits.size(), 64U);
  for (const auto& [rank, exit] : outcome.exits) {
    EXPECT_EQ(exit.exit_code(), 0);
    EXPECT_FALSE(exit.stopping());
  }
}

TEST_F(LaunchTest, OneMissingProgramLeavesNoRank) {
  v1::LaunchRequest request = Request(4, {"wait"});
  request.mutable_ranks(3)->set_argv(0, "/no/such/program");
  const auto response = testing::Launch(client(), request);
  EXPECT_EQ(response.status().code(), StatusCode::kNotFound);
  EXPECT_NE(response.status().message().find("rank 3"), std::string::npos);
  EXPECT_NE(response.status().message().find("/no/such/program"), std::string::npos);
  // Nothing stayed, so the same generation may be tried again.
  EXPECT_EQ(Run(Request(4, {"exit", "0"})).exits.size(), 4U);
}

TEST_F(LaunchTest, AProgramThatMayNotBeExecutedLeavesNoRank) {
  v1::LaunchRequest request = Request(4, {"wait"});
  request.mutable_ranks(3)->set_argv(0, "@DSRUN_JOB_DIR@/not-a-program");
  v1::JobFile* file = request.add_files();
  file->set_name("not-a-program");
  file->set_content("just text");
  const auto response = testing::Launch(client(), request);
  EXPECT_EQ(response.status().code(), StatusCode::kPermissionDenied) << response.status().message();
}

TEST_F(LaunchTest, AFailureOfExecveLeavesNoRank) {
  const ds::testing::TemporaryFolder folder;
  const std::string program = (folder.path() / "not-a-program").string();
  ASSERT_TRUE(WriteFileAtomically(program, "just text", 0700).ok());
  v1::LaunchRequest request = Request(4, {"wait"});
  request.mutable_ranks(3)->set_argv(0, program);
  const v1::StartFailed failed = FailToStart(request);
  EXPECT_EQ(failed.rank(), 3U);
  EXPECT_THAT(failed.message(), StartsWith("rank 3: cannot execute " + program));
  // Nothing stayed, so the next generation runs.
  EXPECT_EQ(Run(Request(4, {"exit", "0"}, 2)).exits.size(), 4U);
}

TEST_F(LaunchTest, AWorkingDirectoryMustExist) {
  v1::LaunchRequest request = Request(1, {"exit", "0"});
  request.set_working_directory("/no/such/folder");
  const v1::StartFailed failed = FailToStart(request);
  EXPECT_EQ(failed.code(), static_cast<int>(StatusCode::kNotFound));
  EXPECT_THAT(failed.message(), HasSubstr("working directory /no/such/folder"));
}

TEST_F(LaunchTest, RefusesArgumentsTooLongForExecve) {
  v1::LaunchRequest nul = Request(1, {"arguments", std::string("a\0b", 3)});
  EXPECT_EQ(testing::Launch(client(), nul).status().code(), StatusCode::kInvalidArgument);
  v1::LaunchRequest name = Request(1, {"exit", "0"});
  name.add_environment()->set_name("A=B");
  EXPECT_EQ(testing::Launch(client(), name).status().code(), StatusCode::kInvalidArgument);
  v1::LaunchRequest twice = Request(2, {"exit", "0"});
  twice.mutable_ranks(1)->set_rank(0);
  EXPECT_EQ(testing::Launch(client(), twice).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(testing::Launch(client(), Request(0, {})).status().code(),
            StatusCode::kInvalidArgument);
  v1::LaunchRequest grace = Request(1, {"exit", "0"});
  grace.set_grace_seconds(-1);
  EXPECT_EQ(testing::Launch(client(), grace).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(LaunchTest, TheSameGenerationIsRefusedAndTheNextOneRuns) {
  Run(Request(2, {"exit", "0"}, 1));
  EXPECT_EQ(testing::Launch(client(), Request(2, {"exit", "0"}, 1)).status().code(),
            StatusCode::kAlreadyExists);
  EXPECT_EQ(Run(Request(2, {"exit", "0"}, 2)).exits.size(), 2U);
}

TEST_F(LaunchTest, AGenerationLeavesNoDescriptorInTheDaemon) {
  Run(Request(8, {"exit", "0"}, 1));
  const std::size_t after_one = CountDescriptors(daemon().pid());
  for (std::uint32_t generation = 2; generation <= 10; ++generation) {
    Run(Request(8, {"exit", "0"}, generation));
  }
  EXPECT_EQ(CountDescriptors(daemon().pid()), after_one);
}

TEST_F(LaunchTest, ALaunchWhileRanksRunIsRefused) {
  ASSERT_TRUE(testing::Launch(client(), Request(1, {"wait"}, 1)).ok());
  EXPECT_EQ(testing::Launch(client(), Request(1, {"wait"}, 2)).status().code(),
            StatusCode::kFailedPrecondition);
}

TEST_F(LaunchTest, AnotherJobIsRefused) {
  v1::LaunchRequest request = Request(1, {"exit", "0"});
  request.set_job_id("other-job");
  EXPECT_EQ(testing::Launch(client(), request).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(testing::Watch(client(), {"other-job", 1, 0}, [](const v1::Event&) {}).code(),
            StatusCode::kNotFound);
  v1::StopRequest stop;
  stop.set_job_id("other-job");
  EXPECT_EQ(testing::Stop(client(), stop).status().code(), StatusCode::kNotFound);
}

TEST_F(LaunchTest, PrepareReportsTheHostsResources) {
  v1::PrepareRequest request;
  request.set_job_id(kJob);
  request.set_rank_count(2);
  request.set_program(TestRankPath());
  request.set_working_directory("/");
  request.set_lease_master_port(true);
  const auto response = testing::Prepare(client(), request);
  ASSERT_TRUE(response.ok()) << response.status().message();
  EXPECT_GT(response->master_port(), 0U);
  EXPECT_GT(response->core_count(), 0U);
  for (const v1::Finding& finding : response->findings()) {
    EXPECT_NE(finding.level(), v1::Finding::FAIL) << finding.name() << ": " << finding.message();
  }
  // Asking again changes nothing.
  EXPECT_EQ(testing::Prepare(client(), request)->master_port(), response->master_port());
}

}  // namespace
}  // namespace ds::procs
