// The generated reference page, share/dsrun/ds_config.md.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "runtime/base/files.h"
#include "runtime/config/keys/registry.h"
#include "tests/places.h"

namespace ds::config {
namespace {

using ::testing::HasSubstr;

// The row of `key`, or "".
std::string RowOf(const std::string& page, std::string_view key) {
  const std::size_t begin = page.find("\n| `" + std::string(key) + "` | ");
  if (begin == std::string::npos) return "";
  return page.substr(begin + 1, page.find('\n', begin + 1) - begin - 1);
}

// What a row says of a key in this state, and of no other key.
const char* MarkOf(SettingState state) {
  switch (state) {
    case SettingState::kWorks:
      return " *Changing it:* ";
    case SettingState::kRefused:
      return "| refused: ";
    case SettingState::kAccepted:
      return "| no effect: ";
    case SettingState::kRenamed:
      return "| deprecated: write ";
    case SettingState::kSection:
      return "| section |";
  }
  return "";
}

TEST(SettingsPageTest, HasARowForEveryKey) {
  const auto page = ReadFile(DS_BIN_DIR "/../share/dsrun/ds_config.md");
  ASSERT_TRUE(page.ok()) << page.status().message();
  for (const Setting& setting : AllSettings()) {
    const std::string row = RowOf(*page, setting.key);
    ASSERT_NE(row, "") << setting.key;
    EXPECT_THAT(row, HasSubstr(std::string(setting.doc.substr(0, 9)))) << setting.key;
    EXPECT_THAT(row, HasSubstr(MarkOf(setting.state))) << setting.key;
  }
  EXPECT_THAT(RowOf(*page, "bf16"), HasSubstr("Also `bfloat16`."));
  EXPECT_THAT(RowOf(*page, "zero_optimization.stage"),
              HasSubstr("int, at least 0, at most 3 | `0`"));
}

}  // namespace
}  // namespace ds::config
