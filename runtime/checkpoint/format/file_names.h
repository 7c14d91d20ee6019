#pragma once

// Names of what lies in a checkpoint folder (FORMAT.md).

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ds::checkpoint {

inline constexpr char kManifestFile[] = "manifest.json";
inline constexpr char kLatestFile[] = "latest";
inline constexpr char kUnfinishedSuffix[] = ".tmp";
inline constexpr char kReplacedSuffix[] = ".old";

// "step-20".
std::string StepDirectoryName(std::int64_t step);

// The step of "step-20"; nothing for any other spelling ("step-020", "step-20.tmp", "step-").
std::optional<std::int64_t> StepOfDirectoryName(std::string_view name);

// The step of "step-20.old", the older one of two while they change places; nothing for any other
// spelling.
std::optional<std::int64_t> StepOfReplacedName(std::string_view name);

// "rank-00003.bin".
std::string ShardFileName(int rank);

}  // namespace ds::checkpoint
