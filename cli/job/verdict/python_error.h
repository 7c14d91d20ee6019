#pragma once

// PythonError: the exception that ended a Python program, as PyTorch's @record writes it into the
// file of TORCHELASTIC_ERROR_FILE.
//
// Pure; safe from any thread.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ds::cli {

struct PythonError {
  std::string message;                 // its first line: "ValueError: no such column"
  std::vector<std::string> traceback;  // line by line; empty when there is none
};

// None when `file` holds no such thing.
std::optional<PythonError> ParseErrorFile(std::string_view file);

}  // namespace ds::cli
