#include "runtime/base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdlib>

#include "runtime/base/printable.h"

namespace ds {

void InitLog(const std::string& program) {
  auto logger = spdlog::stderr_logger_mt(program);
  logger->set_pattern("%n: %v");
  if (const char* level = std::getenv("DSRUN_LOG_LEVEL"); level != nullptr) {
    logger->set_level(spdlog::level::from_str(level));
  }
  spdlog::set_default_logger(std::move(logger));
}

void SetLogLevel(const std::string& level) { spdlog::set_level(spdlog::level::from_str(level)); }

void LogDebug(std::string_view message) { spdlog::debug("{}", Printable(message)); }
void LogWarning(std::string_view message) { spdlog::warn("{}", Printable(message)); }
void LogError(std::string_view message) { spdlog::error("{}", Printable(message)); }

}  // namespace ds
