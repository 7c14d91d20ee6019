// The judgement of each fact of a host.

#include "daemon/inspect/judge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ds::daemon {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kGibibyte = std::uint64_t{1} << 30;
constexpr std::uint32_t kRanks = 2;

void SetFolder(std::uint64_t free, v1::FolderFacts* folder) {
  folder->set_path("/data");
  folder->set_total(500 * kGibibyte);
  folder->set_free(free);
  folder->set_writable(true);
}

void SetDsrank(v1::DsrankFacts* dsrank) {
  dsrank->set_path("/opt/dsrank");
  dsrank->set_version("1.2.3");
  dsrank->set_libtorch("2.11.0");
  dsrank->set_compiler("12.2.0");
  dsrank->set_cuda_plugin(true);
  dsrank->set_cuda("13.0");
  dsrank->set_nccl("2.28.9");
  dsrank->set_cuda_devices(2);
}

void SetProcessor(v1::ProcessorFacts* processor) {
  processor->set_model("EPYC");
  for (const char* feature : {"avx2", "avx512f", "amx_tile"}) processor->add_features(feature);
  processor->set_cores(64);
  processor->set_usable_cores(64);
  processor->set_numa_nodes(2);
}

void SetDevices(v1::HostFacts* facts) {
  facts->set_gpu_devices(2);
  facts->add_gpus()->set_model("H100");
  facts->add_gpus()->set_model("H100");
  facts->set_gpu_driver("535.104.05");
  v1::InterfaceFacts* interface = facts->add_interfaces();
  interface->set_name("eth0");
  interface->set_up(true);
  interface->set_megabits_per_second(100000);
  facts->set_infiniband_devices(0);
}

// A host on which nothing is to be said.
v1::HostFacts GoodHost() {
  v1::HostFacts facts;
  facts.set_name("worker-1");
  facts.set_kernel("6.1.0-13-amd64");
  facts.set_dsrun_version("1.2.3");
  SetProcessor(facts.mutable_processor());
  facts.mutable_memory()->set_total(64 * kGibibyte);
  facts.mutable_memory()->set_available(60 * kGibibyte);
  SetFolder(32 * kGibibyte, facts.mutable_shared_memory());
  SetFolder(400 * kGibibyte, facts.mutable_run_directory());
  SetFolder(400 * kGibibyte, facts.mutable_working_directory());
  SetFolder(400 * kGibibyte, facts.mutable_cache());
  facts.mutable_limits()->set_locked_memory(UINT64_MAX);
  facts.mutable_limits()->set_open_files(65536);
  SetDevices(&facts);
  facts.mutable_offload()->set_file_system("ext4");
  facts.mutable_offload()->set_direct(true);
  SetDsrank(facts.mutable_dsrank());
  facts.mutable_python()->set_version("3.11.2");
  return facts;
}

std::vector<std::string> Bad(const v1::HostFacts& facts) {
  std::vector<std::string> bad;
  for (const v1::Finding& each : JudgeHost(facts, kRanks)) {
    EXPECT_EQ(each.hint().empty(), each.level() == v1::Finding::OK) << each.name();
    EXPECT_FALSE(each.message().empty()) << each.name();
    if (each.level() == v1::Finding::WARN) bad.push_back(each.name() + ":warn");
    if (each.level() == v1::Finding::FAIL) bad.push_back(each.name() + ":fail");
  }
  return bad;
}

TEST(JudgeTest, AGoodHostIsGood) { EXPECT_THAT(Bad(GoodHost()), ::testing::IsEmpty()); }

struct JudgeCase {
  const char* what;
  void (*change)(v1::HostFacts&);
  const char* bad;  // the one finding that changes, with its level
};

void ExpectBad(const std::vector<JudgeCase>& cases) {
  for (const JudgeCase& each : cases) {
    v1::HostFacts facts = GoodHost();
    each.change(facts);
    EXPECT_THAT(Bad(facts), ElementsAre(each.bad)) << each.what;
  }
}

TEST(JudgeTest, EachProblemOfSoftwareChangesItsFindingAlone) {
  ExpectBad({
      {"old kernel", [](auto& h) { h.set_kernel("4.19.0-6-amd64"); }, "kernel:fail"},
      {"no /proc", [](auto& h) { h.set_kernel(""); }, "kernel:warn"},
      {"other dsrank", [](auto& h) { h.mutable_dsrank()->set_version("1.2.2"); }, "dsrank:fail"},
      {"old LibTorch", [](auto& h) { h.mutable_dsrank()->set_libtorch("2.5.1"); }, "LibTorch:fail"},
      {"no interpreter",
       [](auto& h) {
         h.mutable_python()->set_problem("python3 was not found");
         h.mutable_python()->set_hint("install it");
       },
       "Python:warn"},
      {"hung mount",
       [](auto& h) {
         h.add_unanswered()->set_message("/data on nfs4 does not answer");
         h.mutable_unanswered(0)->set_hint("see its server");
       },
       "no answer:fail"},
  });
}

TEST(JudgeTest, EachProblemOfTheMachineChangesItsFindingAlone) {
  ExpectBad({
      {"no SIMD",
       [](auto& h) {
         *h.mutable_processor()->mutable_features(0) = "fpu";
         h.mutable_processor()->mutable_features()->DeleteSubrange(1, 2);
       },
       "features:warn"},
      {"AMX faults", [](auto& h) { h.mutable_dsrank()->set_amx_faults(true); }, "AMX:warn"},
      {"quota", [](auto& h) { h.mutable_processor()->set_quota_cores(1.5); }, "cores:warn"},
      {"little memory", [](auto& h) { h.mutable_memory()->set_available(500 * kMiB); },
       "memory:warn"},
      {"no shm",
       [](auto& h) {
         h.mutable_shared_memory()->set_problem("No such file or directory");
         h.mutable_shared_memory()->set_missing(true);
       },
       "/dev/shm:fail"},
      {"unreadable shm",
       [](auto& h) { h.mutable_shared_memory()->set_problem("Input/output error"); },
       "/dev/shm:warn"},
      {"docker's shm", [](auto& h) { h.mutable_shared_memory()->set_free(64 * kMiB); },
       "/dev/shm:fail"},
      {"small shm", [](auto& h) { h.mutable_shared_memory()->set_free(512 * kMiB); },
       "/dev/shm:warn"},
      {"few files", [](auto& h) { h.mutable_limits()->set_open_files(256); }, "nofile:warn"},
      {"few files for ranks", [](auto& h) { h.mutable_limits()->set_open_files_of_ranks(256); },
       "nofile:warn"},
      {"no files", [](auto& h) { h.mutable_limits()->set_open_files(73); }, "nofile:fail"},
      {"enough files", [](auto& h) { h.mutable_limits()->set_open_files(74); }, "nofile:warn"},
  });
}

TEST(JudgeTest, EachProblemOfAFolderChangesItsFindingAlone) {
  ExpectBad({
      {"read-only", [](auto& h) { h.mutable_run_directory()->set_writable(false); }, "disk:fail"},
      {"full disk", [](auto& h) { h.mutable_run_directory()->set_free(50 * kMiB); }, "disk:fail"},
      {"tight disk", [](auto& h) { h.mutable_run_directory()->set_free(5 * kGibibyte); },
       "disk:warn"},
      {"no disk", [](auto& h) { h.mutable_run_directory()->set_problem("No such file"); },
       "disk:fail"},
      {"no workdir", [](auto& h) { h.mutable_working_directory()->set_problem("Not a directory"); },
       "working_directory:fail"},
      {"full home", [](auto& h) { h.mutable_cache()->set_free(5 * kMiB); }, "cache:warn"},
      {"read-only home", [](auto& h) { h.mutable_cache()->set_writable(false); }, "cache:warn"},
      {"no offload file", [](auto& h) { h.mutable_offload()->set_problem("no"); }, "offload:warn"},
      {"offload to memory", [](auto& h) { h.mutable_offload()->set_in_memory(true); },
       "offload:warn"},
      {"no O_DIRECT", [](auto& h) { h.mutable_offload()->set_direct(false); }, "offload:warn"},
      {"no io_uring", [](auto& h) { h.mutable_offload()->set_why_not_ring("no"); }, "offload:warn"},
  });
}

TEST(JudgeTest, EachProblemOfADeviceChangesItsFindingAlone) {
  ExpectBad({
      {"RDMA without memlock",
       [](auto& h) {
         h.set_infiniband_devices(1);
         h.mutable_limits()->set_locked_memory(8 * kMiB);
       },
       "memlock:warn"},
      {"no plugin", [](auto& h) { h.mutable_dsrank()->set_cuda_plugin(false); }, "GPUs:warn"},
      {"hidden GPU", [](auto& h) { h.mutable_dsrank()->set_cuda_devices(1); }, "GPUs:warn"},
      {"no driver version", [](auto& h) { h.set_gpu_driver(""); }, "GPU driver:warn"},
      {"used GPU", [](auto& h) { h.mutable_gpus(1)->add_users()->set_program("python3"); },
       "GPU users:warn"},
      {"no nvidia-smi", [](auto& h) { h.set_gpu_problem("not found"); }, "GPU users:warn"},
      {"unknown GPUs", [](auto& h) { h.clear_gpus(); }, "GPUs:warn"},
      {"no network", [](auto& h) { h.mutable_interfaces(0)->set_up(false); }, "network:warn"},
  });
}

TEST(JudgeTest, AMissingDsrankFailsOnceWithTheReason) {
  v1::HostFacts facts = GoodHost();
  facts.mutable_dsrank()->Clear();
  facts.mutable_dsrank()->set_problem("/opt/dsrank: No such file or directory");
  facts.mutable_processor()->clear_features();
  facts.mutable_processor()->add_features("avx2");
  EXPECT_THAT(Bad(facts), ElementsAre("dsrank:fail"));
  EXPECT_THAT(JudgeDsrank(facts.dsrank(), "1.2.3").message(), HasSubstr("No such file"));
}

TEST(JudgeTest, TheHintOfADsrankThatHasOneIsShown) {
  v1::DsrankFacts facts;
  facts.set_problem("dsrank does not find its libtorch.so");
  EXPECT_THAT(JudgeDsrank(facts, "").hint(), HasSubstr("scripts/setup.sh"));
  facts.set_hint("set LD_LIBRARY_PATH");
  EXPECT_EQ(JudgeDsrank(facts, "").hint(), "set LD_LIBRARY_PATH");
}

TEST(JudgeTest, WithoutGpusSmallSharedMemoryStopsNothing) {
  v1::HostFacts facts = GoodHost();
  facts.clear_gpus();
  facts.clear_gpu_driver();
  facts.set_gpu_devices(0);
  facts.mutable_shared_memory()->set_free(512 * kMiB);
  EXPECT_THAT(Bad(facts), ::testing::IsEmpty());
  facts.mutable_shared_memory()->set_free(64 * kMiB);
  EXPECT_THAT(Bad(facts), ElementsAre("/dev/shm:warn"));
}

TEST(JudgeTest, DaemonsNeedTheHardLimitAndRanksTheSoftOne) {
  v1::LimitFacts limits;
  limits.set_open_files(73);
  limits.set_open_files_of_ranks(UINT64_MAX);
  EXPECT_EQ(JudgeOpenFiles(limits, 2).message(), "73 open files, 74 needed");
  EXPECT_THAT(JudgeOpenFiles(limits, 2).hint(), HasSubstr("ulimit -Hn"));
  limits.set_open_files(1 << 20);
  EXPECT_EQ(JudgeOpenFiles(limits, 2).message(), "unlimited open files");
  limits.set_open_files_of_ranks(1000);
  EXPECT_EQ(JudgeOpenFiles(limits, 2).message(), "1000 open files");
  EXPECT_EQ(JudgeOpenFiles(limits, 2).level(), v1::Finding::WARN);
  EXPECT_THAT(JudgeOpenFiles(limits, 2).hint(), HasSubstr("ulimit -n "));
}

TEST(JudgeTest, GpusThatAreNotListedAreNotAbsent) {
  v1::HostFacts facts = GoodHost();
  facts.clear_gpus();
  facts.clear_gpu_driver();
  facts.set_gpu_problem("nvidia-smi is missing");
  EXPECT_THAT(Bad(facts), ElementsAre("GPUs:warn", "GPU driver:warn", "GPU users:warn"));
  EXPECT_EQ(JudgeGpus(facts).message(), "2 devices, models unknown");
  EXPECT_THAT(JudgeGpuUsers(facts).message(), HasSubstr("nvidia-smi is missing"));
  facts.set_gpu_devices(0);
  facts.set_has_gpu_driver(true);
  EXPECT_EQ(JudgeGpus(facts).level(), v1::Finding::WARN);
  facts.set_has_gpu_driver(false);
  EXPECT_EQ(JudgeGpus(facts).message(), "none: ranks run on CPU");
  EXPECT_EQ(JudgeGpus(v1::HostFacts()).message(), "unknown");
}

TEST(JudgeTest, FactsThatWereNotReadAreNotJudged) {
  v1::HostFacts facts;
  facts.set_dsrun_version("1.2.3");
  facts.add_gpus()->set_model("H100");
  facts.set_gpu_driver("535.104.05");
  std::vector<std::string> names;
  for (const v1::Finding& each : JudgeHost(facts, kRanks)) {
    EXPECT_EQ(each.level(), v1::Finding::OK) << each.name() << ": " << each.message();
    names.push_back(each.name());
  }
  for (const char* unread :
       {"kernel", "NUMA", "memory", "/dev/shm", "memlock", "nofile", "network"}) {
    EXPECT_THAT(names, Not(Contains(unread)));
  }
  EXPECT_EQ(JudgeSharedMemory(facts).message(), "unknown");
}

TEST(JudgeTest, MessagesDescribeTheHost) {
  v1::HostFacts facts = GoodHost();
  facts.set_dsrun_compiler("11.4.0");
  EXPECT_EQ(JudgeDsrun(facts).message(), "1.2.3, compiled by g++ 11.4.0");
  EXPECT_EQ(JudgeGpus(facts).message(), "2 x H100");
  EXPECT_EQ(JudgeNetwork(facts).message(), "eth0 (100 Gbit/s)");
  EXPECT_EQ(JudgeFeatures(facts.processor()).message(), "avx2 avx512f amx_tile");
  EXPECT_EQ(JudgeDisk(facts.run_directory()).message(), "400 GiB free of 500 GiB at /data");
  EXPECT_EQ(JudgeOffload(facts.offload()).message(), "ext4, past the page cache, io_uring");
  EXPECT_EQ(JudgeLockedMemory(facts).message(), "unlimited");
  v1::GpuUser* user = facts.mutable_gpus(1)->add_users();
  user->set_pid(77);
  user->set_program("python3");
  user->set_user("alice");
  user->set_memory(2 * kGibibyte);
  EXPECT_EQ(JudgeGpuUsers(facts).message(), "python3 (process 77 of alice, 2.00 GiB) on GPU 1");
}

TEST(JudgeTest, AClockIsJudgedByWholeSeconds) {
  constexpr std::int64_t kSecond = 1'000'000'000;
  EXPECT_EQ(JudgeClock(0, 5 * kSecond).level(), v1::Finding::OK);
  EXPECT_EQ(JudgeClock(100 * kSecond, 109 * kSecond).level(), v1::Finding::OK);
  EXPECT_EQ(JudgeClock(100 * kSecond, 110 * kSecond).message(), "10 s behind");
  EXPECT_EQ(JudgeClock(100 * kSecond, 20 * kSecond).message(), "80 s ahead");
  EXPECT_EQ(JudgeClock(INT64_MIN, INT64_MAX).level(), v1::Finding::WARN);
}

}  // namespace
}  // namespace ds::daemon
