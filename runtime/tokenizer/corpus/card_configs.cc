#include "runtime/tokenizer/corpus/card_configs.h"

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <set>

#include "runtime/tokenizer/corpus/byte_stream.h"

namespace ds::tokenizer {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr int kMostNested = 32;

struct Line {
  std::size_t number = 0;
  std::size_t indent = 0;
  std::string_view text;
};

std::string_view StripBlanks(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

bool IsOneOf(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), text) != words.end();
}

// Returns the position of the ':' after a key; npos for a scalar and for a value in brackets.
std::size_t KeyEnd(std::string_view text) {
  if (text.starts_with('{') || text.starts_with('[')) return std::string_view::npos;
  const bool is_quoted = text.starts_with('"') || text.starts_with('\'');
  const std::size_t from = is_quoted ? text.find(text[0], 1) : 0;
  if (from == std::string_view::npos) return from;
  text = text.substr(0, text.find(" #", from));
  for (std::size_t at = text.find(':', from); at != std::string_view::npos;
       at = text.find(':', at + 1)) {
    if (at + 1 == text.size() || text[at + 1] == ' ' || text[at + 1] == '\t') return at;
  }
  return std::string_view::npos;
}

// Returns false for another key of the header, and true for a line in a form that the reader
// rejects.
bool MayBeConfigs(std::string_view text) {
  const std::size_t end = KeyEnd(text);
  std::string_view key = StripBlanks(text.substr(0, end));
  if (end == std::string_view::npos) return key.find("configs") != std::string_view::npos;
  if (key.size() > 1 && (key[0] == '"' || key[0] == '\'')) key = key.substr(1, key.size() - 2);
  return key == "configs";
}

// Returns the lines of the header's key "configs" and its value, without blank lines and comments.
std::vector<Line> LinesOfConfigs(std::string_view card) {
  std::vector<Line> lines;
  if (card.starts_with(kByteOrderMark)) card.remove_prefix(kByteOrderMark.size());
  bool has_begun = false, inside = false;
  std::optional<std::size_t> column;  // of the header's keys
  for (std::size_t number = 1; !card.empty(); ++number) {
    const std::string_view line = card.substr(0, card.find('\n'));
    card.remove_prefix(std::min(line.size() + 1, card.size()));
    const std::string_view text = StripBlanks(line);
    if (text.empty() || (has_begun && text.starts_with('#'))) continue;
    const std::size_t indent = line.find_first_not_of(' ');
    if (text == "---" && (!has_begun || indent == 0)) {
      if (has_begun) return lines;
      has_begun = true;
      continue;
    }
    if (!has_begun) return {};
    if (!column) column = indent;
    if (indent <= *column && !text.starts_with("- ")) inside = MayBeConfigs(text);
    if (inside) lines.push_back({number, indent, text});
  }
  return {};
}

// Reads the subset of YAML used by cards: maps and lists by indentation, lists in brackets, scalars
// with or without quotes.
class YamlReader {
 public:
  explicit YamlReader(std::vector<Line> lines) : lines_(std::move(lines)) {}

  StatusOr<OrderedJson> Read() {
    DS_ASSIGN_OR_RETURN(OrderedJson json, ReadBlock());
    if (at_ < lines_.size()) return Error();
    return json;
  }

 private:
  Status Error() const {
    const std::size_t number = lines_[std::min(at_, lines_.size() - 1)].number;
    return InvalidArgumentError("line " + std::to_string(number) +
                                " of the card's configs is not understood");
  }

  StatusOr<OrderedJson> ReadBlock() {
    if (depth_ == kMostNested) return Error();
    ++depth_;
    const std::size_t indent = lines_[at_].indent;
    auto block = lines_[at_].text.starts_with("- ") ? ReadList(indent) : ReadMap(indent);
    --depth_;
    return block;
  }

  StatusOr<OrderedJson> ReadList(std::size_t indent) {
    OrderedJson list = OrderedJson::array();
    while (at_ < lines_.size() && lines_[at_].indent == indent &&
           lines_[at_].text.starts_with("- ")) {
      // The element is the text after the dash, at its own column.
      Line& line = lines_[at_];
      const std::string_view rest = StripBlanks(line.text.substr(1));
      line.indent += line.text.size() - rest.size();
      line.text = rest;
      if (KeyEnd(rest) == std::string_view::npos) {
        DS_ASSIGN_OR_RETURN(OrderedJson scalar, ReadScalar(rest));
        list.push_back(std::move(scalar));
        ++at_;
        continue;
      }
      DS_ASSIGN_OR_RETURN(OrderedJson element, ReadBlock());
      list.push_back(std::move(element));
    }
    return list;
  }

  StatusOr<OrderedJson> ReadMap(std::size_t indent) {
    OrderedJson map = OrderedJson::object();
    while (at_ < lines_.size() && lines_[at_].indent == indent &&
           !lines_[at_].text.starts_with("- ")) {
      const std::string_view text = lines_[at_].text;
      const std::size_t end = KeyEnd(text);
      if (end == std::string_view::npos) return Error();
      DS_ASSIGN_OR_RETURN(const OrderedJson name, ReadScalar(StripBlanks(text.substr(0, end))));
      if (!name.is_string()) return Error();
      const std::string_view rest = text.substr(end + 1);
      if (map.contains(name.get<std::string>())) return Error();
      OrderedJson value;
      if (!IsEnd(rest)) {
        DS_ASSIGN_OR_RETURN(value, ReadScalar(StripBlanks(rest)));
        ++at_;
      } else if (++at_ < lines_.size() && HoldsValue(indent)) {
        DS_ASSIGN_OR_RETURN(value, ReadBlock());
      }
      map[name.get<std::string>()] = std::move(value);
    }
    return map;
  }

  // A list may begin at the column of its key.
  bool HoldsValue(std::size_t indent) const {
    const Line& next = lines_[at_];
    return next.indent > indent || (next.indent == indent && next.text.starts_with("- "));
  }

  StatusOr<OrderedJson> ReadQuoted(std::string_view text) const {
    const std::size_t end = text.find(text[0], 1);
    if (end == std::string_view::npos) return Error();
    const std::string_view inner = text.substr(1, end - 1);
    const bool has_escape = text[0] == '"' && inner.find('\\') != std::string_view::npos;
    if (has_escape || !IsEnd(text.substr(end + 1))) return Error();
    return OrderedJson(std::string(inner));
  }

  // Returns true for an empty text and for a comment.
  static bool IsEnd(std::string_view text) {
    const std::string_view rest = StripBlanks(text);
    return rest.empty() || (rest.size() < text.size() && rest.starts_with('#'));
  }

  StatusOr<OrderedJson> ReadScalar(std::string_view text) {
    if (text.starts_with('"') || text.starts_with('\'')) return ReadQuoted(text);
    text = StripBlanks(text.substr(0, text.find(" #")));
    if (text.starts_with('[')) return ReadFlowList(text);
    constexpr std::string_view kOtherForms = "{}]&*!|>%@`#";
    if (!text.empty() && kOtherForms.find(text[0]) != std::string_view::npos) return Error();
    if (IsOneOf(text, {"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"})) {
      return OrderedJson(true);
    }
    if (IsOneOf(text, {"false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"})) {
      return OrderedJson(false);
    }
    if (IsOneOf(text, {"", "~", "null", "Null", "NULL"})) return OrderedJson();
    return OrderedJson(std::string(text));
  }

  StatusOr<OrderedJson> ReadFlowList(std::string_view text) {
    if (!text.ends_with(']') || depth_ == kMostNested) return Error();
    ++depth_;
    OrderedJson list = OrderedJson::array();
    text = text.substr(1, text.size() - 2);
    while (!StripBlanks(text).empty()) {
      const std::string_view element = text.substr(0, text.find(','));
      DS_ASSIGN_OR_RETURN(OrderedJson scalar, ReadScalar(StripBlanks(element)));
      list.push_back(std::move(scalar));
      text.remove_prefix(std::min(element.size() + 1, text.size()));
    }
    --depth_;
    return list;
  }

  std::vector<Line> lines_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

// Reads one pattern or a list of patterns.
std::optional<std::vector<std::string>> ReadPatterns(const OrderedJson& value) {
  if (value.is_string()) return std::vector{value.get<std::string>()};
  if (!value.is_array() || value.empty()) return std::nullopt;
  std::vector<std::string> patterns;
  for (const OrderedJson& each : value) {
    if (!each.is_string()) return std::nullopt;
    patterns.push_back(each.get<std::string>());
  }
  return patterns;
}

// Patterns without a split belong to "train".
std::optional<std::vector<CardSplit>> ReadSplits(const OrderedJson& data_files) {
  if (auto patterns = ReadPatterns(data_files)) return std::vector{CardSplit{"train", *patterns}};
  if (!data_files.is_array()) return std::nullopt;
  std::vector<CardSplit> splits;
  for (const OrderedJson& each : data_files) {
    if (!each.is_object() || each.size() != 2) return std::nullopt;
    const OrderedJson name = each.value("split", OrderedJson());
    const auto patterns = ReadPatterns(each.value("path", OrderedJson()));
    if (!name.is_string() || !patterns) return std::nullopt;
    splits.push_back({name.get<std::string>(), *patterns});
  }
  return splits;
}

// Rejects two configurations, or two splits of one, with the same name.
template <typename Named>
Status RefuseTwice(const std::vector<Named>& all, const std::string& kind) {
  std::set<std::string> names;
  for (const Named& each : all) {
    if (names.insert(each.name).second) continue;
    return InvalidArgumentError("the card has two " + kind + " of the name " + each.name);
  }
  return OkStatus();
}

StatusOr<CardConfig> ReadConfig(const OrderedJson& json) {
  CardConfig config;
  const OrderedJson name = json.value("config_name", OrderedJson("default"));
  config.name = name.is_string() ? name.get<std::string>()
                                 : name.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  const auto refuse = [&](const std::string& key) {
    return InvalidArgumentError(key + " of the card's config " + config.name +
                                " is not understood");
  };
  const OrderedJson is_default = json.value("default", OrderedJson(false));
  if (!is_default.is_boolean() && !is_default.is_null()) return refuse("default");
  config.is_default = config.name == "default" || is_default == true;
  const OrderedJson folder = json.value("data_dir", OrderedJson(""));
  if (!folder.is_string() && !folder.is_null()) return refuse("data_dir");
  if (folder.is_string()) config.data_dir = folder.get<std::string>();
  if (json.contains("data_files")) {
    auto splits = ReadSplits(json["data_files"]);
    if (!splits) return refuse("data_files");
    config.splits = std::move(*splits);
    DS_RETURN_IF_ERROR(RefuseTwice(config.splits, "splits in the config " + config.name));
  }
  for (const auto& [key, value] : json.items()) {
    if (!IsOneOf(key,
                 {"config_name", "default", "data_dir", "data_files", "version", "description"})) {
      config.other_keys.push_back(key);
    }
  }
  return config;
}

}  // namespace

StatusOr<std::vector<CardConfig>> ReadCardConfigs(std::string_view card) {
  std::vector<Line> lines = LinesOfConfigs(card);
  std::vector<CardConfig> configs;
  if (lines.empty()) return configs;
  DS_ASSIGN_OR_RETURN(const OrderedJson header, YamlReader(std::move(lines)).Read());
  const OrderedJson list = header.value("configs", OrderedJson());
  if (list.is_null()) return configs;
  const bool are_maps =
      list.is_array() &&
      std::all_of(list.begin(), list.end(), [](const auto& each) { return each.is_object(); });
  if (!are_maps) return InvalidArgumentError("the card's configs are no list of maps");
  for (const OrderedJson& each : list) {
    DS_ASSIGN_OR_RETURN(CardConfig config, ReadConfig(each));
    configs.push_back(std::move(config));
  }
  DS_RETURN_IF_ERROR(RefuseTwice(configs, "configs"));
  return configs;
}

}  // namespace ds::tokenizer
