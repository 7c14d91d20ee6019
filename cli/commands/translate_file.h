#pragma once

// TranslateFile reads a file of arguments of another program and finds out whose it is.

#include <cstdint>
#include <optional>
#include <string>

#include "cli/translate/translation.h"
#include "runtime/base/status.h"

namespace ds::cli {

// `steps` are those of the training, which go before what the file says, where they are known. A
// ds_config that the file names is read, too: as the path stands there, else beside the file.
// Messages begin with `path`.
StatusOr<Translation> TranslateFile(const std::string& path, std::optional<std::int64_t> steps);

// The same for a file that must hold arguments of Trainer, all of which map. The error lists those
// that do not. `deepspeed_config`, a path or a text as config::ReadConfigText takes it, goes before
// the file's own `deepspeed`; "" for none.
StatusOr<Translation> TranslateTrainerFile(const std::string& path,
                                           std::optional<std::int64_t> steps,
                                           const std::string& deepspeed_config = "");

}  // namespace ds::cli
