#include "runtime/base/shell_quote.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <memory>

namespace ds {
namespace {

TEST(ShellQuote, LeavesPlainWordsAlone) {
  for (const char* word : {"dsrun", "--num_gpus=2", "/a/b-c_d.e", "user@host:22", "100%", "a+b"}) {
    EXPECT_EQ(ShellQuote(word), word);
  }
  EXPECT_EQ(ShellQuote(""), "''");
  EXPECT_EQ(ShellQuote("a b"), "'a b'");
  EXPECT_EQ(ShellLine({"ls", "my file", "it's"}), R"(ls 'my file' 'it'\''s')");
}

// The shell itself judges.
TEST(ShellQuote, AShellReadsTheWordsAgain) {
  for (const std::string word :
       {"a b", "it's", "\"$HOME\"", "`id`", "a\\nb", "*", "~", "{a,b}", "a;b", "#no", "!x", "-n"}) {
    const std::string line = ShellLine({"printf", "%s", "-" + word});
    const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(line.c_str(), "r"), ::pclose);
    std::string read(100, '\0');
    read.resize(std::fread(read.data(), 1, read.size(), pipe.get()));
    EXPECT_EQ(read, "-" + word) << line;
  }
}

}  // namespace
}  // namespace ds
