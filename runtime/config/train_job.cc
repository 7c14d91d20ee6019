#include "runtime/config/train_job.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <tuple>
#include <type_traits>

#include "runtime/base/glob.h"
#include "runtime/base/suggest.h"
#include "runtime/config/recompute_choice.h"

namespace ds::config {
namespace {

// Name and member of every field, in the order of the file. Both directions use this list.
constexpr auto kFields = std::tuple{
    std::pair{"model", &TrainJob::model},
    std::pair{"data", &TrainJob::data},
    std::pair{"data_weights", &TrainJob::data_weights},
    std::pair{"token_dtype", &TrainJob::token_dtype},
    std::pair{"tokenizer", &TrainJob::tokenizer},
    std::pair{"data_field", &TrainJob::data_field},
    std::pair{"text_field", &TrainJob::text_field},
    std::pair{"messages_field", &TrainJob::messages_field},
    std::pair{"prompt_field", &TrainJob::prompt_field},
    std::pair{"completion_field", &TrainJob::completion_field},
    std::pair{"tools_field", &TrainJob::tools_field},
    std::pair{"role_field", &TrainJob::role_field},
    std::pair{"content_field", &TrainJob::content_field},
    std::pair{"prompt_style", &TrainJob::prompt_style},
    std::pair{"max_length", &TrainJob::max_length},
    std::pair{"truncation_mode", &TrainJob::truncation_mode},
    std::pair{"assistant_only_loss", &TrainJob::assistant_only_loss},
    std::pair{"on_bad_data", &TrainJob::on_bad_data},
    std::pair{"data_cache", &TrainJob::data_cache},
    std::pair{"eval_data", &TrainJob::eval_data},
    std::pair{"eval_split", &TrainJob::eval_split},
    std::pair{"eval_every", &TrainJob::eval_every},
    std::pair{"save_best", &TrainJob::save_best},
    std::pair{"load_best", &TrainJob::load_best},
    std::pair{"eval_patience", &TrainJob::eval_patience},
    std::pair{"max_minutes", &TrainJob::max_minutes},
    std::pair{"warmup_share", &TrainJob::warmup_share},
    std::pair{"packing", &TrainJob::packing},
    std::pair{"seq_len", &TrainJob::seq_len},
    std::pair{"steps", &TrainJob::steps},
    std::pair{"epochs", &TrainJob::epochs},
    std::pair{"shuffle", &TrainJob::shuffle},
    std::pair{"seed", &TrainJob::seed},
    std::pair{"save_every", &TrainJob::save_every},
    std::pair{"save_total_limit", &TrainJob::save_total_limit},
    std::pair{"checkpoint_dir", &TrainJob::checkpoint_dir},
    std::pair{"checkpoint_mark", &TrainJob::checkpoint_mark},
    std::pair{"resume_from", &TrainJob::resume_from},
    std::pair{"start", &TrainJob::start},
    std::pair{"device", &TrainJob::device},
    std::pair{"encrypt", &TrainJob::encrypt},
    std::pair{"on_non_finite", &TrainJob::on_non_finite},
    std::pair{"recompute", &TrainJob::recompute},
    std::pair{"mlp_tiles", &TrainJob::mlp_tiles},
    std::pair{"sequence_kind", &TrainJob::sequence_kind},
    std::pair{"portion", &TrainJob::sp_chunk},
    std::pair{"portions_in", &TrainJob::sp_offload},
    std::pair{"pipeline_schedule", &TrainJob::pipeline_schedule},
    std::pair{"pipeline_virtual_stages", &TrainJob::pipeline_virtual_stages},
    std::pair{"no_decay_on_norms_and_biases", &TrainJob::no_decay_on_norms_and_biases},
    std::pair{"layer_decay", &TrainJob::layer_decay},
    std::pair{"ds_config", &TrainJob::ds_config},
    std::pair{"derived_keys", &TrainJob::derived_keys},
    std::pair{"save_hf_dir", &TrainJob::save_hf_dir},
    std::pair{"freeze", &TrainJob::freeze},
    std::pair{"lora_rank", &TrainJob::lora_rank},
    std::pair{"lora_alpha", &TrainJob::lora_alpha},
    std::pair{"lora_targets", &TrainJob::lora_targets},
    std::pair{"lora_rslora", &TrainJob::lora_rslora},
    std::pair{"lora_dora", &TrainJob::lora_dora},
    std::pair{"lora_dropout", &TrainJob::lora_dropout},
    std::pair{"quantize_base", &TrainJob::quantize_base},
    std::pair{"router_aux_loss_coef", &TrainJob::router_aux_loss_coef},
    std::pair{"neftune_noise_alpha", &TrainJob::neftune_noise_alpha},
    std::pair{"lora_adapter", &TrainJob::lora_adapter},
    std::pair{"lora_merge", &TrainJob::lora_merge},
};

template <typename Visitor>
void ForEachField(const Visitor& visit) {
  std::apply([&](const auto&... field) { (visit(field.first, field.second), ...); }, kFields);
}

Status FieldError(std::string_view field, std::string_view expected) {
  return InvalidArgumentError("train job: '" + std::string(field) + "' must be " +
                              std::string(expected));
}

Status Read(const nlohmann::json& value, std::string_view name, std::string* out) {
  if (!value.is_string()) return FieldError(name, "a string");
  *out = value.get<std::string>();
  return OkStatus();
}

Status Read(const nlohmann::json& value, std::string_view name, bool* out) {
  if (!value.is_boolean()) return FieldError(name, "true or false");
  *out = value.get<bool>();
  return OkStatus();
}

Status Read(const nlohmann::json& value, std::string_view name, std::int64_t* out) {
  const bool fits = value.is_number_integer() &&
                    (!value.is_number_unsigned() || value.get<std::uint64_t>() <= INT64_MAX);
  if (!fits) return FieldError(name, "a whole number");
  *out = value.get<std::int64_t>();
  return OkStatus();
}

Status Read(const nlohmann::json& value, std::string_view name, std::uint64_t* out) {
  if (!value.is_number_unsigned()) return FieldError(name, "a whole number of 0 or more");
  *out = value.get<std::uint64_t>();
  return OkStatus();
}

Status Read(const nlohmann::json& value, std::string_view name, double* out) {
  if (!value.is_number()) return FieldError(name, "a number");
  *out = value.get<double>();
  return OkStatus();
}

template <typename Element>
Status Read(const nlohmann::json& value, std::string_view name, std::vector<Element>* out) {
  constexpr bool kHoldsText = std::is_same_v<Element, std::string>;
  if (!value.is_array())
    return FieldError(name, kHoldsText ? "a list of strings" : "a list of numbers");
  out->clear();
  for (const nlohmann::json& element : value) {
    DS_RETURN_IF_ERROR(Read(element, name, &out->emplace_back()));
  }
  return OkStatus();
}

Status RefuseUnknownFields(const nlohmann::json& object) {
  std::vector<std::string> known;
  ForEachField([&](const char* name, auto) { known.emplace_back(name); });
  for (const auto& [name, value] : object.items()) {
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      return InvalidArgumentError("train job: unknown field '" + name + "'" +
                                  DidYouMean(name, known));
    }
  }
  return OkStatus();
}

Status CheckOneOf(std::string_view name, std::string_view value,
                  std::initializer_list<std::string_view> choices) {
  if (std::find(choices.begin(), choices.end(), value) != choices.end()) return OkStatus();
  std::string expected = "one of";
  for (const std::string_view choice : choices) expected += " '" + std::string(choice) + "'";
  return FieldError(name, expected + ", not '" + std::string(value) + "'");
}

Status CheckRows(const TrainJob& job) {
  DS_RETURN_IF_ERROR(CheckOneOf("packing", job.packing, {"stream", "whole", "none"}));
  DS_RETURN_IF_ERROR(CheckOneOf("prompt_style", job.prompt_style, {"", "chat", "alpaca"}));
  if (job.max_length < 0) return FieldError("max_length", "0 or more");
  if (job.max_length > job.seq_len && job.packing != "stream") {
    return FieldError("seq_len", "max_length or more: a sample has to hold a document");
  }
  return CheckOneOf("truncation_mode", job.truncation_mode, {"keep_start", "keep_end"});
}

Status CheckData(const TrainJob& job) {
  if (job.data.empty()) return FieldError("data", "given");
  for (const std::string& path : job.data) {
    if (path.empty()) return FieldError("data", "a list of paths, none of them empty");
  }
  if (!job.data_weights.empty() && job.data_weights.size() != job.data.size()) {
    return FieldError("data_weights", "empty, or one for each path of data");
  }
  for (const double weight : job.data_weights) {
    if (!std::isfinite(weight) || weight <= 0.0) return FieldError("data_weights", "above 0");
  }
  return OkStatus();
}

Status CheckEvaluation(const TrainJob& job) {
  for (const std::string& path : job.eval_data) {
    if (path.empty()) return FieldError("eval_data", "a list of paths, none of them empty");
  }
  if (!(job.eval_split >= 0.0 && job.eval_split < 1.0)) {
    return FieldError("eval_split", "0 or more, and below 1");
  }
  if (job.eval_split > 0.0 && !job.eval_data.empty()) {
    return FieldError("eval_split", "0 when there is eval_data");
  }
  if (job.eval_every < 0) return FieldError("eval_every", "0 or more");
  if (job.eval_every > 0 && !job.evaluates()) {
    return FieldError("eval_every", "0 without eval_data and eval_split");
  }
  if (job.eval_patience < 0) return FieldError("eval_patience", "0 or more");
  if ((job.eval_patience > 0 || job.save_best) && job.eval_every == 0) {
    return FieldError("eval_every", "above 0 with save_best or eval_patience");
  }
  return OkStatus();
}

Status CheckLora(const TrainJob& job) {
  if (job.lora_rank < 0) return FieldError("lora_rank", "0 or more");
  if (!(job.lora_alpha >= 0.0)) return FieldError("lora_alpha", "0 or more");
  if (!(job.lora_dropout < 1.0)) return FieldError("lora_dropout", "below 1");
  if (!job.adapts() && job.lora_merge) return FieldError("lora_merge", "false without adapters");
  if (!job.adapts() && !job.quantize_base.empty()) {
    return FieldError("quantize_base", "empty without adapters");
  }
  return CheckOneOf("quantize_base", job.quantize_base, {"", "nf4", "nf4-double", "int8"});
}

Status CheckChunks(const TrainJob& job) {
  if (job.sp_chunk < 0) return FieldError("portion", "0 or more");
  if (job.sp_chunk > 0 || job.sp_offload.empty()) return OkStatus();
  return FieldError("portion", "above 0 when portions_in is given");
}

Status CheckSaving(const TrainJob& job) {
  if (job.save_every < 0) return FieldError("save_every", "0 or more");
  if (job.save_total_limit < 0) return FieldError("save_total_limit", "0 or more");
  if (!std::isfinite(job.max_minutes) || job.max_minutes < 0.0) {
    return FieldError("max_minutes", "0 or more");
  }
  if (job.load_best && !job.save_best) return FieldError("save_best", "true with load_best");
  if (job.saves() && job.checkpoint_dir.empty()) {
    return FieldError("checkpoint_dir", "given when save_every, save_best or max_minutes is");
  }
  return OkStatus();
}

Status CheckRanges(const TrainJob& job) {
  if (job.model.empty()) return FieldError("model", "given");
  DS_RETURN_IF_ERROR(CheckData(job));
  if (job.seq_len < 1) return FieldError("seq_len", "1 or more");
  if (job.steps < 0) return FieldError("steps", "0 or more");
  if (job.epochs < 1) return FieldError("epochs", "1 or more");
  if (!(job.warmup_share >= 0.0 && job.warmup_share < 1.0)) {
    return FieldError("warmup_share", "0 or more, and below 1");
  }
  if (!(job.layer_decay > 0.0 && job.layer_decay <= 1.0)) {
    return FieldError("layer_decay", "above 0 and at most 1");
  }
  if (!std::isfinite(job.neftune_noise_alpha) || job.neftune_noise_alpha < 0.0) {
    return FieldError("neftune_noise_alpha", "0 or more");
  }
  if (job.mlp_tiles < 1) return FieldError("mlp_tiles", "1 or more");
  DS_RETURN_IF_ERROR(CheckChunks(job));
  DS_RETURN_IF_ERROR(CheckSaving(job));
  DS_RETURN_IF_ERROR(CheckEvaluation(job));
  DS_RETURN_IF_ERROR(CheckLora(job));
  DS_RETURN_IF_ERROR(ParseRecompute(job.recompute).status().WithContext("train job: 'recompute'"));
  DS_RETURN_IF_ERROR(CheckOneOf("token_dtype", job.token_dtype, {"uint16", "uint32"}));
  DS_RETURN_IF_ERROR(CheckOneOf("on_bad_data", job.on_bad_data, {"stop", "skip"}));
  DS_RETURN_IF_ERROR(CheckRows(job));
  DS_RETURN_IF_ERROR(CheckOneOf("sequence_kind", job.sequence_kind, {"ulysses", "ring"}));
  DS_RETURN_IF_ERROR(CheckOneOf("pipeline_schedule", job.pipeline_schedule,
                                {"1f1b", "gpipe", "interleaved", "zb-h1", "zb-v"}));
  if (job.pipeline_virtual_stages < 0) return FieldError("pipeline_virtual_stages", "0 or more");
  DS_RETURN_IF_ERROR(CheckOneOf("device", job.device, {"auto", "cpu", "cuda"}));
  if (job.on_non_finite == "rewind" && job.save_every == 0) {
    return FieldError("save_every", "above 0 when on_non_finite is 'rewind'");
  }
  return CheckOneOf("on_non_finite", job.on_non_finite, {"auto", "skip", "rewind", "stop"});
}

}  // namespace

bool IsTokenFile(const std::filesystem::path& path) { return path.extension() == ".bin"; }

bool HasTokenIndex(const std::filesystem::path& path) {
  std::error_code error;
  const auto has = [&](const std::filesystem::path& file) {
    return IsTokenFile(file) &&
           std::filesystem::exists(std::filesystem::path(file).replace_extension(".idx"), error);
  };
  if (std::filesystem::is_directory(path, error)) {
    const std::filesystem::directory_iterator files(path, error);
    return std::any_of(begin(files), end(files),
                       [&](const auto& file) { return has(file.path()); });
  }
  const std::vector<std::filesystem::path> matches = ExpandGlob(path.string());
  return has(path) || std::any_of(matches.begin(), matches.end(), has);
}

std::string ToJson(const TrainJob& job) {
  nlohmann::ordered_json object;
  ForEachField([&](const char* name, auto field) { object[name] = job.*field; });
  return object.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

StatusOr<TrainJob> TrainJobFromJson(std::string_view json) {
  const nlohmann::json object = nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return InvalidArgumentError("train job: not a JSON object");
  DS_RETURN_IF_ERROR(RefuseUnknownFields(object));

  TrainJob job;
  Status status;
  ForEachField([&](const char* name, auto field) {
    const auto found = object.find(name);
    if (status.ok() && found != object.end()) status = Read(*found, name, &(job.*field));
  });
  DS_RETURN_IF_ERROR(status);
  DS_RETURN_IF_ERROR(CheckRanges(job));
  return job;
}

}  // namespace ds::config
