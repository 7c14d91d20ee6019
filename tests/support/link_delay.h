#pragma once

// LinkDelay: a cable between two network interfaces of this network namespace on which every frame
// is so long under way, in both directions. It stands for netem, which few kernels of test machines
// have. The interfaces are up and belong to no bridge; segmentation and checksums stay offloaded,
// as they are on a veth pair.
//
// Threads: one of its own. Errors of the set-up throw std::runtime_error.

#include <array>
#include <chrono>
#include <cstddef>
#include <deque>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/unique_fd.h"

namespace ds::testing {

class LinkDelay {
 public:
  LinkDelay(const std::string& one, const std::string& other, std::chrono::milliseconds delay);
  ~LinkDelay();
  LinkDelay(const LinkDelay&) = delete;
  LinkDelay& operator=(const LinkDelay&) = delete;

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

  const std::chrono::milliseconds delay_;
  std::array<UniqueFd, 2> ends_;
  std::array<std::deque<Frame>, 2> under_way_;  // by the end at which they arrive
  UniqueFd quit_;
  std::thread thread_;
};

}  // namespace ds::testing
