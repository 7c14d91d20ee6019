#pragma once

// GivenNames: by which of their names the flags of a command line are given, with which values.
//
// Threads: one.

#include <map>
#include <optional>
#include <string>

#include "runtime/base/status.h"

namespace CLI {
class Option;
}

namespace ds::cli {

// The name in "--a-name=value" or "-n", with '_' between words.
std::string FlagNameOf(const std::string& word);

class GivenNames {
 public:
  // Takes a flag of the option: the word that was typed, the word that stands for it, and the word
  // behind it where that is its value. Refuses a value that is not the one of another name. Lists,
  // which take all values, and "auto", which leaves the choice open, contradict nothing.
  Status Add(const CLI::Option& option, const std::string& typed, const std::string& spelt,
             const std::optional<std::string>& next);

 private:
  struct Given {
    std::string name, shown, value;
  };
  std::map<const CLI::Option*, Given> given_;
};

}  // namespace ds::cli
