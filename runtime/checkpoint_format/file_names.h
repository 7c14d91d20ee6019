#pragma once

// Names of what lies in a checkpoint folder (FORMAT.md).

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ds::checkpoint {

inline constexpr char kManifestFile[] = "manifest.json";
inline constexpr char kLatestFile[] = "latest";
inline constexpr char kReplacedSuffix[] = ".old";
inline constexpr char kFolderLockFile[] = ".lock";
inline constexpr char kWriterFile[] = "writer";

// "step-20".
std::string StepDirectoryName(std::int64_t step);

// The step of "step-20"; nothing for any other spelling ("step-020", "step-20.tmp", "step-").
std::optional<std::int64_t> StepOfDirectoryName(std::string_view name);

// The step of "step-20.old", the older one of two while they change places; nothing for any other
// spelling.
std::optional<std::int64_t> StepOfReplacedName(std::string_view name);

// The folder of a save that is under way. Two writers never have the same one.
struct UnfinishedName {
  std::int64_t step = 0;
  std::int64_t generation = 0;  // of the writer
  std::uint64_t nonce = 0;      // drawn for this save
  friend bool operator==(const UnfinishedName&, const UnfinishedName&) = default;
};

// "step-20.tmp-3-00c0ffee00c0ffee".
std::string UnfinishedDirectoryName(const UnfinishedName& name);

// Nothing for any other spelling.
std::optional<UnfinishedName> ParseUnfinishedName(std::string_view name);

// "rank-00003.bin".
std::string ShardFileName(int rank);

// True for the files that writers put into a checkpoint's folder, their drafts, and the names that
// file servers give to removed files that are open. Everything else there is the user's.
bool IsCheckpointFile(std::string_view name);

// True for the name of `file` before WriteFileAtomically has renamed it: "latest." with 16
// hexadecimal digits.
bool IsDraftOf(std::string_view file, std::string_view name);

}  // namespace ds::checkpoint
