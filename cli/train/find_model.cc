#include "cli/train/find_model.h"

#include <algorithm>
#include <cctype>

#include "runtime/base/files.h"
#include "runtime/base/json_fault.h"
#include "runtime/base/path_exists.h"
#include "runtime/base/suggest.h"
#include "runtime/config/recompute_choice.h"
#include "runtime/plan/memory/expert_rules.h"
#include "runtime/plan/memory/partition_rules.h"
#include "runtime/plan/memory/stage_partition.h"
#include "runtime/plan/mesh/degrees.h"
#include "runtime/plan/model/families.h"
#include "runtime/plan/model/model_ranks.h"
#include "runtime/plan/model/weight_files.h"

namespace ds::cli {

namespace fs = std::filesystem;

std::string DescribeDownload(std::string_view flag, const std::string& word) {
  const std::size_t slash = word.find('/');
  if (slash == std::string::npos) return "";
  const std::string owner = word.substr(0, slash), name = word.substr(slash + 1);
  const auto is_name = [](const std::string& part) {
    return !part.empty() && part.front() != '.' && part.front() != '-' &&
           std::all_of(part.begin(), part.end(), [](char c) {
             return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' ||
                    c == '.';
           });
  };
  std::error_code ignored;
  // If the owner is an existing folder, the user meant a file in it.
  if (!is_name(owner) || !is_name(name) || fs::exists(owner, ignored)) return "";
  return "; dsrun downloads nothing: if it is a name of the Hugging Face Hub, `hf download " +
         word + " --local-dir " + name + "` fetches it for " + std::string(flag) + " " + name;
}

StatusOr<fs::path> FindModel(const std::string& model, const ShareFolder& share) {
  DS_ASSIGN_OR_RETURN(const bool is_here, PathExists(model));
  if (is_here) return fs::path(model);
  const fs::path preset = share.preset(model);
  DS_ASSIGN_OR_RETURN(const bool is_preset, PathExists(preset));
  if (is_preset) return preset;
  return NotFoundError("--model " + model + ": no such folder, config.json or preset" +
                       DidYouMean(model, share.Presets()) + DescribeDownload("--model", model));
}

StatusOr<fs::path> FindWeights(const std::string& model, const ShareFolder& share) {
  DS_ASSIGN_OR_RETURN(const fs::path path, FindModel(model, share));
  DS_ASSIGN_OR_RETURN(const bool is_here, PathExists(model));
  if (!is_here) return fs::path();
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return path;
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

namespace {

// Reads the model's config.json.
StatusOr<std::string> ReadModelText(const std::string& model, const ShareFolder& share) {
  DS_ASSIGN_OR_RETURN(const fs::path path, FindModel(model, share));
  std::error_code ignored;
  const bool is_folder = fs::is_directory(path, ignored);
  StatusOr<std::string> text = ReadFile(is_folder ? path / "config.json" : path, kMaxConfigBytes);
  if (!text.ok()) return text.status().WithContext("--model " + model);
  if (FindJsonFault(*text)) {
    return InvalidArgumentError("--model " + model +
                                ": config.json is not valid JSON: " + DescribeJsonFault(*text));
  }
  return text;
}

// Parses the decoder settings of the text and ignores all others.
StatusOr<models::DecoderSpec> ParseDecoder(const std::string& text) {
  const auto json = nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  return models::ReadDecoderSpec(json, "", models::UnknownModelKeys::kIgnore);
}

// Parses the decoder settings in the same way as ranks.
StatusOr<models::DecoderSpec> ParseDecoder(const std::string& text,
                                           const config::DsConfig& config) {
  DS_ASSIGN_OR_RETURN(models::DecoderSpec spec, ParseDecoder(text));
  DS_RETURN_IF_ERROR(engine::TakeMoeSection(config.moe, &spec));
  return spec;
}

}  // namespace

bool HasWeights(const std::string& model) {
  fs::path folder = model;  // a preset's name has no folder
  std::error_code error;
  if (fs::is_regular_file(folder, error)) folder = folder.parent_path();
  if (!folder.is_absolute()) return false;
  const StatusOr<fs::path> first = models::WeightFiles::FindFirst(folder);
  return first.ok() && !first->empty();
}

StatusOr<models::DecoderSpec> ReadBuiltModel(const std::string& model, const ShareFolder& share) {
  DS_ASSIGN_OR_RETURN(const std::string text, ReadModelText(model, share));
  const auto json = nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  StatusOr<models::DecoderSpec> spec = models::ReadDecoderSpec(json, "config.json");
  if (!spec.ok()) return spec.status().WithContext("--model " + model);
  return spec;
}

StatusOr<config::ModelFacts> FindModelFacts(const std::string& model, const ShareFolder& share) {
  DS_ASSIGN_OR_RETURN(const std::string text, ReadModelText(model, share));
  return config::ReadModelFacts(text, model);
}

Status CheckDegreesFit(const std::string& model, const config::ParallelConfig& degrees,
                       const ShareFolder& share, models::SequenceKind kind) {
  const int expert = degrees.expert;
  if (degrees.ranks_of_a_sample() == 1 && expert == 1) return OkStatus();
  DS_ASSIGN_OR_RETURN(const std::string text, ReadModelText(model, share));
  Status status;
  if (degrees.tensor > 1 || degrees.sequence > 1 || expert > 1) {
    const auto spec = ParseDecoder(text);
    status = spec.status();
    if (spec.ok()) {
      status = models::CheckModelRanks(*spec, degrees.tensor, degrees.sequence, expert, kind);
    }
  }
  if (status.ok()) {
    status = topology::CheckFitsModel({.pipeline = degrees.pipeline,
                                       .sequence = degrees.sequence,
                                       .tensor = degrees.tensor,
                                       .expert = expert},
                                      config::ReadModelFacts(text, model));
  }
  return status.ok() ? status : status.WithContext("--model " + model);
}

Status CheckRulesFit(const std::string& model, const nlohmann::ordered_json& given,
                     const config::DsConfig& config, const ShareFolder& share) {
  using Json = nlohmann::ordered_json;
  const Json partition =
      given.value(Json::json_pointer("/tensor_parallel/partition_config"), Json());
  const Json experts = given.value("expert_parallel", Json());
  const int tensor = config.parallel.tensor;
  if ((tensor == 1 || partition.is_null()) && experts.is_null()) return OkStatus();
  DS_ASSIGN_OR_RETURN(const std::string text, ReadModelText(model, share));
  DS_ASSIGN_OR_RETURN(const models::DecoderSpec spec, ParseDecoder(text, config));
  DS_RETURN_IF_ERROR(engine::CheckPartitionRules(partition, spec, tensor));
  DS_ASSIGN_OR_RETURN(const models::DecoderSpec of_folder, ParseDecoder(text));
  return engine::CheckExpertRules(experts, Json::parse(text), of_folder);
}

Status CheckLengthFits(const std::string& model, std::int64_t seq_len, const ShareFolder& share) {
  DS_ASSIGN_OR_RETURN(const std::string text, ReadModelText(model, share));
  const auto spec = ParseDecoder(text);
  if (!spec.ok()) return OkStatus();  // ranks report the error
  const Status status = models::CheckLength(*spec, seq_len);
  if (status.ok()) return status;
  return InvalidArgumentError("--model " + model + ": " + std::string(status.message()) +
                              "; --seq_len " + std::to_string(spec->max_positions) + " fits");
}

Status CheckStagesFit(const config::TrainJob& job, const config::DsConfig& config,
                      const ShareFolder& share) {
  if (config.parallel.pipeline == 1) return OkStatus();
  DS_ASSIGN_OR_RETURN(const engine::StageOrder order, engine::ParseStageOrder(job, config));
  DS_ASSIGN_OR_RETURN(const std::string text, ReadModelText(job.model, share));
  const auto spec = ParseDecoder(text, config);
  const Status status =
      spec.ok() ? engine::PartitionStages(*spec, config, order).status() : spec.status();
  return status.ok() ? status : status.WithContext("--model " + job.model);
}

Status CheckCheckpointsFit(const config::TrainJob& job, const config::DsConfig& config,
                           const ShareFolder& share) {
  const auto& parts = config.activation_checkpointing.buffered_parts;
  if (!parts) return OkStatus();
  DS_ASSIGN_OR_RETURN(const config::RecomputeChoice asked, config::ParseRecompute(job.recompute));
  const config::RecomputeChoice choice = config::DecideRecompute(asked, config);
  DS_ASSIGN_OR_RETURN(const std::string text, ReadModelText(job.model, share));
  const auto spec = ParseDecoder(text);
  if (!spec.ok()) return OkStatus();
  const int blocks = static_cast<int>(spec->layers) + 2;  // with embedding and head
  std::vector<int> split{0, blocks};
  if (config.parallel.pipeline > 1) {
    DS_ASSIGN_OR_RETURN(const engine::StageOrder order, engine::ParseStageOrder(job, config));
    DS_ASSIGN_OR_RETURN(split, engine::PartitionStages(*spec, config, order));
  }
  for (std::size_t part = 0; part + 1 < split.size(); ++part) {
    std::int64_t recomputed = 0;
    for (int i = split[part]; i < split[part + 1]; ++i) {
      if (config::IsRecomputed(choice, i, blocks)) ++recomputed;
    }
    DS_RETURN_IF_ERROR(config::CheckBufferedPartitions(*parts, recomputed));
  }
  return OkStatus();
}

namespace {

// The model formats of transformers have no weights for a residual MLP.
Status CheckResidualFits(const config::TrainJob& job) {
  if (HasWeights(job.model)) {
    return InvalidArgumentError(
        "moe.use_residual: --model " + job.model +
        " has weights, and none of an MLP next to its experts: copy its config.json to a folder of "
        "its own (with --tokenizer), from which all weights start at random, or leave the key out");
  }
  if (job.save_hf_dir.empty()) return OkStatus();
  return InvalidArgumentError(
      "--save_hf: transformers has no model with an MLP next to its experts, which the config's "
      "moe.use_residual asks for; leave one of both out (--save_every keeps the model in "
      "checkpoints)");
}

}  // namespace

Status CheckMoeFits(const config::TrainJob& job, const config::DsConfig& config,
                    const ShareFolder& share) {
  if (config.moe == config::MoeConfig()) return OkStatus();
  DS_ASSIGN_OR_RETURN(const std::string text, ReadModelText(job.model, share));
  DS_RETURN_IF_ERROR(ParseDecoder(text, config).status());
  if (config.moe.residual) DS_RETURN_IF_ERROR(CheckResidualFits(job));
  if (!config.moe.gate || job.mlp_tiles == 1) return OkStatus();
  return InvalidArgumentError(
      "--tile_mlp: the moe section asks for a gate with capacity, which sees all tokens of a pass "
      "at once; leave one of both out");
}

}  // namespace ds::cli
