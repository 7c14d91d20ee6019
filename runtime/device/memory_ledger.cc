#include "runtime/device/memory_ledger.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "runtime/base/check.h"

namespace ds::device {

std::string_view MemoryUseName(MemoryUse use) {
  switch (use) {
    case MemoryUse::kParameters:
      return "parameters";
    case MemoryUse::kGradients:
      return "gradients";
    case MemoryUse::kOptimizerState:
      return "optimizer_state";
    case MemoryUse::kMasterWeights:
      return "master_weights";
    case MemoryUse::kActivations:
      return "activations";
    case MemoryUse::kCommBuffers:
      return "comm_buffers";
    case MemoryUse::kOther:
      return "other";
  }
  DS_CHECK_MSG(false, "unknown memory use");
}

std::string_view MemoryTierName(MemoryTier tier) {
  switch (tier) {
    case MemoryTier::kDevice:
      return "device";
    case MemoryTier::kHost:
      return "host";
    case MemoryTier::kPinned:
      return "pinned";
    case MemoryTier::kFile:
      return "file";
    case MemoryTier::kMapped:
      return "mapped";
  }
  DS_CHECK_MSG(false, "unknown memory tier");
}

MemoryLedger::Cell& MemoryLedger::At(MemoryUse use, MemoryTier tier) {
  return cells_[static_cast<std::size_t>(use)][static_cast<std::size_t>(tier)];
}

const MemoryLedger::Cell& MemoryLedger::At(MemoryUse use, MemoryTier tier) const {
  return cells_[static_cast<std::size_t>(use)][static_cast<std::size_t>(tier)];
}

void MemoryLedger::Add(MemoryUse use, MemoryTier tier, std::int64_t bytes) {
  DS_CHECK(bytes >= 0);
  if (use != MemoryUse::kActivations) booked_[static_cast<std::size_t>(tier)].fetch_add(bytes);
  RaisePeak(use, tier, At(use, tier).bytes.fetch_add(bytes) + bytes);
}

void MemoryLedger::RaisePeak(MemoryUse use, MemoryTier tier, std::int64_t bytes) {
  std::atomic<std::int64_t>& peak = At(use, tier).peak;
  std::int64_t known = peak.load();
  while (known < bytes && !peak.compare_exchange_weak(known, bytes)) {
  }
}

void MemoryLedger::Set(MemoryUse use, MemoryTier tier, std::int64_t bytes) {
  const std::int64_t before = At(use, tier).bytes.exchange(bytes);
  if (use != MemoryUse::kActivations) {
    booked_[static_cast<std::size_t>(tier)].fetch_add(bytes - before);
  }
  RaisePeak(use, tier, bytes);
}

void MemoryLedger::Remove(MemoryUse use, MemoryTier tier, std::int64_t bytes) {
  if (use != MemoryUse::kActivations) booked_[static_cast<std::size_t>(tier)].fetch_sub(bytes);
  const std::int64_t held = At(use, tier).bytes.fetch_sub(bytes) - bytes;
  DS_CHECK_MSG(held >= 0, "more bytes removed from the memory ledger than were added");
}

std::int64_t MemoryLedger::Bytes(MemoryUse use, MemoryTier tier) const {
  return At(use, tier).bytes.load();
}

std::int64_t MemoryLedger::Peak(MemoryUse use, MemoryTier tier) const {
  return At(use, tier).peak.load();
}

std::int64_t MemoryLedger::ModelStateBytes() const {
  std::int64_t total = 0;
  for (const MemoryUse use : {MemoryUse::kParameters, MemoryUse::kGradients,
                              MemoryUse::kOptimizerState, MemoryUse::kMasterWeights}) {
    for (std::size_t tier = 0; tier < kMemoryTiers; ++tier) {
      total += Bytes(use, static_cast<MemoryTier>(tier));
    }
  }
  return total;
}

nlohmann::ordered_json MemoryLedger::ToJson() const {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (std::size_t u = 0; u < kMemoryUses; ++u) {
    for (std::size_t t = 0; t < kMemoryTiers; ++t) {
      const auto use = static_cast<MemoryUse>(u);
      const auto tier = static_cast<MemoryTier>(t);
      if (Peak(use, tier) == 0) continue;
      json[std::string(MemoryUseName(use))][std::string(MemoryTierName(tier))] = {
          {"bytes", Bytes(use, tier)}, {"peak", Peak(use, tier)}};
    }
  }
  return json;
}

LedgerEntry::LedgerEntry(MemoryLedger* ledger, MemoryUse use, MemoryTier tier, std::int64_t bytes)
    : ledger_(ledger), use_(use), tier_(tier), bytes_(bytes) {
  if (ledger_ != nullptr) ledger_->Add(use_, tier_, bytes_);
}

LedgerEntry::LedgerEntry(LedgerEntry&& other) noexcept
    : ledger_(std::exchange(other.ledger_, nullptr)),
      use_(other.use_),
      tier_(other.tier_),
      bytes_(other.bytes_) {}

LedgerEntry& LedgerEntry::operator=(LedgerEntry&& other) noexcept {
  if (this == &other) return *this;
  Reset();
  ledger_ = std::exchange(other.ledger_, nullptr);
  use_ = other.use_;
  tier_ = other.tier_;
  bytes_ = other.bytes_;
  return *this;
}

void LedgerEntry::Reset() {
  if (ledger_ != nullptr) ledger_->Remove(use_, tier_, bytes_);
  ledger_ = nullptr;
}

}  // namespace ds::device
