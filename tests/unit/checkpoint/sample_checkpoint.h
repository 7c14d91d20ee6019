#pragma once

// A small real checkpoint on disk.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "runtime/base/file_system.h"
#include "runtime/base/status.h"
#include "runtime/checkpoint_format/manifest.h"

namespace ds::checkpoint {

// Two files with tensor "weight" of 3000 floats cut in two and "bias" of 10 floats in the second;
// element i of each is i + step. The manifest is returned, not written.
StatusOr<Manifest> WriteSampleFiles(const std::filesystem::path& directory, std::int64_t step,
                                    FileSystem& system = FileSystem::System());

// Begins, writes and commits the sample as root/step-N; abandons it on an error. Extends `lineage`
// when there is one.
StatusOr<std::filesystem::path> TryCommitSample(const std::filesystem::path& root,
                                                std::int64_t step, FileSystem& system,
                                                Lineage* lineage = nullptr);

// The same where nothing can fail.
std::filesystem::path CommitSample(const std::filesystem::path& root, std::int64_t step,
                                   Lineage* lineage = nullptr);

// Makes root/step-N the head of the line, as a resume does; the lineage of what follows.
Lineage ResumeSample(const std::filesystem::path& root, std::int64_t step, std::int64_t generation,
                     std::int64_t start = 0);

// Commits the samples of the steps 10 and 20; the lineage of what follows step 10.
Lineage CommitTenAndTwenty(const std::filesystem::path& root, FileSystem& system);

// Expects that all checkpoints are whole and that the newest is not older than `at_least`.
void ExpectGoodCheckpoints(const std::filesystem::path& root, std::int64_t at_least);

// The names in the folder.
std::vector<std::string> NamesIn(const std::filesystem::path& folder);

// Inverts one bit of the byte at `offset`.
void FlipBit(const std::filesystem::path& file, std::uint64_t offset);

// The text of the file.
std::string Slurp(const std::filesystem::path& file);

}  // namespace ds::checkpoint
