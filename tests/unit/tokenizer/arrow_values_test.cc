#include "runtime/tokenizer/corpus/arrow_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/tokenizer/corpus/row.h"

namespace ds::tokenizer {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string ArrowErrorOf(const nlohmann::ordered_json& row, const RowOptions& options = {}) {
  const auto read = ReadRow(row.dump(), options, /*has_template=*/true);
  return read.ok() ? "is read" : read.status().message();
}

TEST(ArrowValues, NamesATypeOtherThanTextWithARemedy) {
  const nlohmann::ordered_json binary = {{"arrow", "binary"}};
  const std::string advice =
      "; the column \"text\" has Arrow's type binary, which is no text: write it as string "
      "(pyarrow: column.cast(\"string\"))";
  EXPECT_THAT(ArrowErrorOf({{"text", binary}}), HasSubstr(advice));
  EXPECT_THAT(ArrowErrorOf({{"text", binary}}, {.text_field = "text"}), HasSubstr(advice));
  EXPECT_THAT(ArrowErrorOf({{"prompt", "a"}, {"completion", {{"arrow", "large_binary"}}}}),
              HasSubstr("\"completion\" has Arrow's type large_binary"));
  EXPECT_THAT(ArrowErrorOf({{"instruction", "a"}, {"output", binary}}),
              HasSubstr("\"output\" has Arrow's type binary"));
  EXPECT_EQ(ArrowErrorOf({{"text", "a"}, {"raw", binary}}), "is read");
  EXPECT_THAT(ArrowErrorOf({{"text", 3}}), Not(HasSubstr("Arrow")));
}

}  // namespace
}  // namespace ds::tokenizer
