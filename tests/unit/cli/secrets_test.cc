#include "cli/launch/secrets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ds::cli {
namespace {

using ::testing::ElementsAre;

TEST(SecretsTest, AreKnownByAWordOfTheirName) {
  for (const char* name : {"HF_TOKEN",
                           "token",
                           "WANDB_API_KEY",
                           "AWS_SECRET_ACCESS_KEY",
                           "DB_PASSWORD",
                           "AZUREML_RUN_TOKEN",
                           "AZUREML_BLOB_ACCOUNT_KEY",
                           "GITHUB_PAT",
                           "GOOGLE_APPLICATION_CREDENTIALS",
                           "APIKEY",
                           "PGPASSWORD",
                           "AWS_SECRETKEY",
                           "MYSQL_PWD",
                           "clientSecret",
                           "authToken",
                           "api-key",
                           "HF_TOKEN_2",
                           "DB_PASS",
                           "user.password",
                           "pw",
                           "auth",
                           "cookie",
                           "sig",
                           "X-Amz-Signature"}) {
    EXPECT_TRUE(IsSecretName(name)) << name;
  }
  for (const char* name : {"",
                           "PATH",
                           "TOKENIZERS_PARALLELISM",
                           "KEYBOARD",
                           "MONKEY",
                           "NCCL_DEBUG",
                           "PATTERN",
                           "_",
                           "PWD",
                           "OLDPWD",
                           "token_dtype",
                           "max_tokens",
                           "pad_token",
                           "sort_key",
                           "PGPASSFILE",
                           "PASSWORD_FILE",
                           "key_size",
                           "2",
                           "stop_sig",
                           "author"}) {
    EXPECT_FALSE(IsSecretName(name)) << name;
  }
}

std::vector<std::string> Hidden(const std::vector<std::string>& words) {
  return HideSecrets(words).words;
}

TEST(SecretsTest, TheValueOfASecretNameIsHidden) {
  EXPECT_THAT(Hidden({"HF_TOKEN=abc=d e", "--api-key=x y", "A=1", "--lr=3e-4", "--token_dtype=u"}),
              ElementsAre("HF_TOKEN=<redacted>", "--api-key=<redacted>", "A=1", "--lr=3e-4",
                          "--token_dtype=u"));
  for (const char* word : {"-x", "HF_TOKEN", "", "token", "=", "--", "-", "a:b", "x@y"}) {
    EXPECT_THAT(Hidden({word}), ElementsAre(word));
  }
}

TEST(SecretsTest, TheWordAfterASecretsFlagIsHidden) {
  EXPECT_THAT(Hidden({"prog", "--hf_token", "abc", "--password", "--lr", "1", "--key"}),
              ElementsAre("prog", "--hf_token", "<redacted>", "--password", "--lr", "1", "--key"));
  EXPECT_THAT(Hidden({"--token", "-Xabcdef123", "--token", "-v"}),
              ElementsAre("--token", "<redacted>", "--token", "-v"));
  EXPECT_THAT(Hidden({"--token=a", "b", "HF_TOKEN", "c"}),
              ElementsAre("--token=<redacted>", "b", "HF_TOKEN", "c"));
}

// What is stored is what the user typed: the file is his alone.
TEST(SecretsTest, NothingElseIsGuessed) {
  for (const char* word : {"hf_0123456789ABCDEF", "postgres://u:p@h/db", "export HF_TOKEN=abc; run",
                           R"({"password": "a b"})", "me:abc", "-----BEGIN RSA PRIVATE KEY-----"}) {
    EXPECT_THAT(Hidden({"-u", word}), ElementsAre("-u", word));
  }
}

}  // namespace
}  // namespace ds::cli
