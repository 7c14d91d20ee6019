#pragma once

// The text of a ds_config as a command line names it: by its path or, as DeepSpeed takes it too, by
// the URL-safe base64 form of the text itself.

#include <string>
#include <string_view>

#include "runtime/base/status.h"

namespace ds::config {

struct ConfigText {
  std::string text;
  std::string name;  // for messages: the path, or that it was base64
};

// A file of that name goes first. An argument is base64 only when it is the base64 of an object in
// braces, so that a misspelt path stays one.
StatusOr<ConfigText> ReadConfigText(const std::string& argument);

}  // namespace ds::config
