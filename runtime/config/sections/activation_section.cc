#include "runtime/config/sections/activation_section.h"

#include "runtime/config/keys/keys.h"

namespace ds::config {
void FillActivation(const Values& values, DsConfig* config) {
  config->activation_checkpointing = {
      .cpu_checkpointing = values.Get(keys::kActivationCheckpointingCpuCheckpointing),
      .synchronize_checkpoint_boundary =
          values.Get(keys::kActivationCheckpointingSynchronizeCheckpointBoundary)};
}

}  // namespace ds::config
