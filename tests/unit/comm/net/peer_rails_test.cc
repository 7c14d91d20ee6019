#include "runtime/comm/net/peer_rails.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <thread>
#include <vector>

#include "tests/unit/comm/net/thread_world.h"

namespace ds::comm {
namespace {

TEST(PeerRailsTest, StripesUseTheRailsRoundRobin) {
  auto [here, there] = MakeRails({.rails = 3});
  std::vector<std::byte> bytes(4 * PeerRails::kStripe + 100);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7);
  std::jthread writer([&] {
    for (std::span<const std::byte> rest = bytes; !rest.empty();) {
      const ssize_t sent = here.Write({}, rest);
      if (sent > 0) rest = rest.subspan(static_cast<std::size_t>(sent));
    }
  });
  // What each rail brings, read apart.
  const std::vector<std::size_t> expected = {2 * PeerRails::kStripe, PeerRails::kStripe + 100,
                                             PeerRails::kStripe};
  std::vector<std::vector<std::byte>> got(3);
  while (got[0].size() + got[1].size() + got[2].size() < bytes.size()) {
    for (int rail = 0; rail < 3; ++rail) {
      std::vector<std::byte> some(4096);
      const ssize_t count = there.all()[rail].stream->Read(some);
      if (count > 0) got[rail].insert(got[rail].end(), some.begin(), some.begin() + count);
    }
  }
  for (int rail = 0; rail < 3; ++rail) EXPECT_EQ(got[rail].size(), expected[rail]);
  const auto stripe = bytes.begin() + PeerRails::kStripe;
  EXPECT_TRUE(std::equal(got[1].begin(), got[1].begin() + PeerRails::kStripe, stripe));
}

}  // namespace
}  // namespace ds::comm
