#pragma once

// Logging for people who run and debug dsrun: one line on stderr, "dsrun: message".
// What a user must see (tables, progress, verdicts) is output, not a log line.
//
// Threads: safe to use from any thread after InitLog.

#include <spdlog/spdlog.h>

#include <string>

namespace ds {

// Sets the prefix ("dsrun", "dsrund", "dsrank") and the level from DSRUN_LOG_LEVEL (trace debug
// info warning error off; default info). Call once at the start of main.
void InitLog(const std::string& program);

}  // namespace ds
