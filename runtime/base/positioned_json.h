#pragma once

// A JSON reader that records the line and column of every key and value, for messages about a
// user's file.
//
// Accepts Hjson (hjson.github.io), as DeepSpeed does. Valid JSON keeps its meaning. Hjson adds
// comments (// and # to the end of the line, /* */), extra or missing commas, names and strings
// without quotes or with single quotes, '''strings of several lines''', and an omitted pair of
// outer braces. A string without quotes extends to the end of its line, with everything on it. An
// empty file is an empty object. The root is an object or a list. A repeated name in one object is
// an error.
//
// Lines and columns count from 1; columns count UTF-8 characters. Pure; the result holds no view of
// the text.

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace ds {

// Maximum nesting depth of objects and lists, which bounds recursion over the tree.
inline constexpr int kMaxJsonDepth = 64;

struct JsonPosition {
  int line = 0;  // 0 means unknown
  int column = 0;

  friend bool operator==(const JsonPosition&, const JsonPosition&) = default;
};

struct JsonMember;

struct JsonNode {
  JsonPosition position;            // where the value begins
  nlohmann::ordered_json scalar;    // the value; for an object or list, an empty one
  std::vector<JsonMember> members;  // members of an object, in file order
  std::vector<JsonNode> elements;   // elements of a list
};

struct JsonMember {
  std::string name;
  JsonPosition position;  // where the name begins
  JsonNode node;
};

struct JsonProblem {
  std::string message;  // without the position
  JsonPosition position;
};

struct JsonReading {
  JsonNode root;
  bool complete = false;  // false if a syntax error, the last problem, stopped the reader
  std::vector<JsonProblem> problems;
};

JsonReading ReadPositionedJson(std::string_view text);

// Returns the value with all nested values, without positions. The last value of a repeated name
// counts.
nlohmann::ordered_json FullValue(const JsonNode& node);

}  // namespace ds
