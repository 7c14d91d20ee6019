// Hostfiles, by the text cases in tests/cases/hostfile.
//
// The input is a hostfile with the name "hosts". The output has a line for each host, in the
// hostfile's own notation, or the error.

#include <gtest/gtest.h>

#include <string>

#include "cli/launch/hostfile.h"
#include "tests/support/case_file.h"

namespace ds::cli {
namespace {

std::string DescribeHosts(const std::string& input) {
  const auto hosts = ParseHostfile(input, "hosts");
  if (!hosts.ok()) return hosts.status().message();
  std::string output;
  for (const HostEntry& host : *hosts) {
    output += host.name + " slots=" + std::to_string(host.slots);
    for (const auto& [key, value] : host.keys) {
      const std::string quote = value.find(' ') == std::string::npos ? "" : "\"";
      output += " " + key + (value.empty() ? "" : "=" + quote + value + quote);
    }
    output += "\n";
  }
  return output;
}

class HostfileCases : public ::testing::TestWithParam<std::filesystem::path> {};

TEST_P(HostfileCases, GiveTheExpectedHosts) { ds::testing::ExpectCases(GetParam(), DescribeHosts); }

INSTANTIATE_TEST_SUITE_P(Files, HostfileCases,
                         ::testing::ValuesIn(ds::testing::ListCaseFiles("hostfile")),
                         ds::testing::CaseFileName);

}  // namespace
}  // namespace ds::cli
