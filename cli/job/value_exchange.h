#pragma once

// ValueExchange: passes on to every host what the ranks of all hosts put for each other, and the
// key of the job's ranks, which it draws: so they meet and trust each other without a port that
// anybody could connect to before.
//
// What does not get through is sent again until the exchange goes or the host refuses it, whose
// ranks then wait in vain: that is told, unless their generation has ended there.
//
// Threads: a thread for every host, which calls Send and Tell; Add from any.

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "proto/dsrun.pb.h"
#include "runtime/base/status.h"

namespace ds::cli {

namespace v1 = ::dsrun::v1;

class ValueExchange {
 public:
  // Sends values to the host of a node rank.
  using Send = std::function<Status(int node_rank, const std::vector<v1::SharedValue>& values)>;
  // Learns why a host got no more.
  using Tell = std::function<void(int node_rank, const Status& why)>;

  // Has the key from the beginning. Throws std::system_error where there are too few threads.
  ValueExchange(const std::vector<int>& node_ranks, Send send, Tell tell);
  // Waits for a Send that is going on.
  ~ValueExchange();
  ValueExchange(const ValueExchange&) = delete;
  ValueExchange& operator=(const ValueExchange&) = delete;

  void Add(const v1::SharedValue& value);

 private:
  ValueExchange(Send send, Tell tell);
  void Serve(int node_rank);

  const Send send_;
  const Tell tell_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<v1::SharedValue> values_;  // guarded by mutex_; grows
  bool ending_ = false;                  // guarded by mutex_
  std::vector<std::jthread> threads_;    // last: they use the rest
};

}  // namespace ds::cli
