#pragma once

// Lineage: the checkpoints that a checkpoint comes from.
//
// A job that is sent back to an earlier checkpoint leaves the ones behind it to another future. The
// line of a checkpoint tells those from its own past, whatever was deleted or damaged since. Every
// start of a job's ranks is a generation; a line holds, of each generation it went through, the
// last checkpoint, and with it the earlier ones of that generation. Two jobs number their
// generations alike, so each start draws an id, too: a checkpoint that was copied from another
// job's folder is on no line of this one.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace ds::checkpoint {

// Names one checkpoint of a job: two of one step are of different starts.
struct CheckpointId {
  std::int64_t generation = 0;
  std::int64_t step = 0;
  std::int64_t start = 0;  // DrawStart(); 0 when the writer draws none
  friend bool operator==(const CheckpointId&, const CheckpointId&) = default;
};

// True when the same start of ranks wrote both.
bool IsOfOneStart(const CheckpointId& a, const CheckpointId& b);

struct Lineage {
  std::int64_t generation = 0;     // that writes, or has written
  std::vector<CheckpointId> past;  // generations never descend; the last one is the parent
  std::int64_t start = 0;          // of that generation
  friend bool operator==(const Lineage&, const Lineage&) = default;
};

// The id of the checkpoint of this lineage and step.
CheckpointId IdOf(const Lineage& lineage, std::int64_t step);

// Draws the id of a start: positive, of 53 bits, which every JSON reader keeps exactly.
std::int64_t DrawStart();

// The lineage of a checkpoint that does not tell: generation 0, and every lower step of it is its
// past.
Lineage AssumeLineage(std::int64_t step);

// True when a checkpoint of this lineage comes from `id`.
bool ComesFrom(const Lineage& lineage, const CheckpointId& id);

// False when both tell starts of a generation and none is the same: a job has one start of a
// generation, and the copy of a job's folder goes on by starts of its own. A job that began again
// from scratch has other generations.
bool MayBeOfOneJob(const Lineage& a, const Lineage& b);

// The lineage of what `writer`, whose past does not count, writes after the checkpoint `parent` of
// step `step`. A generation lower than the parent's counts as the parent's.
Lineage ContinueLineage(const Lineage& parent, std::int64_t step, const Lineage& writer);

// {"generation": 3, "past": [[0, 10], [3, 20, 61]], "start": 61}; an id 0 is left out.
nlohmann::json LineageToJson(const Lineage& lineage);
StatusOr<Lineage> LineageFromJson(const nlohmann::json& json);

}  // namespace ds::checkpoint
