// Filters of hosts and slots, by the text cases in tests/cases/resource_filter.
//
// The input is a hostfile and then lines "$ dsrun FLAGS". The output repeats each of these lines,
// with the selected slots or the error below it.

#include <gtest/gtest.h>

#include <algorithm>
#include <iomanip>
#include <numeric>
#include <sstream>
#include <string>

#include "cli/launch/hostfile.h"
#include "cli/launch/resource_filter.h"
#include "tests/support/case_file.h"

namespace ds::cli {
namespace {

constexpr std::string_view kDsrun = "$ dsrun";

ResourceRequest ReadRequest(const std::string& flags) {
  ResourceRequest request;
  std::istringstream words(flags);
  for (std::string flag, value; words >> flag;) {
    words >> std::quoted(value);
    if (flag == "--include") {
      request.include = value;
    } else if (flag == "--exclude") {
      request.exclude = value;
    } else if (flag == "--num_nodes") {
      request.num_nodes = std::stoi(value);
    } else if (flag == "--num_gpus") {
      request.num_gpus = std::stoi(value);
    } else {
      ADD_FAILURE() << "cases of filters have no flag " << flag;
    }
  }
  return request;
}

std::vector<HostSlots> ReadPool(const std::string& hostfile) {
  const auto hosts = ParseHostfile(hostfile, "hosts");
  if (!hosts.ok()) {
    ADD_FAILURE() << hosts.status().message();
    return {};
  }
  std::vector<HostSlots> pool;
  for (const HostEntry& host : *hosts) {
    pool.push_back({.host = host.name});
    pool.back().slots.resize(static_cast<std::size_t>(host.slots));
    std::iota(pool.back().slots.begin(), pool.back().slots.end(), 0);
  }
  return pool;
}

std::string DescribeSelection(const std::vector<HostSlots>& pool, const std::string& flags) {
  const auto selected = SelectSlots(pool, ReadRequest(flags));
  if (!selected.ok()) return selected.status().message();
  std::string text;
  for (const HostSlots& host : *selected) {
    text += (text.empty() ? "" : " ") + host.host;
    char separator = '=';
    for (const int slot : host.slots) {
      text += separator + std::to_string(slot);
      separator = ',';
    }
  }
  return text;
}

std::string DescribeSelections(const std::string& input) {
  const std::size_t end = std::min(input.find(kDsrun), input.size());
  const std::vector<HostSlots> pool = ReadPool(input.substr(0, end));
  std::istringstream lines(input.substr(end));
  std::string output;
  for (std::string line; std::getline(lines, line);) {
    output += line + "\n" + DescribeSelection(pool, line.substr(kDsrun.size())) + "\n";
  }
  return output;
}

class ResourceFilterCases : public ::testing::TestWithParam<std::filesystem::path> {};

TEST_P(ResourceFilterCases, SelectTheExpectedSlots) {
  ds::testing::ExpectCases(GetParam(), DescribeSelections);
}

INSTANTIATE_TEST_SUITE_P(Files, ResourceFilterCases,
                         ::testing::ValuesIn(ds::testing::ListCaseFiles("resource_filter")),
                         ds::testing::CaseFileName);

}  // namespace
}  // namespace ds::cli
