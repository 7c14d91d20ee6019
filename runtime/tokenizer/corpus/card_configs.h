#pragma once

// Reads the `configs` of a dataset card: the YAML between two lines "---" at the beginning of
// README.md, which lists the files of each split. Pure.

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
  std::string data_dir;  // the patterns are relative to this folder; "" for the folder itself
  std::vector<CardSplit> splits;        // empty: file names determine them
  std::vector<std::string> other_keys;  // options of the file format, such as "sep"
};

// Returns nothing without a header or without `configs`. YAML that is not understood, duplicate
// keys, and two configs or splits of the same name are errors. Errors name the line or the config.
StatusOr<std::vector<CardConfig>> ReadCardConfigs(std::string_view card);

}  // namespace ds::tokenizer
