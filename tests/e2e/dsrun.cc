#include "tests/e2e/dsrun.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>

#include "runtime/base/files.h"
#include "tests/places.h"

namespace ds::testing {
namespace fs = std::filesystem;
using nlohmann::json;

std::vector<std::string> DsrunCommand(const fs::path& run_dir,
                                      const std::vector<std::string>& arguments) {
  std::vector<std::string> command = {DS_BIN_DIR "/dsrun", "--device", "cpu", "--run_dir",
                                      run_dir.string()};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

std::vector<json> ReadJsonLines(const fs::path& path) {
  const auto text = ReadFile(path);
  EXPECT_TRUE(text.ok()) << text.status().message();
  std::vector<json> lines;
  if (!text.ok()) return lines;
  std::istringstream stream(*text);
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(json::parse(line, nullptr, /*allow_exceptions=*/false));
    EXPECT_FALSE(lines.back().is_discarded()) << path << ": " << line;
  }
  return lines;
}

json ReadJson(const fs::path& path) {
  const auto text = ReadFile(path);
  EXPECT_TRUE(text.ok()) << text.status().message();
  json value = text.ok() ? json::parse(*text, nullptr, /*allow_exceptions=*/false) : json();
  EXPECT_FALSE(value.is_discarded()) << path;
  return value;
}

int CountKills(int usual) {
  const char* const wanted = std::getenv("DSRUN_TEST_KILLS");
  return wanted == nullptr ? usual : std::stoi(wanted);
}

std::vector<double> Column(const std::vector<json>& lines, const std::string& name) {
  std::vector<double> values;
  for (const json& line : lines) values.push_back(line.at(name).get<double>());
  return values;
}

}  // namespace ds::testing
