#pragma once

// Latest is the text file in a checkpoint folder that names the head of the job's living line, and
// the generation that may save there.
//
// The first line is the head's name, "step-20"; older versions wrote and read only this line. The
// second line is JSON with the head's lineage, so that the line is known when the head is damaged.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/file_system.h"
#include "runtime/base/status.h"
#include "runtime/checkpoint_format/lineage.h"

namespace ds::checkpoint {

struct Latest {
  std::int64_t step = 0;
  std::int64_t generation = 0;     // ranks of an older generation may not save
  std::optional<Lineage> lineage;  // nullopt when the head has none
  std::int64_t start = 0;          // of the ranks that may save (DrawStart); 0 if they draw none
  friend bool operator==(const Latest&, const Latest&) = default;
};

std::string SerializeLatest(const Latest& latest);

// Returns nullopt when the text names no checkpoint. Ignores a second line that cannot be parsed.
std::optional<Latest> ParseLatest(std::string_view text);

// Returns nullopt when the file does not exist or names no checkpoint. Fails with kUnavailable when
// it cannot be read now (reading.h).
StatusOr<std::optional<Latest>> ReadLatest(const std::filesystem::path& root,
                                           FileSystem& system = FileSystem::System());

// Writes the file durably. Fails with kDataLoss when a folder has its name.
Status WriteLatest(const std::filesystem::path& root, const Latest& latest, FileSystem& system);

// Fails with kFailedPrecondition when a later generation than that of `lineage` may save in `root`.
// Ranks on a host that was cut off do not know that others have continued the job. A program
// without a lineage may always save.
Status CheckMaySave(const std::filesystem::path& root, const std::optional<Lineage>& lineage);

// Makes the good checkpoint `directory` the head of the living line, and lets this start of
// `generation` save after it. Call this before the ranks resume from it. Later checkpoints of the
// line are abandoned.
Status TakeOver(const std::filesystem::path& directory, std::int64_t generation, std::int64_t start,
                FileSystem& system = FileSystem::System());

}  // namespace ds::checkpoint
