#pragma once

// FindJsonFault locates the first error of a JSON text and describes it in plain words for users,
// without a parser's terms.
//
// Pure; thread-safe. Not recursive: texts may be nested to any depth.

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace ds {

struct JsonFault {
  std::size_t offset = 0;  // in bytes
  std::string what;
  bool has_more_text = false;  // the text continues at `offset` after a complete JSON value
};

// Returns the first fault of a text, or nullopt for valid JSON. A number outside the range of
// double and half a surrogate pair are faults, too.
std::optional<JsonFault> FindJsonFault(std::string_view json);

// Returns "line 3, column 7: " and the fault. Columns count bytes from 1.
std::string DescribeJsonFault(std::string_view json);

}  // namespace ds
