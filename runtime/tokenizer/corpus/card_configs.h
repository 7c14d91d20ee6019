#pragma once

// The `configs` of a data set's card: the YAML between two lines "---" at the begin of README.md,
// which says the files of each split. Pure.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace ds::tokenizer {

struct CardSplit {
  std::string name;
  std::vector<std::string> patterns;  // of paths relative to the folder
};

struct CardConfig {
  std::string name;
  bool is_default = false;
  std::string data_dir;           // a folder that the patterns are below; "" for the folder itself
  std::vector<CardSplit> splits;  // empty: the names of files say them
  std::vector<std::string> other_keys;  // that say how to read the files, such as "sep"
};

// Empty without a header or without `configs`. YAML that is not understood, a key that is there
// twice and two configs or splits of one name are errors, which name the line or the config.
StatusOr<std::vector<CardConfig>> ReadCardConfigs(std::string_view card);

}  // namespace ds::tokenizer
