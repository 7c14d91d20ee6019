#pragma once

// AddSwitch: a flag without a value that is on, off (--name=false) or not given.

#include <optional>
#include <string>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace ds::cli {

// Declares the switch on `app`, writing into `is_on` (which outlives the parse). CLI11's own switch
// takes an optional for a count of the flag and makes "off" of one that is not given.
CLI::Option* AddSwitch(CLI::App& app, const std::string& name, std::optional<bool>* is_on,
                       const std::string& help);

}  // namespace ds::cli
