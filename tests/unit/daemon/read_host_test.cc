// Reading a host's facts from a folder that looks like its root, and asking programs.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "daemon/inspect/child_output.h"
#include "daemon/inspect/dsrank_facts.h"
#include "daemon/inspect/gpu_users.h"
#include "daemon/inspect/inspect_host.h"
#include "daemon/inspect/read_host.h"
#include "tests/support/program.h"

namespace ds::daemon {
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
  void EnterCgroup(const std::string& group) {
    Write("proc/self/cgroup", "0::" + group + "\n");
    Write("proc/self/mountinfo", "33 30 0:29 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  }
  v1::HostFacts Read() {
    v1::HostFacts facts;
    ReadResources(root_.path(), &facts);
    ReadDescription(root_.path(), &facts);
    ReadGpus(root_.path(), &facts);
    CompleteGpus(&facts);
    return facts;
  }
  const ds::testing::TemporaryFolder root_;
};

TEST_F(ReadHostTest, AnEmptyRootGivesNothingAndFailsNowhere) {
  const v1::HostFacts facts = Read();
  EXPECT_EQ(facts.kernel(), "");
  EXPECT_THAT(facts.processor().features(), IsEmpty());
  EXPECT_EQ(facts.processor().numa_nodes(), 1U);
  EXPECT_FALSE(facts.memory().has_total());
  EXPECT_TRUE(facts.shared_memory().missing());
  EXPECT_FALSE(facts.limits().has_open_files());
  EXPECT_THAT(facts.gpus(), IsEmpty());
  EXPECT_THAT(facts.interfaces(), IsEmpty());
}

TEST_F(ReadHostTest, ReadsProcessorAndMemory) {
  Write("proc/cpuinfo",
        "processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nflags\t\t: fpu avx2 amx_tile\n\n"
        "processor\t: 1\nmodel name\t: Other\n");
  Write("sys/devices/system/cpu/online", "0-15\n");
  Write("proc/self/status", "Name:\tdsrun\nCpus_allowed_list:\t0-2,8\n");
  EnterCgroup("/job/rank");
  Write("sys/fs/cgroup/job/cpu.max", "250000 100000\n");
  Write("sys/fs/cgroup/job/rank/cpu.max", "max 100000\n");
  Write("sys/devices/system/node/online", "0-1\n");
  Write("proc/meminfo", "MemTotal:       16384 kB\nMemAvailable:    4096 kB\n");
  Write("sys/fs/cgroup/job/memory.max", "8388608\n");
  Write("sys/fs/cgroup/job/memory.current", "6291456\n");
  Write("sys/fs/cgroup/job/rank/memory.events", "oom_kill 0\n");
  const v1::HostFacts facts = Read();
  EXPECT_EQ(facts.processor().model(), "Some CPU @ 2 GHz");
  EXPECT_THAT(facts.processor().features(), ElementsAre("fpu", "avx2", "amx_tile"));
  EXPECT_EQ(facts.processor().cores(), 16U);
  EXPECT_EQ(facts.processor().usable_cores(), 4U);
  EXPECT_EQ(facts.processor().quota_cores(), 2.5);
  EXPECT_EQ(facts.processor().numa_nodes(), 2U);
  EXPECT_EQ(facts.memory().total(), 16384U * 1024);
  EXPECT_EQ(facts.memory().available(), 2048U * 1024) << "what the group has left";
  EXPECT_EQ(facts.memory().limit(), 8388608U);
}

TEST_F(ReadHostTest, NoLimitIsNoNumber) {
  EnterCgroup("/");
  Write("sys/fs/cgroup/cpu.max", "max 100000\n");
  Write("sys/fs/cgroup/memory.max", "max\n");
  Write("sys/fs/cgroup/memory.events", "oom_kill 0\n");
  Write("proc/self/limits",
        "Limit                     Soft Limit           Hard Limit           Units     \n"
        "Max open files            1024                 4096                 files     \n"
        "Max locked memory         unlimited            unlimited            bytes     \n");
  const v1::HostFacts facts = Read();
  EXPECT_FALSE(facts.processor().has_quota_cores());
  EXPECT_FALSE(facts.memory().has_limit());
  EXPECT_EQ(facts.limits().open_files(), 1024U);
  EXPECT_EQ(facts.limits().locked_memory(), UINT64_MAX);
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
  const v1::HostFacts facts = Read();
  EXPECT_EQ(facts.gpu_driver(), "535.104.05");
  ASSERT_EQ(facts.gpus_size(), 2);
  EXPECT_EQ(facts.gpus(0).model(), "NVIDIA H100");
  EXPECT_EQ(facts.gpus(1).model(), "0000:0a:00.0");
  ASSERT_EQ(facts.interfaces_size(), 2);
  EXPECT_EQ(facts.interfaces(0).name(), "eth0");
  EXPECT_TRUE(facts.interfaces(0).up());
  EXPECT_EQ(facts.interfaces(0).megabits_per_second(), 25000U);
  EXPECT_FALSE(facts.interfaces(1).up());
  EXPECT_FALSE(facts.interfaces(1).has_megabits_per_second());
  EXPECT_EQ(facts.infiniband_devices(), 1U);
}

TEST_F(ReadHostTest, AFolderIsReadWithItsProblem) {
  fs::create_directories(root_.path() / "a");
  const fs::path nearest = FindNearestExisting(root_.path() / "a/run/to/be");
  EXPECT_EQ(nearest, root_.path() / "a");
  const v1::FolderFacts facts = ReadFolder(nearest.string());
  EXPECT_EQ(facts.problem(), "");
  EXPECT_TRUE(facts.writable());
  EXPECT_GT(facts.total(), 0U);
  EXPECT_EQ(ReadFolder((root_.path() / "b").string()).problem(), "No such file or directory");
  EXPECT_TRUE(ReadFolder((root_.path() / "b").string()).missing());
  EXPECT_EQ(ReadFolder("/bin/true").problem(), "Not a directory");
  EXPECT_FALSE(ReadFolder("/bin/true").missing());
}

TEST_F(ReadHostTest, AFolderThatCannotBeLookedAtIsNotMissing) {
  fs::create_symlink("loop", root_.path() / "loop");
  const fs::path below = root_.path() / "loop/run";
  EXPECT_EQ(FindNearestExisting(below), below);
  const v1::FolderFacts facts = ReadFolder(below.string());
  EXPECT_EQ(facts.problem(), "Too many levels of symbolic links");
  EXPECT_FALSE(facts.missing());
  Write("file", "");
  EXPECT_EQ(FindNearestExisting(root_.path() / "file/run"), root_.path() / "file");
}

TEST(ReadResourcesTest, FindsTheFactsOfEveryHost) {
  v1::HostFacts facts;
  ReadResources("/", &facts);
  EXPECT_FALSE(facts.name().empty());
  EXPECT_GT(facts.processor().usable_cores(), 0U);
  EXPECT_GT(facts.limits().open_files(), 0U);
  EXPECT_THAT(facts.machine(), HasSubstr(" net:["));
  v1::HostFacts again;
  ReadResources("/", &again);
  EXPECT_EQ(facts.machine(), again.machine());
}

TEST_F(ReadHostTest, GpusAndTheirUsersAreThoseOfNvidiaSmi) {
  Write("proc/4711/status", "Name:\tpython3\nUid:\t1000\t1000\t1000\t1000\n");
  Write("etc/passwd", "root:x:0:0::/root:/bin/sh\nalice:x:1000:1000::/home/alice:/bin/sh\n");
  v1::HostFacts facts;
  facts.add_driver_gpus()->set_model("by the kernel");
  ParseGpus("GPU-1, 81559, 1024, NVIDIA H100, PCIe\r\nGPU-2, [N/A], 3, NVIDIA H100\nnonsense\n",
            &facts);
  ParseGpuUsers(
      "GPU-1, 4711, 1000, /usr/bin/python3\nGPU-2, 12, [N/A], [Not Found]\nGPU-9, x, y, z",
      root_.path(), &facts);
  CompleteGpus(&facts);
  EXPECT_EQ(facts.driver_gpus_size(), 0);
  EXPECT_EQ(facts.gpu_problem(), "");
  ASSERT_EQ(facts.gpus_size(), 2);
  EXPECT_EQ(facts.gpus(0).model(), "NVIDIA H100, PCIe");
  EXPECT_EQ(facts.gpus(0).memory(), std::uint64_t{81559} << 20);
  EXPECT_FALSE(facts.gpus(1).has_memory());
  ASSERT_EQ(facts.gpus(0).users_size(), 1);
  EXPECT_EQ(facts.gpus(0).users(0).user(), "alice");
  EXPECT_EQ(facts.gpus(0).users(0).program(), "/usr/bin/python3");
  ASSERT_EQ(facts.gpus(1).users_size(), 1);
  EXPECT_FALSE(facts.gpus(1).users(0).has_memory());
  EXPECT_EQ(facts.gpus(1).users(0).user(), "") << "it has ended";
}

TEST(ReadPartsTest, APartThatDoesNotAnswerIsNamed) {
  std::promise<void> released;
  const std::shared_future<void> release = released.get_future().share();
  const auto hang = [release](v1::HostFacts* facts) {
    release.wait();
    facts->set_kernel("late");
  };
  const v1::HostFacts facts =
      ReadParts({{"/data on nfs4", "see its server", hang}}, std::chrono::steady_clock::now());
  released.set_value();
  EXPECT_EQ(facts.kernel(), "");
  ASSERT_EQ(facts.unanswered_size(), 1);
  EXPECT_THAT(facts.unanswered(0).message(),
              ::testing::StartsWith("/data on nfs4 has not answered for "));
  EXPECT_EQ(facts.unanswered(0).hint(), "see its server");
}

TEST_F(ReadHostTest, IfNvidiaSmiHangsTheGpusOfTheDriverRemain) {
  Write("proc/driver/nvidia/gpus/0000:07:00.0/information", "Model: \t\t NVIDIA H100\n");
  v1::HostFacts facts;
  ReadGpus(root_.path(), &facts);
  CompleteGpus(&facts);
  ASSERT_EQ(facts.gpus_size(), 1);
  EXPECT_EQ(facts.gpus(0).model(), "NVIDIA H100");
  EXPECT_EQ(facts.gpu_problem(), "nvidia-smi has listed no GPU");
}

TEST(InspectHostTest, TheVersionIsKnownIfNothingAnswers) {
  const v1::HostFacts facts =
      InspectHost({.dsrun_version = "1.2.3", .dsrank = "/no/such/dsrank"}, {});
  EXPECT_EQ(facts.dsrun_version(), "1.2.3");
}

TEST(ReadPartsTest, PartsOfAMessageAreMerged) {
  const auto cores = [](v1::HostFacts* facts) { facts->mutable_processor()->set_cores(4); };
  const auto nodes = [](v1::HostFacts* facts) { facts->mutable_processor()->set_numa_nodes(2); };
  const v1::HostFacts facts =
      ReadParts({{"cores", "", cores}, {"nodes", "", nodes}},
                std::chrono::steady_clock::now() + std::chrono::minutes(10));
  EXPECT_EQ(facts.processor().cores(), 4U);
  EXPECT_EQ(facts.processor().numa_nodes(), 2U);
  EXPECT_EQ(facts.unanswered_size(), 0);
}

TEST(InspectHostTest, ReadsEveryPart) {
  const ds::testing::TemporaryFolder folder;
  const v1::HostFacts facts =
      InspectHost({.dsrun_version = "1.2.3",
                   .environment = {"PATH=/usr/bin:/bin", "HOME=" + folder.path().string()},
                   .dsrank = "/no/such/dsrank",
                   .working_directory = "/no/such/folder",
                   .run_directory = (folder.path() / "runs").string(),
                   .python = "python3",
                   .looks_at_cache = true},
                  std::chrono::steady_clock::now() + std::chrono::minutes(10));
  EXPECT_EQ(facts.unanswered_size(), 0);
  EXPECT_EQ(facts.dsrun_version(), "1.2.3");
  EXPECT_FALSE(facts.kernel().empty());
  EXPECT_THAT(facts.dsrank().problem(), HasSubstr("/no/such/dsrank"));
  EXPECT_EQ(facts.working_directory().path(), "/no/such/folder");
  EXPECT_EQ(facts.working_directory().problem(), "No such file or directory");
  EXPECT_EQ(facts.run_directory().path(), folder.path());
  EXPECT_EQ(facts.cache().path(), folder.path());
  EXPECT_FALSE(facts.cache().file_system().empty());
  EXPECT_FALSE(facts.python().version().empty());
  EXPECT_GT(facts.unix_nanos(), 0);
}

constexpr std::chrono::seconds kLimit{60};

TEST(DsrankFacts, AreReadFromItsAnswer) {
  const v1::DsrankFacts facts = ParseDsrankFacts(
      R"({"dsrun":"0.1.0","libtorch":"2.11.0","compiler":"12.2.0","cpu_capability":"AVX512",
          "amx":{"advertised":true,"faults":true},
          "cuda":{"plugin":true,"devices":4,"cuda":"13.0","nccl":"2.28.9"}})");
  EXPECT_EQ(facts.problem(), "");
  EXPECT_EQ(facts.libtorch(), "2.11.0");
  EXPECT_TRUE(facts.amx_faults());
  EXPECT_EQ(facts.cuda_devices(), 4U);
  EXPECT_EQ(facts.nccl(), "2.28.9");
}

TEST(DsrankFacts, StrangeAnswersAreAProblemOrEmpty) {
  EXPECT_NE(ParseDsrankFacts("no JSON").problem(), "");
  EXPECT_NE(ParseDsrankFacts("[1,2]").problem(), "");
  const v1::DsrankFacts facts =
      ParseDsrankFacts(R"({"libtorch":{},"amx":3,"cuda":{"devices":-1}})");
  EXPECT_EQ(facts.libtorch(), "");
  EXPECT_FALSE(facts.amx_faults());
  EXPECT_EQ(facts.cuda_devices(), 0U);
}

TEST(DsrankFacts, AFileThatCannotBeExecutedIsAProblemWithItsReason) {
  EXPECT_THAT(FindDsrank("", "").problem(), HasSubstr("no executable dsrank"));
  EXPECT_THAT(FindDsrank("/nowhere/dsrank", "").problem(),
              HasSubstr("no executable dsrank next to its dsrund: /nowhere/dsrank: No such file"));
  const ds::testing::TemporaryFolder folder;
  const fs::path loop = folder.path() / "loop";
  fs::create_symlink("loop", loop);
  EXPECT_EQ(FindDsrank(loop, "").problem(), loop.string() + ": Too many levels of symbolic links");
}

TEST(DsrankFacts, AProgramThatIsMissingOrFailsIsAProblem) {
  EXPECT_THAT(AskDsrank("/nowhere/dsrank", kLimit).problem(), HasSubstr("/nowhere/dsrank"));
  EXPECT_THAT(AskDsrank("/bin/false", kLimit).problem(), HasSubstr("status 1"));
}

ChildCommand Shell(const std::string& script) {
  return {.executable = "/bin/sh", .argv = {"sh", "-c", script}};
}

TEST(RunAndRead, ReturnsBothStreamsAndTheStatus) {
  const auto output = RunAndRead(Shell("echo one; echo two >&2; exit 7"), kLimit);
  ASSERT_TRUE(output.ok()) << output.status().message();
  EXPECT_EQ(output->out, "one\n");
  EXPECT_EQ(output->err, "two\n");
  EXPECT_EQ(output->exit_status, 7);
  EXPECT_EQ(output->signal, 0);
  EXPECT_EQ(DescribeEnd(*output), "ended with status 7: two");
  const auto killed = RunAndRead(Shell("kill -9 $$"), kLimit);
  EXPECT_EQ(killed->exit_status, 137);
  EXPECT_EQ(DescribeEnd(*killed), "was ended by signal 9");
}

TEST(RunAndRead, AProgramThatClosesItsStreamsMayEndLater) {
  EXPECT_EQ(RunAndRead(Shell("exec >&- 2>&-; exec sh -c 'exit 5'"), kLimit)->exit_status, 5);
}

TEST(RunAndRead, OneThatDoesNotAnswerIsKilled) {
  const auto output = RunAndRead(Shell("exec sleep 600"), std::chrono::milliseconds(20));
  EXPECT_EQ(output.status().code(), StatusCode::kDeadlineExceeded);
}

bool IsGone(const std::string& pid) {
  std::ifstream stat("/proc/" + pid + "/stat");
  std::string number, name, state;
  return !(stat >> number >> name >> state) || state == "Z";
}

TEST(RunAndRead, ACompleteAnswerIsEnoughAndEndsTheGroup) {
  ChildCommand command = Shell("sleep 600 & echo $!; wait");
  command.is_complete = [](std::string_view text) { return text.ends_with("\n"); };
  const auto output = RunAndRead(command, kLimit);
  ASSERT_TRUE(output.ok()) << output.status().message();
  const std::string pid = output->out.substr(0, output->out.size() - 1);
  while (!IsGone(pid)) std::this_thread::yield();
}

}  // namespace
}  // namespace ds::daemon
