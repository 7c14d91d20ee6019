#pragma once

// FindJsonFault: where a text ends to be JSON, and why, in words for users, who do not know a
// parser's.
//
// Pure; safe to call concurrently. Does not recurse: texts may be nested as deep as they like.

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace ds {

struct JsonFault {
  std::size_t offset = 0;  // in bytes
  std::string what;
  bool is_behind = false;  // the text begins with whole JSON, and goes on
};

// The first fault of a text; nothing of one that is JSON. A number past the range of doubles and
// half a surrogate pair are faults, too.
std::optional<JsonFault> FindJsonFault(std::string_view json);

// "line 3, column 7: " and the fault. Columns count bytes from 1.
std::string DescribeJsonFault(std::string_view json);

}  // namespace ds
