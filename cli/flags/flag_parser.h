#pragma once

// CLI11 as dsrun uses it: the last of a repeated flag wins, a misspelt flag gets a suggestion, and
// errors are Status, not exceptions. Include <CLI/App.hpp> and <CLI/...> only in .cc files that
// declare flags: it costs seconds of compile time.

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace CLI {
class App;
class Option;
class Validator;
}  // namespace CLI

namespace ds::cli {

// A flag of another program's and what to do instead.
struct RefusedFlag {
  std::string_view name;  // with '_', without dashes; a single letter stands behind one
  std::string_view instead;
};

// Another program's name of a flag, by which it is taken as well.
struct FlagAlias {
  std::string_view name;      // with '_', without dashes
  std::string_view of;        // "steps"; or with the value that a switch stands for, "device=cpu"
  std::string_view off = "";  // of a switch: what it stands for where it is false, "device=auto"
  bool may_be_bare = false;   // without a value it says nothing, where the flag `of` is given
  bool is_count = false;      // a whole number that may be written with a point: 3.0
};

// The flags that a parser takes, told to programs: see FlagParser::Describe.
struct FlagDescription {
  std::vector<std::string> names;  // "--num_gpus", "-n"; one spelling of each
  std::string value;               // "FILE", "auto|cpu|cuda"; "" = the flag has none
  std::string help;
};
struct FlagDescriptions {
  std::string usage;  // behind "dsrun "
  std::string description;
  std::vector<FlagDescription> flags;
};

// The only word of a command line that asks for them; they are printed for
// ParseFlagDescriptions.
inline constexpr std::string_view kDescribeFlagsWord = "--describe_flags";
FlagDescriptions ParseFlagDescriptions(const std::string& text);

// A parser whose help begins "Usage: dsrun <usage>".
class FlagParser {
 public:
  FlagParser(const std::string& usage, const std::string& description);
  ~FlagParser();
  FlagParser(const FlagParser&) = delete;
  FlagParser& operator=(const FlagParser&) = delete;

  CLI::App& app() { return *app_; }

  // Without positionals, hidden flags and the spellings with '-'.
  FlagDescriptions Describe() const;

  // These are not unknown, but not done either: Parse says what there is instead. They outlive it.
  // A flag of the app's that refuses would cost every start, given or not.
  void Refuse(std::span<const RefusedFlag> flags) { refused_ = flags; }

  // Says what to do instead of an unknown flag, by its name with '_' and its value ("" for none):
  // "" where the name says nothing. Asked before a misspelling is looked for.
  using Explain = std::function<std::string(const std::string& name, const std::string& value)>;
  void ExplainUnknown(Explain explain) { explain_ = std::move(explain); }

  // Other names of flags. A switch that stands for a value takes transformers' words for true and
  // false as well, a switch of the app's own the words true and false. The aliases outlive Parse.
  void TakeAliases(std::span<const FlagAlias> aliases) { aliases_ = aliases; }

  // Two names of one flag with different values are refused, unless the flag is a list; so are
  // these two flags of the app's, which set the same.
  void SetTheSame(const std::string& one, const std::string& other) { same_[one] = other; }

  // These names may be written with one dash: "-np" is "--np". They outlive Parse.
  void TakeWithOneDash(std::span<const std::string_view> names) { one_dash_names_ = names; }

  // The words that are left when flags and declared positionals have been taken.
  enum class Rest {
    kRefused,  // anything left is an error
    kProgram,  // the first word that is no flag, or "--", ends the flags; it and all behind is left
  };
  struct Result {
    bool help_shown = false;        // --help was given and printed: return kExitOk
    std::vector<std::string> rest;  // with Rest::kProgram; keeps a leading "--"
  };
  StatusOr<Result> Parse(const std::vector<std::string>& words, Rest rest);

  // The flags that the words of Parse gave, by their first long names, without dashes.
  std::vector<std::string> Given() const;

  // For what a flag calls as soon as Parse has read its value: how many words stand behind the one
  // with the value, whatever stands in front of it ("-qxVALUE").
  std::size_t WordsBehind() const { return unread_.size(); }

 private:
  Status UnknownFlag(const std::vector<std::string>& left) const;
  // `words` with two dashes in front of such names, and flags by their own names.
  StatusOr<std::vector<std::string>> SpellOut(std::vector<std::string> words, Rest rest) const;
  const FlagAlias* FindAlias(const std::string& word) const;
  // The option that sets the same, or itself.
  const CLI::Option& FindSame(const CLI::Option& option) const;

  const std::string usage_;
  std::unique_ptr<CLI::App> app_;
  std::span<const RefusedFlag> refused_;
  Explain explain_;
  std::span<const FlagAlias> aliases_;
  std::map<std::string, std::string> same_;  // by first long names
  std::span<const std::string_view> one_dash_names_;
  std::vector<std::string> unread_;  // the last word first; CLI11 takes one after the other
};

// "-n" and "--name", with or without a value; "-" and "--" are words.
bool IsFlag(const std::string& word);

// True when the value of a flag is the next word: of "--name", "-n" and "-qn", where -q has none,
// but not of "--name=value", "-nvalue" and "-nq".
bool TakesNextWord(const CLI::App& app, const std::string& flag);

// "-H" and "num_gpus" as CLI11 wants them: "-H,--num_gpus,--num-gpus".
std::string FlagNames(const std::string& name, const std::string& short_name = "");

inline constexpr int kMaxPort = 65535;

// Checks flags that are numbers: they accept plain decimal notation, finite, in range. CLI11 by
// itself takes nan and inf, reads "010" as 8, and cuts what does not fit down to what does.
//
// Usage: app.add_option("--steps", steps)->check(WholeNumber(1)).
CLI::Validator WholeNumber(std::int64_t low,
                           std::int64_t high = std::numeric_limits<std::int64_t>::max());
CLI::Validator AnyWholeNumber();
CLI::Validator FiniteNumber();
CLI::Validator PositiveNumber();
CLI::Validator NumberBetween(double low, double high);  // both included
CLI::Validator PositiveFraction();                      // above 0, at most 1
CLI::Validator FractionBelow1();                        // 0 or more

}  // namespace ds::cli
