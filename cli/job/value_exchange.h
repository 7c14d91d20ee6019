#pragma once

// ValueExchange: passes on to every host what the ranks of all hosts put for each other, and the
// key of the job's ranks: so they meet and trust each other without a port that anybody could
// connect to before.
//
// What does not get through is sent again until the exchange goes or the host refuses it, whose
// ranks then wait in vain.
//
// Pure: times are given. Threads: one at a time.

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

// Draws a key that no other generation has: 64 hexadecimal digits.
std::string DrawRankKey();

class ValueExchange {
 public:
  using Time = std::chrono::nanoseconds;

  // The key is the first value that everybody gets.
  explicit ValueExchange(const std::string& rank_key);

  void Add(const v1::SharedValue& value) { values_.push_back(value); }
  // These get everything from now on.
  void Connect(const std::vector<int>& hosts);
  // Nothing is sent to this one any more.
  void Disconnect(int host) { readers_.erase(host); }

  struct Parcel {
    int host = 0;
    std::vector<v1::SharedValue> values;
  };
  // Returns what is to be sent now, one parcel at a time to each host.
  std::vector<Parcel> TakeDue(Time now);
  // Tells what became of it. False: the host refuses it, and gets no more. One that was
  // disconnected meanwhile refuses nothing.
  bool OnAnswer(int host, const Status& status, Time now);
  // When there is something to be sent again.
  std::optional<Time> next() const;

 private:
  struct Reader {
    std::size_t sent = 0;
    std::size_t on_the_way = 0;
    std::optional<Time> again_at;
  };

  std::vector<v1::SharedValue> values_;  // grows
  std::map<int, Reader> readers_;
};

}  // namespace ds::cli
