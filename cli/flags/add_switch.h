#pragma once

// AddSwitch declares a flag without a value. It is on (--name), off (--name=false) or not given.

#include <optional>
#include <string>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace ds::cli {

// Declares the switch on `app`. Parsing writes into `is_on`, which must outlive the parse. CLI11's
// own switch treats an optional as a counter and reports an absent flag as "off".
CLI::Option* AddSwitch(CLI::App& app, const std::string& name, std::optional<bool>* is_on,
                       const std::string& help);

}  // namespace ds::cli
