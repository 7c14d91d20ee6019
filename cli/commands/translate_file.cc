#include "cli/commands/translate_file.h"

#include <filesystem>
#include <string>
#include <utility>

#include "cli/translate/sources.h"
#include "runtime/base/files.h"
#include "runtime/base/positioned_json.h"
#include "runtime/config/file/config_text.h"

namespace ds::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxBytes = std::size_t{1} << 22;

// A file's text, and its name for messages. Read errors already contain the name.
struct NamedText {
  fs::path path;
  std::string text;
};

StatusOr<NamedText> ReadNamed(const fs::path& path) {
  DS_ASSIGN_OR_RETURN(std::string text, ReadFile(path, kMaxBytes));
  return NamedText{path, std::move(text)};
}

StatusOr<Json> ParseJson(const std::string& text) {
  const JsonReading reading = ReadPositionedJson(text);
  if (!reading.problems.empty()) {
    const JsonProblem& problem = reading.problems.front();
    return InvalidArgumentError("line " + std::to_string(problem.position.line) + ": " +
                                problem.message);
  }
  return FullValue(reading.root);
}

StatusOr<Json> ParseSettings(const NamedText& file) {
  const bool is_yaml = file.path.extension() == ".yaml" || file.path.extension() == ".yml";
  return is_yaml ? ReadFlatYaml(file.text) : ParseJson(file.text);
}

// Reads the ds_config of this name; null for "".
StatusOr<Json> ReadDeepspeed(const std::string& name, const fs::path& file) {
  if (name.empty()) return Json();
  std::error_code error;
  const fs::path sibling = file.parent_path() / name;
  const bool is_sibling = !fs::exists(name, error) && fs::exists(sibling, error);
  const StatusOr<NamedText> text = ReadNamed(is_sibling ? sibling : fs::path(name));
  if (!text.ok()) return text.status().WithContext("the ds_config");
  StatusOr<Json> config = ParseJson(text->text);
  if (!config.ok()) return config.status().WithContext("the ds_config " + name);
  return config;
}

// Returns the keys of --deepspeed_config; null if the text is invalid, which its reader reports.
StatusOr<Json> ReadUsersDeepspeed(const std::string& deepspeed_config) {
  const StatusOr<config::ConfigText> config = config::ReadConfigText(deepspeed_config);
  if (!config.ok()) return config.status().WithContext("--deepspeed_config");
  const JsonReading reading = ReadPositionedJson(config->text);
  return reading.problems.empty() ? FullValue(reading.root) : Json();
}

bool IsDsConfig(const Json& settings) {
  return settings.contains("zero_optimization") || settings.contains("train_batch_size") ||
         settings.contains("train_micro_batch_size_per_gpu");
}

StatusOr<Translation> TranslateArguments(Json settings, const fs::path& path,
                                         const OverTrainerFile& over) {
  if (IsDsConfig(settings)) {
    return InvalidArgumentError("this is a ds_config already: give it to train --deepspeed_config");
  }
  TrainerContext context{.steps = over.steps};
  settings.update(over.arguments);
  if (over.deepspeed_config.empty()) {
    DS_ASSIGN_OR_RETURN(context.deepspeed, ReadDeepspeed(DeepspeedPath(settings), path));
  } else {
    DS_ASSIGN_OR_RETURN(context.deepspeed, ReadUsersDeepspeed(over.deepspeed_config));
    settings["deepspeed"] = over.deepspeed_config;
  }
  return TranslateTrainingArguments(settings, context);
}

StatusOr<Translation> TranslateSettings(const NamedText& file, std::optional<std::int64_t> steps) {
  DS_ASSIGN_OR_RETURN(const Json settings, ParseSettings(file));
  if (!settings.is_object()) return InvalidArgumentError("expected names and values");
  if (!IsAccelerateConfig(settings))
    return TranslateArguments(settings, file.path, {.steps = steps});
  DS_ASSIGN_OR_RETURN(const Json deepspeed,
                      ReadDeepspeed(AccelerateDeepspeedPath(settings), file.path));
  return TranslateAccelerateConfig(settings, deepspeed);
}

StatusOr<Translation> TranslateTrainerSettings(const NamedText& file, const OverTrainerFile& over) {
  DS_ASSIGN_OR_RETURN(const Json settings, ParseSettings(file));
  if (!settings.is_object() || IsAccelerateConfig(settings)) {
    return InvalidArgumentError("it holds no arguments of Trainer; see dsrun translate");
  }
  DS_ASSIGN_OR_RETURN(Translation translation, TranslateArguments(settings, file.path, over));
  if (translation.is_complete()) return translation;
  return InvalidArgumentError("not everything maps (dsrun translate --partial shows the rest):\n" +
                              DescribeMissing(translation));
}

}  // namespace

StatusOr<Translation> TranslateFile(const std::string& path, std::optional<std::int64_t> steps) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) {
    return NotFoundError("translate " + path +
                         ": no such file; name a TrainingArguments .json, a config of Accelerate "
                         "(.yaml, .json), or `deepspeed ...`, a command line");
  }
  DS_ASSIGN_OR_RETURN(const NamedText file, ReadNamed(path));
  StatusOr<Translation> translation = TranslateSettings(file, steps);
  if (!translation.ok()) return translation.status().WithContext(path);
  return translation;
}

StatusOr<Translation> TranslateTrainerFile(const std::string& path, const OverTrainerFile& over) {
  const StatusOr<NamedText> file = ReadNamed(path);
  if (!file.ok()) return file.status().WithContext("--from_hf_trainer");
  StatusOr<Translation> translation = TranslateTrainerSettings(*file, over);
  if (!translation.ok()) return translation.status().WithContext("--from_hf_trainer " + path);
  return translation;
}

}  // namespace ds::cli
