#include "cli/flags/add_switch.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdint>

#include "cli/flags/flag_parser.h"

namespace ds::cli {

CLI::Option* AddSwitch(CLI::App& app, const std::string& name, std::optional<bool>* is_on,
                       const std::string& help) {
  return app.add_flag_function(
      FlagNames(name), [is_on](std::int64_t count) { *is_on = count > 0; }, help);
}

}  // namespace ds::cli
