#pragma once

// GradientReduction: the arithmetic by which gradients of ranks become one, from
// gradient_allreduce_op, prescale_gradients and gradient_predivide_factor. They differ in rounding
// and in how far a sum in 16 bit may reach before it overflows, but for "sum", which leaves the
// mean to the user.

#include "runtime/config/ds_config.h"

namespace ds::precision {

struct GradientReduction {
  // The communicator's own mean: added and divided in fp32, rounded once. `before` is 1 then, and
  // `after`, unless the gradients are those of more ranks than the communicator has.
  bool average = true;
  double before = 1.0;  // multiplied before the sum over ranks
  double after = 1.0;   // and after it
};

// For gradients that so many ranks add up.
GradientReduction MakeGradientReduction(const config::DsConfig& config, int gradient_ranks);
// For gradients of which each rank has the sum of `expert` ranks', so that one of as many ranks
// takes part.
GradientReduction ForExperts(GradientReduction reduction, int expert);

}  // namespace ds::precision
