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

TEST(HostfileTest, AcceptsTheHostfilesOfDeepSpeed) {
  const std::map<std::string, std::string> cases = {
      {"\nworker-1 slots=2\nworker-2 slots=2\n\nlocalhost slots=1\n123.23.12.10 slots=2\n\n"
       "#worker-1 slots=3\n# this is a comment\n\n",
       "worker-1=2,worker-2=2,localhost=1,123.23.12.10=2"},
      {"zeta slots=1\nalpha slots=2\nmid slots=3\n", "zeta=1,alpha=2,mid=3"},
      {"worker-1\tslots=4\nworker-2 \t  slots=8\n", "worker-1=4,worker-2=8"},
      {"worker-1 slots=4 # rack 1\n", "worker-1=4"},
      {"worker-1 slots=0\n", "worker-1=0"},
      {"worker-1 slots=08\n", "worker-1=8"},
      {"wor#ker slots=4\n", "wor#ker=4"},
      {"   # worker-9 slots=9\nworker-1 slots=1\n", "worker-1=1"},
      {"fe80::1 slots=4\n", "fe80::1=4"},
      {"user@worker-1 slots=4\n", "user@worker-1=4"},
      {"worker-1 slots=4\r\nworker-2 slots=4\r\n", "worker-1=4,worker-2=4"},
      {"Worker-1 slots=1\nworker-1 slots=1\n", "Worker-1=1,worker-1=1"},
      {"worker-1 slots=4", "worker-1=4"},
      {"\xEF\xBB\xBFworker-1 slots=4\n", "worker-1=4"},
      {"worker-1 slots=4096\n", "worker-1=4096"},
  };
  for (const auto& [text, expected] : cases) EXPECT_EQ(ParsedHosts(text), expected) << text;
}

TEST(HostfileTest, TakesPerHostKeys) {
  EXPECT_EQ(ParsedHosts("a slots=1 port=2222 user=me workdir=/x=y spare # why\n"),
            "a=1;port=2222;spare=;user=me;workdir=/x=y");
  EXPECT_EQ(ParsedHosts("a slots=1 #spare\n"), "a=1");
}

TEST(HostfileTest, QuotesValuesWithBlanks) {
  EXPECT_EQ(ParsedHosts("a slots=1 exec=\"docker exec -i it's\" workdir=\"/my data\" # \"x\n"),
            "a=1;exec=docker exec -i it's;workdir=/my data");
  EXPECT_EQ(ParsedHosts("a slots=1 user=b\"c\n"), "a=1;user=b\"c");
  EXPECT_EQ(ParsedHosts("a slots=1 user=b=\"c\n"), "a=1;user=b=\"c");
  EXPECT_EQ(ParsedHosts("a slots=1 exec=x=\"y z\"\n"),
            "hosts:1: unknown key 'z\"' after slots=1 (a comment starts with '#')");
  EXPECT_EQ(ParsedHosts("a slots=1 exec=\"docker exec\n"),
            "hosts:1: the '\"' after 'exec=' is never closed");
  EXPECT_EQ(ParsedHosts("a slots=1 exec=\"docker\"x\n"),
            "hosts:1: text right after the closing '\"' of 'exec'");
  EXPECT_EQ(ParsedHosts("a slots=1 exec=\"\"\n"), "hosts:1: 'exec=' has no value");
}

TEST(HostfileTest, RefusesWithFileAndLine) {
  const std::map<std::string, std::string> cases = {
      {"worker-1 slots=2\nworker-2 slots=1\nworker-1 slots=1\n",
       "hosts:3: host worker-1 is listed twice, first in line 1"},
      {"\nthis is bad slots=1\n", "hosts:2: expected 'HOST slots=N', found 'this is bad slots=1'"},
      {"missingslots\n",
       "hosts:1: expected 'HOST slots=N', found 'missingslots'; write 'missingslots slots=N', "
       "where N is its number of ranks: such a line means one rank for PBS and MPICH, and one per "
       "core for Open MPI"},
      {"\n", "hosts: no host in it; expected lines like 'localhost slots=8'"},
      {"", "hosts: no host in it; expected lines like 'localhost slots=8'"},
      {"# a\n#b\n", "hosts: no host in it; expected lines like 'localhost slots=8'"},
      {"worker-1 slots=2\nthis is bad slots=1\nworker-2 slots=4\nmissingslots\n",
       "hosts:2: expected 'HOST slots=N', found 'this is bad slots=1'"},
      {"w slots=4abc\n", "hosts:1: slots=4abc: expected a whole number from 0 to 4096"},
      {"w slots=4#x\n", "hosts:1: slots=4#x: expected a whole number from 0 to 4096"},
      {"w slots=-1\n", "hosts:1: slots=-1: expected a whole number from 0 to 4096"},
      {"w slots=-0\n", "hosts:1: slots=-0: expected a whole number from 0 to 4096"},
      {"w slots=+1\n", "hosts:1: slots=+1: expected a whole number from 0 to 4096"},
      {"w slots=2.5\n", "hosts:1: slots=2.5: expected a whole number from 0 to 4096"},
      {"w slots=4097\n", "hosts:1: slots=4097: expected a whole number from 0 to 4096"},
      {"w slots=99999999999\n",
       "hosts:1: slots=99999999999: expected a whole number from 0 to 4096"},
      {"w slots =4\n", "hosts:1: expected 'HOST slots=N', found 'w slots =4'; write 'w slots=4'"},
      {"w slots= 4\n", "hosts:1: slots=: expected a whole number from 0 to 4096"},
      {"w SLOTS=4\n", "hosts:1: expected 'HOST slots=N', found 'w SLOTS=4'; write 'w slots=4'"},
      {"w:4\n",
       "hosts:1: expected 'HOST slots=N', found 'w:4'; write 'w slots=4' for MPICH's HOST:N"},
      {"w 8 all.q@w UNDEFINED\n",
       "hosts:1: expected 'HOST slots=N', found 'w 8 all.q@w UNDEFINED'; write 'w slots=8' for "
       "Grid "
       "Engine's 'HOST N QUEUE'"},
      {"w ansible_host=x slots=4\n",
       "hosts:1: expected 'HOST slots=N', found 'w ansible_host=x slots=4'"},
      {"w slots=4 max_slots=2\n",
       "hosts:1: max_slots=2: expected a whole number of at least slots=4"},
      {"w slots=4 max-slots=x\n",
       "hosts:1: max-slots=x: expected a whole number of at least slots=4"},
      {"w slots=4 sockets=2\n",
       "hosts:1: unknown key 'sockets' after slots=4 (a comment starts with '#')"},
      {"w slots=4 prot=22\n",
       "hosts:1: unknown key 'prot' after slots=4; did you mean 'port'? (a comment starts with "
       "'#')"},
      {"w slots=1 hostkey=SHA256:short\n",
       "hosts:1: hostkey=SHA256:short: 'SHA256:short' is not SHA256: and 43 digits of base64, as "
       "'ssh-keygen -l' on the host shows them"},
      {"w slots=1 hostkey=MD5:00:11\n",
       "hosts:1: hostkey=MD5:00:11: 'MD5:00:11' is not SHA256: and 43 digits of base64, as "
       "'ssh-keygen -l' on the host shows them"},
      {"w slots=4 gpus=0,1\n", "hosts:1: gpus=0,1 names 2 devices for 4 slots"},
      {"w slots=1 gpus=0-3\n",
       "hosts:1: gpus=0-3: '0-3' is neither a device's number nor its name"},
      {"w slots=2 gpus=1,\n", "hosts:1: gpus=1,: '' is neither a device's number nor its name"},
      {"w slots=2 gpus=GPU-1,GPU-1\n", "hosts:1: gpus=GPU-1,GPU-1: 'GPU-1' is named twice"},
      {"w slots=4 port=0\n", "hosts:1: port=0: expected 1 to 65535"},
      {"w slots=4 port=x\n", "hosts:1: port=x: expected 1 to 65535"},
      {"w slots=4 user=\n", "hosts:1: 'user=' has no value"},
      {"w slots=4 user\n", "hosts:1: 'user' needs a value: user=..."},
      {"w slots=4 spare=1\n", "hosts:1: 'spare' takes no value"},
      {"w slots=4 user=a user=b\n", "hosts:1: 'user' is given twice"},
      {"w slots=4 slots=2\n", "hosts:1: 'slots' is given twice"},
      {"w slots=4 slots=x\n", "hosts:1: 'slots' is given twice"},
      {"a 8 b 4\n",
       "hosts:1: expected 'HOST slots=N', found 'a 8 b 4'; write 'a slots=8' and a further line "
       "for "
       "each host of LSF's 'HOST N HOST N'"},
      {"w slots=1 " + std::string(200'000, 'x') + "\n",
       "hosts:1: unknown key '" + std::string(80, 'x') +
           "...' after slots=1 (a comment starts with '#')"},
      {"w" + std::string(200'000, ' ') + "x\n",
       "hosts:1: expected 'HOST slots=N', found 'w" + std::string(79, ' ') + "...'"},
      {std::string("w\0x slots=4\n", 12), "hosts:1: holds a control character"},
      {"w\x1b[31m slots=4\n", "hosts:1: holds a control character"},
  };
  for (const auto& [text, expected] : cases) EXPECT_EQ(ParsedHosts(text), expected) << text;
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

TEST(HostfileTest, AcceptsTheHostfilesOfOtherLaunchers) {
  const std::map<std::string, std::string> cases = {
      {"a slots=2 max-slots=2\nb slots=8 max_slots=16 # rack 1\n", "a=2,b=8"},
      {"a\na\n", "a=2"},
      {"b\nb\na # of the queue\nb\n", "b=3,a=1"},
      {"node[01-04] slots=8\n", "node01=8,node02=8,node03=8,node04=8"},
      {"n[8-11,100]x slots=1 user=me\n",
       "n8x=1;user=me,n9x=1;user=me,n10x=1;user=me,n11x=1;user=me,n100x=1;user=me"},
      {"r[1-2]n[01-02] slots=1\n", "r1n01=1,r1n02=1,r2n01=1,r2n02=1"},
      {"me@gpu[098-101] slots=4\n", "me@gpu098=4,me@gpu099=4,me@gpu100=4,me@gpu101=4"},
      {"n[2147483647-2147483648] slots=1\n", "n2147483647=1,n2147483648=1"},
      {"n[9223372036854775807] slots=1\n", "n9223372036854775807=1"},
  };
  for (const auto& [text, expected] : cases) EXPECT_EQ(ParsedHosts(text), expected) << text;
}

TEST(HostfileTest, RefusesNamesThatAreNone) {
  const std::map<std::string, std::string> cases = {
      {"a,b slots=8\n", "is a list: write one line for each host"},
      {"n[1-2],m[3-4] slots=8\n", "is a list: write one line for each host"},
      {"http://nodeA slots=8\n", "is a URL, not the name of a host: write 'nodeA'"},
      {"http://nodeA:8080/x\nhttp://nodeA:8080/x\n", "not the name of a host: write 'nodeA'"},
      {"[fe80::1] slots=1\n", "write an IPv6 address without brackets"},
      {"n[4-1] slots=1\n", "'[4-1]' is not a range of numbers like [01-04,7]"},
      {"n[1-] slots=1\n", "'[1-]' is not a range of numbers"},
      {"n[1-2]\nn[1-2]\n",
       "hosts:1: the range 'n[1-2]' is listed twice without slots=N: write one line, 'n[1-2] "
       "slots=N'"},
      {"n[07]\nn[07]\n", "'n[07]' is listed twice without slots=N"},
      {"n[1-2 slots=1\n", "the '[' of the host's name is never closed"},
      {"n[1-99999] slots=1\n", "has more than 65536 numbers"},
      {"n[0-9223372036854775807] slots=1\n", "has more than 65536 numbers"},
      {"n[9223372036854775808] slots=1\n", "is not a range of numbers"},
      {"n[1-999][1-999] slots=1\n", "the ranges name more than 65536 hosts"},
      {"n[1-2] slots=1 address=10.0.0.1\n", "address= is for one host"},
      {"n[1-3] slots=1\nn2 slots=1\n", "host n2 is listed twice, first in line 1"},
      {"slots=4 a\n", "expected 'HOST slots=N', found 'slots=4 a'"},
  };
  for (const auto& [text, expected] : cases) {
    const std::string error = ParsedHosts(text);
    EXPECT_TRUE(error.starts_with("hosts:")) << error;
    EXPECT_NE(error.find(expected), std::string::npos) << error;
  }
}

TEST(HostfileTest, ANamedFileMustExist) {
  const auto hosts = ReadHostfile("/nonexistent/hostfile");
  ASSERT_FALSE(hosts.ok());
  EXPECT_EQ(hosts.status().code(), StatusCode::kNotFound);
  EXPECT_EQ(hosts.status().message(), "hostfile: /nonexistent/hostfile: No such file or directory");
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
