// What ranks print, as dsrun shows and keeps it: whole lines, tagged, filtered, collapsed; the same
// on one host or several and after a restart.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <regex>
#include <sstream>

#include "runtime/base/files.h"
#include "runtime/base/unique_fd.h"
#include "tests/places.h"
#include "tests/procs/flood.h"
#include "tests/support/program.h"
#include "tests/support/requirement.h"

namespace ds::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class RankLogsTest : public ::testing::Test {
 protected:
  ProgramResult Run(const std::vector<std::string>& flags, const std::string& script) const {
    std::vector<std::string> command = {DS_BIN_DIR "/dsrun", "--device", "cpu", "--run_dir", "run"};
    command.insert(command.end(), flags.begin(), flags.end());
    command.insert(command.end(), {"--", "/bin/sh", "-c", script});
    return RunProgram(command, {.working_directory = folder_.path()});
  }
  std::string Log(const std::string& name) const {
    const auto text = ReadFile(folder_.path() / "run" / "logs" / name);
    return text.ok() ? *text : text.status().message();
  }

  TemporaryFolder folder_;
};

// How many ranks said `text`, whether their lines were collapsed or not.
int Sayings(const std::string& output, const std::string& text) {
  int count = 0;
  std::istringstream lines(output);
  const std::regex collapsed("\\[[0-9,-]+\\] " + text + " \\(x([0-9]+)\\)");
  const std::regex single("[0-9]+@[^ ]+: " + text);
  for (std::string line; std::getline(lines, line);) {
    std::smatch match;
    if (std::regex_match(line, match, collapsed)) count += std::stoi(match[1]);
    if (std::regex_match(line, single)) ++count;
  }
  return count;
}

TEST_F(RankLogsTest, OnlyTheChosenRanksAreShownAndAllAreKept) {
  const ProgramResult result =
      Run({"--num_gpus", "4", "--log_ranks", "0,2-3"}, "echo out $RANK; echo err $RANK >&2");
  EXPECT_EQ(result.status, 0) << result.err;
  for (const char* rank : {"0", "2", "3"}) {
    EXPECT_THAT(result.out, HasSubstr(std::string("out ") + rank));
    EXPECT_THAT(result.err, HasSubstr(std::string("err ") + rank));
  }
  EXPECT_THAT(result.out, Not(HasSubstr("out 1")));
  EXPECT_THAT(result.err, Not(HasSubstr("err 1")));
  EXPECT_EQ(Log("0/rank-00001.out"), "out 1\n");
  EXPECT_EQ(Log("0/rank-00001.err"), "err 1\n");
}

TEST_F(RankLogsTest, ErrorsOnly) {
  const ProgramResult result = Run({"--errors_only"}, "echo out; echo err >&2");
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(result.err, "0@localhost: err\n");
  EXPECT_EQ(Log("0/rank-00000.out"), "out\n");
}

TEST_F(RankLogsTest, LinesCarryTheirTimeOnRequestAndInTheIndex) {
  const ProgramResult result = Run({"--timestamps"}, "echo one; echo bad >&2; sleep 0.1; echo two");
  EXPECT_TRUE(std::regex_match(
      result.out, std::regex("(20[0-9-]{8}T[0-9:]{8}\\.[0-9]{3}Z 0@localhost: (one|two)\n){2}")))
      << result.out;
  EXPECT_EQ(Log("0/rank-00000.out"), "one\ntwo\n") << "the log has the rank's bytes alone";
}

// The disk is a file system of its own, in the mount namespace of dsrun.
TEST_F(RankLogsTest, AFullDiskIsWaitedForAndNothingIsLost) {
  const std::filesystem::path disk = folder_.path() / "disk";
  std::filesystem::create_directory(disk);
  Program program({"/usr/bin/unshare", "-m", "/bin/sh", "-c",
                   "mount -t tmpfs -o size=1500k none disk || { echo no mounts >&2; exit 77; }; "
                   "head -c 1000000 /dev/zero >disk/other; exec '" DS_BIN_DIR
                   "/dsrun' --device cpu --num_gpus 1 --run_dir disk/run -- /bin/sh -c "
                   "'head -c 1000000 /dev/zero; echo end >&2'"},
                  {.working_directory = folder_.path()});
  if (!program.WaitForOutput("; the job waits until there is space again")) {
    const ProgramResult result = program.Wait();
    if (result.status != 77 && result.err.find("unshare") == std::string::npos)
      FAIL() << result.err;
    return SkipWithout("mounts", result.err);
  }
  const std::filesystem::path seen = "/proc/" + std::to_string(program.pid()) + "/root";
  const std::string log = seen.string() + disk.string() + "/run/logs/0/rank-00000.out";
  const UniqueFd kept(::open(log.c_str(), O_RDONLY | O_CLOEXEC));  // the namespace ends with dsrun
  ASSERT_TRUE(std::filesystem::remove(seen.string() + disk.string() + "/other"));
  const ProgramResult result = program.Wait();
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("has space again; the job continues"));
  EXPECT_EQ(::lseek(kept.get(), 0, SEEK_END), 1'000'000);
}

TEST_F(RankLogsTest, LogsAreRotatedOnRequest) {
  const ProgramResult result = Run({"-q", "--log_max_size", "64K", "--log_max_files", "2"},
                                   "head -c 300000 /dev/zero; echo end");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(Log("0/rank-00000.out"), ::testing::EndsWith("end\n"));
  EXPECT_LE(Log("0/rank-00000.out").size(), 65536U);
  EXPECT_THAT(Log("0/rank-00000.out.2"), HasSubstr("No such file"));
}

TEST_F(RankLogsTest, QuietIsQuiet) {
  const ProgramResult result = Run({"--quiet"}, "echo out; echo err >&2");
  EXPECT_EQ(result.out + result.err, "");
  EXPECT_EQ(Log("0/rank-00000.err"), "err\n");
}

TEST_F(RankLogsTest, ARankThatDoesNotExistIsRefused) {
  const ProgramResult result = Run({"--num_gpus", "2", "--log_ranks", "2"}, "true");
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("--log_ranks: there is no rank 2; the job has 2 ranks"));
  EXPECT_FALSE(std::filesystem::exists(folder_.path() / "run"));
}

TEST_F(RankLogsTest, TheSameLineOfManyRanksIsShownForEach) {
  const ProgramResult result = Run({"--num_gpus", "16"}, "echo the same");
  EXPECT_EQ(Sayings(result.out, "the same"), 16) << result.out;
}

TEST_F(RankLogsTest, TheSameOnSeveralHosts) {
  ASSERT_TRUE(WriteFileAtomically(folder_.path() / "hosts",
                                  "localhost slots=2\n127.0.0.1 slots=2\n127.0.0.2 slots=2\n")
                  .ok());
  const ProgramResult result = Run({"-H", "hosts", "--share_machine", "--log_ranks", "1-4"},
                                   "echo the same; echo own $RANK");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(Sayings(result.out, "the same"), 4) << result.out;
  EXPECT_THAT(result.out, HasSubstr("4@127.0.0.2: own 4\n"));
  EXPECT_THAT(result.out, Not(HasSubstr("own 5")));
  EXPECT_EQ(Log("0/rank-00005.out"), "the same\nown 5\n");
}

TEST_F(RankLogsTest, TheSameAfterARestart) {
  const ProgramResult result =
      Run({"--num_gpus", "2", "--max_restarts", "1", "--log_ranks", "1"},
          "echo try $TORCHELASTIC_RESTART_COUNT of $RANK; test $TORCHELASTIC_RESTART_COUNT = 1");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("1@localhost: try 1 of 1\n"));
  EXPECT_THAT(result.out, Not(HasSubstr("of 0")));
  EXPECT_EQ(Log("1/rank-00000.out"), "try 1 of 0\n");
}

TEST_F(RankLogsTest, BytesLongLinesProgressBarsAndNoFinalNewline) {
  const ProgramResult result = Run(
      {},
      R"(printf '\r 10%%\r 20%%\n\000\377\n'; head -c 3000000 /dev/zero | tr '\0' y; printf '\nend')");
  EXPECT_EQ(result.status, 0) << result.err;
  const std::string kept = Log("0/rank-00000.out");
  EXPECT_EQ(kept, std::string("\r 10%\r 20%\n\0\377\n", 14) + std::string(3000000, 'y') + "\nend");
  EXPECT_THAT(result.out, HasSubstr("0@localhost:  20%\n"));
  EXPECT_THAT(result.out, HasSubstr(std::string("0@localhost: \0\377\n", 16)));
  EXPECT_THAT(result.out, HasSubstr("0@localhost: end\n"));
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), 'y'), 3000000);
}

// The filter is far from done when the rank is, and rests for longer than a lost helper would get.
TEST_F(RankLogsTest, NoLineIsLostInASlowFilter) {
  const ProgramResult result =
      Run({"--quiet"},
          "mkfifo pipe; while read line; do echo $line; case $line in *000) sleep 0.1;; esac; done "
          "<pipe & exec >pipe; exec seq 30000");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(Log("0/rank-00000.out"), RunProgram({"seq", "30000"}).out);
}

// A pipe on standard input is nobody who waits for a question (CI, cron): lines stay whole.
TEST_F(RankLogsTest, LinesAreCompleteWithoutTypedInput) {
  const ProgramResult result =
      RunProgram({DS_BIN_DIR "/dsrun", "--device", "cpu", "--run_dir", "run", "--num_gpus", "1",
                  "--", "sh", "-c", "printf 'loss=0.1'; sleep 0.5; echo 25"},
                 {.working_directory = folder_.path(), .input = "text"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("0@localhost: loss=0.125\n"));
}

TEST_F(RankLogsTest, ReportsTruncatedOutput) {
  const ProgramResult result = Run({"--grace_seconds", "0.1"}, "sleep 900 & echo begun");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("begun\n"));
  EXPECT_THAT(result.err, HasSubstr("its last output may be missing"));
}

// A helper that never ends and is never silent (a monitor in the background) is named, and ended.
TEST_F(RankLogsTest, AForgottenHelperThatWritesDoesNotKeepTheJob) {
  const ProgramResult result =
      Run({"--grace_seconds", "0.1"}, "(while :; do echo still here; sleep 0.05; done) & exit 0");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("processes that it left still write (pid "));
  EXPECT_THAT(result.err, HasSubstr("its last output may be missing"));
}

// The others are stopped when the verdict is there, not when the helper's grace is over.
TEST_F(RankLogsTest, AHelperOfAFailedRankDoesNotHoldTheVerdictUp) {
  const ProgramResult result =
      Run({"--grace_seconds", "3600"},
          "(trap '' TERM; while :; do echo still here; sleep 0.05; done) & exit 7");
  EXPECT_EQ(result.status, 7) << result.err;
}

// A second of 100 MB/s through one daemon; scripts/bench/launch prints how fast it really is.
TEST_F(RankLogsTest, AHundredMegabytesOfEightRanksAreAllThere) {
  constexpr std::size_t kBytes = 12'500'000;
  const ProgramResult result =
      RunProgram({DS_BIN_DIR "/dsrun", "--device", "cpu", "--run_dir", "run", "--num_gpus", "8",
                  "--errors_only", "--", DS_TEST_RANK, "flood", std::to_string(kBytes)},
                 {.working_directory = folder_.path()});
  EXPECT_EQ(result.status, 0) << result.err;
  for (int rank = 0; rank < 8; ++rank) {
    const std::string log = Log("0/rank-0000" + std::to_string(rank) + ".out");
    ASSERT_EQ(log.size(), kBytes);
    const auto [got, expected] = std::mismatch(log.begin(), log.end(), Flood(rank, kBytes).begin());
    EXPECT_EQ(got, log.end()) << "rank " << rank << ", byte " << got - log.begin();
  }
}

TEST_F(RankLogsTest, RanksAreBoundToDifferentCores) {
  // ctest sets OMP_NUM_THREADS, by which nproc goes as well.
  const ProgramResult cores = RunProgram({"env", "-u", "OMP_NUM_THREADS", "nproc"});
  if (std::stoi(cores.out) < 2) return SkipWithout("two_cores", "one core cannot be divided");
  const ProgramResult result =
      Run({"--num_gpus", "2", "--bind_cores_to_rank"},
          "grep Cpus_allowed_list /proc/self/status; echo $OMP_NUM_THREADS");
  if (result.status == 3) return SkipWithout("two_cores", "they are threads of one: " + result.err);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_NE(Log("0/rank-00000.out"), Log("0/rank-00001.out"));
}

TEST_F(RankLogsTest, MoreBoundRanksThanCoresAreRefused) {
  const ProgramResult result = Run({"--num_gpus", "3000", "--bind_cores_to_rank"}, "true");
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("--bind_cores_to_rank: 3000 ranks cannot share "));
}

}  // namespace
}  // namespace ds::testing
