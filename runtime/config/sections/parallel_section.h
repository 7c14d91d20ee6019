#pragma once

// The keys of a ds_config that cut a job beside data parallelism, and how many ranks that leaves
// with samples of their own. Those ranks, not all of the job, are what the batch formula,
// elasticity and ZeRO's groups count.

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

// The parallelism that the values ask for, built or not.
ParallelConfig ReadParallel(const Values& values);

// The ranks with samples of their own; absent where the degrees do not divide the ranks of the job,
// which has been reported.
std::optional<std::int64_t> DataRanks(const RuleContext& context);
// The ranks that can share a dense parameter's state; absent as above.
std::optional<std::int64_t> StateRanks(const RuleContext& context);
// These ranks in an origin: "world size 8", or of which degrees they are what is left.
std::string NameDataRanks(const RuleContext& context);

}  // namespace ds::config
