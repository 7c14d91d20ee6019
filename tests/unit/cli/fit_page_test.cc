#include "cli/commands/fit_page.h"

#include <gtest/gtest.h>

#include "cli/flags/wrap_text.h"

namespace ds::cli {
namespace {

TEST(WrapTextTest, BreaksAtBlanks) {
  EXPECT_EQ(WrapText("one two three", 7), "one two\nthree");
  EXPECT_EQ(WrapText("one two three", 13), "one two three");
  EXPECT_EQ(WrapText("one\ntwo three\n", 5), "one\ntwo\nthree\n");
  EXPECT_EQ(WrapText("unbreakable word", 5), "unbreakable\nword");
  EXPECT_EQ(WrapText("", 5), "");
}

TEST(WrapTextTest, IndentsTheLinesThatContinueAnother) {
  EXPECT_EQ(WrapText("  3  lacks memory for it", 14, 5), "  3  lacks\n     memory\n     for it");
  EXPECT_EQ(WrapText("  unbreakable word", 5, 2), "  unbreakable\n  word");
}

TEST(FitPageTest, KeepsWhatFits) {
  const std::string page =
      "# a: page\n\nText.\n\n| key | value |\n|---|---|\n| `a` | b\\|c |\n\n    code that is "
      "long\n";
  EXPECT_EQ(FitPage(page, 17), page);
}

TEST(FitPageTest, WrapsTextAndItemsButNoCode) {
  EXPECT_EQ(FitPage("one two three\n", 8), "one two\nthree\n");
  EXPECT_EQ(FitPage("- one two three\n", 8), "- one\n  two\n  three\n");
  EXPECT_EQ(FitPage("    one two three\n", 8), "    one two three\n");
}

TEST(FitPageTest, ListsTheRowsOfWideTables) {
  const std::string page =
      "before\n\n"
      "| key | type | meaning |\n"
      "|---|---|---|\n"
      "| `steps` | int | the number of steps of the run |\n"
      "| `a\\|b` | bool | |\n";
  EXPECT_EQ(FitPage(page, 30),
            "before\n\n"
            "`steps`\n"
            "  type     int\n"
            "  meaning  the number of steps\n"
            "           of the run\n"
            "`a|b`\n"
            "  type     bool\n");
}

}  // namespace
}  // namespace ds::cli
