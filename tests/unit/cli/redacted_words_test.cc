#include "cli/launch/secrets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ds::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const std::vector<std::string> kGiven = {"dsrun",    "-x",     "A=1",         "-qxB=2",
                                         "--export", "C=",     "prog",        "A=1",
                                         "--key",    "secret", "--token=abc", "<redacted>"};
const std::vector<ValuePosition> kValues = {
    {.words_after = 9, .bytes = 1}, {.words_after = 8, .bytes = 1}, {.words_after = 6, .bytes = 0}};

TEST(RedactedWordsTest, ValuesAndSecretsAreHiddenAndTheirPlacesNamed) {
  const RedactedWords redacted = HideSecrets(kGiven, kValues);
  EXPECT_THAT(redacted.words, ElementsAre("dsrun", "-x", "A=<redacted>", "-qxB=<redacted>",
                                          "--export", "C=<redacted>", "prog", "A=1", "--key",
                                          "<redacted>", "--token=<redacted>", "<redacted>"));
  EXPECT_THAT(redacted.indices, ElementsAre(2, 3, 5, 9, 10));
  EXPECT_THAT(HideSecrets({"prog", "--lr", "1"}).indices, IsEmpty());
}

// What job.json shows is recognized, and a word that only looks like it is not.
TEST(RedactedWordsTest, AreRefusedWhereTheyHideSomething) {
  const std::vector<ValuePosition> values = {{.words_after = 9, .bytes = 10},
                                             {.words_after = 8, .bytes = 10},
                                             {.words_after = 6, .bytes = 10}};
  EXPECT_EQ(
      RedactCommandLine(HideSecrets(kGiven, kValues).words, values).status().message(),
      "this was copied from output in which dsrun hides secrets and other values: -x A=<redacted>, "
      "-qxB=<redacted>, --export C=<redacted>, --key <redacted>, --token=<redacted>; give the "
      "values themselves again (-x NAME takes the value of this shell)");
}

TEST(RedactedWordsTest, AreAUsersOwnElsewhere) {
  for (const char* word : {"<redacted>", "--mask_token=<redacted>", "a <redacted> b",
                           "x:<redacted>", "http://h/<redacted>", "redacted"}) {
    EXPECT_TRUE(RedactCommandLine({"dsrun", "prog", word}, {}).ok()) << word;
  }
  EXPECT_TRUE(RedactCommandLine({"prog", "--mask_token", "<redacted>"}, {}).ok());
}

}  // namespace
}  // namespace ds::cli
