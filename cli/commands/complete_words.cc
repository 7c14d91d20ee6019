#include "cli/commands/command_flags.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "cli/train/share_folder.h"

namespace ds::cli {
namespace {

using More = Completion::More;

// Arguments after the name of a command, without flags.
struct Positionals {
  std::string_view command;
  std::vector<std::string_view> words;
  More more = More::kNothing;
};

const Positionals& PositionalsOf(std::string_view command) {
  static const Positionals kKnown[] = {
      {"run", {}, More::kProgram},
      {"plan", {}, More::kProgram},
      {"resume", {}, More::kFolders},
      {"check", {}, More::kFiles},
      {"translate", {}, More::kFiles},
      {"checkpoint", {"verify", "list"}, More::kFolders},
      {"completion", {"bash", "zsh", "fish"}},
  };
  static const Positionals kNone{};
  const auto* found =
      std::find_if(std::begin(kKnown), std::end(kKnown),
                   [&](const Positionals& known) { return known.command == command; });
  return found == std::end(kKnown) ? kNone : *found;
}

// Returns the words for a value of FlagDescription: itself, "every:" for "every:N", or the names of
// a kind that this program knows.
std::vector<std::string> WordsOf(const std::string& value) {
  const StatusOr<ShareFolder> share = ShareFolder::OfThisProgram();
  if (value == "PRESET") return share.ok() ? share->Presets() : std::vector<std::string>();
  if (value == "RECIPE") {
    std::vector<std::string> names = share.ok() ? share->Recipes() : std::vector<std::string>();
    names.insert(names.begin(), "list");
    return names;
  }
  const auto is_small = [](char c) { return c >= 'a' && c <= 'z'; };
  const bool is_kind = std::none_of(value.begin(), value.end(), is_small);
  if (is_kind) return {};
  const std::size_t colon = value.find(':');
  return {value.substr(0, colon == std::string::npos ? colon : colon + 1)};
}

// Returns the candidates that the shell adds for a value in capitals.
More KindOf(const std::string& value) {
  if (value == "FILE") return More::kFiles;
  if (value == "DIR" || value == "FOLDER") return More::kFolders;
  return value == "PATH" ? More::kProgram : More::kNothing;
}

// Reads a command line before the word that is being typed.
class WordReader {
 public:
  WordReader() : flags_(DescribeLaunchFlags()) {}

  // Returns false if this word and all later ones belong to a program.
  bool Read(const std::string& word) {
    if (word == "=") return true;
    if (valued_ != nullptr) {
      valued_ = nullptr;
    } else if (word == "--") {
      return false;
    } else if (IsFlag(word)) {
      const FlagDescription* flag = Find(word.substr(0, word.find('=')));
      const bool apart = flag != nullptr && !flag->value.empty() && word.find('=') == word.npos;
      valued_ = apart ? flag : nullptr;
    } else {
      return ReadPlain(word);
    }
    return true;
  }

  Completion Complete(std::string word) const {
    if (word == "=") word.clear();
    if (valued_ != nullptr) return Values(*valued_, word, "");
    const std::size_t equals = word.find('=');
    if (word.starts_with("--") && equals != word.npos) {
      const FlagDescription* flag = Find(word.substr(0, equals));
      if (flag == nullptr) return {};
      return Values(*flag, word.substr(equals + 1), word.substr(0, equals + 1));
    }
    if (word.starts_with('-')) return Flags(word);
    return command_ == nullptr ? CommandsOrProgram(word) : Arguments(word);
  }

 private:
  bool ReadPlain(const std::string& word) {
    if (command_ != nullptr) return PositionalsOf(command_->name).more != More::kProgram;
    command_ = FindCommand(word);
    if (command_ == nullptr) return false;
    flags_ = DescribeCommand(*command_);
    return true;
  }

  const FlagDescription* Find(const std::string& name) const {
    for (const FlagDescription& flag : flags_.flags) {
      for (const std::string& known : flag.names) {
        if (known == name) return &flag;
      }
    }
    return nullptr;
  }

  static void Offer(std::string_view candidate, std::string_view meaning, const std::string& begun,
                    Completion* completion) {
    if (candidate.starts_with(begun)) completion->words.emplace_back(candidate, meaning);
  }

  static Completion Values(const FlagDescription& flag, const std::string& begun,
                           const std::string& before) {
    Completion completion;
    for (const std::string& value : flag.values) {
      // Files include folders.
      if (completion.more != More::kFiles && KindOf(value) != More::kNothing) {
        completion.more = KindOf(value);
      }
      for (const std::string& word : WordsOf(value)) {
        if (word.starts_with(begun)) completion.words.emplace_back(before + word, flag.help);
      }
    }
    return completion;
  }

  Completion Flags(const std::string& begun) const {
    Completion completion;
    for (const FlagDescription& flag : flags_.flags) {
      for (const std::string& name : flag.names) Offer(name, flag.help, begun, &completion);
    }
    return completion;
  }

  static Completion CommandsOrProgram(const std::string& begun) {
    Completion completion;
    for (const Command& command : Commands()) {
      Offer(command.name, command.summary, begun, &completion);
    }
    // The programs in PATH are numerous and would hide the commands.
    completion.more = completion.words.empty() ? More::kProgram : More::kFiles;
    return completion;
  }

  Completion Arguments(const std::string& begun) const {
    if (command_->name == "help") {
      Completion completion = CommandsOrProgram(begun);
      const StatusOr<ShareFolder> share = ShareFolder::OfThisProgram();
      for (const std::string& page :
           share.ok() ? share->ManualPages() : std::vector<std::string>{}) {
        Offer(page, "", begun, &completion);
      }
      completion.more = More::kNothing;
      return completion;
    }
    const Positionals& positionals = PositionalsOf(command_->name);
    Completion completion{.more = positionals.more};
    for (const std::string_view word : positionals.words) Offer(word, "", begun, &completion);
    return completion;
  }

  FlagDescriptions flags_;                   // of the command, or of dsrun before it
  const Command* command_ = nullptr;         // null until it is known
  const FlagDescription* valued_ = nullptr;  // flag that takes the next word as its value
};

}  // namespace

Completion CompleteWords(const std::vector<std::string>& words) {
  if (words.empty()) return {};
  WordReader reader;
  for (std::size_t i = 0; i + 1 < words.size(); ++i) {
    if (!reader.Read(words[i])) return {.more = More::kProgram};
  }
  return reader.Complete(words.back());
}

}  // namespace ds::cli
