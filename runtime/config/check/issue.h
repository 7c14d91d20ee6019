#pragma once

#include <string>

namespace ds::config {

// One thing that is wrong with a config file, or that its user should know.
struct Issue {
  std::string key;      // dotted path, for example "zero_optimization.stage"; "" for the whole file
  std::string message;  // starts with the place: "ds.json:3:12: ..."
  int line = 0;         // 1-based; 0 when the file has no place for it (a missing key)
  int column = 0;
};

}  // namespace ds::config
