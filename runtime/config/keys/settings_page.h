#pragma once

// The reference page of all ds_config keys, made from settings.json at build time.

#include <nlohmann/json.hpp>
#include <string>

namespace ds::config {

// Markdown: a table for every section, a row for every key. Requires a registry that the generator
// has checked, with the reasons of refused keys filled in.
std::string SettingsPage(const nlohmann::ordered_json& registry);

}  // namespace ds::config
