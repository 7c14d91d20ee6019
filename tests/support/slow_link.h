#pragma once

// SlowLink: a cable between two network interfaces of this network namespace on which every frame
// is so long under way and which carries no more than so much, in each direction. It stands for
// netem and tbf, which few kernels of test machines have. The interfaces are up and belong to no
// bridge; segmentation and checksums stay offloaded, as they are on a veth pair. Every frame is
// copied by one thread: of 10 Gbit/s it carries some 7 beside two ranks on two cores, of 1 Gbit/s
// all but the headers (scripts/bench/links --emulated).
//
// Threads: one of its own; all members from any thread. Errors of the set-up throw
// std::runtime_error.

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/unique_fd.h"

namespace ds::testing {

struct LinkSpeed {
  std::chrono::milliseconds delay{0};
  std::uint64_t bytes_per_second = 0;  // 0: as many as there are
};

class SlowLink {
 public:
  SlowLink(const std::string& one, const std::string& other, const LinkSpeed& speed);
  ~SlowLink();
  SlowLink(const SlowLink&) = delete;
  SlowLink& operator=(const SlowLink&) = delete;
  // For what is sent from now on.
  void Set(const LinkSpeed& speed);

 private:
  using Clock = std::chrono::steady_clock;
  struct Frame {
    Clock::time_point due;
    std::vector<std::byte> bytes;  // with its virtio_net_hdr
  };

  void Run();
  // Until a frame comes, one is due or the end.
  void Await();
  void Take(std::size_t from);
  void Give(std::size_t to);

  Clock::time_point DueOf(std::size_t bytes, const std::deque<Frame>& before) const;

  mutable std::mutex mutex_;
  LinkSpeed speed_;  // guarded by mutex_
  std::array<UniqueFd, 2> ends_;
  std::array<std::deque<Frame>, 2> in_flight_;  // by the end at which they arrive
  UniqueFd quit_;
  std::thread thread_;
};

}  // namespace ds::testing
