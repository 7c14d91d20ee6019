#include "runtime/process/port_lease.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace ds {
namespace {

// A server's socket on `port`, listening when it could.
bool CanListen(std::uint16_t port, bool reuse_address) {
  const UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = reuse_address ? 1 : 0;
  EXPECT_EQ(::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)), 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  return ::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 &&
         ::listen(fd.get(), 1) == 0;
}

TEST(PortLeaseTest, AServerThatReusesAddressesListensNextToTheLease) {
  const auto lease = PortLease::Take(0);
  ASSERT_TRUE(lease.ok()) << lease.status().message();
  EXPECT_GT(lease->port(), 0);
  EXPECT_TRUE(CanListen(lease->port(), /*reuse_address=*/true));
  EXPECT_FALSE(CanListen(lease->port(), /*reuse_address=*/false)) << "it is not held";
}

TEST(PortLeaseTest, AReleasedPortIsFree) {
  auto lease = PortLease::Take(0);
  ASSERT_TRUE(lease.ok());
  lease->Release();
  EXPECT_TRUE(CanListen(lease->port(), /*reuse_address=*/false));
}

TEST(PortLeaseTest, APortInUseIsNamed) {
  const UniqueFd server(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  socklen_t length = sizeof(address);
  ASSERT_EQ(::bind(server.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
  ASSERT_EQ(::listen(server.get(), 1), 0);
  ASSERT_EQ(::getsockname(server.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
  const std::uint16_t port = ntohs(address.sin_port);
  const auto lease = PortLease::Take(port);
  EXPECT_EQ(lease.status().code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(lease.status().message(), "port " + std::to_string(port) + " is in use on this host");
}

TEST(PortLeaseTest, LeasesAreDifferent) {
  const auto first = PortLease::Take(0);
  const auto second = PortLease::Take(0);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_NE(first->port(), second->port());
}

}  // namespace
}  // namespace ds
