#pragma once

// Look-ups in the table of all ds_config keys. The table is constant; every function is pure.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/keys/setting.h"

namespace ds::config {

// Returns all settings in the order of settings.json: by section, in reading order.
std::span<const Setting> AllSettings();

// Returns the entry of a registry path ("zero_optimization.stage", "a.<g>.b"), or null.
const Setting* FindSetting(std::string_view path);

// Returns true if `path` has keys below it.
bool HasChildren(std::string_view path);

// Returns the registry path of member `name` of the object at registry path `parent` ("" is the
// file). Resolves aliases and the parent's placeholder. Returns "" for an unknown key.
std::string MemberPath(std::string_view parent, std::string_view name);

// Returns the allowed names in the object at `parent`, aliases included, for suggestions.
std::vector<std::string> MemberNames(std::string_view parent);

// Returns the full paths that end in `name`, for a key written in the wrong section.
std::vector<std::string> FindPathsEndingIn(std::string_view name);

// Returns the replacement for a key that DeepSpeed rejects by name, or "".
std::string_view FindRetiredHint(std::string_view path);

// Returns the replacement for a name from Megatron-LM, transformers, an inference config or a guide
// at this path of the file, or "". In the text, {} stands for the value in the file.
std::string_view FindForeignHint(std::string_view path);

// Returns the key that an alias stands for, or "".
std::string_view AliasTarget(std::string_view path);

}  // namespace ds::config
