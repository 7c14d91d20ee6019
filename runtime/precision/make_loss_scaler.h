#pragma once

// The loss scaler that a ds_config asks for.

#include "runtime/config/ds_config.h"
#include "runtime/precision/loss_scaler.h"

namespace ds::precision {

// Without fp16 a static scale of 1. Which of DeepSpeed's two dynamic rules holds is decided by the
// configured ZeRO stage, as there, not by what is really sharded.
LossScaler MakeLossScaler(const config::DsConfig& config);

}  // namespace ds::precision
