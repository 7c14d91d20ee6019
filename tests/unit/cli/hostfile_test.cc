#include "cli/launch/hostfile.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "tests/places.h"

namespace ds::cli {
namespace {

std::string Show(const std::vector<HostEntry>& hosts) {
  std::string text;
  for (const HostEntry& host : hosts) {
    text += (text.empty() ? "" : ",") + host.name + "=" + std::to_string(host.slots);
    for (const auto& [key, value] : host.keys) text += ";" + key + "=" + value;
  }
  return text;
}

// The hosts, or the error.
std::string ParsedHosts(std::string_view text) {
  const auto hosts = ParseHostfile(text, "hosts");
  return hosts.ok() ? Show(*hosts) : hosts.status().message();
}

// Bytes that a file of text cases does not show.
TEST(HostfileTest, AcceptsLineEndsOfWindowsAByteOrderMarkAndNoLastLineEnd) {
  EXPECT_EQ(ParsedHosts("worker-1 slots=4\r\nworker-2 slots=4\r\n"), "worker-1=4,worker-2=4");
  EXPECT_EQ(ParsedHosts("worker-1 slots=4"), "worker-1=4");
  EXPECT_EQ(ParsedHosts("\xEF\xBB\xBFworker-1 slots=4\n"), "worker-1=4");
}

TEST(HostfileTest, RefusesLongWordsAndControlCharacters) {
  EXPECT_EQ(ParsedHosts("w slots=1 " + std::string(200'000, 'x') + "\n"),
            "hosts:1: unknown key '" + std::string(80, 'x') +
                "...' after slots=1 (a comment starts with '#')");
  EXPECT_EQ(ParsedHosts("w" + std::string(200'000, ' ') + "x\n"),
            "hosts:1: expected 'HOST slots=N', found 'w" + std::string(79, ' ') + "...'");
  EXPECT_EQ(ParsedHosts(std::string("w\0x slots=4\n", 12)), "hosts:1: holds a control character");
  EXPECT_EQ(ParsedHosts("w\x1b[31m slots=4\n"), "hosts:1: holds a control character");
}

TEST(HostfileTest, CharactersThatLookLikeBlanksAreNamedWithTheirColumn) {
  const std::string no_break = "\xC2\xA0", mark = "\xEF\xBB\xBF";
  const std::map<std::string, std::string> cases = {
      {"a slots=1\n b" + no_break + "slots=2\n",
       "hosts:2: column 3: a no-break space (U+00A0), which no host or key has: replace it with a "
       "blank"},
      {"gr\xC3\xBC\xC3\x9F" + no_break + "slots=2\n", "hosts:1: column 5: a no-break space"},
      {"a slots=1" + no_break + "\n", "hosts:1: column 10: a no-break space"},
      {"a\nb" + no_break + "\nb\n", "hosts:2: column 2: a no-break space"},
      {"a slots=1\n" + mark + "b slots=1\n",
       "hosts:2: column 1: a byte-order mark (U+FEFF) inside of the file, which no host or key "
       "has: remove it"},
      {mark + mark + "a slots=1\n", "hosts:1: column 1: a byte-order mark"},
      {"a slots\xE2\x80\x8B=1\n", "hosts:1: column 8: a zero-width space (U+200B)"},
      {"a\xE3\x80\x80slots=1\n", "hosts:1: column 2: an ideographic space (U+3000)"},
      {std::string("\xFF\xFE"
                   "a\0",
                   4),
       "hosts: the file is UTF-16"}};
  for (const auto& [text, expected] : cases) {
    EXPECT_TRUE(ParsedHosts(text).starts_with(expected)) << ParsedHosts(text);
  }
  EXPECT_EQ(ParsedHosts("#" + no_break + "c\na slots=1 #" + no_break + "c\n"), "a=1");
  EXPECT_EQ(ParsedHosts("a slots=1 workdir=\"/my" + no_break + "data\"\n"),
            "a=1;workdir=/my" + no_break + "data");
}

TEST(HostfileTest, ANamedFileMustExist) {
  const auto hosts = ReadHostfile("/nonexistent/hostfile");
  ASSERT_FALSE(hosts.ok());
  EXPECT_EQ(hosts.status().code(), StatusCode::kNotFound);
  EXPECT_EQ(hosts.status().message(),
            "--hostfile /nonexistent/hostfile: No such file or directory");
}

TEST(HostfileExamplesTest, GoodOnesParseAndInvalidOnesNameTheirFile) {
  const std::filesystem::path folder = std::filesystem::path(DS_SOURCE_DIR) / "hostfile_examples";
  int good = 0;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    if (!file.is_regular_file() || file.path().extension() == ".md") continue;
    const auto hosts = ReadHostfile(file.path());
    EXPECT_TRUE(hosts.ok()) << hosts.status().message();
    ++good;
  }
  int bad = 0;
  for (const auto& file : std::filesystem::directory_iterator(folder / "invalid")) {
    const auto hosts = ReadHostfile(file.path());
    ASSERT_FALSE(hosts.ok()) << file.path();
    EXPECT_TRUE(hosts.status().message().starts_with(file.path().string() + ":"))
        << hosts.status().message();
    ++bad;
  }
  EXPECT_EQ(good, 10);
  EXPECT_EQ(bad, 18);
}

}  // namespace
}  // namespace ds::cli
