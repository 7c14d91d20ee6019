#pragma once

// FlagParser wraps CLI11 for dsrun. The last of a repeated flag wins, a misspelt flag gets a
// suggestion, and errors are returned as Status instead of thrown. Include <CLI/App.hpp> and
// <CLI/...> only in .cc files that declare flags, because they add seconds of compile time.

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

// A flag of another program that dsrun refuses, and the alternative to use.
struct RefusedFlag {
  std::string_view name;  // with '_', without dashes; a single letter is matched after one dash
  std::string_view instead;
};

// An alternative name of a flag, taken from another program.
struct FlagAlias {
  std::string_view name;      // with '_', without dashes
  std::string_view of;        // "steps"; or, for a switch that stands for a value, "device=cpu"
  std::string_view off = "";  // for a switch, its meaning when false: "device=auto"
  bool may_be_bare = false;   // may have no value, then ignored, if the flag `of` is given
  bool is_count = false;      // an integer that may be written with a decimal point: 3.0
};

// A machine-readable description of a parser's flags. FlagParser::Describe returns it.
struct FlagDescription {
  std::vector<std::string> names;   // "--num_gpus", "-n"; one spelling of each
  std::string value;                // "FILE", "auto|cpu|cuda"; "" = the flag has none
  std::vector<std::string> values;  // "auto", "cpu", "cuda", or the kind: "FILE"
  std::string help;
  std::string group;  // its heading in the help
};
struct FlagDescriptions {
  std::string usage;  // follows "dsrun "
  std::string description;
  std::vector<FlagDescription> flags;  // in the order of the help
};

// A command line with this single word makes Parse print the descriptions in the form that
// ParseFlagDescriptions reads.
inline constexpr std::string_view kDescribeFlagsWord = "--describe_flags";
FlagDescriptions ParseFlagDescriptions(const std::string& text);

// FlagParser parses the flags of one command. Its help begins with "Usage: dsrun <usage>".
class FlagParser {
 public:
  FlagParser(const std::string& usage, const std::string& description);
  ~FlagParser();
  FlagParser(const FlagParser&) = delete;
  FlagParser& operator=(const FlagParser&) = delete;

  CLI::App& app() { return *app_; }

  // Describes all flags except positionals, hidden flags and the spellings with '-'.
  FlagDescriptions Describe() const;

  // Registers flags that are known but not supported; Parse rejects them and names the alternative.
  // `flags` must outlive Parse. Declaring them as options on the app would slow down every start.
  void Refuse(std::span<const RefusedFlag> flags) { refused_ = flags; }

  // Registers a function that explains an unknown flag. It gets the name with '_' and the value (""
  // for none), and returns "" for a name that it does not know. Parse calls it before it looks for
  // a misspelling.
  using Explain = std::function<std::string(const std::string& name, const std::string& value)>;
  void ExplainUnknown(Explain explain) { explain_ = std::move(explain); }

  // Registers alternative names of flags. A switch that stands for a value also takes transformers'
  // words for true and false; a switch of the app also takes the words true and false. `aliases`
  // must outlive Parse.
  void TakeAliases(std::span<const FlagAlias> aliases) { aliases_ = aliases; }

  // Declares that the flags `one` and `other` set the same value. Parse rejects different values
  // given under two names of one flag, unless the flag is a list. It treats these two flags in the
  // same way.
  void SetTheSame(const std::string& one, const std::string& other) { same_[one] = other; }

  // Lets these names be written with one dash: "-np" is "--np". `names` must outlive Parse.
  void TakeWithOneDash(std::span<const std::string_view> names) { one_dash_names_ = names; }

  // Says how Parse handles the words that remain after flags and declared positionals.
  enum class RemainingWords {
    kRefused,  // any remaining word is an error
    kProgram,  // flags end at "--" or the first word that is no flag; it and all later words remain
  };
  struct Result {
    bool help_shown = false;        // --help was given and printed: return kExitOk
    std::vector<std::string> rest;  // with RemainingWords::kProgram; keeps a leading "--"
  };
  StatusOr<Result> Parse(const std::vector<std::string>& words, RemainingWords rest);

  // Returns the flags that Parse found, by their first long names, without dashes.
  std::vector<std::string> Given() const;

  // For callbacks that a flag runs as soon as Parse has read its value: the number of words after
  // the one with the value, regardless of any text before the value in that word ("-qxVALUE").
  std::size_t WordsAfter() const { return unread_.size(); }

 private:
  Status UnknownFlag(const std::vector<std::string>& left) const;
  // Returns `words` with registered one-dash names written with two dashes and aliases replaced by
  // the flags' own names.
  StatusOr<std::vector<std::string>> SpellOut(std::vector<std::string> words,
                                              RemainingWords rest) const;
  const FlagAlias* FindAlias(const std::string& word) const;
  // Returns the option that sets the same value (SetTheSame), or `option` itself.
  const CLI::Option& FindSame(const CLI::Option& option) const;

  const std::string usage_;
  std::unique_ptr<CLI::App> app_;
  std::span<const RefusedFlag> refused_;
  Explain explain_;
  std::span<const FlagAlias> aliases_;
  std::map<std::string, std::string> same_;  // keyed by first long names
  std::span<const std::string_view> one_dash_names_;
  std::vector<std::string> unread_;  // in reverse order; CLI11 removes words from the end
};

// Returns true for "-n" and "--name", with or without a value. "-" and "--" are not flags.
bool IsFlag(const std::string& word);

// Returns true if the next word is the value of `flag`. This holds for "--name", "-n" and "-qn" if
// -q takes no value, but not for "--name=value", "-nvalue" and "-nq".
bool TakesNextWord(const CLI::App& app, const std::string& flag);

// Puts the flags that are added to `app` from now on under this heading of the help. Headings
// appear in the order of their first flags. Flags before the first call are under "Options".
void BeginFlagGroup(CLI::App& app, const std::string& heading);

// Limits a flag to these values. They are checked, shown in the help and completed.
CLI::Option* TakeOneOf(CLI::Option* option, const std::vector<std::string>& values);

// Shows and completes these values of a flag, which its caller checks. A value in capitals stands
// for all of a kind: {"DIR", "bytes"}, {"none", "every:N"}. If the values are too long for a line
// of the help, it shows NAME.
CLI::Option* OfferValues(CLI::Option* option, const std::vector<std::string>& values);

// Formats "-H" and "num_gpus" as CLI11 expects them: "-H,--num_gpus,--num-gpus".
std::string FlagNames(const std::string& name, const std::string& short_name = "");

inline constexpr int kMaxPort = 65535;

// Validators for numeric flags. They accept plain decimal notation, finite, in range. CLI11 alone
// accepts nan and inf, reads "010" as 8, and clamps numbers that do not fit.
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
