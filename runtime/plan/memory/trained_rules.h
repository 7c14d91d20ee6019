#pragma once

// These functions check a job's trained parameters: adapters, quantized weights below them, and
// frozen parameters. Ranks call them as they build the model; dsrun calls them earlier, with the
// model's description.
//
// Reads the folder of --lora_adapter. Thread-safe.

#include <filesystem>
#include <optional>

#include "runtime/base/status.h"
#include "runtime/config/ds_config.h"
#include "runtime/config/train_job.h"
#include "runtime/plan/memory/trainable_parameters.h"
#include "runtime/plan/model/decoder_spec.h"

namespace ds::engine {

// Returns the adapters that the job trains, or nullopt if it trains the model itself. Reads the
// description in their folder, if they have one.
StatusOr<std::optional<models::LoraSpec>> FindLora(const config::TrainJob& job);

// Returns the parameters that the job trains, and the form in which it keeps the others. Fails like
// FindLora, and for an unknown form.
StatusOr<models::TrainableParameters> FindTrainableParameters(const config::TrainJob& job);

// Refuses --quantize_base if `tensor` or `experts` ranks share the matrices or experts.
Status CheckQuantizedRanks(const config::TrainJob& job, int tensor, int experts);

// Refuses targets and patterns that match nothing in the model, an adapter that does not fit the
// model, and adaptations that are not supported with a sharded model.
Status CheckTrainableParameters(const config::TrainJob& job, const config::ParallelConfig& parallel,
                                const models::DecoderSpec& model);

// Refuses a model folder with weights that do not match its config.json, by their headers, and a
// folder without the weights that an adapter (--lora_adapter) needs. "" means no folder.
Status CheckWeights(const config::TrainJob& job, const std::filesystem::path& folder,
                    const models::DecoderSpec& model);

// Refuses --lora_adapter if the model has no weights for the adapter: kNotFound, since another host
// may have them.
Status CheckAdapterHasBase(const config::TrainJob& job, bool has_weights);

}  // namespace ds::engine
