#pragma once

// IssueLog collects the errors and warnings of one config file, so that all are reported at once.

#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/positioned_json.h"

namespace ds::config {

// An error in a config file, or a warning to its user.
struct Issue {
  std::string key;      // dotted path, for example "zero_optimization.stage"; "" for the whole file
  std::string message;  // starts with the position: "ds.json:3:12: ..."
  int line = 0;         // 1-based; 0 without a position in the file (a missing key)
  int column = 0;
};

class IssueLog {
 public:
  explicit IssueLog(std::string_view file_name) : file_name_(file_name) {}
  // For a text that dsrun generated: its positions mean nothing to the user and are not shown.
  void HidePositions() { hides_positions_ = true; }

  // Logs `message`, a sentence without the position, which is put in front of it.
  void Error(std::string_view key, std::string_view message, JsonPosition position = {});
  void Warning(std::string_view key, std::string_view message, JsonPosition position = {});

  // Returns "ds.json:3:12", or "ds.json" for an unknown or hidden position.
  std::string DescribePosition(JsonPosition position) const;

  // Return the logged issues in the order of the file.
  std::vector<Issue> errors() const;
  std::vector<Issue> warnings() const;

 private:
  Issue MakeIssue(std::string_view key, std::string_view message, JsonPosition position) const;

  std::string file_name_;
  bool hides_positions_ = false;
  std::vector<Issue> errors_;
  std::vector<Issue> warnings_;
};

}  // namespace ds::config
