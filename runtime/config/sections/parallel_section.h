#pragma once

// Reads the keys of a ds_config for parallelism other than data parallelism, and computes how many
// ranks have samples of their own. The batch formula, elasticity and ZeRO's groups count these
// ranks, not all ranks of the job.

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "runtime/config/check/rule.h"
#include "runtime/config/ds_config.h"

namespace ds::config {

std::span<const Rule> ParallelRules();
// Requires values without errors.
void FillParallel(const Values& values, DsConfig* config);

// Returns the requested degrees of parallelism, built or not.
ParallelConfig ReadParallel(const Values& values);

// Returns the number of ranks with samples of their own; absent where the degrees do not divide the
// ranks of the job, which is reported already.
std::optional<std::int64_t> DataRanks(const RuleContext& context);
// Returns the number of ranks that can share a dense parameter's state; absent as above.
std::optional<std::int64_t> StateRanks(const RuleContext& context);
// Describes these ranks for an origin: "world size 8", or the degrees that they result from.
std::string NameDataRanks(const RuleContext& context);

}  // namespace ds::config
