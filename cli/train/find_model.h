#pragma once

// FindModel resolves `--model`: a folder, a config.json, or the name of a preset.

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "cli/train/share_folder.h"
#include "runtime/base/status.h"
#include "runtime/config/check/job_facts.h"
#include "runtime/config/ds_config.h"
#include "runtime/config/train_job.h"
#include "runtime/plan/model/model_ranks.h"

namespace ds::cli {

// Returns a hint for a word that looks like a name on the Hugging Face Hub (owner/name) and names
// nothing here. It says that dsrun downloads nothing and gives the download command for `flag`.
// Returns "" for other words.
std::string DescribeDownload(std::string_view flag, const std::string& word);

// Returns the path of the folder or file. kNotFound suggests presets with similar names.
StatusOr<std::filesystem::path> FindModel(const std::string& model, const ShareFolder& share);

// Returns true if the job's model, in the form of TrainJob, is a folder with weights.
bool HasWeights(const std::string& model);

// Returns the folder for the model's weights; "" for a preset.
StatusOr<std::filesystem::path> FindWeights(const std::string& model, const ShareFolder& share);

// Reads the model's config.json like a rank. Fails with the rank's error for an unsupported family
// or value.
StatusOr<models::DecoderSpec> ReadBuiltModel(const std::string& model, const ShareFolder& share);

// Reads the facts in the model's config.json. kNotFound if there is none.
StatusOr<config::ModelFacts> FindModelFacts(const std::string& model, const ShareFolder& share);

// Checks that the model can be partitioned by these degrees, with sequence parallelism of this
// kind.
Status CheckDegreesFit(const std::string& model, const config::ParallelConfig& degrees,
                       const ShareFolder& share,
                       models::SequenceKind kind = models::SequenceKind::kUlysses);

// Checks the rules for weights and experts in `given`, the user's own text of `config`. They must
// match the model when sharded among the config's tensor-parallel ranks
// (engine::CheckPartitionRules, engine::CheckExpertRules).
Status CheckRulesFit(const std::string& model, const nlohmann::ordered_json& given,
                     const config::DsConfig& config, const ShareFolder& share);

// Checks that the model has enough positions for samples of `seq_len` tokens. A model that cannot
// be read passes this check.
Status CheckLengthFits(const std::string& model, std::int64_t seq_len, const ShareFolder& share);

// Checks that each pipeline stage of the config gets a part of the job's model, in the job's order
// (engine::PartitionStages).
Status CheckStagesFit(const config::TrainJob& job, const config::DsConfig& config,
                      const ShareFolder& share);

// Checks that the config's buffer of recomputed layers
// (activation_checkpointing.number_checkpoints) has an entry for each layer that a rank recomputes
// in a pass. A model that cannot be read passes this check.
Status CheckCheckpointsFit(const config::TrainJob& job, const config::DsConfig& config,
                           const ShareFolder& share);

// Checks that the job's model supports the config's `moe` section (engine::TakeMoeSection). If no
// model folder can store such a model, also checks that the job neither starts from a folder's
// weights nor writes a folder.
Status CheckMoeFits(const config::TrainJob& job, const config::DsConfig& config,
                    const ShareFolder& share);

}  // namespace ds::cli
