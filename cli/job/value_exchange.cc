#include "cli/job/value_exchange.h"

#include <sys/random.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

#include "cli/host/host_daemon.h"
#include "runtime/base/check.h"
#include "runtime/base/rank_link.h"

namespace ds::cli {
namespace {

// Between tries while the way to a host is broken.
constexpr std::chrono::milliseconds kSendAgainAfter{200};

v1::SharedValue DrawKey() {
  std::array<std::uint8_t, 32> bytes;
  DS_CHECK(::getrandom(bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  v1::SharedValue key;
  key.set_key(kRankKeyName);
  for (const std::uint8_t byte : bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    key.mutable_value()->push_back(kDigits[byte >> 4]);
    key.mutable_value()->push_back(kDigits[byte & 15]);
  }
  return key;
}

}  // namespace

ValueExchange::ValueExchange(Send send, Tell tell)
    : send_(std::move(send)), tell_(std::move(tell)), values_{DrawKey()} {}

// The other has made an object whose destructor runs, and ends threads, when one cannot be started.
ValueExchange::ValueExchange(const std::vector<int>& node_ranks, Send send, Tell tell)
    : ValueExchange(std::move(send), std::move(tell)) {
  for (const int node_rank : node_ranks) {
    threads_.emplace_back([this, node_rank] { Serve(node_rank); });
  }
}

ValueExchange::~ValueExchange() {
  const std::lock_guard lock(mutex_);
  ending_ = true;
  changed_.notify_all();
}

void ValueExchange::Add(const v1::SharedValue& value) {
  const std::lock_guard lock(mutex_);
  values_.push_back(value);
  changed_.notify_all();
}

void ValueExchange::Serve(int node_rank) {
  std::size_t sent = 0;
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return ending_ || sent < values_.size(); });
    if (ending_) return;
    const std::vector<v1::SharedValue> fresh(values_.begin() + static_cast<std::ptrdiff_t>(sent),
                                             values_.end());
    lock.unlock();
    const Status status = send_(node_rank, fresh);
    lock.lock();
    if (status.ok()) {
      sent += fresh.size();
    } else if (!NobodyAnswered(status)) {
      lock.unlock();
      if (status.code() != StatusCode::kNotFound) tell_(node_rank, status);
      return;
    } else {
      changed_.wait_for(lock, kSendAgainAfter, [&] { return ending_; });
    }
  }
}

}  // namespace ds::cli
