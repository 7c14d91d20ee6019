#include "cli/translate/translation.h"

#include <algorithm>

namespace ds::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string TextOf(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

void AddFlag(const std::string& flag, const Json& value, std::vector<std::string>* words) {
  if (value == false) return;
  words->push_back("--" + flag);
  if (value == true) return;
  if (!value.is_array()) return words->push_back(TextOf(value));
  for (const Json& element : value) words->push_back(TextOf(element));
}

}  // namespace

void Translation::Add(Mapping mapping, std::string_view name, const Json& value, std::string text) {
  remarks.push_back({mapping, std::string(name), TextOf(value), std::move(text)});
}

void Translation::SetFlag(std::string_view name, const Json& value, const std::string& flag,
                          const Json& flag_value) {
  flags[flag] = flag_value;
  Add(Mapping::kExact, name, value, "--" + flag);
}

void Translation::SetKey(std::string_view name, const Json& value, const std::string& pointer,
                         const Json& key_value) {
  ds_config[Json::json_pointer(pointer)] = key_value;
  std::string key = pointer.substr(1);
  std::replace(key.begin(), key.end(), '/', '.');
  Add(Mapping::kExact, name, value, key + " " + key_value.dump());
}

bool Translation::is_complete() const {
  return std::none_of(remarks.begin(), remarks.end(),
                      [](const Remark& remark) { return remark.mapping == Mapping::kMissing; });
}

std::vector<std::string> CommandWords(const Translation& translation,
                                      const std::string& ds_config) {
  std::vector<std::string> words = {"dsrun"};
  words.insert(words.end(), translation.launch.begin(), translation.launch.end());
  if (!translation.program.empty()) {
    words.insert(words.end(), translation.program.begin(), translation.program.end());
    return words;
  }
  words.push_back("train");
  for (const auto& [flag, placeholder] : {std::pair("model", "MODEL"), std::pair("data", "DATA")}) {
    AddFlag(flag, translation.flags.value(flag, Json(placeholder)), &words);
  }
  if (translation.flags.contains("eval_every") && !translation.flags.contains("eval_data") &&
      !translation.flags.contains("eval_split")) {
    AddFlag("eval_data", "EVAL_DATA", &words);
  }
  for (const auto& [flag, value] : translation.flags.items()) {
    if (flag != "model" && flag != "data") AddFlag(flag, value, &words);
  }
  if (!ds_config.empty()) AddFlag("deepspeed_config", ds_config, &words);
  return words;
}

std::string DescribeMissing(const Translation& translation) {
  std::string list;
  for (const Remark& remark : translation.remarks) {
    if (remark.mapping != Mapping::kMissing) continue;
    list += (list.empty() ? "" : "\n") + remark.name + " " + remark.value + ": " + remark.text;
  }
  return list;
}

}  // namespace ds::cli
