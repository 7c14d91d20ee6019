#pragma once

// TranslateFile reads an argument file of another program and detects its format.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "cli/translate/translation.h"
#include "runtime/base/status.h"

namespace ds::cli {

// `steps` is the number of training steps, if known; it overrides the file. A ds_config named in
// the file is also read: at the given path, else relative to the file. Error messages begin with
// `path`.
StatusOr<Translation> TranslateFile(const std::string& path, std::optional<std::int64_t> steps);

// Overrides of a file of Trainer's arguments.
struct OverTrainerFile {
  std::optional<std::int64_t> steps;  // as above
  std::string deepspeed_config;       // a path or a text for config::ReadConfigText; "" = none
  nlohmann::ordered_json arguments = nlohmann::ordered_json::object();
};

// Does the same for a file that must hold arguments of Trainer with complete translations. The
// error lists the others.
StatusOr<Translation> TranslateTrainerFile(const std::string& path, const OverTrainerFile& over);

}  // namespace ds::cli
