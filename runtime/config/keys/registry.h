#pragma once

// Look-ups in the table of all ds_config keys. Everything here is constant and free of state.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/keys/setting.h"

namespace ds::config {

// In the order of settings.json: by section, as people read them.
std::span<const Setting> AllSettings();

// The entry of a registry path ("zero_optimization.stage", "a.<g>.b"), or null.
const Setting* FindSetting(std::string_view path);

// Tells whether keys lie below `path`.
bool HasChildren(std::string_view path);

// The registry path of member `name` of the object at registry path `parent` ("" is the file): the
// name itself, what it is an alias of, or the parent's placeholder; "" when there is no such key.
std::string MemberPath(std::string_view parent, std::string_view name);

// The names that may stand in the object at `parent`, aliases included, for suggestions.
std::vector<std::string> MemberNames(std::string_view parent);

// Whole paths that end in `name`, for a key written in the wrong section.
std::vector<std::string> FindPathsEndingIn(std::string_view name);

// Says what to write instead of a key that DeepSpeed refuses by name, or "".
std::string_view FindRetiredHint(std::string_view path);

// Says what to write instead of a name of Megatron-LM, transformers, an inference config or a guide
// at this path of the file, or "". In the text {} stands for the value that the file gives.
std::string_view FindForeignHint(std::string_view path);

// The key that an alias stands for, or "".
std::string_view AliasTarget(std::string_view path);

}  // namespace ds::config
