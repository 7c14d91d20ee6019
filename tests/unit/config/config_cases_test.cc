// The messages of a ds_config, by the text cases in tests/cases/config.
//
// The input is a ds_config. Its first line may be the command "$ dsrun check ds.json FLAGS";
// without it there are two ranks. The output has the errors and warnings as `dsrun check` prints
// them, and "accepted" where there is no error.

#include <gtest/gtest.h>

#include <optional>
#include <sstream>
#include <string>

#include "runtime/base/printable.h"
#include "runtime/config/file/check_config.h"
#include "tests/support/case_file.h"

namespace ds::config {
namespace {

constexpr std::string_view kCommand = "$ dsrun check ds.json";

JobFacts ReadFacts(const std::string& flags) {
  JobFacts facts{.world_size = 2};
  std::istringstream words(flags);
  for (std::string flag; words >> flag;) {
    if (flag == "--ignore_unknown_keys") {
      facts.ignore_unknown_keys = true;
      continue;
    }
    std::int64_t number = 0;
    EXPECT_TRUE(words >> number) << flag;
    if (flag == "--world_size") {
      facts.world_size = static_cast<int>(number);
    } else if (flag == "--steps") {
      facts.total_steps = number;
    } else if (flag == "--tp") {
      facts.flags.tp = number;
    } else if (flag == "--pp") {
      facts.flags.pp = number;
    } else if (flag == "--ep") {
      facts.flags.ep = number;
    } else {
      ADD_FAILURE() << "cases of configs have no flag " << flag;
    }
  }
  return facts;
}

std::string DescribeCheck(const std::string& input) {
  std::string_view text = input;
  JobFacts facts{.world_size = 2};
  if (text.starts_with(kCommand)) {
    const std::size_t end = text.find('\n');
    facts = ReadFacts(std::string(text.substr(kCommand.size(), end - kCommand.size())));
    text.remove_prefix(end + 1);
  }
  const CheckResult result = CheckConfig(text, "ds.json", facts);
  std::string output;
  for (const Issue& error : result.errors) output += "error: " + Printable(error.message) + "\n";
  for (const Issue& warning : result.warnings) {
    output += "warning: " + Printable(warning.message) + "\n";
  }
  return output + (result.ok ? "accepted\n" : "");
}

class ConfigCases : public ::testing::TestWithParam<std::filesystem::path> {};

TEST_P(ConfigCases, GiveTheExpectedMessages) {
  ds::testing::ExpectCases(GetParam(), DescribeCheck);
}

INSTANTIATE_TEST_SUITE_P(Files, ConfigCases,
                         ::testing::ValuesIn(ds::testing::ListCaseFiles("config")),
                         ds::testing::CaseFileName);

}  // namespace
}  // namespace ds::config
