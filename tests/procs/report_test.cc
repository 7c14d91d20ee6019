// dsrun report and dsrun checkpoint as programs: what they print and how they end, with a dsrank
// that is missing, broken or fine.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "runtime/base/files.h"
#include "runtime/base/unique_fd.h"
#include "tests/places.h"
#include "tests/support/program.h"
#include "tests/unit/checkpoint/sample_checkpoint.h"

namespace ds::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using Json = nlohmann::json;

class ReportTest : public ::testing::Test {
 protected:
  // dsrun alone in a folder: it looks for dsrank beside itself.
  void SetUp() override { fs::copy_file(fs::path(DS_BIN_DIR) / "dsrun", dsrun_); }

  ProgramResult Dsrun(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), dsrun_.string());
    return RunProgram(arguments, {.working_directory = folder_.path()});
  }
  void WriteDsrank(const std::string& script) {
    ASSERT_TRUE(WriteFileAtomically(folder_.path() / "dsrank", "#!/bin/sh\n" + script, 0755).ok());
  }
  // The row of that name; the exit status must be the one that all rows together mean.
  Json ReportedRow(const std::string& name) {
    const ProgramResult result = Dsrun({"report", "--json"});
    const Json report = Json::parse(result.out);
    EXPECT_EQ(result.status, report["level"] == "fail" ? 3 : 0) << result.out;
    for (const Json& row : report["rows"]) {
      if (row["name"] == name) return row;
    }
    ADD_FAILURE() << "no row " << name << " in " << result.out;
    return {};
  }

  const TemporaryFolder folder_;
  const fs::path dsrun_ = folder_.path() / "dsrun";
};

TEST_F(ReportTest, AMissingDsrankStopsJobs) {
  const ProgramResult result = Dsrun({"report"});
  EXPECT_EQ(result.status, 3);
  EXPECT_THAT(result.out, ::testing::StartsWith("report of host "));
  EXPECT_THAT(result.out, HasSubstr("\nfail  dsrank "));
  EXPECT_THAT(result.out, HasSubstr("would stop a job"));
  std::istringstream lines(result.out);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80U) << line;
}

TEST_F(ReportTest, ADsrankWithoutItsLibrariesNamesThem) {
  WriteDsrank("echo 'dsrank: error while loading shared libraries: libtorch_cpu.so' >&2; exit 127");
  const Json row = ReportedRow("dsrank");
  EXPECT_EQ(row["level"], "fail");
  EXPECT_THAT(row["value"].get<std::string>(), HasSubstr("status 127: dsrank: error while loading "
                                                         "shared libraries: libtorch_cpu.so"));
}

// It holds its output, too.
TEST_F(ReportTest, AProcessThatDsrankHasLeftHoldsUpNothing) {
  WriteDsrank("setsid sleep 600 & echo $! > left; echo '{\"dsrun\":\"9\"}'");
  const Json row = ReportedRow("dsrank");
  const std::string left = *ReadFile(folder_.path() / "left");
  ::kill(std::stoi(left), SIGKILL);
  EXPECT_THAT(row["value"].get<std::string>(), HasSubstr("9"));
}

TEST_F(ReportTest, CtrlCEndsTheProgramsThatItHasAsked) {
  WriteDsrank("echo $$ > asked; exec sleep 600");
  ASSERT_EQ(::mkfifo((folder_.path() / "asked").c_str(), 0600), 0);
  Program dsrun({dsrun_.string(), "report"}, {.working_directory = folder_.path()});
  pid_t asked = 0;
  std::ifstream(folder_.path() / "asked") >> asked;
  const UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, asked, 0)));
  ASSERT_TRUE(process.valid());
  dsrun.Signal(SIGINT);
  EXPECT_EQ(dsrun.Wait().status, 128 + SIGINT);
  pollfd end{process.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&end, 1, 60'000), 1);
}

TEST_F(ReportTest, OutputThatIsLostIsAFailure) {
  const UniqueFd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  Program dsrun({dsrun_.string(), "version"}, {.output_fd = full.get()});
  const ProgramResult result = dsrun.Wait();
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(result.err, "dsrun: standard output: No space left on device\n");
}

TEST_F(ReportTest, AnAnsweringDsrankIsShown) {
  const std::string version = Dsrun({"--version"}).out.substr(std::string("dsrun ").size());
  WriteDsrank("echo '{\"dsrun\":\"" + version.substr(0, version.find('\n')) +
              "\",\"libtorch\":\"2.99.0\",\"compiler\":\"12\"}'");
  EXPECT_EQ(ReportedRow("dsrank")["level"], "ok");
  EXPECT_THAT(ReportedRow("LibTorch")["value"].get<std::string>(), HasSubstr("2.99.0"));
}

class HostfileReportTest : public ReportTest {
 protected:
  void SetUp() override {
    ReportTest::SetUp();
    fs::copy_file(fs::path(DS_BIN_DIR) / "dsrund", folder_.path() / "dsrund");
    WriteHosts("localhost slots=2\n");
  }
  void WriteHosts(const std::string& text) {
    ASSERT_TRUE(WriteFileAtomically(folder_.path() / "hosts", text).ok());
  }
  ProgramResult Report(std::vector<std::string> flags = {}) {
    flags.insert(flags.begin(), {"report", "--hostfile", "hosts"});
    return Dsrun(flags);
  }
};

TEST_F(HostfileReportTest, TheDaemonOfEachHostIsAsked) {
  const ProgramResult result = Report({"--json"});
  const Json report = Json::parse(result.out);
  EXPECT_EQ(result.status, 3) << "there is no dsrank";
  EXPECT_EQ(report["level"], "fail");
  EXPECT_TRUE(report["failed"].empty());
  EXPECT_TRUE(report["differences"].empty());
  ASSERT_EQ(report["hosts"].size(), 1U);
  EXPECT_EQ(report["hosts"][0]["host"], "localhost");
  std::map<std::string, std::string> values;
  for (const Json& row : report["hosts"][0]["rows"]) {
    values[row["name"].get<std::string>()] = row["value"].get<std::string>();
  }
  EXPECT_THAT(values["working_directory"], HasSubstr(" at " + folder_.path().string()));
  EXPECT_THAT(values["dsrank"], HasSubstr("no executable dsrank"));
  EXPECT_EQ(values["clock"], "in step");
  EXPECT_FALSE(values["kernel"].empty());
  EXPECT_FALSE(values["Python"].empty());
}

TEST_F(HostfileReportTest, TheTableNamesTheHostsOfAProblem) {
  const ProgramResult result = Report();
  EXPECT_EQ(result.status, 3);
  EXPECT_THAT(result.out, ::testing::StartsWith("report of 1 host\n"));
  EXPECT_THAT(result.out, HasSubstr("\nwhat would stop a job\nfail  dsrank      localhost: "));
  std::istringstream lines(result.out);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80U) << line;
  EXPECT_FALSE(fs::exists(folder_.path() / "runs")) << "a report is no job";
}

TEST_F(HostfileReportTest, AHostThatTheFilterExcludesIsNotAsked) {
  WriteHosts("localhost slots=1\nno-such-host.invalid slots=1\n");
  const Json report = Json::parse(Report({"--include", "localhost", "--json"}).out);
  EXPECT_EQ(report["hosts"].size(), 1U);
  EXPECT_TRUE(report["failed"].empty());
}

// The loop of dsrund reaps children, too.
TEST_F(HostfileReportTest, TheStatusOfAskedProgramsIsKept) {
  WriteDsrank("echo 'cannot open shared object file' >&2; exit 127");
  for (int round = 0; round < 20; ++round) {
    const ProgramResult result = Report();
    EXPECT_EQ(result.status, 3);
    EXPECT_THAT(result.out, HasSubstr("127: cannot open shared object file"));
  }
}

TEST_F(HostfileReportTest, SparesAreAskedToo) {
  WriteHosts("localhost slots=1\nno-such-host.invalid slots=1 spare\n");
  const Json report = Json::parse(Report({"--json"}).out);
  EXPECT_EQ(report["hosts"].size(), 1U);
  ASSERT_EQ(report["failed"].size(), 1U);
  EXPECT_EQ(report["failed"][0]["host"], "no-such-host.invalid");
}

TEST_F(HostfileReportTest, WhatAJobRequiresIsJudged) {
  if (fs::exists("/proc/driver/nvidia")) GTEST_SKIP() << "this machine has GPUs";
  const ProgramResult result = Report({"--device", "cuda"});
  EXPECT_EQ(result.status, 3);
  EXPECT_THAT(result.out, HasSubstr("CUDA was asked for and this host has no GPU"));
}

TEST_F(HostfileReportTest, StatusesOfItsOwnCanBeDistinct) {
  const ProgramResult result = Dsrun({"--exit_codes", "distinct", "report", "--hostfile", "hosts"});
  EXPECT_EQ(result.status, 243) << "there is no dsrank";
}

TEST_F(HostfileReportTest, ADsrundThatDoesNotStartFailsItsHostAlone) {
  ASSERT_TRUE(WriteFileAtomically(folder_.path() / "dsrund", "#!/bin/sh\nexit 1\n", 0755).ok());
  const ProgramResult result = Report({"--json"});
  EXPECT_EQ(result.status, 3) << result.err;
  const Json report = Json::parse(result.out);
  ASSERT_EQ(report["failed"].size(), 1U);
  EXPECT_EQ(report["failed"][0]["host"], "localhost");
}

TEST_F(HostfileReportTest, AMissingHostfileIsAnError) {
  fs::remove(folder_.path() / "hosts");
  const ProgramResult result = Report();
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("hosts"));
}

TEST_F(ReportTest, VerifyEndsWithSixAndNamesTheDamage) {
  const fs::path step = checkpoint::CommitSample(folder_.path() / "checkpoints", 7);
  EXPECT_EQ(Dsrun({"checkpoint", "verify", step.string() + "/"}).status, 0);
  checkpoint::FlipBit(step / "rank-00000.bin", 11);
  const ProgramResult result = Dsrun({"checkpoint", "verify", "."});
  EXPECT_EQ(result.status, 6);
  EXPECT_THAT(result.out, HasSubstr("rank-00000.bin: tensor 'weight'"));
}

}  // namespace
}  // namespace ds::testing
