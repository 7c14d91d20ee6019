#pragma once

// MakeResidencyBudgets: derives ResidencyBudgets from a ds_config, which counts elements of
// parameters. ChooseOverlap: decides whether calls overlap with computation.
//
// Values written in a config apply, even if they equal DeepSpeed's defaults; those keep a small
// model gathered from its first forward pass on. For absent keys the runtime has its own defaults.
// Blocking calls: nothing is gathered ahead or kept for any max_live_bytes, and nothing stays
// because it is small. Overlapped calls: one position is gathered ahead, and at most the gradients
// of the largest position are reduced at once.

#include <cstdint>

#include "runtime/config/ds_config.h"
#include "runtime/plan/zero/residency_plan.h"

namespace ds::zero {

// Bytes per element, of a parameter and of a gradient between ranks.
struct ElementSizes {
  std::int64_t parameter = 4;
  std::int64_t gradient = 4;
};

ResidencyBudgets MakeResidencyBudgets(const config::ZeroConfig& config, const ElementSizes& sizes,
                                      bool overlap);

// CallSetting: the location of the ranks of a group.
struct CallSetting {
  bool spans_hosts = false;
  bool on_gpu = false;
};

// Returns true if the config enables overlap and calls wait for something other than the cores that
// compute. A call between CPU ranks of one host is a copy by these cores: it blocks with any
// config.
bool ChooseOverlap(const config::ZeroConfig& config, const CallSetting& setting);

}  // namespace ds::zero
