#pragma once

// The loss scaler that a ds_config asks for.

#include "runtime/config/ds_config.h"
#include "runtime/precision/loss_scaler.h"

namespace ds::precision {

// A static scale of 1 without fp16. Which of DeepSpeed's two dynamic rules holds is decided by the
// configured ZeRO stage, as there, not by what is really sharded. torch_autocast in float16 has a
// rule of its own, PyTorch's with its defaults, at every stage.
LossScaler MakeLossScaler(const config::DsConfig& config);

}  // namespace ds::precision
