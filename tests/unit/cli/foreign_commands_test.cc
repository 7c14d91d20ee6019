#include "cli/commands/foreign_commands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ds::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(ForeignCommandsTest, ACommandOfAnotherProgramIsExplained) {
  const Status refused = RefuseForeignCommand("export");
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.message(), StartsWith("there is no command 'export': "));
  EXPECT_THAT(refused.message(), HasSubstr("--save_hf DIR"));
  EXPECT_THAT(RefuseForeignCommand("finetune").message(), HasSubstr("`dsrun train`"));
  EXPECT_THAT(RefuseForeignCommand("chat").message(), HasSubstr("`dsrun generate"));
}

TEST(ForeignCommandsTest, OtherWordsAreNot) {
  for (const char* word : {"", "train", "tran", "Export"}) {
    EXPECT_TRUE(RefuseForeignCommand(word).ok()) << word;
  }
}

}  // namespace
}  // namespace ds::cli
