#include "cli/job/verdict/python_error.h"

#include <nlohmann/json.hpp>
#include <sstream>

namespace ds::cli {
namespace {

using Json = nlohmann::ordered_json;

// The string `name` of an object; "" when there is none.
std::string TextOf(const Json& object, const char* name) {
  if (!object.is_object()) return "";
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

}  // namespace

std::optional<PythonError> ParseErrorFile(std::string_view file) {
  const Json json = Json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("message")) return std::nullopt;
  const Json& body = json["message"];  // a plain text when no exception but a signal is told of
  PythonError error{.message =
                        body.is_string() ? body.get<std::string>() : TextOf(body, "message")};
  error.message = error.message.substr(0, error.message.find('\n'));
  if (error.message.empty()) return std::nullopt;
  if (body.is_object() && body.contains("extraInfo")) {
    std::istringstream lines(TextOf(body["extraInfo"], "py_callstack"));
    for (std::string line; std::getline(lines, line);) error.traceback.push_back(line);
  }
  return error;
}

}  // namespace ds::cli
