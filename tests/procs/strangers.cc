#include "tests/procs/strangers.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cstdint>

namespace ds::procs {

UniqueFd ConnectTo(const char* address, int port) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<std::uint16_t>(port));
  ::inet_pton(AF_INET, address, &to.sin_addr);
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)) != 0) fd.Reset();
  return fd;
}

std::vector<UniqueFd> ConnectStrangers(int count, int port, std::string_view first) {
  std::vector<UniqueFd> strangers;
  for (int i = 0; i < count; ++i) {
    strangers.push_back(ConnectTo("127.0.0.1", port));
    EXPECT_TRUE(strangers.back().valid());
    ::send(strangers.back().get(), first.data(), first.size(), MSG_NOSIGNAL);
  }
  return strangers;
}

bool AwaitHangUp(const UniqueFd& fd) {
  char buffer[4096];
  pollfd readable{fd.get(), POLLIN, 0};
  while (::poll(&readable, 1, 60'000) == 1) {
    if (::recv(fd.get(), buffer, sizeof(buffer), 0) <= 0) return true;
  }
  return false;
}

}  // namespace ds::procs
