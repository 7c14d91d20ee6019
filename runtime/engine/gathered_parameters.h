#pragma once

// WithGatheredParameters: parameters whole for a while, whatever of them is sharded, to look at or
// to change: DeepSpeed's zero.GatheredParameters.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/engine/engine.h"

namespace ds::engine {

// Calls `body` on every rank, without gradient recording, while the parameters of these full names
// have their values, in the training dtype, as every rank has them. Their blocks are in memory
// whole meanwhile, and no others.
//
// Afterwards all ranks have the values that `body` wrote on `modifier_rank`, in shards and fp32
// masters too; a master whose 16-bit value is as before keeps its own. Values written by other
// ranks, or by any where there is no such rank or `body` fails on one, are undone at every stage.
//
// Between passes, with the same arguments on all ranks; `body` calls nothing collective, and what
// it asks this engine for beyond plain getters is refused, another WithGatheredParameters too: the
// parameters would go away under it. All ranks return the same status: of a name that there is not,
// a rank that there is not, a trained parameter to modify while an optimizer's ranks have moved on
// their own (ZeroOneAdam between two exchanges), or of `body`.
Status WithGatheredParameters(Engine& engine, const std::vector<std::string>& names,
                              std::optional<int> modifier_rank,
                              const std::function<Status()>& body);

}  // namespace ds::engine

namespace ds {
using engine::WithGatheredParameters;
}  // namespace ds
