// How GPU ranks find each other, without a GPU: a plugin of the test's own stands for CUDA's. It
// asks its store what NCCL does; what travels, and over what, is the product's.

#include "runtime/comm/connect_nccl.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "runtime/comm/host_backend.h"
#include "runtime/comm/join_job.h"
#include "tests/support/rank_harness.h"
#include "tests/unit/comm/net/thread_world.h"

namespace ds::comm {
namespace {

using ds::testing::RunRanks;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class FakeNccl : public c10d::Backend {
 public:
  using c10d::Backend::Backend;
  void abort() override {
    ++aborts;
    aborts.notify_all();
  }

  std::string identifier;                 // that its ranks have met with
  c10::intrusive_ptr<c10d::Store> store;  // where
  std::atomic<int> aborts = 0;
};

class FakeCuda : public device::CudaPlugin {
 public:
  FakeCuda(std::string gpu, int rank) : gpu_(std::move(gpu)), rank_(rank) {}

  int DeviceCount() const override { return 1; }
  void SelectDevice(int /*index*/) const override {}
  std::string DeviceId(int /*index*/) const override { return gpu_; }
  bool Pin(void* /*memory*/, std::size_t /*bytes*/) const override { return false; }
  void Unpin(void* /*memory*/) const override {}
  std::string CudaVersion() const override { return "0"; }
  std::string NcclVersion() const override { return "0"; }
  c10::intrusive_ptr<c10d::Backend> MakeNccl(const c10::intrusive_ptr<c10d::Store>& store,
                                             const NcclOptions& options) const override {
    auto nccl = c10::make_intrusive<FakeNccl>(options.rank, options.size);
    nccl->store = store;
    if (options.rank == 0) {
      // A thread of LibTorch's own, in the middle of it.
      std::jthread([&] { store->set("watchdog", std::string("rank 0 is well")); }).join();
      store->set("0", "made by rank " + std::to_string(rank_));
    }
    nccl->identifier = store->get_to_str("0");
    return nccl;
  }

 private:
  std::string gpu_;
  int rank_;
};

StatusOr<std::unique_ptr<Communicator>> Connect(const FakeCuda& cuda, Communicator& host) {
  return ConnectNccl(std::make_unique<Communicator>(host.backend()),
                     {.device = c10::Device(c10::kCUDA, 0), .cuda = &cuda},
                     std::chrono::minutes(1));
}

const FakeNccl& BackendOf(const Communicator& group) {
  return dynamic_cast<const FakeNccl&>(*group.backend());
}

std::string GpuOf(const Communicator& host) { return "GPU-" + std::to_string(host.rank()); }

TEST(ConnectNcclTest, RanksAndTheirGroupsMeetOverTheControlGroup) {
  RunRanks(3, [](Communicator& host) {
    const FakeCuda cuda(GpuOf(host), host.rank());
    const auto world = Connect(cuda, host);
    ASSERT_TRUE(world.ok()) << world.status().message();
    EXPECT_EQ(BackendOf(**world).identifier, "made by rank 0");
    if (host.rank() == 0) return;
    const Communicator& pair = (*world)->Group("pair", {1, 2});
    EXPECT_EQ(BackendOf(pair).identifier, "made by rank 1");
    EXPECT_EQ(pair.rank(), host.rank() - 1);
  });
}

TEST(ConnectNcclTest, OtherHandlesStayInTheirProcess) {
  RunRanks(2, [](Communicator& host) {
    const FakeCuda cuda(GpuOf(host), host.rank());
    const auto world = Connect(cuda, host);
    ASSERT_TRUE(world.ok()) << world.status().message();
    c10d::Store& store = *BackendOf(**world).store;
    EXPECT_EQ(store.check({"watchdog"}), host.rank() == 0);
    store.set("late", "rank " + std::to_string(host.rank()));
    EXPECT_EQ(store.get_to_str("late"), "rank " + std::to_string(host.rank()));
  });
}

TEST(ConnectNcclTest, TwoRanksOnOneGpuAreNamed) {
  RunRanks(4, [](Communicator& host) {
    const FakeCuda cuda(host.rank() % 2 == 1 ? "GPU-shared" : GpuOf(host), host.rank());
    const auto world = Connect(cuda, host);
    EXPECT_EQ(world.status().code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(world.status().message(), HasSubstr("rank 1 and rank 3 have one GPU, GPU-shared"));
  });
}

TEST(ConnectNcclTest, AnAbortEndsTheCallsOfAllGroups) {
  RunRanks(2, [](Communicator& host) {
    const FakeCuda cuda(GpuOf(host), host.rank());
    const auto world = Connect(cuda, host);
    ASSERT_TRUE(world.ok()) << world.status().message();
    const Communicator& all = (*world)->Group("all", {0, 1});
    (*world)->control().Barrier();
    (*world)->Abort("no space left");
    EXPECT_EQ(BackendOf(**world).aborts, 1);
    EXPECT_EQ(BackendOf(all).aborts, 1);
    EXPECT_THROW((*world)->control().Barrier(), c10::Error);
  });
}

// Ranks that wait in NCCL alone, in the world's and in a group's, and one that gives up.
void ExpectAllSeeAbort(Communicator& host, std::latch& connected) {
  const FakeCuda cuda(GpuOf(host), host.rank());
  const auto world = Connect(cuda, host);
  ASSERT_TRUE(world.ok()) << world.status().message();
  const FakeNccl& all = BackendOf((*world)->Group("all", {0, 1, 2}));
  connected.arrive_and_wait();
  if (host.rank() == 1) (*world)->Abort("no space left");
  BackendOf(**world).aborts.wait(0);
  all.aborts.wait(0);
  EXPECT_EQ(BackendOf(**world).aborts, 1);
  EXPECT_EQ(all.aborts, 1);
  EXPECT_THAT([&] { (*world)->control().Barrier(); },
              ThrowsMessage<c10::Error>(HasSubstr("rank 1 has given up: no space left")));
}

TEST(ConnectNcclTest, AnAbortEndsTheCallsOfEveryRank) {
  std::latch connected(3);
  RunRanks(3, [&](Communicator& host) { ExpectAllSeeAbort(host, connected); });
}

TEST(ConnectNcclTest, AnAbortEndsTheCallsOfEveryHostsRanks) {
  std::latch connected(3);
  RunWorld({1, 2}, [&](WorldGroup& group) {
    auto ranks = group.MakeSubgroup("ranks", {0, 1, 2});
    ASSERT_TRUE(ranks.ok()) << ranks.status().message();
    Communicator host(c10::make_intrusive<HostBackend>(std::move(ranks).value()));
    ExpectAllSeeAbort(host, connected);
  });
}

TEST(ConnectNcclTest, WithoutAControlGroupGpuRanksAreRefused) {
  const FakeCuda cuda("GPU-0", 0);
  const device::RankDevice device{.device = c10::Device(c10::kCUDA, 0), .cuda = &cuda};
  const auto why = [&](const RankIdentity& identity) {
    return ConnectWorld(identity, device).status();
  };
  const Status apart = why({.world_size = 4, .local_world_size = 2});
  EXPECT_EQ(apart.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(apart.message(), HasSubstr("ranks on several hosts meet through dsrun"));
  EXPECT_THAT(why({.world_size = 300, .local_world_size = 300}).message(),
              HasSubstr("at most 256 ranks share a host, not 300"));
}

TEST(NameInterfaceForNcclTest, TakesTheInterfaceOfAnAddress) {
  const std::vector<LocalAddress> all = {{.interface = "eth0", .text = "10.0.0.2", .prefix = 24},
                                         {.interface = "ib0", .text = "10.1.0.2", .prefix = 24}};
  EXPECT_EQ(NameInterfaceForNccl(all, "ib0").value(), "=ib0");
  EXPECT_EQ(NameInterfaceForNccl(all, "10.1.0.2").value(), "=ib0");
  EXPECT_EQ(NameInterfaceForNccl(all, "ib0,eth0").value(), "=ib0,eth0");
  EXPECT_THAT(NameInterfaceForNccl(all, "nosuch0").status().message(), HasSubstr("nosuch0"));
}

}  // namespace
}  // namespace ds::comm
