#pragma once

// Rules of what a job trains of its model: adapters, bytes below them, and frozen parameters. Ranks
// ask for them as they build the model, dsrun before, by the model's description.
//
// Reads the folder of --lora_adapter; safe from any thread.

#include <filesystem>
#include <optional>

#include "runtime/base/status.h"
#include "runtime/config/ds_config.h"
#include "runtime/config/train_job.h"
#include "runtime/plan/memory/trained_part.h"
#include "runtime/plan/model/decoder_spec.h"

namespace ds::engine {

// Finds the adapters that the job trains; none where it trains the model itself. Reads their
// folder's description, if they have one.
StatusOr<std::optional<models::LoraSpec>> FindLora(const config::TrainJob& job);

// Finds which parameters the job trains, and in which form it keeps the others. The error is
// FindLora's, or of a form that there is none of.
StatusOr<models::TrainedPart> FindTrainedPart(const config::TrainJob& job);

// Refuses --quantize_base of matrices or experts that so many ranks have between them.
Status CheckQuantizedRanks(const config::TrainJob& job, int tensor, int experts);

// Refuses targets and patterns that name nothing of the model, an adapter that does not fit it, and
// what ranks that have parts of it cannot adapt.
Status CheckTrainedPart(const config::TrainJob& job, const config::ParallelConfig& parallel,
                        const models::DecoderSpec& model);

// Refuses a folder of the model whose weights are not those of its config.json, by their headers,
// and one without weights that an adapter (--lora_adapter) would belong to. "" is no folder.
Status CheckWeights(const config::TrainJob& job, const std::filesystem::path& folder,
                    const models::DecoderSpec& model);

// Refuses --lora_adapter where the model has no weights that the adapter would belong to:
// kNotFound, since another host may have them.
Status CheckAdapterHasBase(const config::TrainJob& job, bool has_weights);

}  // namespace ds::engine
