#pragma once

// job.json: what every job writes about itself before it starts.

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "cli/flags/launch_flags.h"
#include "cli/job/job_plan.h"

namespace ds::cli {

// --run_dir, else runs/<job>; absolute, so that it means the same from anywhere.
std::filesystem::path ChooseRunDirectory(const LaunchFlags& flags, const std::string& job_id);

// Words as JSON strings; bytes that are no UTF-8 become U+FFFD, the values of secrets <redacted>.
nlohmann::ordered_json DescribeWords(const std::vector<std::string>& words);

// `kind` is "run" or "train"; the caller adds what is particular to it.
nlohmann::ordered_json DescribeJob(std::string_view kind, const JobPlan& plan,
                                   const std::vector<std::string>& command_line);

}  // namespace ds::cli
