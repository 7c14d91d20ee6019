#include "cli/commands/command_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "runtime/base/files.h"
#include "tests/places.h"

namespace ds::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using More = Completion::More;

std::vector<std::string> TextsOf(const std::vector<std::string>& typed) {
  std::vector<std::string> words;
  for (const auto& [word, meaning] : CompleteWords(typed).words) words.push_back(word);
  return words;
}

More MoreOf(const std::vector<std::string>& typed) { return CompleteWords(typed).more; }

TEST(CompleteWordsTest, CommandsAndPrograms) {
  EXPECT_THAT(TextsOf({"re"}), ElementsAre("resume", "report"));
  EXPECT_THAT(TextsOf({""}), Contains("train"));
  EXPECT_EQ(MoreOf({"tr"}), More::kFiles);
  EXPECT_EQ(MoreOf({"py"}), More::kProgram) << "no command begins so";
  EXPECT_THAT(TextsOf({"help", "trai"}), ElementsAre("train", "trainer", "training"));
}

TEST(CompleteWordsTest, FlagsOfTheirPlace) {
  EXPECT_THAT(TextsOf({"--num_g"}), ElementsAre("--num_gpus"));
  EXPECT_THAT(TextsOf({"--num_gpus", "2", "train", "--step"}), Contains("--steps"));
  EXPECT_THAT(TextsOf({"--step"}), IsEmpty()) << "a flag of train's";
  EXPECT_THAT(TextsOf({"check", "--num_n"}), IsEmpty()) << "a launch flag";
  EXPECT_THAT(TextsOf({"--nproc"}), IsEmpty()) << "dsrun's own name is offered";
  EXPECT_THAT(TextsOf({"-"}), Contains("-H"));
}

TEST(CompleteWordsTest, ValuesOfFlags) {
  EXPECT_THAT(TextsOf({"--device", "c"}), ElementsAre("cpu", "cuda"));
  EXPECT_THAT(TextsOf({"--device=c"}), ElementsAre("--device=cpu", "--device=cuda"));
  EXPECT_THAT(TextsOf({"--device", "=", "c"}), ElementsAre("cpu", "cuda")) << "as bash splits it";
  EXPECT_THAT(TextsOf({"--device", "="}), ElementsAre("auto", "cpu", "cuda"));
  EXPECT_EQ(MoreOf({"--hostfile", "ho"}), More::kFiles);
  EXPECT_EQ(MoreOf({"-H", ""}), More::kFiles);
  EXPECT_EQ(MoreOf({"--run_dir="}), More::kFolders);
  EXPECT_EQ(MoreOf({"--num_gpus", ""}), More::kNothing);
  EXPECT_THAT(TextsOf({"--num_gpus", "tr"}), IsEmpty());
  EXPECT_THAT(TextsOf({"--quiet", "trai"}), ElementsAre("train"));
  EXPECT_THAT(TextsOf({"train", "--recipe", "l"}), ElementsAre("list", "llama-sft-zero2", "lora"));
}

TEST(CompleteWordsTest, ValuesThatStandForOthers) {
  EXPECT_THAT(TextsOf({"train", "--packing", ""}), ElementsAre("stream", "whole", "none"));
  EXPECT_THAT(TextsOf({"train", "--recompute", "e"}), ElementsAre("every:"));
  EXPECT_THAT(TextsOf({"train", "--lr_scheduler_type", "inv"}), ElementsAre("inverse_sqrt"));
  EXPECT_THAT(TextsOf({"train", "--model", "gpt2-d"}), ElementsAre("gpt2-demo"));
  EXPECT_EQ(MoreOf({"train", "--model", "gpt2-d"}), More::kFiles);
  EXPECT_THAT(TextsOf({"train", "--tokenizer", ""}), ElementsAre("bytes"));
  EXPECT_EQ(MoreOf({"train", "--tokenizer", ""}), More::kFolders);
  EXPECT_THAT(TextsOf({"--ulimit", ""}), IsEmpty());
}

TEST(CompleteWordsTest, ArgumentsOfCommands) {
  EXPECT_EQ(MoreOf({"check", "c"}), More::kFiles);
  EXPECT_THAT(TextsOf({"checkpoint", ""}), ElementsAre("verify", "list"));
  EXPECT_EQ(MoreOf({"checkpoint", "verify", "r"}), More::kFolders);
  EXPECT_EQ(MoreOf({"resume", ""}), More::kFolders);
  EXPECT_THAT(TextsOf({"completion", "z"}), ElementsAre("zsh"));
}

TEST(CompleteWordsTest, SuggestsNothingAfterAProgram) {
  for (const std::vector<std::string>& typed :
       std::vector<std::vector<std::string>>{{"train.py", "--num_g"},
                                             {"run", "prog", "--num_g"},
                                             {"--", "tr"},
                                             {"run", "--", "--q"}}) {
    EXPECT_THAT(TextsOf(typed), IsEmpty());
    EXPECT_EQ(MoreOf(typed), More::kProgram);
  }
}

// Every command describes itself and every flag has a meaning, or the completions have gaps.
TEST(CommandFlagsTest, EveryCommandDescribesItsFlags) {
  for (const Command& command : Commands()) {
    const FlagDescriptions described = DescribeCommand(command);
    if (command.name == "help" || command.name == "version") continue;
    EXPECT_THAT(described.usage, HasSubstr(std::string(command.name)));
    EXPECT_FALSE(described.flags.empty()) << command.name;
    for (const FlagDescription& flag : described.flags) {
      EXPECT_FALSE(flag.names.empty()) << command.name;
      EXPECT_NE(flag.help, "") << command.name << " " << flag.names.front();
    }
  }
}

// The kinds of values that have no list, and the flags that take the name of something of the user.
const std::set<std::string> kOpenKinds = {
    "ADDR", "BYTES", "CORES", "DIR",    "FACTOR",  "FILE",         "FILTER",
    "G",    "JSON",  "K",     "L",      "M",       "MASK",         "MESH",
    "MIB",  "N",     "NAMES", "P",      "PATH",    "PATTERN",      "PORT",
    "R",    "RANKS", "RATE",  "S",      "SECONDS", "SHARE",        "SIZE",
    "T",    "TEXT",  "TOKEN", "TOKENS", "X",       "NAME[=VALUE]", "NAME=SOFT[:HARD]"};
const std::set<std::string> kOpenNames = {"--checkpoint", "--completion_field", "--content_field",
                                          "--data_field", "--messages_field",   "--prompt_field",
                                          "--role_field", "--text_field",       "--tools_field"};

void ExpectValues(const FlagDescription& flag) {
  if (flag.value.empty() || kOpenKinds.contains(flag.value)) return;
  if (flag.value == "NAME" && kOpenNames.contains(flag.names.front())) return;
  const bool is_listed = flag.values.size() > 1 || flag.value == "RECIPE";
  EXPECT_TRUE(is_listed) << flag.names.front()
                         << " has a new kind of value: list its values (OfferValues), or add the "
                         << "kind to those without a list";
}

// A flag that takes only some values is completed with them.
TEST(CommandFlagsTest, EveryFlagWithFewValuesListsThem) {
  for (const FlagDescription& flag : DescribeLaunchFlags().flags) ExpectValues(flag);
  for (const Command& command : Commands()) {
    if (command.name == "help" || command.name == "version") continue;
    SCOPED_TRACE(command.name);
    for (const FlagDescription& flag : DescribeCommand(command).flags) ExpectValues(flag);
  }
}

// CLI11's own check of a list of values is not known to the completions.
TEST(CommandFlagsTest, ValuesAreCheckedByTheListThatIsCompleted) {
  for (const auto& entry : fs::recursive_directory_iterator(DS_SOURCE_DIR "/cli")) {
    if (entry.path().extension() != ".cc" || entry.path().filename() == "flag_parser.cc") continue;
    const StatusOr<std::string> source = ReadFile(entry.path());
    ASSERT_TRUE(source.ok());
    EXPECT_THAT(*source, Not(HasSubstr("CLI::IsMember"))) << entry.path() << ": use TakeOneOf";
  }
}

// The part of the manual page behind this line, up to the next of its kind.
std::string Section(const std::string& page, const std::string& title) {
  const std::size_t begin = page.find(title + "\n");
  if (begin == std::string::npos) return "";
  const std::string kind = "\n" + title.substr(0, title.find(' ') + 1);
  return page.substr(begin, page.find(kind, begin + 1) - begin);
}

// As the page writes it.
std::string InBold(std::string name) {
  for (std::size_t at = name.find('-'); at != std::string::npos; at = name.find('-', at + 2)) {
    name.insert(at, "\\");
  }
  return "\\fB" + name + "\\fR";
}

void ExpectFlags(const std::string& section, const FlagDescriptions& described) {
  for (const FlagDescription& flag : described.flags) {
    if (flag.names.front() == "--help") continue;
    for (const std::string& name : flag.names) EXPECT_THAT(section, HasSubstr(InBold(name)));
    EXPECT_FALSE(flag.help.empty()) << flag.names.front();
  }
}

TEST(ManualPageTest, HasHeadingsOfGroups) {
  const std::string page = ManualPage();
  EXPECT_THAT(Section(page, ".SH LAUNCH FLAGS"), HasSubstr(".PP\n\\fILaunch: network\\fR\n.TP\n"));
  const std::string train = Section(page, ".SS train");
  EXPECT_THAT(train, HasSubstr(".PP\n\\fIEvaluation\\fR\n.TP\n\\fB\\-\\-eval_data"));
  EXPECT_THAT(train, Not(HasSubstr("Launch: ")));
}

TEST(ManualPageTest, HasEveryCommandAndEveryFlagInItsSection) {
  const std::string page = ManualPage();
  const std::string commands = Section(page, ".SH COMMANDS");
  const std::string launch = Section(page, ".SH LAUNCH FLAGS");
  ExpectFlags(launch, DescribeLaunchFlags());
  for (const Command& command : Commands()) {
    SCOPED_TRACE(command.name);
    EXPECT_THAT(commands, HasSubstr(".TP\n" + InBold(std::string(command.name))));
    if (command.name == "help" || command.name == "version") continue;  // they take none
    const std::string own = Section(page, ".SS " + std::string(command.name));
    EXPECT_THAT(own, HasSubstr("dsrun"));
    ExpectFlags(launch + own, DescribeCommand(command));
  }
}

}  // namespace
}  // namespace ds::cli
