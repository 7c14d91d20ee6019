#include "cli/job/python_versions.h"

#include <gtest/gtest.h>

namespace ds::cli {
namespace {

HostPython On(const std::string& host, const std::string& version, const std::string& torch) {
  HostPython result{.host = host};
  result.python.set_version(version);
  result.python.set_torch(torch);
  return result;
}

TEST(PythonVersionsTest, EqualOnesAreNoDifference) {
  EXPECT_EQ(ExplainPythonDifference({}), "");
  EXPECT_EQ(ExplainPythonDifference({On("a", "3.11.2", "")}), "");
  EXPECT_EQ(ExplainPythonDifference({On("a", "3.11.2", "2.11.0"), On("b", "3.11.2", "2.11.0")}),
            "");
}

TEST(PythonVersionsTest, TwoDifferentHostsAreNamed) {
  EXPECT_EQ(ExplainPythonDifference(
                {On("a", "3.11.2", "2.11.0"), On("b", "3.11.2", "2.11.0"), On("c", "3.12.1", "")}),
            "the hosts differ: a has Python 3.11.2 with torch 2.11.0, c has Python 3.12.1 without "
            "torch; install the same versions, or name an interpreter that all have with --python");
}

}  // namespace
}  // namespace ds::cli
