#include "runtime/config/file/config_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "runtime/base/files.h"
#include "tests/support/program.h"

namespace ds::config {
namespace {

using ::testing::HasSubstr;

// base64.urlsafe_b64encode(json.dumps(config).encode()) of Python.
constexpr char kBase64[] = "eyJ0cmFpbl9iYXRjaF9zaXplIjogOCwgIngiOiAiPz8_fn5-In0=";
constexpr char kText[] = R"({"train_batch_size": 8, "x": "???~~~"})";

TEST(ReadConfigTextTest, ReadsAFile) {
  const ds::testing::TemporaryFolder folder;
  const std::string path = (folder.path() / "ds.json").string();
  ASSERT_TRUE(WriteFileAtomically(path, kText).ok());
  const auto config = ReadConfigText(path);
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->text, kText);
  EXPECT_EQ(config->name, path);
}

TEST(ReadConfigTextTest, DecodesBothBase64Alphabets) {
  std::string standard = kBase64;
  for (char& c : standard) c = c == '-' ? '+' : c == '_' ? '/' : c;
  ASSERT_NE(standard, kBase64);
  for (const std::string& argument : {std::string(kBase64), standard}) {
    const auto config = ReadConfigText(argument);
    ASSERT_TRUE(config.ok()) << config.status().message();
    EXPECT_EQ(config->text, kText);
    EXPECT_EQ(config->name, "the base64 config");
  }
}

TEST(ReadConfigTextTest, AMisspeltPathIsNotTakenForBase64) {
  for (const char* argument : {"", "dsconfig", "ds_config.json", "eyJ0cmFpbl9iYXRjaF9zaXplIjogOH0",
                               "W10=", "====", "e30=="}) {
    const auto config = ReadConfigText(argument);
    ASSERT_FALSE(config.ok()) << argument;
    EXPECT_THAT(config.status().message(), HasSubstr(argument));
  }
}

}  // namespace
}  // namespace ds::config
