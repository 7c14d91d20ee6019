#include "cli/flags/process_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/process/resource_limits.h"

namespace ds::cli {
namespace {

TEST(ParseLimitTest, TakesUlimitsNamesAndDockersGrammar) {
  const auto both = ParseLimit("nofile=1024:4096");
  ASSERT_TRUE(both.ok()) << both.status().message();
  EXPECT_EQ(both->name, "nofile");
  EXPECT_EQ(both->soft, 1024u);
  EXPECT_EQ(both->hard, 4096u);
  EXPECT_EQ(ParseLimit("core=0")->hard, 0u);
  EXPECT_EQ(ParseLimit("memlock=unlimited")->soft, kUnlimited);
  EXPECT_EQ(ParseLimit("stack=8388608:infinity")->hard, kUnlimited);
}

TEST(ParseLimitTest, RefusesByWord) {
  const std::string expected = "expected NAME=SOFT or NAME=SOFT:HARD with numbers or 'unlimited'";
  for (const char* amounts : {"nofile", "nofile=", "nofile=x", "nofile=1:", "nofile=-1",
                              "nofile=1k", "nofile= 1", "nofile=1:2:3"}) {
    EXPECT_EQ(ParseLimit(amounts).status().message(),
              std::string("--ulimit ") + amounts + ": " + expected);
  }
  EXPECT_EQ(ParseLimit("nofile=2:1").status().message(),
            "--ulimit nofile=2:1: the soft limit is above the hard one");
  EXPECT_EQ(ParseLimit("openfiles=2").status().message(),
            "--ulimit openfiles=2: there is no limit 'openfiles'");
}

TEST(ParseUmaskTest, IsOctal) {
  EXPECT_EQ(*ParseUmask("022"), 022);
  EXPECT_EQ(*ParseUmask("0"), 0);
  EXPECT_EQ(*ParseUmask("0777"), 0777);
  for (const char* word : {"", "8", "1000", "-1", "0x7", "22 "}) {
    EXPECT_FALSE(ParseUmask(word).ok()) << word;
  }
}

TEST(ParseFileSizeTest, TakesUnitsOfLogrotate) {
  EXPECT_EQ(*ParseFileSize("1"), 1U);
  EXPECT_EQ(*ParseFileSize("2K"), 2048U);
  EXPECT_EQ(*ParseFileSize("100M"), std::uint64_t{100} << 20);
  EXPECT_EQ(*ParseFileSize("3G"), std::uint64_t{3} << 30);
  EXPECT_EQ(*ParseFileSize("1T"), std::uint64_t{1} << 40);
  for (const char* word : {"", "0", "M", "1m", "1MB", "-1", "1 M", "99999999T", "1KM"}) {
    EXPECT_EQ(ParseFileSize(word).status().message(),
              std::string("--log_max_size ") + word +
                  ": expected bytes, for example 100M, 2G or 1048576");
  }
}

}  // namespace
}  // namespace ds::cli
