#include "runtime/device/memory_ledger.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>
#include <utility>
#include <vector>

namespace ds::device {
namespace {

TEST(MemoryLedgerTest, CountsByUseAndTierAndKeepsThePeak) {
  MemoryLedger ledger;
  ledger.Add(MemoryUse::kParameters, MemoryTier::kHost, 100);
  ledger.Add(MemoryUse::kParameters, MemoryTier::kHost, 50);
  ledger.Add(MemoryUse::kParameters, MemoryTier::kDevice, 7);
  ledger.Remove(MemoryUse::kParameters, MemoryTier::kHost, 120);
  EXPECT_EQ(ledger.Bytes(MemoryUse::kParameters, MemoryTier::kHost), 30);
  EXPECT_EQ(ledger.Peak(MemoryUse::kParameters, MemoryTier::kHost), 150);
  EXPECT_EQ(ledger.Bytes(MemoryUse::kParameters, MemoryTier::kDevice), 7);
  EXPECT_EQ(ledger.Bytes(MemoryUse::kGradients, MemoryTier::kHost), 0);
}

TEST(MemoryLedgerTest, ModelStateLeavesOutActivationsAndBuffers) {
  MemoryLedger ledger;
  ledger.Add(MemoryUse::kParameters, MemoryTier::kHost, 1);
  ledger.Add(MemoryUse::kGradients, MemoryTier::kDevice, 10);
  ledger.Add(MemoryUse::kOptimizerState, MemoryTier::kFile, 100);
  ledger.Add(MemoryUse::kMasterWeights, MemoryTier::kPinned, 1000);
  ledger.Add(MemoryUse::kActivations, MemoryTier::kHost, 10000);
  ledger.Add(MemoryUse::kCommBuffers, MemoryTier::kHost, 10000);
  EXPECT_EQ(ledger.ModelStateBytes(), 1111);
}

TEST(MemoryLedgerTest, AMeasurementReplacesTheEarlierOne) {
  MemoryLedger ledger;
  ledger.Set(MemoryUse::kActivations, MemoryTier::kHost, 70);
  ledger.RaisePeak(MemoryUse::kActivations, MemoryTier::kHost, 90);
  ledger.Set(MemoryUse::kActivations, MemoryTier::kHost, 20);
  ledger.RaisePeak(MemoryUse::kActivations, MemoryTier::kHost, 80);
  EXPECT_EQ(ledger.Bytes(MemoryUse::kActivations, MemoryTier::kHost), 20);
  EXPECT_EQ(ledger.Peak(MemoryUse::kActivations, MemoryTier::kHost), 90);
}

TEST(MemoryLedgerTest, TheBooksOfATierExcludeActivations) {
  MemoryLedger ledger;
  ledger.Add(MemoryUse::kParameters, MemoryTier::kHost, 5);
  ledger.Add(MemoryUse::kCommBuffers, MemoryTier::kHost, 7);
  ledger.Add(MemoryUse::kCommBuffers, MemoryTier::kMapped, 100);
  ledger.Set(MemoryUse::kActivations, MemoryTier::kHost, 1000);
  ledger.Set(MemoryUse::kOther, MemoryTier::kHost, 30);
  ledger.Set(MemoryUse::kOther, MemoryTier::kHost, 20);
  ledger.Remove(MemoryUse::kParameters, MemoryTier::kHost, 2);
  EXPECT_EQ(ledger.BookedBytes(MemoryTier::kHost), 30);
  EXPECT_EQ(ledger.BookedBytes(MemoryTier::kMapped), 100);
}

TEST(MemoryLedgerTest, JsonNamesOnlyUsedCategories) {
  MemoryLedger ledger;
  ledger.Add(MemoryUse::kOptimizerState, MemoryTier::kHost, 8);
  ledger.Remove(MemoryUse::kOptimizerState, MemoryTier::kHost, 8);
  EXPECT_EQ(ledger.ToJson().dump(), R"({"optimizer_state":{"host":{"bytes":0,"peak":8}}})");
}

TEST(MemoryLedgerTest, AnEntryBooksWhileItLives) {
  MemoryLedger ledger;
  const auto held = [&] { return ledger.Bytes(MemoryUse::kOther, MemoryTier::kHost); };
  LedgerEntry kept;
  {
    LedgerEntry entry(&ledger, MemoryUse::kOther, MemoryTier::kHost, 64);
    EXPECT_EQ(held(), 64);
    kept = std::move(entry);
  }
  EXPECT_EQ(held(), 64);
  EXPECT_EQ(kept.bytes(), 64);
  kept = LedgerEntry(&ledger, MemoryUse::kOther, MemoryTier::kHost, 16);
  EXPECT_EQ(held(), 16);
  kept.Reset();
  EXPECT_EQ(held(), 0);
}

TEST(MemoryLedgerTest, ManyThreadsLoseNothing) {
  MemoryLedger ledger;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 1000; ++i) {
          ledger.Add(MemoryUse::kGradients, MemoryTier::kHost, 3);
          ledger.Remove(MemoryUse::kGradients, MemoryTier::kHost, 2);
        }
      });
    }
  }
  EXPECT_EQ(ledger.Bytes(MemoryUse::kGradients, MemoryTier::kHost), 4000);
  EXPECT_GE(ledger.Peak(MemoryUse::kGradients, MemoryTier::kHost), 4000);
}

TEST(MemoryLedgerDeathTest, RemovingMoreThanThereIsIsABug) {
  MemoryLedger ledger;
  ledger.Add(MemoryUse::kOther, MemoryTier::kHost, 1);
  EXPECT_DEATH(ledger.Remove(MemoryUse::kOther, MemoryTier::kHost, 2), "more bytes");
}

}  // namespace
}  // namespace ds::device
