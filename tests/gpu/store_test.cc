// What rests on the host comes and goes on streams of its own: with computation that is late, and
// copies that are, everybody reads what was written before.

#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>

#include "runtime/device/copy_streams.h"
#include "runtime/zero/storage/store.h"
#include "tests/gpu/on_gpu.h"

namespace ds::tests {
namespace {

using device::MemoryTier;
using device::MemoryUse;
using zero::Access;

constexpr std::int64_t kPart = std::int64_t{4} << 20, kParts = 4;  // elements: 16 MiB
constexpr std::int64_t kLeaving = 4 * kPart;                       // bytes of one part
constexpr int kRounds = 20;

// Zeros that rest on the host, of a device that computes on a stream of its own as long as this
// lives.
struct OnTheHost {
  explicit OnTheHost(c10::Device device)
      : stream(c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device)),
        context{.ledger = &ledger,
                .device = device,
                .copies = device::OpenCopyStreams(device, kLeaving)},
        store(context, {kPart * kParts, at::kFloat, MemoryUse::kOther, zero::StorageTier::kHost}) {
    store.Zero();
  }

  const c10::StreamGuard stream;
  device::MemoryLedger ledger;
  zero::Context context;
  zero::Store store;
};

class GpuStore : public testing::OnGpu<::testing::Test> {};

TEST_F(GpuStore, LendsResultsOfTheLastUpdateDuringOverlappedCopies) {
  const c10::Device device = Opened()->device;
  OnTheHost on_the_host(device);
  zero::Store& store = on_the_host.store;
  const at::Tensor large = at::ones({4096, 4096}, at::TensorOptions().device(device));
  const auto part = [&](std::int64_t i) { return zero::FlatRange{i * kPart, kPart}; };
  at::Tensor wrong = at::full({}, 0, at::TensorOptions(at::kLong).device(device));
  for (int round = 0; round < kRounds; ++round) {
    store.Prefetch(part(0));
    for (std::int64_t i = 0; i < kParts; ++i) {
      {
        const zero::Lease lease = store.Acquire(part(i));
        if (i + 1 < kParts) store.Prefetch(part(i + 1));
        at::mm(large, large);  // what it has been given comes late
        wrong += lease.tensor().ne(static_cast<double>(round)).sum();
        lease.tensor().add_(1.0);
      }
      store.Offload(part(i));
      const std::int64_t here = on_the_host.ledger.Bytes(MemoryUse::kOther, MemoryTier::kDevice);
      EXPECT_LE(here, 2 * kLeaving) << "the next one, and what leaves";
    }
    // Memory that is taken now must not be that of a copy.
    at::full({kPart}, -1.0, large.options());
  }
  EXPECT_EQ(wrong.item<std::int64_t>(), 0);
  const zero::Lease host = store.AcquireOnOwnTier(store.full_range(), Access::kRead);
  EXPECT_TRUE(host.tensor().is_cpu() && host.tensor().is_pinned());
  EXPECT_TRUE(host.tensor().eq(static_cast<double>(kRounds)).all().item<bool>());
  EXPECT_EQ(on_the_host.ledger.Bytes(MemoryUse::kOther, MemoryTier::kPinned), 4 * kPart * kParts);
}

// The host is ahead of the device all the time: it has not waited for the computation.
TEST_F(GpuStore, NeverBlocksTheHostForTransfers) {
  const c10::Device device = Opened()->device;
  OnTheHost on_the_host(device);
  zero::Store& store = on_the_host.store;
  const at::Tensor large = at::ones({8192, 8192}, at::TensorOptions().device(device));
  const auto run = [&] {
    for (std::int64_t i = 0; i < kParts; ++i) {
      const zero::FlatRange part{i * kPart, kPart};
      store.Prefetch(part);
      store.Acquire(part).tensor().add_(1.0);
      store.Offload(part);
    }
  };
  run();  // memory and events are there from here on
  device::Synchronize(device);
  at::Tensor product = large;
  for (int i = 0; i < 40; ++i) product = at::mm(large, product);  // a second and more in fp32
  run();
  const c10::impl::VirtualGuardImpl cuda(device.type());
  EXPECT_FALSE(cuda.queryStream(cuda.getStream(device))) << "it is still multiplying";
  EXPECT_EQ(store.Acquire({0, 1}, Access::kRead).tensor().item<float>(), 2.0F);
}

}  // namespace
}  // namespace ds::tests
