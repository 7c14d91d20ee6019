#pragma once

// ValueExchange sends the values that ranks publish for each other to every host, and the key of
// the job's ranks. Ranks find and authenticate each other by these values, before any port is open.
//
// A failed transfer is repeated until the exchange is destroyed or the host rejects it; the host's
// ranks then wait in vain.
//
// Pure: the caller passes the time. Not thread-safe.

#include <chrono>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "proto/dsrun.pb.h"
#include "runtime/base/status.h"

namespace ds::cli {

namespace v1 = ::dsrun::v1;

// Returns a random key: 64 hexadecimal digits.
std::string DrawRankKey();

class ValueExchange {
 public:
  using Time = std::chrono::nanoseconds;

  // The key is the first value that every host receives.
  explicit ValueExchange(const std::string& rank_key);

  void Add(const v1::SharedValue& value) { values_.push_back(value); }
  // Sends all values to these hosts from now on.
  void Connect(const std::vector<int>& hosts);
  // Sends nothing more to this host.
  void Disconnect(int host) { readers_.erase(host); }

  struct Parcel {
    int host = 0;
    std::vector<v1::SharedValue> values;
  };
  // Returns the parcels to send now; each host has at most one in flight.
  std::vector<Parcel> TakeDue(Time now);
  // Records the result of a parcel. Returns false if the host rejects it; it then receives nothing
  // more. Results of disconnected hosts are ignored.
  bool OnAnswer(int host, const Status& status, Time now);
  // Returns the time of the next repetition.
  std::optional<Time> next() const;

 private:
  struct Reader {
    std::size_t sent = 0;
    std::size_t in_flight = 0;
    std::optional<Time> again_at;
  };

  std::vector<v1::SharedValue> values_;  // only grows
  std::map<int, Reader> readers_;
};

}  // namespace ds::cli
