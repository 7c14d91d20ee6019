#include "runtime/base/json_text.h"

#include <gtest/gtest.h>

namespace ds {
namespace {

TEST(JsonText, LoneSurrogatesAreFound) {
  EXPECT_EQ(FindLoneSurrogate(R"({"a": "\ud83d"})"), 7U);
  EXPECT_EQ(FindLoneSurrogate(R"({"a": "x\uDE00y"})"), 8U);
  EXPECT_EQ(FindLoneSurrogate(R"({"a": "\ud83d\ud83d\ude00"})"), 7U);
  EXPECT_EQ(FindLoneSurrogate(R"({"a": "\ud83d\ude00\ude00"})"), 19U);
  for (const char* whole :
       {R"({"a": "\ud83d\ude00"})", R"({"a": "\\ud83d"})", R"({"a": "é\u00e9"})",
        R"({"a": "\\\\ude00\n"})", "", "\\", R"("\u12)"}) {
    EXPECT_EQ(FindLoneSurrogate(whole), std::nullopt) << whole;
  }
}

}  // namespace
}  // namespace ds
