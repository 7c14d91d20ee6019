#pragma once

// The real dsrun in a test: where it is, how it is called, what it leaves behind.

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/program.h"

namespace ds::testing {

// dsrun with CPU ranks. `arguments` follow "dsrun --device cpu --run_dir RUN_DIR".
std::vector<std::string> DsrunCommand(const std::filesystem::path& run_dir,
                                      const std::vector<std::string>& arguments);

// Every line of a .jsonl file; fails the test when the file is missing or a line is no JSON.
std::vector<nlohmann::json> ReadJsonLines(const std::filesystem::path& path);
nlohmann::json ReadJson(const std::filesystem::path& path);

// Counts the ranks that a test kills, one after the other: `usual`, or as many as DSRUN_TEST_KILLS
// says (of fifty a job takes minutes).
int CountKills(int usual);

// The field `name` of every line.
std::vector<double> Column(const std::vector<nlohmann::json>& lines, const std::string& name);

}  // namespace ds::testing
