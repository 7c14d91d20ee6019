#pragma once

// Saving and loading a training job's whole state; the format is in FORMAT.md.
//
// Both are collective: every rank of `world` calls with the same arguments and its own parts, and
// every rank returns the same status. A rank that fails says so before the others go on, so none
// waits for it.
//
// Throws only what `world` throws when a peer is gone.

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>

#include "runtime/base/file_system.h"
#include "runtime/base/status.h"
#include "runtime/checkpoint/stateful.h"
#include "runtime/checkpoint_format/lineage.h"
#include "runtime/comm/communicator.h"

namespace ds::checkpoint {

struct SaveRequest {
  std::filesystem::path root;  // the folder of all checkpoints of the job; created when missing
  std::int64_t step = 0;       // finished optimizer steps: the checkpoint is root/step-N
  // Informational, never read back: {"program", "zero_stage", ...}; the world size is added.
  nlohmann::json written_by = nlohmann::json::object();
  // The job's own past, extended by each save; a LoadCheckpoint sets it. Without it, a checkpoint
  // counts as coming from all of lower steps. Rank 0's is written.
  Lineage* lineage = nullptr;
  FileSystem* file_system = &FileSystem::System();
};

// Writes a folder root/step-N.tmp-..., each rank its own file, checks what is on disk, renames it
// to root/step-N (which replaces an older step-N in one move) and names it in root/latest. Returns
// the path of the checkpoint. On failure that folder is removed and what was there before is
// untouched. A full disk is kResourceExhausted and says what is needed and free. Requires a root
// that all ranks see.
StatusOr<std::filesystem::path> SaveCheckpoint(const SaveRequest& request,
                                               std::span<Stateful* const> parts,
                                               comm::Communicator& world);

// Fills the parts' shards and then their states from the checkpoint folder `directory`, whatever
// world size and ZeRO stage wrote it. Each rank reads only what overlaps its shards, and checks the
// checksums of the chunks that it reads; call VerifyCheckpoint() first to check all of them.
//
// Errors name the tensor: missing in the checkpoint, unknown to the parts, other shape or dtype.
// After an error the parts hold a mixture and must not be used.
//
// `lineage` says which generation loads, and is told what it comes from now.
Status LoadCheckpoint(const std::filesystem::path& directory, std::span<Stateful* const> parts,
                      comm::Communicator& world, Lineage* lineage = nullptr);

}  // namespace ds::checkpoint
