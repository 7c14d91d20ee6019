#pragma once

// IssueLog gathers what is wrong with one config file, so that everything is reported at once.

#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/positioned_json.h"

namespace ds::config {

// One thing that is wrong with a config file, or that its user should know.
struct Issue {
  std::string key;      // dotted path, for example "zero_optimization.stage"; "" for the whole file
  std::string message;  // starts with the place: "ds.json:3:12: ..."
  int line = 0;         // 1-based; 0 when the file has no place for it (a missing key)
  int column = 0;
};

class IssueLog {
 public:
  explicit IssueLog(std::string_view file_name) : file_name_(file_name) {}

  // `message` is a sentence without the place, which is put in front of it.
  void Error(std::string_view key, std::string_view message, JsonPosition position = {});
  void Warning(std::string_view key, std::string_view message, JsonPosition position = {});

  // "ds.json:3:12", or "ds.json" for an unknown place.
  std::string DescribePosition(JsonPosition position) const;

  // Returns what was logged, in the order of the file.
  std::vector<Issue> errors() const;
  std::vector<Issue> warnings() const;

 private:
  Issue MakeIssue(std::string_view key, std::string_view message, JsonPosition position) const;

  std::string file_name_;
  std::vector<Issue> errors_;
  std::vector<Issue> warnings_;
};

}  // namespace ds::config
