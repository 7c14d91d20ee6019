#pragma once

// Requirements are what a test needs of a machine and not every machine has. Without one the test
// skips itself; where DSRUN_REQUIRE names it, in a list such as "namespaces,peers", the skip is a
// failure.
//
//     if (!hosts.namespaces()) return SkipWithout("namespaces", hosts.why_not());

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <sstream>
#include <string>
#include <string_view>

namespace ds::testing {

// The words of DSRUN_REQUIRE.
inline constexpr std::string_view kRequirements[] = {
    "namespaces",  // hosts in network namespaces of their own, each with an sshd
    "relay",       // networks that fail: the tests' own relay needs nothing, so none is skipped
    "peers",       // scripts/bench/setup_peers.sh has been run
    "shells",      // zsh and fish
    "fuse",        // /dev/fuse, and mounts of it in a mount namespace
};

// Says whether `list` names `requirement`; a word that is none is a failure of the test.
inline bool IsRequired(const std::string& list, std::string_view requirement) {
  bool required = false;
  std::istringstream words(list);
  for (std::string word; std::getline(words, word, ',');) {
    const auto* end = std::end(kRequirements);
    EXPECT_NE(std::find(std::begin(kRequirements), end, word), end)
        << "DSRUN_REQUIRE: there is no '" << word << "'";
    required = required || word == requirement;
  }
  return required;
}

// For the body of a test or of SetUp, which return behind it.
inline void SkipWithout(std::string_view requirement, const std::string& why) {
  const char* list = std::getenv("DSRUN_REQUIRE");
  if (list != nullptr && IsRequired(list, requirement)) {
    FAIL() << "DSRUN_REQUIRE names " << requirement << ", but: " << why;
  }
  GTEST_SKIP() << why;
}

}  // namespace ds::testing
