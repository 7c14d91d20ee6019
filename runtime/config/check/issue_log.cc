#include "runtime/config/check/issue_log.h"

#include <algorithm>
#include <utility>

namespace ds::config {
namespace {

std::vector<Issue> InFileOrder(std::vector<Issue> issues) {
  std::stable_sort(issues.begin(), issues.end(), [](const Issue& a, const Issue& b) {
    return std::pair(a.line, a.column) < std::pair(b.line, b.column);
  });
  return issues;
}

}  // namespace

void IssueLog::Error(std::string_view key, std::string_view message, JsonPosition position) {
  errors_.push_back(MakeIssue(key, message, position));
}

void IssueLog::Warning(std::string_view key, std::string_view message, JsonPosition position) {
  warnings_.push_back(MakeIssue(key, message, position));
}

std::string IssueLog::DescribePosition(JsonPosition position) const {
  if (position.line == 0 || hides_positions_) return file_name_;
  return file_name_ + ":" + std::to_string(position.line) + ":" + std::to_string(position.column);
}

std::vector<Issue> IssueLog::errors() const { return InFileOrder(errors_); }

std::vector<Issue> IssueLog::warnings() const { return InFileOrder(warnings_); }

Issue IssueLog::MakeIssue(std::string_view key, std::string_view message,
                          JsonPosition position) const {
  return {std::string(key), DescribePosition(position) + ": " + std::string(message), position.line,
          position.column};
}

}  // namespace ds::config
