#pragma once

// Lineage records the checkpoints from which a checkpoint descends.
//
// When a job is rolled back to an earlier checkpoint, the later ones belong to an abandoned branch.
// The lineage of a checkpoint identifies the checkpoints of its own past, even if some were deleted
// or damaged since. Every start of a job's ranks is a generation. For each generation, a lineage
// stores the last checkpoint, which implies the earlier ones of that generation.
//
// Two jobs number their generations alike, so each start also draws an id. A checkpoint copied from
// another job's folder is therefore on no line of this job.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace ds::checkpoint {

// Identifies a checkpoint of a job. Two checkpoints of the same step have different starts.
struct CheckpointId {
  std::int64_t generation = 0;
  std::int64_t step = 0;
  std::int64_t start = 0;  // from DrawStart(); 0 when the writer draws none
  friend bool operator==(const CheckpointId&, const CheckpointId&) = default;
};

// Returns true when the same start of ranks wrote both.
bool IsOfOneStart(const CheckpointId& a, const CheckpointId& b);

struct Lineage {
  std::int64_t generation = 0;     // generation of the writer
  std::vector<CheckpointId> past;  // generations never descend; the last one is the parent
  std::int64_t start = 0;          // start id of that generation
  friend bool operator==(const Lineage&, const Lineage&) = default;
};

// Returns the id of the checkpoint with this lineage and step.
CheckpointId IdOf(const Lineage& lineage, std::int64_t step);

// Draws the id of a start: a positive number of 53 bits, which every JSON reader keeps exactly.
std::int64_t DrawStart();

// Returns the lineage of a checkpoint that stores none: generation 0, with every lower step of that
// generation as its past.
Lineage AssumeLineage(std::int64_t step);

// Returns true when a checkpoint with this lineage descends from `id`.
bool DescendsFrom(const Lineage& lineage, const CheckpointId& id);

// Returns false when both lineages contain starts of some generation but share none of these. A job
// has one start per generation, and a copy of a job's folder continues with other starts. A job
// that began again from scratch has other generations.
bool MayBeOfOneJob(const Lineage& a, const Lineage& b);

// Returns the lineage of checkpoints that `writer` saves after the checkpoint of lineage `parent`
// and step `step`. The past of `writer` is ignored. A generation lower than the parent's counts as
// the parent's.
Lineage ContinueLineage(const Lineage& parent, std::int64_t step, const Lineage& writer);

// Returns {"generation": 3, "past": [[0, 10], [3, 20, 61]], "start": 61}; an id of 0 is omitted.
nlohmann::json LineageToJson(const Lineage& lineage);
StatusOr<Lineage> LineageFromJson(const nlohmann::json& json);

}  // namespace ds::checkpoint
