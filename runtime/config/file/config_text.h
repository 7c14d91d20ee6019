#pragma once

// Reads the text of a ds_config named on a command line: by its path or, as in DeepSpeed, by the
// URL-safe base64 form of the text itself.

#include <string>
#include <string_view>

#include "runtime/base/status.h"

namespace ds::config {

struct ConfigText {
  std::string text;
  std::string name;  // for messages: the path, or a note that it was base64
};

// Prefers a file of that name. An argument counts as base64 only if it decodes to an object in
// braces, so that a misspelt path is reported as a path.
StatusOr<ConfigText> ReadConfigText(const std::string& argument);

}  // namespace ds::config
