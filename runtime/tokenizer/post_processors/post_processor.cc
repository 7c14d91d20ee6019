#include "runtime/tokenizer/post_processors/post_processor.h"

#include <algorithm>

#include "runtime/tokenizer/text/characters.h"

namespace ds::tokenizer {
namespace {

constexpr char32_t kLetterOfBlank = 0x120;  // GPT-2's letter of a blank

// The number of blanks at the beginning and end of a token.
struct Blanks {
  std::uint32_t leading = 0, trailing = 0;
};

Blanks CountBlanks(std::string_view token) {
  Blanks blanks;
  std::uint32_t count = 0;
  ForEachCharacter(token, [&](char32_t c) {
    const bool blank = c == kLetterOfBlank || IsWhiteSpace(c);
    if (blank && blanks.leading == count) ++blanks.leading;
    blanks.trailing = blank ? blanks.trailing + 1 : 0;
    ++count;
  });
  return blanks;
}

bool ContinuesCharacter(std::string_view text, std::uint32_t at) {
  return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80;
}

// Moves the ends of a span inwards by this many characters, as far as the text has them.
void Shrink(std::string_view text, const Blanks& blanks, Span* span) {
  for (std::uint32_t i = 0; i < blanks.leading && span->begin < span->end; ++i) {
    do {
      ++span->begin;
    } while (ContinuesCharacter(text, span->begin));
  }
  std::uint32_t end = span->end;
  std::uint32_t taken = 0;
  for (; taken < blanks.trailing && end > 0; ++taken) {
    do {
      --end;
    } while (ContinuesCharacter(text, end));
  }
  if (taken == blanks.trailing) span->end = std::max(end, span->begin);
}

void AppendPart(const Encoding& part, std::uint32_t type_id, Encoding* all) {
  const auto append = [](const auto& from, auto* to) {
    to->insert(to->end(), from.begin(), from.end());
  };
  append(part.ids, &all->ids);
  append(part.is_special, &all->is_special);
  append(part.offsets, &all->offsets);
  append(part.tokens, &all->tokens);
  all->type_ids.resize(all->ids.size(), type_id);
}

Encoding EncodingOf(const TemplateEntry& entry, bool with_offsets) {
  Encoding encoding;
  encoding.ids = entry.ids;
  encoding.is_special.assign(entry.ids.size(), 1);
  if (with_offsets) {
    encoding.offsets.resize(entry.ids.size());
    encoding.tokens = entry.tokens;
  }
  return encoding;
}

StatusOr<TemplateEntry> ReadSpecial(const JsonObject& template_object, const std::string& name) {
  DS_ASSIGN_OR_RETURN(const JsonObject all, template_object.Object("special_tokens"));
  DS_ASSIGN_OR_RETURN(const JsonObject special, all.Object(name));
  DS_ASSIGN_OR_RETURN(const Json* ids, special.Need("ids"));
  DS_ASSIGN_OR_RETURN(const Json* tokens, special.Need("tokens"));
  if (!ids->is_array() || !tokens->is_array() || ids->size() != tokens->size()) {
    return special.Error("ids", "must be as many as tokens");
  }
  TemplateEntry entry;
  for (std::size_t i = 0; i < ids->size(); ++i) {
    const bool good = (*ids)[i].is_number_unsigned() &&
                      (*ids)[i].get<std::uint64_t>() < 0xFFFFFFFFULL && (*tokens)[i].is_string();
    if (!good) return special.Error("ids", "must be ids, and tokens texts");
    entry.ids.push_back((*ids)[i].get<std::uint32_t>());
    entry.tokens.push_back((*tokens)[i].get<std::string>());
  }
  return entry;
}

StatusOr<Template> ReadTemplate(const JsonObject& component, const std::string& key) {
  DS_ASSIGN_OR_RETURN(const auto objects, component.Objects(key));
  Template entries;
  for (const JsonObject& object : objects) {
    TemplateEntry entry;
    const bool is_sequence = object.Find("Sequence") != nullptr;
    DS_ASSIGN_OR_RETURN(const JsonObject inner,
                        object.Object(is_sequence ? "Sequence" : "SpecialToken"));
    const auto read = inner.Text("id");
    if (!read.ok()) return read.status();
    const std::string& id = *read;
    if (!is_sequence) {
      DS_ASSIGN_OR_RETURN(entry, ReadSpecial(component, id));
    } else if (id == "A" || (id == "B" && key == "pair")) {
      entry.sequence = id == "A" ? 0 : 1;
    } else {
      return inner.Error("id", "must be A" + std::string(key == "pair" ? " or B" : ""));
    }
    DS_ASSIGN_OR_RETURN(entry.type_id, inner.Number("type_id"));
    entries.push_back(std::move(entry));
  }
  return entries;
}

// Reads ["[CLS]", 101].
StatusOr<TemplateEntry> ReadTokenWithId(const JsonObject& component, std::string_view key) {
  DS_ASSIGN_OR_RETURN(const Json* value, component.Need(key));
  const bool good = value->is_array() && value->size() == 2 && (*value)[0].is_string() &&
                    (*value)[1].is_number_unsigned();
  if (!good) return component.Error(key, "must be a token and its id");
  return TemplateEntry{-1, 0, {(*value)[1].get<std::uint32_t>()}, {(*value)[0].get<std::string>()}};
}

TemplateEntry WithType(TemplateEntry entry, std::uint32_t type_id) {
  entry.type_id = type_id;
  return entry;
}

}  // namespace

StatusOr<PostProcessor> PostProcessor::Read(const JsonObject& component) {
  PostProcessor processor;
  DS_RETURN_IF_ERROR(processor.Add(component));
  return processor;
}

PostProcessor PostProcessor::Around(const Template& before, const Template& after) {
  PostProcessor processor;
  std::array<Template, 2> templates;
  for (int count = 1; count <= 2; ++count) {
    Template& made = templates[static_cast<std::size_t>(count - 1)];
    for (int sequence = 0; sequence < count; ++sequence) {
      const auto type_id = static_cast<std::uint32_t>(sequence);
      for (const TemplateEntry& entry : before) made.push_back(WithType(entry, type_id));
      made.push_back({sequence, type_id, {}, {}});
      for (const TemplateEntry& entry : after) made.push_back(WithType(entry, type_id));
    }
  }
  processor.templates_ = std::move(templates);
  return processor;
}

Status PostProcessor::Add(const JsonObject& component) {
  DS_ASSIGN_OR_RETURN(const std::string type, TypeOf(component));
  if (type == "Sequence") {
    DS_ASSIGN_OR_RETURN(const auto objects, component.Objects("processors"));
    for (const JsonObject& object : objects) DS_RETURN_IF_ERROR(Add(object));
    return OkStatus();
  }
  if (type == "ByteLevel") {
    DS_ASSIGN_OR_RETURN(const bool trim, component.FlagOr("trim_offsets", true));
    DS_ASSIGN_OR_RETURN(const bool prefixed, component.FlagOr("add_prefix_space", true));
    if (trim) trims_.push_back(prefixed);
    return OkStatus();
  }
  if (type == "TemplateProcessing") return AddTemplate(component);
  if (type == "BertProcessing") return AddClsSep(component, false);
  if (type == "RobertaProcessing") return AddClsSep(component, true);
  return UnknownType(component, "post-processor", type);
}

Status PostProcessor::SetTemplates(const JsonObject& component, Template single, Template pair) {
  if (templates_) {
    return UnimplementedError(component.Where("type") +
                              ": a second post-processor with special tokens is not supported");
  }
  templates_ = {std::move(single), std::move(pair)};
  return OkStatus();
}

Status PostProcessor::AddTemplate(const JsonObject& component) {
  DS_ASSIGN_OR_RETURN(Template single, ReadTemplate(component, "single"));
  DS_ASSIGN_OR_RETURN(Template pair, ReadTemplate(component, "pair"));
  return SetTemplates(component, std::move(single), std::move(pair));
}

Status PostProcessor::AddClsSep(const JsonObject& component, bool roberta) {
  DS_ASSIGN_OR_RETURN(const TemplateEntry cls, ReadTokenWithId(component, "cls"));
  DS_ASSIGN_OR_RETURN(const TemplateEntry sep, ReadTokenWithId(component, "sep"));
  const TemplateEntry a{0, 0, {}, {}};
  const std::uint32_t second = roberta ? 0 : 1;
  const TemplateEntry b{1, second, {}, {}};
  if (roberta) {
    DS_ASSIGN_OR_RETURN(const bool trim, component.FlagOr("trim_offsets", true));
    DS_ASSIGN_OR_RETURN(const bool prefixed, component.FlagOr("add_prefix_space", true));
    if (trim) trims_.push_back(prefixed);
    types_are_zero_ = true;
    return SetTemplates(component, {cls, a, sep}, {cls, a, sep, sep, b, sep});
  }
  keeps_types_ = true;
  return SetTemplates(component, {cls, a, sep}, {cls, a, sep, b, WithType(sep, second)});
}

std::size_t PostProcessor::CountAdded(bool pair) const {
  std::size_t count = 0;
  if (!templates_) return count;
  for (const TemplateEntry& entry : (*templates_)[pair ? 1 : 0]) count += entry.ids.size();
  return count;
}

void PostProcessor::TrimOffsets(std::string_view text, Encoding* encoding) const {
  for (const bool prefixed : trims_) {
    for (std::size_t i = 0; i < encoding->offsets.size(); ++i) {
      Span& span = encoding->offsets[i];
      Blanks blanks = CountBlanks(encoding->tokens[i]);
      const bool first = i == 0 || span.begin == 0;
      if (first && prefixed && blanks.leading == 1) blanks.leading = 0;
      Shrink(text, blanks, &span);
    }
  }
}

Encoding PostProcessor::Apply(std::vector<Encoding> parts, bool special_tokens,
                              bool offsets) const {
  for (Encoding& part : parts) {
    part.is_special.resize(part.ids.size(), 0);
  }
  Encoding all;
  if (!templates_ || (!special_tokens && keeps_types_)) {
    for (std::size_t i = 0; i < parts.size(); ++i) {
      AppendPart(parts[i], types_are_zero_ ? 0 : static_cast<std::uint32_t>(i), &all);
    }
    return all;
  }
  for (const TemplateEntry& entry : (*templates_)[parts.size() - 1]) {
    if (entry.sequence >= 0) {
      AppendPart(parts[static_cast<std::size_t>(entry.sequence)], entry.type_id, &all);
    } else if (special_tokens) {
      AppendPart(EncodingOf(entry, offsets), entry.type_id, &all);
    }
  }
  return all;
}

}  // namespace ds::tokenizer
