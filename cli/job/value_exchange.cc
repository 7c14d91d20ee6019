#include "cli/job/value_exchange.h"

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "cli/host/host_daemon.h"
#include "runtime/base/check.h"
#include "runtime/base/rank_link.h"

namespace ds::cli {
namespace {

// Between tries while the way to a host is broken.
constexpr std::chrono::milliseconds kSendAgainAfter{200};

}  // namespace

std::string DrawRankKey() {
  std::array<std::uint8_t, 32> bytes;
  DS_CHECK(::getrandom(bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  std::string key;
  for (const std::uint8_t byte : bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    key.push_back(kDigits[byte >> 4]);
    key.push_back(kDigits[byte & 15]);
  }
  return key;
}

ValueExchange::ValueExchange(const std::string& rank_key) : values_(1) {
  values_.front().set_key(kRankKeyName);
  values_.front().set_value(rank_key);
}

void ValueExchange::Connect(const std::vector<int>& hosts) {
  for (const int host : hosts) readers_[host];
}

std::vector<ValueExchange::Parcel> ValueExchange::TakeDue(Time now) {
  std::vector<Parcel> due;
  for (auto& [host, reader] : readers_) {
    if (reader.in_flight > 0 || reader.sent == values_.size()) continue;
    if (reader.again_at && *reader.again_at > now) continue;
    reader.again_at.reset();
    reader.in_flight = values_.size() - reader.sent;
    const auto first = values_.begin() + static_cast<std::ptrdiff_t>(reader.sent);
    due.push_back({host, {first, values_.end()}});
  }
  return due;
}

bool ValueExchange::OnAnswer(int host, const Status& status, Time now) {
  const auto found = readers_.find(host);
  if (found == readers_.end()) return true;
  const std::size_t sent = std::exchange(found->second.in_flight, 0);
  if (status.ok()) {
    found->second.sent += sent;
  } else if (NobodyAnswered(status)) {
    found->second.again_at = now + kSendAgainAfter;
  } else {
    readers_.erase(found);
    return false;
  }
  return true;
}

std::optional<ValueExchange::Time> ValueExchange::next() const {
  std::optional<Time> next;
  for (const auto& [host, reader] : readers_) {
    if (reader.again_at) next = std::min(next.value_or(*reader.again_at), *reader.again_at);
  }
  return next;
}

}  // namespace ds::cli
