#include "runtime/rank/text_printer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <memory>

namespace ds::rank {
namespace {

using ::testing::HasSubstr;

TEST(TextPrinterTest, StopsWhenOutputCannotBeWritten) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> full(std::fopen("/dev/full", "w"),
                                                             &std::fclose);
  ASSERT_NE(full, nullptr);
  const nlohmann::ordered_json prompt = "a";
  TextPrinter printer(full.get(), {.streams = true}, nullptr);
  printer.Begin({{.prompt = &prompt, .tokens = 1}});
  EXPECT_TRUE(printer.accepts_more());
  printer.OnToken(0, 'b');
  EXPECT_FALSE(printer.accepts_more());
  EXPECT_THAT(printer.status().message(), HasSubstr("standard output"));
}

}  // namespace
}  // namespace ds::rank
