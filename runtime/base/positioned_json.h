#pragma once

// JSON whose every key and value knows its line and column, for messages about a user's file.
//
// Accepts Hjson (hjson.github.io), as DeepSpeed does: JSON, which keeps its meaning exactly, with
// comments (// and # to the end of the line, /* */), commas too many or too few, names and texts
// without quotes or with single ones, '''texts of several lines''', and no braces around the whole.
// A text without quotes takes the rest of its line, whatever stands there. An empty file is an
// empty object; the root is an object or a list. A name repeated in one object is an error.
//
// Lines and columns count from 1, columns in characters of UTF-8. Pure; the result holds no view of
// the text.

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace ds {

// Objects and lists may be nested this deep, which bounds recursion over the tree.
inline constexpr int kMaxJsonDepth = 64;

struct JsonPosition {
  int line = 0;  // 0: unknown
  int column = 0;

  friend bool operator==(const JsonPosition&, const JsonPosition&) = default;
};

struct JsonMember;

struct JsonNode {
  JsonPosition position;            // where the value begins
  nlohmann::ordered_json scalar;    // the value; an empty object or list stands for one
  std::vector<JsonMember> members;  // of an object, in the order of the file
  std::vector<JsonNode> elements;   // of a list
};

struct JsonMember {
  std::string name;
  JsonPosition position;  // where the name begins
  JsonNode node;
};

struct JsonProblem {
  std::string message;  // without the place
  JsonPosition position;
};

struct JsonReading {
  JsonNode root;
  bool complete = false;  // false: a syntax error, the last problem, ended the reading
  std::vector<JsonProblem> problems;
};

JsonReading ReadPositionedJson(std::string_view text);

// The value with everything inside it, without positions. Of a repeated name the last one counts.
nlohmann::ordered_json WholeValue(const JsonNode& node);

}  // namespace ds
