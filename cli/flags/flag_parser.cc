#include "cli/flags/flag_parser.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Error.hpp>
#include <CLI/Formatter.hpp>
#include <CLI/Validators.hpp>
#include <algorithm>
#include <cctype>
#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "cli/flags/wrap_text.h"
#include "runtime/base/parse_number.h"
#include "runtime/base/suggest.h"

namespace ds::cli {
namespace {

using Json = nlohmann::ordered_json;

// GivenNames records under which name and with which value each flag of a command line is given,
// and rejects contradictions.
//
// Not thread-safe.
class GivenNames {
 public:
  // Records one use of `option`: the word `typed`, the word `spelt` that replaces it, and the next
  // word if it is the value. Returns an error if another name of the option was given with a
  // different value. Two values do not contradict each other if the option is a list, which takes
  // all values, or if either is "auto".
  Status Add(const CLI::Option& option, const std::string& typed, const std::string& spelt,
             const std::optional<std::string>& next);

 private:
  struct Given {
    std::string name, shown, value;
  };
  std::map<const CLI::Option*, Given> given_;
};

// Compares numbers by value: 1e-4 equals 0.0001.
bool AreEqualValues(const std::string& one, const std::string& other) {
  if (one == other) return true;
  const auto number = ParseNumber<double>(one);
  return number && number == ParseNumber<double>(other);
}

// Returns the value of a flag; "true" for a switch without one.
std::string FindValue(const std::string& spelt, const std::optional<std::string>& next) {
  const std::size_t equals = spelt.find('=');
  return equals == std::string::npos ? next.value_or("true") : spelt.substr(equals + 1);
}

// Returns the name in "--a-name=value" or "-n", with '_' between words.
std::string FlagNameOf(const std::string& word) {
  const std::size_t begin = word.find_first_not_of('-');
  std::string name = word.substr(begin, word.find('=') - begin);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

Status GivenNames::Add(const CLI::Option& option, const std::string& typed,
                       const std::string& spelt, const std::optional<std::string>& next) {
  const Given now{FlagNameOf(typed), next ? typed + " " + *next : typed, FindValue(spelt, next)};
  const bool is_switch = option.get_expected_max() == 0;
  const bool is_list =
      !is_switch && option.get_multi_option_policy() != CLI::MultiOptionPolicy::TakeLast;
  if (is_list || now.value == "auto") return OkStatus();
  const auto [found, is_new] = given_.emplace(&option, now);
  const Given& before = found->second;
  if (!is_new && before.name != now.name && !AreEqualValues(before.value, now.value)) {
    return InvalidArgumentError(before.shown + " and " + now.shown +
                                " are one flag with two values: leave one of them out");
  }
  found->second = now;
  return OkStatus();
}

constexpr char kBetweenValues = '|';
constexpr std::size_t kValuesColumns = 60;           // of the longest list of values in the help
constexpr std::size_t kFlagColumns = 34;             // width before the description of a flag
constexpr std::string_view kFirstGroup = "Options";  // CLI11's own heading

// Shows a flag under its first long name only; the '-' spelling is implied.
class OneNameFormatter : public CLI::Formatter {
 public:
  explicit OneNameFormatter(std::string usage) : usage_(std::move(usage)) {}

  std::string make_usage(const CLI::App*, std::string) const override {
    return "Usage: dsrun " + usage_ + "\n";
  }

  std::string make_description(const CLI::App* app) const override {
    return WrapText(CLI::Formatter::make_description(app), kHelpColumns);
  }

  // CLI11 puts a blank line before each group and another one after all but the last.
  std::string make_group(std::string group, bool is_positional,
                         std::vector<const CLI::Option*> options) const override {
    const bool has_two = !is_positional && group != kFirstGroup;
    return CLI::Formatter::make_group(std::move(group), is_positional, std::move(options))
        .substr(has_two ? 1 : 0);
  }

  std::string make_option_desc(const CLI::Option* option) const override {
    return WrapText(CLI::Formatter::make_option_desc(option), kHelpColumns - kFlagColumns);
  }

  // The name of a positional argument says its kind, and the usage line whether it may be left out.
  std::string make_option_opts(const CLI::Option* option) const override {
    return option->get_positional() ? "" : CLI::Formatter::make_option_opts(option);
  }

  std::string make_option_name(const CLI::Option* option, bool is_positional) const override {
    if (is_positional) return option->get_name(true);
    std::string name;
    for (const std::string& letter : option->get_snames()) name += "-" + letter + ", ";
    if (!option->get_lnames().empty()) name += "--" + option->get_lnames().front();
    return name;
  }

 private:
  std::string usage_;
};

// Returns the option for a word "--name", "--name=value", "-n" or "-nvalue"; null if there is none.
const CLI::Option* OptionOf(const CLI::App& app, const std::string& word) {
  const CLI::Option* option = app.get_option_no_throw(word.substr(0, word.find('=')));
  return option == nullptr && word[1] != '-' ? app.get_option_no_throw(word.substr(0, 2)) : option;
}

// Returns a "--name=" without a value, for which CLI11 would take the next word; "" if there is
// none.
std::string FlagWithoutValue(const CLI::App& app, const std::vector<std::string>& words,
                             FlagParser::RemainingWords rest) {
  for (std::size_t i = 0; i < words.size() && words[i] != "--"; ++i) {
    if (!IsFlag(words[i])) {
      if (rest == FlagParser::RemainingWords::kProgram) return "";
      continue;
    }
    const CLI::Option* option = OptionOf(app, words[i]);
    if (option == nullptr) return "";  // that is said instead
    if (words[i].back() == '=') return words[i];
    if (TakesNextWord(app, words[i])) ++i;
  }
  return "";
}

std::string ToText(const FlagDescriptions& described) {
  Json flags = Json::array();
  for (const FlagDescription& flag : described.flags) {
    flags.push_back({{"names", flag.names},
                     {"value", flag.value},
                     {"values", flag.values},
                     {"help", flag.help},
                     {"group", flag.group}});
  }
  return Json(
             {{"usage", described.usage}, {"description", described.description}, {"flags", flags}})
             .dump() +
         "\n";
}

std::vector<std::string> SplitValues(const std::string& values) {
  std::vector<std::string> split;
  std::istringstream text(values);
  for (std::string value; std::getline(text, value, kBetweenValues);) split.push_back(value);
  return split;
}

FlagDescription DescribeOption(const CLI::Option& option) {
  FlagDescription flag{.help = option.get_description(), .group = option.get_group()};
  if (!option.get_lnames().empty()) flag.names.push_back("--" + option.get_lnames().front());
  for (const std::string& letter : option.get_snames()) flag.names.push_back("-" + letter);
  if (option.get_expected_min() == 0) return flag;
  const std::string& shown = option.get_option_text();
  flag.value = shown.empty() ? option.get_type_name() : shown;
  flag.values = SplitValues(option.get_type_name());
  return flag;
}

// Makes a validator without CLI11's own remarks in the help.
template <typename Fits>
CLI::Validator Check(Fits fits, const std::string& expected) {
  return CLI::Validator(
      [fits, expected](const std::string& text) {
        return fits(text) ? std::string() : fmt::format("{} is not {}", text, expected);
      },
      "");
}

template <typename InRange>
CLI::Validator CheckNumber(InRange in_range, const std::string& expected) {
  return Check(
      [in_range](const std::string& text) {
        const auto number = ParseNumber<double>(text);
        return number && std::isfinite(*number) && in_range(*number);
      },
      expected);
}

// Parses the truth values of transformers' HfArgumentParser and of CLI11; no others.
std::optional<bool> TruthOf(std::string word) {
  std::transform(word.begin(), word.end(), word.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (const char* yes : {"true", "yes", "on", "t", "y", "1"}) {
    if (word == yes) return true;
  }
  for (const char* no : {"false", "no", "off", "f", "n", "0"}) {
    if (word == no) return false;
  }
  return std::nullopt;
}

// Removes the point of an integer: "3.0" becomes "3".
void DropPoint(std::string* number) {
  const std::size_t point = number->find('.');
  if (point == std::string::npos || point == 0) return;
  const bool is_integer = number->find_first_not_of("0123456789") == point &&
                          number->find_first_not_of('0', point + 1) == std::string::npos;
  if (is_integer) number->resize(point);
}

// Joins the switch in word `i` with a following true or false: "--switch=true".
void JoinTruth(const CLI::Option& option, std::size_t i, std::vector<std::string>* words) {
  const bool is_switch = option.get_expected_max() == 0;
  if (!is_switch || !(*words)[i].starts_with("--") || i + 1 >= words->size()) return;
  const std::string& next = (*words)[i + 1];
  const bool is_word = next == "True" || next == "true" || next == "False" || next == "false";
  if (!is_word || (*words)[i].find('=') != std::string::npos) return;
  (*words)[i] += *TruthOf(next) ? "=true" : "=false";
  words->erase(words->begin() + static_cast<std::ptrdiff_t>(i) + 1);
}

// Replaces word `i` by the flag's own name. For a switch, the value selects the name and is
// removed.
Status SpellAlias(const FlagAlias& alias, std::size_t i, std::vector<std::string>* words) {
  std::string& word = (*words)[i];
  const std::size_t equals = word.find('=');
  const bool has_value = equals != std::string::npos;
  if (alias.off.empty()) {
    std::string value = has_value ? word.substr(equals + 1) : "";
    if (alias.is_count) DropPoint(has_value || i + 1 == words->size() ? &value : &(*words)[i + 1]);
    word = "--" + std::string(alias.of) + (has_value ? "=" + value : "");
    return OkStatus();
  }
  std::optional<bool> said;
  if (has_value) {
    said = TruthOf(word.substr(equals + 1));
    if (!said) {
      return InvalidArgumentError(word + ": a switch is true or false (or yes, no, on, off, 1, 0)");
    }
  } else if (i + 1 < words->size()) {
    said = TruthOf((*words)[i + 1]);
    if (said) words->erase(words->begin() + static_cast<std::ptrdiff_t>(i) + 1);
  }
  word = "--" + std::string(said.value_or(true) ? alias.of : alias.off);
  return OkStatus();
}

bool IsBare(const FlagAlias& alias, std::size_t i, const std::vector<std::string>& words) {
  if (!alias.may_be_bare || words[i].find('=') != std::string::npos) return false;
  if (i + 1 < words.size() && !IsFlag(words[i + 1])) return false;
  return std::any_of(words.begin(), words.end(), [&](const std::string& word) {
    return word.starts_with("--") && FlagNameOf(word) == alias.of;
  });
}

// True for numbers like 010, which CLI11 would read as 8.
bool LooksOctal(const std::string& text) {
  const std::size_t first = text.find_first_not_of('-');
  return first + 1 < text.size() && text[first] == '0';
}

}  // namespace

FlagDescriptions ParseFlagDescriptions(const std::string& text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  FlagDescriptions described;
  if (!json.is_object()) return described;  // the command takes no flags
  described.usage = json.at("usage");
  described.description = json.at("description");
  for (const Json& flag : json.at("flags")) {
    described.flags.push_back({.names = flag.at("names"),
                               .value = flag.at("value"),
                               .values = flag.at("values"),
                               .help = flag.at("help"),
                               .group = flag.at("group")});
  }
  return described;
}

bool IsFlag(const std::string& word) { return word.size() > 1 && word[0] == '-' && word != "--"; }

bool TakesNextWord(const CLI::App& app, const std::string& flag) {
  const auto takes_value = [&app](const std::string& name) {
    const CLI::Option* option = app.get_option_no_throw(name);
    return option != nullptr && option->get_expected_min() > 0;
  };
  if (flag[1] == '-') return takes_value(flag);
  std::size_t at = 1;
  while (at < flag.size() && !takes_value({'-', flag[at]})) ++at;
  return at + 1 == flag.size();
}

FlagParser::FlagParser(const std::string& usage, const std::string& description)
    : usage_(usage), app_(std::make_unique<CLI::App>(description)) {
  app_->formatter(std::make_shared<OneNameFormatter>(usage));
  app_->get_formatter()->column_width(kFlagColumns);
  app_->option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app_->allow_extras();
}

FlagParser::~FlagParser() = default;

FlagDescriptions FlagParser::Describe() const {
  FlagDescriptions described{.usage = usage_, .description = app_->get_description()};
  for (const std::string& group : app_->get_groups()) {
    if (group.empty()) continue;
    for (const CLI::Option* option : app_->get_options()) {
      if (option->get_group() == group && !option->get_positional()) {
        described.flags.push_back(DescribeOption(*option));
      }
    }
  }
  return described;
}

std::vector<std::string> FlagParser::Given() const {
  std::vector<std::string> given;
  for (const CLI::Option* option : app_->get_options()) {
    if (option->count() > 0 && !option->get_lnames().empty()) {
      given.push_back(option->get_lnames().front());
    }
  }
  return given;
}

const FlagAlias* FlagParser::FindAlias(const std::string& word) const {
  if (!word.starts_with("--")) return nullptr;
  const std::string name = FlagNameOf(word);
  const auto found = std::find_if(aliases_.begin(), aliases_.end(),
                                  [&](const FlagAlias& alias) { return alias.name == name; });
  return found == aliases_.end() ? nullptr : &*found;
}

const CLI::Option& FlagParser::FindSame(const CLI::Option& option) const {
  if (option.get_lnames().empty()) return option;
  const auto found = same_.find(option.get_lnames().front());
  return found == same_.end() ? option : *app_->get_option("--" + found->second);
}

StatusOr<std::vector<std::string>> FlagParser::SpellOut(std::vector<std::string> words,
                                                        RemainingWords rest) const {
  GivenNames given;
  for (std::size_t i = 0; i < words.size() && words[i] != "--"; ++i) {
    if (!IsFlag(words[i])) {
      if (rest == RemainingWords::kProgram) break;
      continue;
    }
    const std::string typed = words[i];
    const std::string_view name = std::string_view(words[i]).substr(1, words[i].find('=') - 1);
    if (std::find(one_dash_names_.begin(), one_dash_names_.end(), name) != one_dash_names_.end()) {
      words[i].insert(0, "-");
    }
    if (const FlagAlias* const alias = FindAlias(words[i])) {
      if (IsBare(*alias, i, words)) {
        words.erase(words.begin() + static_cast<std::ptrdiff_t>(i--));
        continue;
      }
      DS_RETURN_IF_ERROR(SpellAlias(*alias, i, &words));
    }
    const CLI::Option* option = OptionOf(*app_, words[i]);
    if (option == nullptr) break;  // reported later
    if (rest == RemainingWords::kRefused && !aliases_.empty()) JoinTruth(*option, i, &words);
    const bool has_next = TakesNextWord(*app_, words[i]) && i + 1 < words.size();
    if (typed.starts_with("--") || typed.size() == 2) {
      DS_RETURN_IF_ERROR(given.Add(FindSame(*option), typed, words[i],
                                   has_next ? std::optional(words[i + 1]) : std::nullopt));
    }
    if (TakesNextWord(*app_, words[i])) ++i;
  }
  return words;
}

StatusOr<FlagParser::Result> FlagParser::Parse(const std::vector<std::string>& words,
                                               RemainingWords rest) {
  if (words.size() == 1 && words[0] == kDescribeFlagsWord) {
    std::cout << ToText(Describe()) << std::flush;
    return Result{.help_shown = true};
  }
  DS_ASSIGN_OR_RETURN(const std::vector<std::string> arguments, SpellOut(words, rest));
  app_->prefix_command(rest == RemainingWords::kProgram);
  if (const std::string flag = FlagWithoutValue(*app_, arguments, rest); !flag.empty()) {
    return InvalidArgumentError(flag + " has no value; give one or leave the flag out");
  }
  unread_.assign(arguments.rbegin(), arguments.rend());
  try {
    app_->parse(unread_);
  } catch (const CLI::CallForHelp&) {
    std::cout << app_->help() << std::flush;
    return Result{.help_shown = true};
  } catch (const CLI::ParseError& error) {
    return InvalidArgumentError(error.what());
  }
  std::vector<std::string> left = app_->remaining();
  if (!left.empty() && IsFlag(left[0])) return UnknownFlag(left);
  if (rest == RemainingWords::kRefused && !left.empty()) {
    return InvalidArgumentError("unexpected argument '" + left[0] + "'");
  }
  return Result{.rest = std::move(left)};
}

Status FlagParser::UnknownFlag(const std::vector<std::string>& left) const {
  const std::string& word = left[0];
  const std::string name = word.substr(0, word.find('='));
  std::string bare = name.substr(name.find_first_not_of('-'));
  std::replace(bare.begin(), bare.end(), '-', '_');
  const bool is_letter = name[1] != '-';  // possibly followed by its value
  for (const RefusedFlag& refused : refused_) {
    if (is_letter ? bare.substr(0, 1) != refused.name : bare != refused.name) continue;
    return InvalidArgumentError((is_letter ? "-" : "--") + std::string(refused.name) +
                                " is not supported: " + std::string(refused.instead));
  }
  if (explain_ && !is_letter) {
    std::string value = left.size() > 1 && !IsFlag(left[1]) ? left[1] : "";
    if (name.size() < word.size()) value = word.substr(name.size() + 1);
    const std::string instead = explain_(bare, value);
    if (!instead.empty()) return InvalidArgumentError("unknown flag " + name + ": " + instead);
  }
  std::vector<std::string> known;
  for (const CLI::Option* option : app_->get_options()) {
    for (const std::string& long_name : option->get_lnames()) known.push_back("--" + long_name);
  }
  return InvalidArgumentError("unknown flag " + name + DidYouMean(name, known));
}

void BeginFlagGroup(CLI::App& app, const std::string& heading) {
  app.option_defaults()->group(heading);
}

CLI::Option* OfferValues(CLI::Option* option, const std::vector<std::string>& values) {
  const std::string all = fmt::format("{}", fmt::join(values, std::string(1, kBetweenValues)));
  if (all.size() > kValuesColumns) option->option_text("NAME");
  return option->type_name(all);
}

CLI::Option* TakeOneOf(CLI::Option* option, const std::vector<std::string>& values) {
  // Without CLI11's own remarks in the help.
  return OfferValues(option->check(CLI::IsMember(values).description("")), values);
}

std::string FlagNames(const std::string& name, const std::string& short_name) {
  std::string names = (short_name.empty() ? "" : short_name + ",") + "--" + name;
  std::string dashed = name;
  std::replace(dashed.begin(), dashed.end(), '_', '-');
  if (dashed != name) names += ",--" + dashed;
  return names;
}

CLI::Validator WholeNumber(std::int64_t low, std::int64_t high) {
  std::string expected = "a whole number";
  if (high != std::numeric_limits<std::int64_t>::max()) {
    expected += fmt::format(" from {} to {}", low, high);
  } else if (low != std::numeric_limits<std::int64_t>::min()) {
    expected += fmt::format(" of at least {}", low);
  }
  return Check(
      [low, high](const std::string& text) {
        const auto number = ParseNumber<std::int64_t>(text);
        return number && !LooksOctal(text) && *number >= low && *number <= high;
      },
      expected);
}

CLI::Validator AnyWholeNumber() { return WholeNumber(std::numeric_limits<std::int64_t>::min()); }

CLI::Validator FiniteNumber() {
  return CheckNumber([](double) { return true; }, "a finite number");
}

CLI::Validator NumberBetween(double low, double high) {
  return CheckNumber([low, high](double number) { return number >= low && number <= high; },
                     fmt::format("a number from {} to {}", low, high));
}

CLI::Validator PositiveNumber() {
  return CheckNumber([](double number) { return number > 0.0; }, "a number above 0");
}

CLI::Validator PositiveFraction() {
  return CheckNumber([](double number) { return number > 0.0 && number <= 1.0; },
                     "a number above 0 and at most 1");
}

CLI::Validator FractionBelow1() {
  return CheckNumber([](double number) { return number >= 0.0 && number < 1.0; },
                     "a number from 0 to below 1");
}

}  // namespace ds::cli
