#pragma once

// Requirements are what a test needs of a machine and not every machine has. Without one the test
// skips itself; where DSRUN_REQUIRE names it, in a list such as "namespaces,peers", the skip is a
// failure.
// requirement.py is the same for tests in Python.
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
    "namespaces",     // hosts in network namespaces of their own, each with an sshd
    "relay",          // networks that are slow or break, by tcp_relay.h and slow_link.h: everywhere
    "peers",          // scripts/bench/setup_peers.sh has been run
    "shells",         // zsh and fish
    "fuse",           // /dev/fuse, and mounts of it in a mount namespace
    "mounts",         // mount namespaces, and file systems mounted in them
    "cgroups",        // v2 control groups may be made
    "memory_groups",  // groups with a limit of memory, v1 or v2
    "core_files",     // core files go to the working directory
    "attributes",     // extended attributes in the folder for temporary files
    "bash",           // the user's login shell
    "tracing",        // a child may be traced
    "two_cores",      // which are no threads of one
    "root",           // who sees into processes that are closed to their user
    "gpu",            // one that works, and the CUDA plugin
    "groff",          // which shows manual pages
    "valgrind",       // which watches a rank's memory
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

// Says whether DSRUN_REQUIRE of this process names it.
inline bool IsRequired(std::string_view requirement) {
  const char* list = std::getenv("DSRUN_REQUIRE");
  return list != nullptr && IsRequired(list, requirement);
}

// For the body of a test or of SetUp, which return behind it.
inline void SkipWithout(std::string_view requirement, const std::string& why) {
  if (IsRequired(requirement)) {
    FAIL() << "DSRUN_REQUIRE names " << requirement << ", but: " << why;
  }
  GTEST_SKIP() << why;
}

}  // namespace ds::testing
