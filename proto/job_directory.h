#pragma once

// kJobDirectory is a placeholder in argv for the folder with the files of a launch
// (LaunchRequest.files). Only the daemon knows that folder.

#include <string_view>

namespace dsrun::v1 {

inline constexpr std::string_view kJobDirectory = "@DSRUN_JOB_DIR@";

}  // namespace dsrun::v1
