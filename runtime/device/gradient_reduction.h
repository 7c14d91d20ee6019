#pragma once

// GradientReduction: the arithmetic of the gradient reduction over ranks, from
// gradient_allreduce_op, prescale_gradients and gradient_predivide_factor. The variants differ in
// rounding and in the range of a 16-bit sum before it overflows. Only "sum" gives another result:
// it leaves the mean to the user.

#include "runtime/config/ds_config.h"

namespace ds::precision {

struct GradientReduction {
  // Uses the communicator's mean: added and divided in fp32, rounded once. Then `before` is 1.
  // `after` is 1 too, unless the gradients come from more ranks than the communicator has.
  bool average = true;
  double before = 1.0;  // factor applied before the sum over ranks
  double after = 1.0;   // factor applied after the sum
};

// Returns the reduction for gradients that are summed over `gradient_ranks` ranks.
GradientReduction MakeGradientReduction(const config::DsConfig& config, int gradient_ranks);
// Returns the reduction for experts' gradients: each rank has the sum over `expert` ranks, so one
// in `expert` ranks takes part.
GradientReduction ForExperts(GradientReduction reduction, int expert);

}  // namespace ds::precision
