#pragma once

// File and folder names of the checkpoint format (FORMAT.md).

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
inline constexpr char kClientStateFile[] = "client_state.pt";  // of the Python package

// Returns "step-20".
std::string StepDirectoryName(std::int64_t step);

// Parses "step-20". Returns nullopt for any other spelling ("step-020", "step-20.tmp", "step-").
std::optional<std::int64_t> StepOfDirectoryName(std::string_view name);

// Parses "step-20.old", the name of the older checkpoint during a replacement. Returns nullopt for
// any other spelling.
std::optional<std::int64_t> StepOfReplacedName(std::string_view name);

// The folder of a save in progress. Two writers never have the same name.
struct UnfinishedName {
  std::int64_t step = 0;
  std::int64_t generation = 0;  // generation of the writer
  std::uint64_t nonce = 0;      // random number of this save
  friend bool operator==(const UnfinishedName&, const UnfinishedName&) = default;
};

// Returns "step-20.tmp-3-00c0ffee00c0ffee".
std::string UnfinishedDirectoryName(const UnfinishedName& name);

// Returns nullopt for any other spelling.
std::optional<UnfinishedName> ParseUnfinishedName(std::string_view name);

// Returns "rank-00003.bin".
std::string ShardFileName(int rank);

// Returns true for the files that writers create in a checkpoint folder, their temporary files, and
// the names that file servers give to removed files that are still open. All other files there are
// the user's.
bool IsCheckpointFile(std::string_view name);

// Returns true for a temporary name of `file` in WriteFileAtomically: "latest." plus 16 hexadecimal
// digits.
bool IsDraftOf(std::string_view file, std::string_view name);

}  // namespace ds::checkpoint
