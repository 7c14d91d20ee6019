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

TEST(SecretsTest, WordsLoseTheirSecretValue) {
  EXPECT_EQ(RedactText("HF_TOKEN=abc=d e"), "HF_TOKEN=<redacted>");
  EXPECT_EQ(RedactText("-xHF_TOKEN=abc"), "-xHF_TOKEN=<redacted>");
  EXPECT_EQ(RedactText("--export=HF_TOKEN=abc"), "--export=HF_TOKEN=<redacted>");
  EXPECT_EQ(RedactText("--api-key=x y"), "--api-key=<redacted>");
  for (const char* word :
       {"A=1", "--export=A=1", "-x", "HF_TOKEN", "prog", "", "--lr=3e-4", "-xA=1", "token", "=",
        "--token_dtype=uint16", "--", "-", "a:b", "x@y", "C:\\key", "ssh://user@host:22/path"}) {
    EXPECT_EQ(RedactText(word), word);
  }
}

TEST(SecretsTest, RemovesSecretsAnywhereInTexts) {
  const std::vector<std::pair<std::string, std::string>> texts = {
      {"export HF_TOKEN=abc; run --lr 1", "export HF_TOKEN=<redacted>; run --lr 1"},
      {"curl --api-key abc -v", "curl --api-key <redacted> -v"},
      {R"({"password": "a b", "lr": 1})", R"({"password": "<redacted>", "lr": 1})"},
      {"password: abc", "password: <redacted>"},
      {"Authorization: Bearer abc", "Authorization: <redacted>"},
      {"X: Bearer 0123456789", "X: Bearer <redacted>"},
      {"https://h/p?a=1&access_token=abc&b=2", "https://h/p?a=1&access_token=<redacted>&b=2"},
      {"postgres://u:p%40w@h/db?x=1", "postgres://u:<redacted>@h/db?x=1"},
      {"postgres://u:hun/ter2@db/x", "postgres://u:<redacted>@db/x"},
      {"mysql://u:p#w@h y@z", "mysql://u:<redacted>@h y@z"},
      {"http://h:80/p@x", "http://h:80/p@x"},
      {R"({"password":"ab\"cd","lr":1})", R"({"password":"<redacted>","lr":1})"},
      {"curl --api-key -Xabc -v", "curl --api-key <redacted> -v"},
      {"--dsn=https://abc@h:80/1", "--dsn=https://<redacted>@h:80/1"},
      {"pip install git+https://abc@h/x", "pip install git+https://<redacted>@h/x"},
      {"git+https://h/x@v1:2", "git+https://h/x@v1:2"},
      {"abfss://data@h/x", "abfss://data@h/x"},
      {"https://@h", "https://@h"},
      {"https://h/b?sv=1&sig=a%2Fb&se=2", "https://h/b?sv=1&sig=<redacted>&se=2"},
      {"curl -u me:abc -v", "curl -u me:<redacted> -v"},
      {"curl --proxy-user 'me:a b' -v", "curl --proxy-user 'me:<redacted>' -v"},
      {"--user=me:abc", "--user=me:<redacted>"},
      {"docker run -u 1000:1000 x", "docker run -u 1000:1000 x"},
      {"curl -u http://h:80/", "curl -u http://h:80/"},
      {"a https://u:p@h https://u:q@h/x", "a https://u:<redacted>@h https://u:<redacted>@h/x"},
  };
  for (const auto& [text, shown] : texts) EXPECT_EQ(RedactText(text), shown);
}

TEST(SecretsTest, TokensAreKnownByTheirShape) {
  const std::string tail = "0123456789ABCDEF";
  for (const auto& [token, shown] : std::vector<std::pair<std::string, std::string>>{
           {"hf_" + tail, "hf_<redacted>"},
           {"sk-" + tail, "sk-<redacted>"},
           {"sk-ant-api03-" + tail, "sk-<redacted>"},
           {"glpat-" + tail, "glpat-<redacted>"},
           {"AKIA" + tail, "AKIA<redacted>"},
           {"github_pat_abcd" + tail, "github_pat_<redacted>"},
           {"ghp_" + tail + tail, "ghp_<redacted>"},
           {"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N",
            "eyJ<redacted>"}}) {
    EXPECT_EQ(RedactText("x " + token + " y"), "x " + shown + " y");
    EXPECT_EQ(RedactText("--model=" + token), "--model=" + shown);
  }
  EXPECT_EQ(RedactText("-----BEGIN RSA PRIVATE KEY-----\nMIIB"), "-----BEGIN <redacted>");
  for (const char* word : {"hf_transfer", "sk-learn", "task-0123456789abcdefgh", "AKIAX", "eyJ",
                           "/data/hf_cache/models", "dapi-gateway"}) {
    EXPECT_EQ(RedactText(word), word);
  }
}

TEST(SecretsTest, TheWordAfterASecretsFlagIsASecret) {
  EXPECT_THAT(RedactWords({"prog", "--hf_token", "abc", "--password", "--lr", "1", "--key"}),
              ElementsAre("prog", "--hf_token", "<redacted>", "--password", "--lr", "1", "--key"));
  EXPECT_THAT(RedactWords({"--token", "-Xabcdef123", "--token", "-v"}),
              ElementsAre("--token", "<redacted>", "--token", "-v"));
  EXPECT_THAT(RedactWords({"-u", "me:a b", "--user", "me", "-u", "1:2", "-u", "x.py", "a:b"}),
              ElementsAre("-u", "me:<redacted>", "--user", "me", "-u", "1:2", "-u", "x.py", "a:b"));
  EXPECT_THAT(RedactWords({"--token_dtype", "uint16"}), ElementsAre("--token_dtype", "uint16"));
  EXPECT_THAT(RedactWords({"-x", "HF_TOKEN=a b", "-x", "A=1"}),
              ElementsAre("-x", "HF_TOKEN=<redacted>", "-x", "A=1"));
}

}  // namespace
}  // namespace ds::cli
