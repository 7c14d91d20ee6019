#pragma once

// A launch may bring small files (LaunchRequest.files), and the folder they end up in is known to
// the daemon alone. This text in an element of argv stands for that folder.

#include <string_view>

namespace dsrun::v1 {

inline constexpr std::string_view kJobDirectory = "@DSRUN_JOB_DIR@";

}  // namespace dsrun::v1
