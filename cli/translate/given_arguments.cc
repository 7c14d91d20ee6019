#include "cli/translate/given_arguments.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "cli/translate/argument_table.h"
#include "runtime/base/check.h"

namespace ds::cli {

using Json = nlohmann::ordered_json;

namespace {

// Trainer also accepts these objects as JSON text.
Json ReadObject(std::string_view name, const Json& value) {
  constexpr std::string_view kObjects[] = {"accelerator_config",
                                           "fsdp_config",
                                           "deepspeed",
                                           "activation_checkpointing_kwargs",
                                           "gradient_checkpointing_kwargs",
                                           "lr_scheduler_kwargs"};
  const bool is_one =
      std::find(std::begin(kObjects), std::end(kObjects), name) != std::end(kObjects);
  if (!is_one || !value.is_string() || !value.get_ref<const std::string&>().starts_with("{")) {
    return value;
  }
  Json read = Json::parse(value.get_ref<const std::string&>(), nullptr, /*allow_exceptions=*/false);
  return read.is_discarded() ? value : read;
}

}  // namespace

bool IsUnset(const Json& value) {
  return value.is_null() || value == false || value == "" ||
         (value.is_structured() && value.empty());
}

GivenArguments::GivenArguments(const Json& given, Translation* translation)
    : given_(given), translation_(*translation) {
  bool of_other = false;
  for (const auto& [name, value] : given.items()) {
    of_sft_ = of_sft_ || IsOfSft(name);
    of_other = of_other || IsOfOtherTrainer(name);
  }
  of_sft_ = of_sft_ && !of_other;
}

bool GivenArguments::Has(std::string_view name) const {
  const auto found = given_.find(name);
  return found != given_.end() && !IsUnset(*found);
}

Json GivenArguments::Get(std::string_view name) const {
  const auto found = given_.find(name);
  if (found != given_.end()) return ReadObject(name, *found);
  const ArgumentRow* const row = FindArgument(name);
  DS_CHECK(row != nullptr);
  return DefaultOf(*row, of_sft_);
}

std::optional<double> GivenArguments::Number(std::string_view name) {
  const Json value = Get(name);
  if (value.is_number()) return value.get<double>();
  Miss(name, "it must be a number");
  return std::nullopt;
}

std::optional<std::int64_t> GivenArguments::Integer(std::string_view name) {
  const std::optional<double> number = Number(name);
  if (!number) return std::nullopt;
  constexpr double kMost = 1e15;
  if (std::floor(*number) == *number && std::abs(*number) <= kMost) {
    return static_cast<std::int64_t>(*number);
  }
  Miss(name, "it must be a whole number");
  return std::nullopt;
}

std::string GivenArguments::Text(std::string_view name) {
  const Json value = Get(name);
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_null()) Miss(name, "it must be a text");
  return "";
}

bool GivenArguments::Flag(std::string_view name) {
  const Json value = Get(name);
  if (!value.is_boolean() && !value.is_null()) Miss(name, "it must be true or false");
  return value == true;
}

void GivenArguments::Miss(std::string_view name, std::string text) {
  translation_.Add(Mapping::kMissing, name, Get(name), std::move(text));
}

}  // namespace ds::cli
