#include "runtime/device/activation_meter.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "runtime/device/counting_allocator.h"

namespace ds::device {
namespace {

class ActivationMeterTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (CountingAllocator::Find() == nullptr) CountingAllocator::Install();
  }

  static at::Tensor Take(std::int64_t bytes) { return at::empty({bytes}, at::kByte); }
  // Memory that somebody books, who does so first.
  std::pair<LedgerEntry, at::Tensor> TakeBooked(std::int64_t bytes) {
    LedgerEntry entry(&ledger_, MemoryUse::kGradients, MemoryTier::kHost, bytes);
    return {std::move(entry), Take(bytes)};
  }

  MemoryLedger ledger_;
};

TEST_F(ActivationMeterTest, UnbookedMemoryIsActivations) {
  ActivationMeter meter(ledger_, c10::kCPU);
  const std::int64_t before = meter.Mark().activations.bytes;
  const at::Tensor kept = Take(1000);
  const auto booked = TakeBooked(50000);
  const ActivationMeter::Reading reading = meter.Mark();
  EXPECT_EQ(reading.activations.bytes - before, 1000);
  EXPECT_EQ(ledger_.Bytes(MemoryUse::kActivations, MemoryTier::kHost), before + 1000);
}

TEST_F(ActivationMeterTest, ThePeakCountsUnbookedMemory) {
  ActivationMeter meter(ledger_, c10::kCPU);
  const std::int64_t before = meter.Mark().activations.bytes;
  { const at::Tensor passing = Take(7000); }
  // Together they were never there.
  const auto booked = TakeBooked(50000);
  const at::Tensor kept = Take(1000);
  const ActivationMeter::Reading reading = meter.Mark();
  EXPECT_EQ(reading.activations.peak - before, 7000);
  EXPECT_EQ(reading.activations.bytes - before, 1000);
  EXPECT_EQ(meter.Mark().activations.peak - before, 1000) << "since the mark before";
  EXPECT_EQ(ledger_.Peak(MemoryUse::kActivations, MemoryTier::kHost), before + 7000);
}

TEST_F(ActivationMeterTest, AllTensorsAreCountedFromTheBeginning) {
  const at::Tensor earlier = Take(100);
  ActivationMeter meter(ledger_, c10::kCPU);
  const std::int64_t before = meter.allocated().bytes;
  {
    const auto booked = TakeBooked(50000);
    meter.Mark();
  }
  meter.Mark();
  EXPECT_EQ(meter.allocated().bytes, before);
  EXPECT_EQ(meter.allocated().peak, before + 50000);
}

}  // namespace
}  // namespace ds::device
