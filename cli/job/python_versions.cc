#include "cli/job/python_versions.h"

#include <algorithm>

namespace ds::cli {
namespace {

std::string Describe(const v1::Python& python) {
  return "Python " + python.version() +
         (python.torch().empty() ? " without torch" : " with torch " + python.torch());
}

}  // namespace

std::string ExplainPythonDifference(const std::vector<HostPython>& hosts) {
  if (hosts.empty()) return "";
  const std::string first = Describe(hosts.front().python);
  const auto is_same = [&](const HostPython& host) { return Describe(host.python) == first; };
  const auto other = std::find_if_not(hosts.begin(), hosts.end(), is_same);
  if (other == hosts.end()) return "";
  return "the hosts differ: " + hosts.front().host + " has " + first + ", " + other->host +
         " has " + Describe(other->python) +
         "; install the same versions, or name an interpreter that all have with --python";
}

}  // namespace ds::cli
