#pragma once

// TranslateFile reads a file of arguments of another program and finds out whose it is.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "cli/translate/translation.h"
#include "runtime/base/status.h"

namespace ds::cli {

// `steps` are those of the training, which go before what the file says, where they are known. A
// ds_config that the file names is read, too: as the path stands there, else beside the file.
// Messages begin with `path`.
StatusOr<Translation> TranslateFile(const std::string& path, std::optional<std::int64_t> steps);

// OverTrainerFile goes before a file of Trainer's arguments.
struct OverTrainerFile {
  std::optional<std::int64_t> steps;  // as above
  std::string deepspeed_config;  // a path or a text, as config::ReadConfigText takes it; "" = none
  nlohmann::ordered_json arguments = nlohmann::ordered_json::object();
};

// The same for a file that must hold arguments of Trainer, all of which map. The error lists those
// that do not.
StatusOr<Translation> TranslateTrainerFile(const std::string& path, const OverTrainerFile& over);

}  // namespace ds::cli
