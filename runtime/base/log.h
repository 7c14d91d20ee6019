#pragma once

// Logging for people who run and debug dsrun: one line on stderr, "dsrun: message". Text that a
// user must see (tables, progress, verdicts) is output, not a log line.
//
// This header does not include spdlog. LibTorch's wheel ships headers of another fmt version, and a
// file that includes both would pick up the wrong one.
//
// Call InitLog first; then all functions are thread-safe.

#include <string>
#include <string_view>

namespace ds {

// Sets the prefix ("dsrun", "dsrund", "dsrank"), and the level from DSRUN_LOG_LEVEL (trace debug
// info warning error off; default info). Call once at the start of main.
void InitLog(const std::string& program);

// Sets the level by name, as in DSRUN_LOG_LEVEL; overrides the variable.
void SetLogLevel(const std::string& level);

void LogDebug(std::string_view message);
void LogWarning(std::string_view message);
void LogError(std::string_view message);

}  // namespace ds
