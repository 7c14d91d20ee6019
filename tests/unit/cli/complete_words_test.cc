#include "cli/commands/command_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ds::cli {
namespace {

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
