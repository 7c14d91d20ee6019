// What `dsrun translate` and what is laid below the flags of `train` say on a command line.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "runtime/base/files.h"
#include "tests/places.h"
#include "tests/support/program.h"

namespace ds::testing {
namespace {

using ::testing::HasSubstr;

class TranslateCommandTest : public ::testing::Test {
 protected:
  ProgramResult Dsrun(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), DS_BIN_DIR "/dsrun");
    return RunProgram(arguments, {.working_directory = folder_.path()});
  }
  void ExpectRefused(const std::vector<std::string>& arguments, const std::string& message) {
    const ProgramResult result = Dsrun(arguments);
    EXPECT_EQ(result.status, 2) << message;
    EXPECT_EQ(result.err, "dsrun: " + message + "\n");
  }
  std::string Write(const std::string& name, const std::string& text) {
    EXPECT_TRUE(WriteFileAtomically(folder_.path() / name, text).ok());
    return (folder_.path() / name).string();
  }

  TemporaryFolder folder_;
};

TEST_F(TranslateCommandTest, ShowsMappedSettingsAndRefusesOthers) {
  const ProgramResult misspelt = Dsrun({"train", "--recipe", "lroa"});
  EXPECT_EQ(misspelt.status, 2);
  EXPECT_THAT(misspelt.err, HasSubstr("no such recipe ("));
  EXPECT_THAT(misspelt.err, HasSubstr("; did you mean 'lora'?\n"));
  const std::string arguments = Write("args.json", R"({"max_steps": 5, "adafactor": true})");
  ExpectRefused({"train", "--recipe", "lora", "--from_hf_trainer", arguments},
                "--recipe and --from_hf_trainer: give one of them");
  ExpectRefused({"train", "--from_hf_trainer", arguments},
                "--from_hf_trainer " + arguments +
                    ": not everything maps (dsrun translate --partial shows the rest):\ndsrun: "
                    "adafactor true: dsrun has no Adafactor");
  ExpectRefused({"translate"}, "translate: no FILE given; see dsrun translate --help");
  ExpectRefused({"translate", arguments, "--parial"},
                "unknown flag --parial; did you mean '--partial'?");
  ExpectRefused({"translate", arguments, "more"}, "unexpected argument 'more'");
  EXPECT_EQ(Dsrun({"translate", arguments}).status, 2);
  const ProgramResult absent = Dsrun({"translate", "nope"});
  EXPECT_EQ(absent.status, 2);
  EXPECT_THAT(absent.err, HasSubstr("translate nope: no such file; name a TrainingArguments"));
  const std::string out = (folder_.path() / "ds.json").string();
  const ProgramResult partial = Dsrun({"translate", arguments, "--partial", "--out", out});
  EXPECT_EQ(partial.status, 0);
  EXPECT_THAT(partial.out, HasSubstr("--deepspeed_config " + out));
  EXPECT_THAT(partial.err, HasSubstr("missing   adafactor true: dsrun has no Adafactor"));
  EXPECT_EQ(Dsrun({"check", out, "--per_device_train_batch_size", "8"}).status, 0)
      << "the config is a good one";
  ExpectRefused(
      {"translate", "--out", out, "deepspeed", "train.py"},
      "--out " + out + ": no ds_config results that could be written there; leave --out out");
  const ProgramResult json = Dsrun({"translate", "--json", "--", "deepspeed", "train.py"});
  EXPECT_EQ(nlohmann::json::parse(json.out)["command"].dump(),
            R"(["dsrun","--pass_local_rank","train.py"])");
}

}  // namespace
}  // namespace ds::testing
