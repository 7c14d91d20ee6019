#include "runtime/base/printable.h"

#include <gtest/gtest.h>

namespace ds {
namespace {

TEST(PrintableTest, PlainTextStays) {
  for (const char* text :
       {"", "plain", "two\nlines\tand a tab", "a\\b", "grüße 東京 🙂", "C:\\x1b"}) {
    EXPECT_EQ(Printable(text), text);
  }
}

TEST(PrintableTest, ControlCharactersAreWritten) {
  EXPECT_EQ(Printable("\x1b]0;title\x07"), "\\x1b]0;title\\x07");
  EXPECT_EQ(Printable("a\rb\x7f\b"), "a\\x0db\\x7f\\x08");
  EXPECT_EQ(Printable(std::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(Printable("\xc2\x9b"
                      "31m"),
            "\\x9b31m");  // CSI of C1, as UTF-8
}

TEST(PrintableTest, EscapesInvalidUtf8) {
  EXPECT_EQ(Printable("\x9b"
                      "31m"),
            "\\x9b31m");
  EXPECT_EQ(Printable("a\xff\xc3"), "a\\xff\\xc3");
  EXPECT_EQ(Printable("\xe2\x82 x"), "\\xe2\\x82 x");
}

TEST(PrintableTest, DirectionsAreWritten) {
  EXPECT_EQ(Printable("a\u202eb\u2066c\u200fd"), "a\\u202eb\\u2066c\\u200fd");
}

}  // namespace
}  // namespace ds
