#include "runtime/python/config_text.h"

#include <utility>

#include "runtime/config/file/check_config.h"
#include "runtime/python/python_errors.h"

namespace ds::python {

CheckedConfig CheckConfigText(const std::string& text, int world_size,
                              config::RankPlacement placement) {
  config::CheckResult result = config::CheckConfig(text, "config",
                                                   {.world_size = world_size,
                                                    .steps_come_later = true,
                                                    .ignore_unknown_keys = true,
                                                    .is_generated = true});
  std::string errors;
  for (const auto& error : result.errors) errors += (errors.empty() ? "" : "\n") + error.message;
  if (!result.ok) throw StatusError(InvalidArgumentError(errors));
  CheckedConfig checked{.config = std::move(result.config)};
  for (const auto& warning : result.warnings) checked.warnings.push_back(warning.message);
  for (std::string& idle : config::ListIdleKeys(text, checked.config, placement)) {
    checked.warnings.push_back(std::move(idle));
  }
  return checked;
}

}  // namespace ds::python
