#pragma once

// FindModel says what `--model` means: a folder, a config.json, or the name of a preset.

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

// Says, of a word that looks as names of the Hugging Face Hub do (owner/name) and names nothing
// here, that nothing is downloaded, and what fetches it for this flag; "" of other words.
std::string HowToFetch(std::string_view flag, const std::string& word);

// The path of the folder or file. NotFound names the presets that come near.
StatusOr<std::filesystem::path> FindModel(const std::string& model, const ShareFolder& share);

// Tells whether the job's model, as TrainJob has it, is a folder with weights.
bool HasWeights(const std::string& model);

// The folder where its weights would be; "" for a preset.
StatusOr<std::filesystem::path> FindWeights(const std::string& model, const ShareFolder& share);

// Reads its config.json as ranks do: the error is theirs, of its family or of a value.
StatusOr<models::DecoderSpec> ReadBuiltModel(const std::string& model, const ShareFolder& share);

// Reads what its config.json says. NotFound when there is none.
StatusOr<config::ModelFacts> FindModelFacts(const std::string& model, const ShareFolder& share);

// OK when the model can be cut by these degrees, with sequence ranks of this kind.
Status CheckDegreesFit(const std::string& model, const config::ParallelConfig& degrees,
                       const ShareFolder& share,
                       models::SequenceKind kind = models::SequenceKind::kUlysses);

// OK when what `given`, the user's own text of `config`, says of the model's weights and experts is
// what holds of them, cut among so many tensor ranks (engine::CheckPartitionRules,
// engine::CheckExpertRules).
Status CheckRulesFit(const std::string& model, const nlohmann::ordered_json& given,
                     const config::DsConfig& config, const ShareFolder& share);

// OK when its positions suffice for samples of so many tokens. A model that cannot be read is not
// judged here.
Status CheckLengthFits(const std::string& model, std::int64_t seq_len, const ShareFolder& share);

// OK when each stage that the config asks for gets a part of the job's model, in the job's order
// (engine::CutStages).
Status CheckStagesFit(const config::TrainJob& job, const config::DsConfig& config,
                      const ShareFolder& share);

// OK where the buffer of recomputed layers that the config asks for has a part for each layer that
// a rank of the job recomputes in a pass (activation_checkpointing.number_checkpoints). A model
// that cannot be read is not judged here.
Status CheckCheckpointsFit(const config::TrainJob& job, const config::DsConfig& config,
                           const ShareFolder& share);

// OK where the job's model takes what the config's `moe` section asks for (engine::TakeMoeSection),
// and the job neither starts from a folder's weights nor writes a folder where no folder can have
// such a model's.
Status CheckMoeFits(const config::TrainJob& job, const config::DsConfig& config,
                    const ShareFolder& share);

}  // namespace ds::cli
