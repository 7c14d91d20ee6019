#pragma once

// GivenNames records under which name and with which value each flag of a command line is given,
// and rejects contradictions.
//
// Not thread-safe.

#include <map>
#include <optional>
#include <string>

#include "runtime/base/status.h"

namespace CLI {
class Option;
}

namespace ds::cli {

// Returns the name in "--a-name=value" or "-n", with '_' between words.
std::string FlagNameOf(const std::string& word);

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

}  // namespace ds::cli
