// Reading a host's facts from a folder that looks like its root, asking dsrank, and the table.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/report/read_host.h"
#include "cli/report/rows.h"
#include "cli/report/tried_facts.h"
#include "tests/support/program.h"

namespace ds::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ReadHostTest : public ::testing::Test {
 protected:
  void Write(const fs::path& path, const std::string& text) {
    fs::create_directories((root_.path() / path).parent_path());
    std::ofstream(root_.path() / path) << text;
  }
  HostFacts Read() {
    return ReadHost({.root = root_.path(), .run_directory = root_.path() / "a/run/to/be"});
  }
  const ds::testing::TemporaryFolder root_;
};

TEST_F(ReadHostTest, AnEmptyRootGivesNothingAndFailsNowhere) {
  const HostFacts facts = Read();
  EXPECT_EQ(facts.kernel, "");
  EXPECT_THAT(facts.processor.features, IsEmpty());
  EXPECT_EQ(facts.processor.numa_nodes, 1);
  EXPECT_FALSE(facts.memory.total.has_value());
  EXPECT_FALSE(facts.shared_memory.has_value());
  EXPECT_FALSE(facts.limits.open_files.has_value());
  EXPECT_THAT(facts.gpus, IsEmpty());
  EXPECT_THAT(facts.interfaces, IsEmpty());
}

TEST_F(ReadHostTest, ReadsProcessorAndMemory) {
  Write("proc/cpuinfo",
        "processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nflags\t\t: fpu avx2 amx_tile\n\n"
        "processor\t: 1\nmodel name\t: Other\n");
  Write("sys/devices/system/cpu/online", "0-15\n");
  Write("proc/self/status", "Name:\tdsrun\nCpus_allowed_list:\t0-2,8\n");
  Write("sys/fs/cgroup/cpu.max", "250000 100000\n");
  Write("sys/devices/system/node/online", "0-1\n");
  Write("proc/meminfo", "MemTotal:       16384 kB\nMemAvailable:    4096 kB\n");
  Write("sys/fs/cgroup/memory.max", "8388608\n");
  const HostFacts facts = Read();
  EXPECT_EQ(facts.processor.model, "Some CPU @ 2 GHz");
  EXPECT_THAT(facts.processor.features, ElementsAre("fpu", "avx2", "amx_tile"));
  EXPECT_EQ(facts.processor.cores, 16);
  EXPECT_EQ(facts.processor.usable_cores, 4);
  EXPECT_EQ(facts.processor.quota_cores, 2.5);
  EXPECT_EQ(facts.processor.numa_nodes, 2);
  EXPECT_EQ(facts.memory.total, 16384U * 1024);
  EXPECT_EQ(facts.memory.available, 4096U * 1024);
  EXPECT_EQ(facts.memory.limit, 8388608U);
}

TEST_F(ReadHostTest, NoLimitIsNoNumber) {
  Write("sys/fs/cgroup/cpu.max", "max 100000\n");
  Write("sys/fs/cgroup/memory.max", "max\n");
  Write("proc/self/limits",
        "Limit                     Soft Limit           Hard Limit           Units     \n"
        "Max open files            1024                 4096                 files     \n"
        "Max locked memory         unlimited            unlimited            bytes     \n");
  const HostFacts facts = Read();
  EXPECT_FALSE(facts.processor.quota_cores.has_value());
  EXPECT_FALSE(facts.memory.limit.has_value());
  EXPECT_EQ(facts.limits.open_files, 1024U);
  EXPECT_EQ(facts.limits.locked_memory, LimitFacts::kUnlimited);
}

TEST_F(ReadHostTest, ReadsDevices) {
  Write("proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\n"
        "GCC version:  gcc version 12.2.0\n");
  Write("proc/driver/nvidia/gpus/0000:07:00.0/information", "Model: \t\t NVIDIA H100\nIRQ: 5\n");
  Write("proc/driver/nvidia/gpus/0000:0a:00.0/other", "");
  Write("sys/class/net/lo/type", "772\n");
  Write("sys/class/net/eth0/type", "1\n");
  Write("sys/class/net/eth0/operstate", "up\n");
  Write("sys/class/net/eth0/speed", "25000\n");
  Write("sys/class/net/veth1/type", "1\n");
  Write("sys/class/net/veth1/speed", "-1\n");
  Write("sys/class/infiniband/mlx5_0/node_type", "1: CA\n");
  const HostFacts facts = Read();
  EXPECT_EQ(facts.gpu_driver, "535.104.05");
  EXPECT_THAT(facts.gpus, ElementsAre("NVIDIA H100", "0000:0a:00.0"));
  ASSERT_EQ(facts.interfaces.size(), 2U);
  EXPECT_EQ(facts.interfaces[0].name, "eth0");
  EXPECT_TRUE(facts.interfaces[0].up);
  EXPECT_EQ(facts.interfaces[0].megabits_per_second, 25000U);
  EXPECT_FALSE(facts.interfaces[1].up);
  EXPECT_FALSE(facts.interfaces[1].megabits_per_second.has_value());
  EXPECT_EQ(facts.infiniband_devices, 1);
}

TEST_F(ReadHostTest, TheDiskIsThatOfTheNearestFolderThatExists) {
  fs::create_directories(root_.path() / "a");
  const HostFacts facts = Read();
  ASSERT_TRUE(facts.run_directory.has_value());
  EXPECT_EQ(facts.run_directory->path, root_.path() / "a");
  EXPECT_TRUE(facts.run_directory->writable);
  EXPECT_GT(facts.run_directory->total, 0U);
}

TEST(TryOffload, LeavesNoFiles) {
  const ds::testing::TemporaryFolder folder;
  const OffloadFacts facts = TryOffload(folder.path());
  EXPECT_EQ(facts.problem, "");
  EXPECT_FALSE(facts.file_system.empty());
  EXPECT_TRUE(fs::is_empty(folder.path()));
  EXPECT_THAT(TryOffload("/nonexistent/drive").problem, HasSubstr("/nonexistent/drive on host "));
}

TEST(DsrankFacts, AreReadFromItsAnswer) {
  const DsrankFacts facts = ParseDsrankFacts(
      R"({"dsrun":"0.1.0","libtorch":"2.11.0","compiler":"12.2.0","cpu_capability":"AVX512",
          "amx":{"advertised":true,"faults":true},
          "cuda":{"plugin":true,"devices":4,"cuda":"13.0","nccl":"2.28.9"}})");
  EXPECT_EQ(facts.problem, "");
  EXPECT_EQ(facts.libtorch, "2.11.0");
  EXPECT_TRUE(facts.amx_faults);
  EXPECT_EQ(facts.cuda_devices, 4);
  EXPECT_EQ(facts.nccl, "2.28.9");
}

TEST(DsrankFacts, StrangeAnswersAreAProblemOrEmpty) {
  EXPECT_NE(ParseDsrankFacts("no JSON").problem, "");
  EXPECT_NE(ParseDsrankFacts("[1,2]").problem, "");
  const DsrankFacts facts = ParseDsrankFacts(R"({"libtorch":{},"amx":3,"cuda":{"devices":-1}})");
  EXPECT_EQ(facts.libtorch, "");
  EXPECT_FALSE(facts.amx_faults);
  EXPECT_EQ(facts.cuda_devices, 0);
}

TEST(DsrankFacts, AProgramThatIsMissingOrFailsIsAProblem) {
  EXPECT_THAT(AskDsrank("/nowhere/dsrank").problem, HasSubstr("/nowhere/dsrank"));
  EXPECT_THAT(AskDsrank("/bin/false").problem, HasSubstr("status 1"));
}

TEST(RunAndRead, ReturnsBothStreamsAndTheStatus) {
  const auto output =
      RunAndRead({"/bin/sh", "-c", "echo one; echo two >&2; exit 7"}, std::chrono::seconds(60));
  ASSERT_TRUE(output.ok()) << output.status().message();
  EXPECT_EQ(output->out, "one\n");
  EXPECT_EQ(output->err, "two\n");
  EXPECT_EQ(output->exit_status, 7);
  EXPECT_EQ(RunAndRead({"/bin/sh", "-c", "kill -9 $$"}, std::chrono::seconds(60))->exit_status,
            137);
}

TEST(RunAndRead, OneThatDoesNotAnswerIsKilled) {
  const auto output =
      RunAndRead({"/usr/bin/tail", "-f", "/dev/null"}, std::chrono::milliseconds(20));
  EXPECT_EQ(output.status().code(), StatusCode::kDeadlineExceeded);
}

TEST(ReportText, FitsEightyColumnsAndLosesNoWord) {
  const std::string words =
      "a value that is so long that it does not fit into one line of a "
      "terminal and has to be wrapped at least once or twice";
  const std::vector<ReportRow> rows = {{"short", "fine"},
                                       {"GPU driver", words, Level::kWarn, words},
                                       {"path", std::string(150, 'x'), Level::kFail, "move it"}};
  std::istringstream table(FormatReportTable("worker-1", rows));
  std::string joined;
  for (std::string line; std::getline(table, line);) {
    EXPECT_LE(line.size(), 80U) << line;
    std::istringstream text(line);
    for (std::string word; text >> word;) joined += word + " ";
  }
  EXPECT_THAT(joined, HasSubstr("warn GPU driver " + words + " > a value"));
  EXPECT_THAT(joined, HasSubstr("1 would stop a job, 1 to look at"));
}

TEST(ReportText, JsonHoldsEveryRow) {
  const auto json = FormatReportJson("worker-1", {{"a", "1"}, {"b", "2", Level::kWarn, "do"}});
  EXPECT_EQ(json["host"], "worker-1");
  EXPECT_EQ(json["level"], "warn");
  EXPECT_EQ(json["rows"][1]["name"], "b");
  EXPECT_EQ(json["rows"][1]["hint"], "do");
}

}  // namespace
}  // namespace ds::cli
