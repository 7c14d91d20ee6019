#include "runtime/base/utf8.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace ds {
namespace {

TEST(Utf8Test, FindsWhereTextEndsBeingUtf8) {
  const std::vector<std::pair<std::string, std::size_t>> cases = {
      {"", 0},
      {"plain", 5},
      {"\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80", 9},
      {"a\xFF", 1},
      {"a\x80", 1},
      {"a\xC3", 1},
      {"\xC0\xAF", 0},          // '/' in two bytes
      {"\xE0\x80\xAF", 0},      // '/' in three
      {"\xED\x9F\xBF", 3},      // the last before the surrogates
      {"\xED\xA0\x80", 0},      // a surrogate
      {"\xF4\x8F\xBF\xBF", 4},  // U+10FFFF
      {"\xF4\x90\x80\x80", 0},  // above it
      {"x\xE2\x82", 1},         // cut
      {"x\xF0\x9F\x98"
       "a",
       1},
  };
  for (const auto& [text, valid] : cases) EXPECT_EQ(ValidUtf8Prefix(text), valid) << text;
}

TEST(Utf8Test, AppendsValidCodePoints) {
  for (const char32_t code_point :
       {0x00u, 0x7Fu, 0x80u, 0x7FFu, 0x800u, 0xD7FFu, 0xE000u, 0xFFFFu, 0x10000u, 0x10FFFFu}) {
    std::string text;
    AppendUtf8(code_point, &text);
    EXPECT_EQ(ValidUtf8Prefix(text), text.size()) << static_cast<std::uint32_t>(code_point);
  }
  std::string euro;
  AppendUtf8(0x20AC, &euro);
  EXPECT_EQ(euro, "\xE2\x82\xAC");
}

}  // namespace
}  // namespace ds
