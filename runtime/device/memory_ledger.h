#pragma once

// MemoryLedger: counts one rank's memory in bytes, by use and by tier.
//
// Code that allocates memory beyond one operation books it here, by use (its purpose) and by tier
// (its location). The planner's formulas and the allocator's own count are checked against the
// ledger.
//
// Memory is booked before it is allocated. Memory of a tier beyond its booked bytes is therefore
// activations, which are measured (activation_meter.h) and set.
//
// Invariants:
//   1. Bytes(use, tier) is the sum of added minus removed bytes; it is never negative (a bug).
//   2. Peak(...) >= Bytes(...) of the same cell at any time.
// Thread-safe. A ledger must outlive every LedgerEntry booked in it.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

namespace ds::device {

enum class MemoryUse {
  kParameters,
  kGradients,
  kOptimizerState,
  kMasterWeights,
  kActivations,
  kCommBuffers,
  kOther,
};
inline constexpr std::size_t kMemoryUses = 7;

enum class MemoryTier {
  kDevice,
  kHost,
  kPinned,
  kFile,
  // Host memory outside the allocator: this rank's share of memory shared by ranks, and file
  // buffers.
  kMapped,
};
inline constexpr std::size_t kMemoryTiers = 5;

// Returns the tier of tensors of a rank that computes on the CPU, or on a device.
constexpr MemoryTier TierOf(bool is_cpu) {
  return is_cpu ? MemoryTier::kHost : MemoryTier::kDevice;
}

// Return the names used in metrics and reports: "parameters", "optimizer_state", ...; "device",
// "host", ...
std::string_view MemoryUseName(MemoryUse use);
std::string_view MemoryTierName(MemoryTier tier);

class MemoryLedger {
 public:
  MemoryLedger() = default;
  MemoryLedger(const MemoryLedger&) = delete;
  MemoryLedger& operator=(const MemoryLedger&) = delete;

  void Add(MemoryUse use, MemoryTier tier, std::int64_t bytes);
  // Requires: at least `bytes` are booked there.
  void Remove(MemoryUse use, MemoryTier tier, std::int64_t bytes);
  // These enter measured values.
  void Set(MemoryUse use, MemoryTier tier, std::int64_t bytes);
  void RaisePeak(MemoryUse use, MemoryTier tier, std::int64_t bytes);

  std::int64_t Bytes(MemoryUse use, MemoryTier tier) const;
  std::int64_t Peak(MemoryUse use, MemoryTier tier) const;
  // Returns the bytes of a tier without activations.
  std::int64_t BookedBytes(MemoryTier tier) const {
    return booked_[static_cast<std::size_t>(tier)].load();
  }
  // Returns the bytes of parameters, gradients, optimizer state and master weights over all tiers:
  // the model states in the ZeRO formulas.
  std::int64_t ModelStateBytes() const;

  // Returns {"parameters":{"host":{"bytes":1,"peak":2}},...}, with only the cells that were ever
  // used.
  nlohmann::ordered_json ToJson() const;

 private:
  struct Cell {
    std::atomic<std::int64_t> bytes{0};
    std::atomic<std::int64_t> peak{0};
  };
  Cell& At(MemoryUse use, MemoryTier tier);
  const Cell& At(MemoryUse use, MemoryTier tier) const;

  std::array<std::array<Cell, kMemoryTiers>, kMemoryUses> cells_;
  std::array<std::atomic<std::int64_t>, kMemoryTiers> booked_{};
};

// LedgerEntry: books bytes for its lifetime. Move-only; a moved-from or default entry books
// nothing.
class LedgerEntry {
 public:
  LedgerEntry() = default;
  LedgerEntry(MemoryLedger* ledger, MemoryUse use, MemoryTier tier, std::int64_t bytes);
  LedgerEntry(LedgerEntry&& other) noexcept;
  LedgerEntry& operator=(LedgerEntry&& other) noexcept;
  ~LedgerEntry() { Reset(); }

  std::int64_t bytes() const { return ledger_ == nullptr ? 0 : bytes_; }
  MemoryUse use() const { return use_; }
  void Reset();

 private:
  MemoryLedger* ledger_ = nullptr;
  MemoryUse use_ = MemoryUse::kOther;
  MemoryTier tier_ = MemoryTier::kHost;
  std::int64_t bytes_ = 0;
};

}  // namespace ds::device
