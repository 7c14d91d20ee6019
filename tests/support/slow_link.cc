#include "tests/support/slow_link.h"

#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace ds::testing {
namespace {

// A frame that the kernel has not cut into segments yet, and what stands before it.
constexpr std::size_t kLargestFrame = 80 * 1024;

UniqueFd OpenEnd(const std::string& interface) {
  UniqueFd fd(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, htons(ETH_P_ALL)));
  const int on = 1;
  const int buffer = 64 << 20;
  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(ETH_P_ALL);
  address.sll_ifindex = static_cast<int>(::if_nametoindex(interface.c_str()));
  if (!fd.valid() || address.sll_ifindex == 0 ||
      ::setsockopt(fd.get(), SOL_PACKET, PACKET_VNET_HDR, &on, sizeof(on)) != 0 ||
      ::setsockopt(fd.get(), SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof(on)) != 0 ||
      ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUFFORCE, &buffer, sizeof(buffer)) != 0 ||
      ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDBUFFORCE, &buffer, sizeof(buffer)) != 0 ||
      ::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    throw std::runtime_error("frames of " + interface + ": " + std::strerror(errno));
  }
  return fd;
}

}  // namespace

SlowLink::SlowLink(const std::string& one, const std::string& other, const LinkSpeed& speed)
    : speed_(speed),
      ends_{OpenEnd(one), OpenEnd(other)},
      quit_(::eventfd(0, EFD_CLOEXEC)),
      thread_([this] { Run(); }) {}

SlowLink::~SlowLink() {
  ::eventfd_write(quit_.get(), 1);
  thread_.join();
}

void SlowLink::Set(const LinkSpeed& speed) {
  const std::lock_guard lock(mutex_);
  speed_ = speed;
}

void SlowLink::Run() {
  pollfd quit{quit_.get(), POLLIN, 0};
  while (::poll(&quit, 1, 0) == 0) {
    Await();
    for (const std::size_t end : {0, 1}) Take(end);
    for (const std::size_t end : {0, 1}) Give(end);
  }
}

void SlowLink::Await() {
  std::array<pollfd, 3> watched = {
      pollfd{quit_.get(), POLLIN, 0}, {ends_[0].get(), POLLIN, 0}, {ends_[1].get(), POLLIN, 0}};
  auto next = Clock::time_point::max();
  for (const auto& frames : in_flight_) {
    if (!frames.empty()) next = std::min(next, frames.front().due);
  }
  timespec timeout{};
  if (next != Clock::time_point::max()) {
    const auto left = std::max<std::chrono::nanoseconds>(next - Clock::now(), {});
    timeout.tv_sec = left.count() / 1'000'000'000;
    timeout.tv_nsec = left.count() % 1'000'000'000;
  }
  ::ppoll(watched.data(), watched.size(), next == Clock::time_point::max() ? nullptr : &timeout,
          nullptr);
}

void SlowLink::Take(std::size_t from) {
  static thread_local std::vector<std::byte> buffer(kLargestFrame);
  ssize_t size = 0;
  while ((size = ::recv(ends_[from].get(), buffer.data(), buffer.size(), 0)) > 0) {
    std::deque<Frame>& before = in_flight_[1 - from];
    before.push_back(
        {DueOf(static_cast<std::size_t>(size), before), {buffer.begin(), buffer.begin() + size}});
  }
}

SlowLink::Clock::time_point SlowLink::DueOf(std::size_t bytes,
                                            const std::deque<Frame>& before) const {
  const std::lock_guard lock(mutex_);
  const Clock::time_point due = Clock::now() + speed_.delay;
  if (speed_.bytes_per_second == 0) return due;
  const Clock::time_point begun = before.empty() ? due : std::max(due, before.back().due);
  return begun + std::chrono::nanoseconds(1'000'000'000 * bytes / speed_.bytes_per_second);
}

// What the interface does not take is lost, as on a cable.
void SlowLink::Give(std::size_t to) {
  std::deque<Frame>& frames = in_flight_[to];
  for (; !frames.empty() && frames.front().due <= Clock::now(); frames.pop_front()) {
    const std::vector<std::byte>& bytes = frames.front().bytes;
    static_cast<void>(::send(ends_[to].get(), bytes.data(), bytes.size(), 0));
  }
}

}  // namespace ds::testing
