#pragma once

// CLI11 as dsrun uses it: the last of a repeated flag wins, a misspelt flag gets a suggestion, and
// errors are Status, not exceptions. Include <CLI/App.hpp> and <CLI/...> only in .cc files that
// declare flags: it costs seconds of compile time.

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace CLI {
class App;
}

namespace ds::cli {

// A flag of another program's and what to do instead.
struct RefusedFlag {
  std::string_view name;  // with '_', without "--"
  std::string_view instead;
};

// A parser whose help begins "Usage: dsrun <usage>".
class FlagParser {
 public:
  FlagParser(const std::string& usage, const std::string& description);
  ~FlagParser();
  FlagParser(const FlagParser&) = delete;
  FlagParser& operator=(const FlagParser&) = delete;

  CLI::App& app() { return *app_; }

  // These are not unknown, but not done either: Parse says what there is instead. They outlive it.
  // A flag of the app's that refuses would cost every start, given or not.
  void Refuse(std::span<const RefusedFlag> flags) { refused_ = flags; }

  // The words that are left when flags and declared positionals have been taken.
  enum class Rest {
    kRefused,  // anything left is an error
    kProgram,  // the first word that is no flag, or "--", ends the flags; it and all behind is left
  };
  struct Result {
    bool help_shown = false;        // --help was given and printed: return kExitOk
    std::vector<std::string> rest;  // with Rest::kProgram; keeps a leading "--"
  };
  StatusOr<Result> Parse(const std::vector<std::string>& arguments, Rest rest);

 private:
  Status UnknownFlag(const std::string& word) const;

  std::unique_ptr<CLI::App> app_;
  std::span<const RefusedFlag> refused_;
};

// "-n" and "--name", with or without a value; "-" and "--" are words.
bool IsFlag(const std::string& word);

// "-H" and "num_gpus" as CLI11 wants them: "-H,--num_gpus,--num-gpus".
std::string FlagNames(const std::string& name, const std::string& short_name = "");

}  // namespace ds::cli
