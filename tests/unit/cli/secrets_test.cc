#include "cli/plan/secrets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/plan/exports.h"

namespace ds::cli {
namespace {

TEST(SecretsTest, AreKnownByAWordOfTheirName) {
  for (const char* name : {"HF_TOKEN", "token", "WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY",
                           "DB_PASSWORD", "AZUREML_RUN_TOKEN", "AZUREML_BLOB_ACCOUNT_KEY",
                           "GITHUB_PAT", "GOOGLE_APPLICATION_CREDENTIALS", "APIKEY"}) {
    EXPECT_TRUE(IsSecretName(name)) << name;
  }
  for (const char* name :
       {"", "PATH", "TOKENIZERS_PARALLELISM", "KEYBOARD", "MONKEY", "NCCL_DEBUG", "PATTERN", "_"}) {
    EXPECT_FALSE(IsSecretName(name)) << name;
  }
}

TEST(SecretsTest, WordsLoseTheirSecretValue) {
  EXPECT_EQ(RedactWord("HF_TOKEN=abc=d"), "HF_TOKEN=<redacted>");
  EXPECT_EQ(RedactWord("-xHF_TOKEN=abc"), "-xHF_TOKEN=<redacted>");
  EXPECT_EQ(RedactWord("--export=HF_TOKEN=abc"), "--export=HF_TOKEN=<redacted>");
  for (const char* word : {"A=1", "--export=A=1", "-x", "HF_TOKEN", "prog", "", "--lr=3e-4"}) {
    EXPECT_EQ(RedactWord(word), word);
  }
}

TEST(SecretsTest, StoredExportsNameASecretOnly) {
  EXPECT_THAT(StoredExports({"A=1", "HF_TOKEN=abc", "NCCL_*", "HOME"}),
              ::testing::ElementsAre("A=1", "HF_TOKEN", "NCCL_*", "HOME"));
}

}  // namespace
}  // namespace ds::cli
