#pragma once

// The dtype names of safetensors headers.

#include <c10/core/ScalarType.h>

#include <optional>
#include <string_view>

namespace ds::checkpoint {

// "BF16" -> at::kBFloat16; nothing for a name without a LibTorch dtype here.
std::optional<at::ScalarType> DtypeOfSafetensorsName(std::string_view name);

// "" for a dtype that safetensors files of ours do not hold.
std::string_view SafetensorsNameOfDtype(at::ScalarType dtype);

}  // namespace ds::checkpoint
