#include "runtime/tokenizer/corpus/card_configs.h"

#include <algorithm>
#include <nlohmann/json.hpp>

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

// The lines of the header's "configs:", without blank ones and comments.
std::vector<Line> LinesOfConfigs(std::string_view card) {
  std::vector<Line> lines;
  bool inside = false;
  for (std::size_t number = 1; !card.empty(); ++number) {
    const std::string_view line = card.substr(0, card.find('\n'));
    card.remove_prefix(std::min(line.size() + 1, card.size()));
    const std::string_view text = StripBlanks(line);
    if (number == 1 && text != "---") return {};
    if (number > 1 && text == "---") return lines;
    if (text.empty() || text.starts_with('#')) continue;
    const std::size_t indent = line.find_first_not_of(' ');
    if (indent == 0 && !text.starts_with('-')) inside = text == "configs:";
    if (inside) lines.push_back({number, indent, text});
  }
  return {};
}

// Reads the YAML that cards are written in: maps and lists by indentation, lists in brackets,
// scalars with quotes or without.
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
      // The element is what follows the dash, at its own column.
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
      DS_ASSIGN_OR_RETURN(const OrderedJson name, ReadScalar(text.substr(0, end)));
      if (!name.is_string()) return Error();
      const std::string_view rest = StripBlanks(text.substr(end + 1));
      ++at_;
      OrderedJson value;
      if (!rest.empty()) {
        DS_ASSIGN_OR_RETURN(value, ReadScalar(rest));
      } else if (at_ < lines_.size() && HoldsValue(indent)) {
        DS_ASSIGN_OR_RETURN(value, ReadBlock());
      }
      map[name.get<std::string>()] = std::move(value);
    }
    return map;
  }

  // A list may stand at the column of its key.
  bool HoldsValue(std::size_t indent) const {
    const Line& next = lines_[at_];
    return next.indent > indent || (next.indent == indent && next.text.starts_with("- "));
  }

  // Where the ':' after a key is; npos for a scalar.
  static std::size_t KeyEnd(std::string_view text) {
    const std::size_t from =
        text.starts_with('"') || text.starts_with('\'') ? text.find(text[0], 1) : 0;
    if (from == std::string_view::npos) return from;
    for (std::size_t at = text.find(':', from); at != std::string_view::npos;
         at = text.find(':', at + 1)) {
      if (at + 1 == text.size() || text[at + 1] == ' ') return at;
    }
    return std::string_view::npos;
  }

  StatusOr<OrderedJson> ReadScalar(std::string_view text) {
    if (text.starts_with('"') || text.starts_with('\'')) {
      const std::size_t end = text.find(text[0], 1);
      if (end == std::string_view::npos) return Error();
      return OrderedJson(std::string(text.substr(1, end - 1)));
    }
    if (text.starts_with('[')) return ReadFlowList(text);
    if (text.starts_with('{') || text.starts_with('&') || text.starts_with('*') ||
        text.starts_with('|') || text.starts_with('>')) {
      return Error();
    }
    text = StripBlanks(text.substr(0, text.find(" #")));
    if (text == "true") return OrderedJson(true);
    if (text == "false") return OrderedJson(false);
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

// One pattern or a list.
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
    if (!each.is_object()) return std::nullopt;
    const OrderedJson name = each.value("split", OrderedJson());
    const auto patterns = ReadPatterns(each.value("path", OrderedJson()));
    if (!name.is_string() || !patterns) return std::nullopt;
    splits.push_back({name.get<std::string>(), *patterns});
  }
  return splits;
}

}  // namespace

StatusOr<std::vector<CardConfig>> ReadCardConfigs(std::string_view card) {
  std::vector<Line> lines = LinesOfConfigs(card);
  std::vector<CardConfig> configs;
  if (lines.empty()) return configs;
  DS_ASSIGN_OR_RETURN(const OrderedJson header, YamlReader(std::move(lines)).Read());
  for (const OrderedJson& each : header.value("configs", OrderedJson())) {
    if (!each.is_object()) return InvalidArgumentError("the card's configs are no list of maps");
    CardConfig config;
    const OrderedJson name = each.value("config_name", OrderedJson("default"));
    config.name = name.is_string()
                      ? name.get<std::string>()
                      : name.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
    config.is_default = config.name == "default" || each.value("default", OrderedJson()) == true;
    const OrderedJson folder = each.value("data_dir", OrderedJson());
    if (folder.is_string()) config.data_dir = folder.get<std::string>();
    if (each.contains("data_files")) {
      auto splits = ReadSplits(each["data_files"]);
      if (!splits) {
        return InvalidArgumentError("data_files of the card's config " + config.name +
                                    " is not understood");
      }
      config.splits = std::move(*splits);
    }
    configs.push_back(std::move(config));
  }
  return configs;
}

}  // namespace ds::tokenizer
