// What updates beside the model's computation has cores of its own (cpuadam_cores_perc,
// pt_reserved_cores_perc): which threads may run where, that no bit changes, and what ranks do that
// have too few.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/allowed_cores.h"
#include "runtime/base/isa_probe.h"
#include "runtime/device/thread_cores.h"
#include "runtime/plan/zero/core_split.h"
#include "tests/ranks/tiny_model.h"
#include "tests/support/program.h"
#include "tests/support/rank_harness.h"
#include "tests/support/requirement.h"

namespace ds::tests {
namespace {

using config::OffloadDevice;
using ::testing::Contains;
using ::testing::HasSubstr;

struct ReservedRun {
  TinyRun tiny;
  bool zenflow = false;  // else super_offload
  std::optional<double> compute_share = 0.5;
  OffloadDevice device = OffloadDevice::kCpu;
};

std::unique_ptr<Engine> MakeReservingEngine(const ReservedRun& run, const std::string& folder,
                                            comm::Communicator& world,
                                            std::vector<std::string>* notices = nullptr) {
  [[maybe_unused]] static const IsaReport isa = ProbeAndCapIsa();
  TinyRun tiny = run.tiny;
  config::ZeroConfig& zero = tiny.zero;
  zero.sub_group_size = 2048;
  zero.offload_optimizer = {.device = run.device,
                            .nvme_path = {folder},
                            .pipeline_read = true,
                            .pipeline_write = true,
                            .super_offload = !run.zenflow};
  if (run.zenflow) {
    zero.zenflow = config::ZenFlowConfig{.topk_ratio = 0.4,
                                         .select_interval = 4,
                                         .update_interval = 2,
                                         .overlap_step = true,
                                         .compute_cores = run.compute_share};
  } else if (run.compute_share) {
    zero.offload_optimizer.update_cores = 1.0 - *run.compute_share;
  }
  if (tiny.stage == 3 && run.device == OffloadDevice::kNvme) {
    zero.offload_param = {.device = OffloadDevice::kNvme, .nvme_path = {folder}, .max_in_cpu = 0};
  }
  config::DsConfig config = TinyConfig(tiny);
  config.aio.block_size = 4096;
  const auto notify = [notices](const std::string& notice) {
    if (notices != nullptr) notices->push_back(notice);
  };
  return Engine::create(MakeTinyModel(tiny.shape, tiny.dtype()), config,
                        {.world = &world, .notify = notify})
      .value();
}

// Of every thread of this process.
std::vector<std::vector<int>> ListCoresOfThreads() {
  std::vector<std::vector<int>> all;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    cpu_set_t set;
    if (::sched_getaffinity(std::stoi(task.path().filename()), sizeof set, &set) != 0) continue;
    std::vector<int>& cores = all.emplace_back();
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (CPU_ISSET(core, &set)) cores.push_back(core);
    }
  }
  return all;
}

TEST(ReservedCores, AreTheUpdatesAndTheOthersAreTheModels) {
  const std::vector<int> all = *ListCoresOfThread();
  if (all.size() < 2) return testing::SkipWithout("two_cores", "there is one core");
  const zero::CoreSplit split = zero::SplitCores(all, 0.5);
  const testing::TemporaryFolder folder;
  for (const bool zenflow : {false, true}) {
    testing::RunRanks(1, [&](comm::Communicator& world) {
      const ReservedRun run{.tiny = {.stage = 2}, .zenflow = zenflow};
      std::vector<std::string> notices;
      {
        const auto engine = MakeReservingEngine(run, folder.path().string(), world, &notices);
        EXPECT_EQ(*ListCoresOfThread(), split.compute);
        TrainTiny(*engine, run.tiny, 4);
        EXPECT_THAT(ListCoresOfThreads(), Contains(split.update));
      }
      EXPECT_EQ(*ListCoresOfThread(), all) << "they come back";
      EXPECT_THAT(ListCoresOfThreads(), ::testing::Not(Contains(split.update)));
      EXPECT_THAT(notices, Contains(HasSubstr("the update has cores ")));
    });
  }
}

struct ReservedOutcome {
  std::vector<StepResult> steps;
  std::map<std::string, at::Tensor> parameters;
};

// The ranks' threads are on hosts of their own, by name, and do not share their cores.
ReservedOutcome TrainOnHosts(const ReservedRun& run, int ranks) {
  const testing::TemporaryFolder folder;
  ReservedOutcome outcome;
  testing::RunRanks(ranks, [&](comm::Communicator& world) {
    const std::string name = "host-" + std::to_string(world.rank());
    if (ranks > 1) {
      TORCH_CHECK(::unshare(CLONE_NEWUTS) == 0 && ::sethostname(name.data(), name.size()) == 0);
    }
    std::vector<std::string> notices;
    const auto engine = MakeReservingEngine(run, folder.path().string(), world, &notices);
    const bool reserves = std::any_of(notices.begin(), notices.end(), [](const std::string& each) {
      return each.find("the update has cores ") != std::string::npos;
    });
    EXPECT_EQ(reserves, run.compute_share.has_value());
    auto steps = TrainTiny(*engine, run.tiny, 3);
    auto parameters = ExportAll(*engine);
    if (world.rank() == 0) outcome = {std::move(steps), std::move(parameters)};
  });
  return outcome;
}

bool MayHaveOwnHostNames() {
  bool may = false;
  std::thread([&] { may = ::unshare(CLONE_NEWUTS) == 0; }).join();
  return may;
}

class ReservedCoresOf : public ::testing::TestWithParam<int> {};

// A step is as it is, clipped, or skipped and taken back; state rests here, or everything in files.
TEST_P(ReservedCoresOf, ChangeNoBit) {
  if (ListCoresOfThread()->size() < 2) {
    return testing::SkipWithout("two_cores", "there is one core");
  }
  if (GetParam() > 1 && !MayHaveOwnHostNames()) {
    return testing::SkipWithout("namespaces", "host names are everybody's");
  }
  for (const int stage : {1, 2, 3}) {
    for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
      for (const double clipping : {0.0, 0.05}) {
        for (const OffloadDevice device : {OffloadDevice::kCpu, OffloadDevice::kNvme}) {
          SCOPED_TRACE(::testing::Message()
                       << "stage " << stage << ", precision " << static_cast<int>(precision)
                       << ", clipping " << clipping << ", device " << static_cast<int>(device));
          ReservedRun run{.tiny = {.stage = stage,
                                   .accumulation = 2,
                                   .gradient_clipping = clipping,
                                   .precision = precision,
                                   .shape = {.vocabulary = 300, .width = 48, .layers = 2}},
                          .device = device};
          const ReservedOutcome ours = TrainOnHosts(run, GetParam());
          run.compute_share.reset();
          const ReservedOutcome expected = TrainOnHosts(run, GetParam());
          for (std::size_t i = 0; i < expected.steps.size(); ++i) {
            EXPECT_EQ(ours.steps[i].loss, expected.steps[i].loss);
            EXPECT_EQ(ours.steps[i].grad_norm, expected.steps[i].grad_norm);
          }
          for (const auto& [name, value] : expected.parameters) {
            EXPECT_TRUE(value.equal(ours.parameters.at(name))) << name;
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, ReservedCoresOf, ::testing::Values(1, 2));

TEST(ReservedCores, AreSharedWithANoticeWhenTooFew) {
  const std::vector<int> all = *ListCoresOfThread();
  const testing::TemporaryFolder folder;
  for (const int ranks : {1, 2}) {
    if (static_cast<int>(all.size()) < ranks) continue;
    testing::RunRanks(ranks, [&](comm::Communicator& world) {
      const std::vector<int> cores(all.begin(), all.begin() + ranks);  // one for each
      ASSERT_TRUE(device::BindThreadAndPool(cores, 1).ok());
      for (const bool zenflow : {false, true}) {
        const ReservedRun run{.tiny = {.stage = 2}, .zenflow = zenflow};
        std::vector<std::string> notices;
        const auto engine = MakeReservingEngine(run, folder.path().string(), world, &notices);
        EXPECT_EQ(*ListCoresOfThread(), cores);
        EXPECT_THAT(
            notices,
            Contains(HasSubstr("no cores are reserved: the rank has one core, which both use")));
        EXPECT_EQ(TrainTiny(*engine, run.tiny, 2)[1].step, 2);
      }
    });
  }
}

}  // namespace
}  // namespace ds::tests
