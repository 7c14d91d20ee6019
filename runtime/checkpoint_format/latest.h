#pragma once

// Latest: the text file of a checkpoint folder that names the head of the job's living line, and
// the generation that may save there.
//
// Its first line is the head's name, "step-20", which is all that older versions wrote and read.
// The second is JSON: the head's lineage, so that the line is known when the head is damaged.

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
  std::int64_t generation = 0;     // of the ranks that may save; those of an older one may not
  std::optional<Lineage> lineage;  // nothing when the head does not tell
  std::int64_t start = 0;          // of those ranks (DrawStart); 0: they draw none
  friend bool operator==(const Latest&, const Latest&) = default;
};

std::string SerializeLatest(const Latest& latest);

// Nothing when the text names no checkpoint. A second line that cannot be read counts as missing.
std::optional<Latest> ParseLatest(std::string_view text);

// Nothing when there is no such file, or it names no checkpoint; kUnavailable when it cannot be
// read now (reading.h).
StatusOr<std::optional<Latest>> ReadLatest(const std::filesystem::path& root,
                                           FileSystem& system = FileSystem::System());

// kDataLoss when a folder has the file's name.
Status WriteLatest(const std::filesystem::path& root, const Latest& latest, FileSystem& system);

// kFailedPrecondition when a later generation than `lineage` tells may save in `root`: ranks on a
// host that was cut off do not know that others have gone on. A program without lineage may save.
Status CheckMaySave(const std::filesystem::path& root, const std::optional<Lineage>& lineage);

// Makes the good checkpoint `directory` the head of the living line and lets this start of
// `generation` save behind it: called before its ranks go on from it. What the line had behind it
// is abandoned.
Status TakeOver(const std::filesystem::path& directory, std::int64_t generation, std::int64_t start,
                FileSystem& system = FileSystem::System());

}  // namespace ds::checkpoint
