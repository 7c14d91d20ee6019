#pragma once

// ResidencyBudgets from a ds_config, whose keys count elements of parameters, and whether calls go
// on beside the computation.
//
// A value that a config writes out counts, DeepSpeed's defaults included: those keep a small model
// gathered from its first forward pass on. Where a config is silent, the runtime has its own:
// where calls block, nothing is gathered ahead or kept, however much may be live, and nothing stays
// because it is small; where they go on beside the computation, one place is gathered ahead, and as
// much as the largest place has is reduced at once.

#include <cstdint>

#include "runtime/config/ds_config.h"
#include "runtime/plan/zero/residency_plan.h"

namespace ds::zero {

// In bytes: of a parameter, and of a gradient between ranks.
struct ElementSizes {
  std::int64_t parameter = 4;
  std::int64_t gradient = 4;
};

ResidencyBudgets MakeResidencyBudgets(const config::ZeroConfig& config, const ElementSizes& sizes,
                                      bool overlap);

// CallSetting tells where the ranks of a group are.
struct CallSetting {
  bool spans_hosts = false;
  bool on_gpu = false;
};

// Lets calls go on beside the computation where they wait for something else than the cores that
// compute, if the config wants it. Between CPU ranks of one host a call is copies by these: there
// it blocks, whatever the config says.
bool ChooseOverlap(const config::ZeroConfig& config, const CallSetting& setting);

}  // namespace ds::zero
