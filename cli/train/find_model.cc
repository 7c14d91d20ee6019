#include "cli/train/find_model.h"

#include <algorithm>
#include <cctype>

#include "runtime/base/files.h"
#include "runtime/base/suggest.h"
#include "runtime/engine/plan/expert_rules.h"
#include "runtime/engine/plan/partition_rules.h"
#include "runtime/engine/plan/stage_cut.h"
#include "runtime/models/spec/families.h"
#include "runtime/models/spec/model_ranks.h"
#include "runtime/topology/degrees.h"

namespace ds::cli {

namespace fs = std::filesystem;

std::string HowToFetch(std::string_view flag, const std::string& word) {
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
  // In a folder that is there somebody has looked for a file.
  if (!is_name(owner) || !is_name(name) || fs::exists(owner, ignored)) return "";
  return "; dsrun downloads nothing: if it is a name of the Hugging Face Hub, `hf download " +
         word + " --local-dir " + name + "` fetches it for " + std::string(flag) + " " + name;
}

StatusOr<fs::path> FindModel(const std::string& model, const ShareFolder& share) {
  std::error_code ignored;
  if (fs::exists(model, ignored)) return fs::path(model);
  const fs::path preset = share.preset(model);
  if (fs::exists(preset, ignored)) return preset;
  return NotFoundError("--model " + model + ": no such folder, config.json or preset" +
                       DidYouMean(model, share.Presets()) + HowToFetch("--model", model));
}

namespace {

// Its config.json.
StatusOr<std::string> ReadModelText(const std::string& model, const ShareFolder& share) {
  DS_ASSIGN_OR_RETURN(const fs::path path, FindModel(model, share));
  std::error_code ignored;
  const bool is_folder = fs::is_directory(path, ignored);
  StatusOr<std::string> text = ReadFile(is_folder ? path / "config.json" : path, kMaxConfigBytes);
  if (!text.ok()) return text.status().WithContext("--model " + model);
  return text;
}

// What the text says of a decoder, whatever else it may say.
StatusOr<models::DecoderSpec> ParseDecoder(const std::string& text) {
  const auto json = nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  return models::ReadDecoderSpec(json, "", models::UnknownKeys::kIgnore);
}

}  // namespace

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

Status CheckRulesFit(const std::string& model, const nlohmann::ordered_json& given, int tensor,
                     const ShareFolder& share) {
  using Json = nlohmann::ordered_json;
  const Json partition =
      given.value(Json::json_pointer("/tensor_parallel/partition_config"), Json());
  const Json experts = given.value("expert_parallel", Json());
  if ((tensor == 1 || partition.is_null()) && experts.is_null()) return OkStatus();
  DS_ASSIGN_OR_RETURN(const std::string text, ReadModelText(model, share));
  DS_ASSIGN_OR_RETURN(const models::DecoderSpec spec, ParseDecoder(text));
  DS_RETURN_IF_ERROR(engine::CheckPartitionRules(partition, spec, tensor));
  return engine::CheckExpertRules(experts, Json::parse(text), spec);
}

Status CheckLengthFits(const std::string& model, std::int64_t seq_len, const ShareFolder& share) {
  DS_ASSIGN_OR_RETURN(const std::string text, ReadModelText(model, share));
  const auto spec = ParseDecoder(text);
  if (!spec.ok()) return OkStatus();  // ranks say what is wrong with it
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
  const auto spec = ParseDecoder(text);
  const Status status =
      spec.ok() ? engine::CutStages(*spec, config, order).status() : spec.status();
  return status.ok() ? status : status.WithContext("--model " + job.model);
}

}  // namespace ds::cli
