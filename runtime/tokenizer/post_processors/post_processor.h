#pragma once

// PostProcessor adds special tokens around the tokens of a text or a pair, and removes blanks from
// offsets; "post_processor" of a tokenizer.json. Thread-safe: const functions may be called
// concurrently.

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/tokenizer/post_processors/encoding.h"
#include "runtime/tokenizer/text/json_object.h"

namespace ds::tokenizer {

// An element of a template: one of the texts, or special tokens.
struct TemplateEntry {
  int sequence = -1;  // 0 or 1: the text; -1: special tokens
  std::uint32_t type_id = 0;
  std::vector<std::uint32_t> ids;
  std::vector<std::string> tokens;
};
using Template = std::vector<TemplateEntry>;

class PostProcessor {
 public:
  // Creates one that joins the texts and adds nothing.
  PostProcessor() = default;

  static StatusOr<PostProcessor> Read(const JsonObject& component);

  // Creates one that adds special tokens before and after each text.
  static PostProcessor Around(const Template& before, const Template& after);

  // Returns the number of special tokens that it adds to one text, or to two.
  std::size_t CountAdded(bool pair) const;

  // Removes blanks at the ends of tokens from their offsets, which refer to `text`.
  void TrimOffsets(std::string_view text, Encoding* encoding) const;

  // Makes one encoding of one or two parts. Without `special_tokens` none are added. With
  // `offsets`, the special tokens get offsets, too.
  Encoding Apply(std::vector<Encoding> parts, bool special_tokens, bool offsets) const;

 private:
  Status Add(const JsonObject& component);
  Status AddTemplate(const JsonObject& component);
  Status AddClsSep(const JsonObject& component, bool roberta);
  Status SetTemplates(const JsonObject& component, Template single, Template pair);

  std::vector<bool> trims_;  // one per trimming step; true: keeps an added prefix blank
  std::optional<std::array<Template, 2>> templates_;  // of one text, of two
  bool types_are_zero_ = false;                       // also without special tokens
  bool keeps_types_ = false;  // without special tokens, texts keep types 0 and 1
};

}  // namespace ds::tokenizer
