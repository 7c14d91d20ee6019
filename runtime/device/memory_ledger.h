#pragma once

// MemoryLedger: who holds how many bytes where, for one rank.
//
// Whoever allocates memory that outlives one operation books it here, by use (what it is for) and
// by tier (where it lies). The planner's formulas and the allocator's own count are checked against
// it.
//
// Whoever books does so before the memory is taken, so that what a tier really holds beyond it is
// what nobody books: activations, which are measured (activation_meter.h) and set.
//
// Invariants:
//   1. Bytes(use, tier) is what has been added and not yet removed; it is never negative (a bug).
//   2. Peak(...) >= Bytes(...) of the same cell at any time.
// Threads: all methods are safe to call concurrently.
// Lifetimes: a ledger outlives every LedgerEntry booked in it.

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
  // Memory of the host beside the allocator: this rank's part of what ranks share, buffers of
  // files.
  kMapped,
};
inline constexpr std::size_t kMemoryTiers = 5;

// The tier in which tensors lie: of a rank that computes on the CPU, or on a device.
constexpr MemoryTier TierOf(bool is_cpu) {
  return is_cpu ? MemoryTier::kHost : MemoryTier::kDevice;
}

// The words of metrics and reports: "parameters", "optimizer_state", ...; "device", "host", ...
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
  // Enter what has been measured instead of added.
  void Set(MemoryUse use, MemoryTier tier, std::int64_t bytes);
  void RaisePeak(MemoryUse use, MemoryTier tier, std::int64_t bytes);

  std::int64_t Bytes(MemoryUse use, MemoryTier tier) const;
  std::int64_t Peak(MemoryUse use, MemoryTier tier) const;
  // All of a tier but activations.
  std::int64_t BookedBytes(MemoryTier tier) const {
    return booked_[static_cast<std::size_t>(tier)].load();
  }
  // Parameters, gradients, optimizer state and master weights together, over all tiers: what the
  // ZeRO formulas speak of.
  std::int64_t ModelStateBytes() const;

  // {"parameters":{"host":{"bytes":1,"peak":2}},...}; only cells that were ever used.
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

// Books bytes for as long as it lives. Move-only; a moved-from or default entry books nothing.
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
