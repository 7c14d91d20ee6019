#pragma once

// Small numbers of every rank, exchanged exactly.

#include <vector>

#include "runtime/base/status.h"
#include "runtime/zero/context.h"

namespace ds::zero {

// Gathers: entry [r] is rank r's `values`, bit for bit. Collective; equal lengths on all ranks.
std::vector<std::vector<double>> GatherNumbers(const Context& context,
                                               const std::vector<double>& values);

// OK when `mine` is OK on every rank; else this rank's own error, or one that names the first rank
// that failed. Collective.
Status AgreeOnStatus(const Context& context, const Status& mine);

}  // namespace ds::zero
