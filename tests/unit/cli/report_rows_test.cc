// The judgement of each row of `dsrun report`.

#include "cli/report/rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ds::cli {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kGibibyte = std::uint64_t{1} << 30;

SpaceFacts Space(std::uint64_t free, bool writable = true) {
  return {.path = "/data", .total = 500 * kGibibyte, .free = free, .writable = writable};
}

// A host on which nothing is to be said.
HostFacts GoodHost() {
  HostFacts facts;
  facts.name = "worker-1";
  facts.kernel = "6.1.0-13-amd64";
  facts.processor = {.model = "EPYC",
                     .features = {"avx2", "avx512f", "amx_tile"},
                     .cores = 64,
                     .usable_cores = 64,
                     .numa_nodes = 2};
  facts.memory = {.total = 64 * kGibibyte, .available = 60 * kGibibyte};
  facts.shared_memory = Space(32 * kGibibyte);
  facts.run_directory = Space(400 * kGibibyte);
  facts.limits = {.locked_memory = LimitFacts::kUnlimited, .open_files = 65536};
  facts.gpus = {"H100", "H100"};
  facts.gpu_driver = "535.104.05";
  facts.interfaces = {{.name = "eth0", .up = true, .megabits_per_second = 100000}};
  facts.offload = {.file_system = "ext4", .direct = true};
  facts.dsrank = {.path = "/opt/dsrank",
                  .version = "1.2.3",
                  .libtorch = "2.11.0",
                  .compiler = "12.2.0",
                  .cuda_plugin = true,
                  .cuda = "13.0",
                  .nccl = "2.28.9",
                  .cuda_devices = 2};
  return facts;
}

std::vector<std::string> Bad(const HostFacts& facts) {
  std::vector<std::string> bad;
  for (const ReportRow& row : JudgeHost(facts, "1.2.3")) {
    EXPECT_EQ(row.hint.empty(), row.level == Level::kOk) << row.name;
    EXPECT_FALSE(row.value.empty()) << row.name;
    if (row.level != Level::kOk) {
      bad.push_back(row.name + ":" + std::string(LevelName(row.level)));
    }
  }
  return bad;
}

TEST(ReportRows, AGoodHostIsGood) {
  EXPECT_THAT(Bad(GoodHost()), ::testing::IsEmpty());
  EXPECT_EQ(FindWorstLevel(JudgeHost(GoodHost(), "1.2.3")), Level::kOk);
}

struct ReportCase {
  const char* what;
  void (*change)(HostFacts&);
  const char* bad;  // the one row that changes, with its level
};

TEST(ReportRows, EachProblemChangesItsRowAlone) {
  const ReportCase cases[] = {
      {"old kernel", [](HostFacts& h) { h.kernel = "4.19.0-6-amd64"; }, "kernel:fail"},
      {"no /proc", [](HostFacts& h) { h.kernel = ""; }, "kernel:warn"},
      {"other dsrank", [](HostFacts& h) { h.dsrank.version = "1.2.2"; }, "dsrank:fail"},
      {"old LibTorch", [](HostFacts& h) { h.dsrank.libtorch = "2.5.1"; }, "LibTorch:fail"},
      {"no SIMD",
       [](HostFacts& h) {
         h.processor.features = {"fpu", "sse2"};
       },
       "features:warn"},
      {"AMX faults", [](HostFacts& h) { h.dsrank.amx_faults = true; }, "AMX:warn"},
      {"quota", [](HostFacts& h) { h.processor.quota_cores = 1.5; }, "cores:warn"},
      {"little memory", [](HostFacts& h) { h.memory.available = 500 * kMiB; }, "memory:warn"},
      {"small container", [](HostFacts& h) { h.memory.limit = 512 * kMiB; }, "memory:warn"},
      {"no shm", [](HostFacts& h) { h.shared_memory.reset(); }, "/dev/shm:fail"},
      {"docker's shm", [](HostFacts& h) { h.shared_memory->free = 64 * kMiB; }, "/dev/shm:fail"},
      {"small shm", [](HostFacts& h) { h.shared_memory->free = 512 * kMiB; }, "/dev/shm:warn"},
      {"RDMA without memlock",
       [](HostFacts& h) {
         h.infiniband_devices = 1;
         h.limits.locked_memory = 8 * kMiB;
       },
       "memlock:warn"},
      {"few files", [](HostFacts& h) { h.limits.open_files = 256; }, "nofile:warn"},
      {"no files", [](HostFacts& h) { h.limits.open_files = 64; }, "nofile:fail"},
      {"read-only", [](HostFacts& h) { h.run_directory->writable = false; }, "disk:fail"},
      {"full disk", [](HostFacts& h) { h.run_directory->free = 50 * kMiB; }, "disk:fail"},
      {"tight disk", [](HostFacts& h) { h.run_directory->free = 5 * kGibibyte; }, "disk:warn"},
      {"no disk", [](HostFacts& h) { h.run_directory.reset(); }, "disk:fail"},
      {"no offload file", [](HostFacts& h) { h.offload.problem = "no"; }, "offload:warn"},
      {"offload to memory", [](HostFacts& h) { h.offload.in_memory = true; }, "offload:warn"},
      {"no O_DIRECT", [](HostFacts& h) { h.offload.direct = false; }, "offload:warn"},
      {"no io_uring", [](HostFacts& h) { h.offload.why_not_ring = "no"; }, "offload:warn"},
      {"no plugin", [](HostFacts& h) { h.dsrank.cuda_plugin = false; }, "GPUs:warn"},
      {"hidden GPU", [](HostFacts& h) { h.dsrank.cuda_devices = 1; }, "GPUs:warn"},
      {"no driver version", [](HostFacts& h) { h.gpu_driver = ""; }, "GPU driver:warn"},
      {"no network", [](HostFacts& h) { h.interfaces[0].up = false; }, "network:warn"},
  };
  for (const ReportCase& each : cases) {
    HostFacts facts = GoodHost();
    each.change(facts);
    EXPECT_THAT(Bad(facts), ::testing::ElementsAre(each.bad)) << each.what;
  }
}

TEST(ReportRows, AMissingDsrankFailsOnceWithTheReason) {
  HostFacts facts = GoodHost();
  facts.dsrank = {.path = "/opt/dsrank", .problem = "/opt/dsrank: No such file or directory"};
  facts.processor.features = {"avx2"};
  EXPECT_THAT(Bad(facts), ::testing::ElementsAre("dsrank:fail"));
  EXPECT_THAT(JudgeDsrank(facts.dsrank, "1.2.3").value, HasSubstr("No such file"));
}

TEST(ReportRows, WithoutGpusSmallSharedMemoryStopsNothing) {
  HostFacts facts = GoodHost();
  facts.gpus.clear();
  facts.gpu_driver.clear();
  facts.shared_memory->free = 64 * kMiB;
  EXPECT_THAT(Bad(facts), ::testing::ElementsAre("/dev/shm:warn"));
}

TEST(ReportRows, ValuesDescribeTheHost) {
  const HostFacts facts = GoodHost();
  EXPECT_EQ(JudgeGpus(facts).value, "2 x H100");
  EXPECT_EQ(JudgeNetwork(facts).value, "eth0 (100 Gbit/s)");
  EXPECT_EQ(JudgeFeatures(facts.processor).value, "avx2 avx512f amx_tile");
  EXPECT_EQ(JudgeDisk(facts.run_directory).value, "400 GiB free of 500 GiB at /data");
  EXPECT_EQ(JudgeOffload(facts.offload).value, "ext4, past the page cache, io_uring");
  EXPECT_EQ(JudgeLockedMemory(facts).value, "unlimited");
}

}  // namespace
}  // namespace ds::cli
