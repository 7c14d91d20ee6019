#include "runtime/optim/groups/base_shapes.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/files.h"
#include "runtime/base/parse_number.h"

namespace ds::optim {
namespace {

using Dimension = std::optional<std::int64_t>;

std::string_view Trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

std::string_view Unquoted(std::string_view text) {
  const bool quoted = text.size() >= 2 && (text.front() == '"' || text.front() == '\'') &&
                      text.back() == text.front();
  return quoted ? text.substr(1, text.size() - 2) : text;
}

StatusOr<Dimension> ParseDimension(std::string_view text) {
  if (text == "null" || text == "~") return Dimension();
  const std::optional<std::int64_t> size = ParseNumber<std::int64_t>(text);
  if (size.value_or(0) <= 0) {
    return InvalidArgumentError("\"" + std::string(text) + "\" is neither a size nor null");
  }
  return Dimension(*size);
}

// Parses the list after a name: "[2, null]".
Status ParseList(std::string_view text, std::vector<Dimension>* dimensions) {
  if (text.front() != '[' || text.back() != ']') {
    return InvalidArgumentError("\"" + std::string(text) + "\" is not a list");
  }
  text = Trimmed(text.substr(1, text.size() - 2));
  while (!text.empty()) {
    const auto comma = text.find(',');
    DS_ASSIGN_OR_RETURN(const Dimension size, ParseDimension(Trimmed(text.substr(0, comma))));
    dimensions->push_back(size);
    text = comma == std::string_view::npos ? "" : Trimmed(text.substr(comma + 1));
  }
  return OkStatus();
}

// Parses a line without comment and surrounding blanks. `latest` is the list that "- size" adds to.
Status TakeLine(std::string_view line, BaseShapes* shapes, std::vector<Dimension>** latest) {
  if (line.starts_with("- ") && *latest != nullptr) {
    DS_ASSIGN_OR_RETURN(const Dimension size, ParseDimension(Trimmed(line.substr(2))));
    (*latest)->push_back(size);
    return OkStatus();
  }
  const auto colon = line.rfind(':');
  if (colon == std::string_view::npos) {
    return InvalidArgumentError("\"" + std::string(line) + "\" is not \"name:\" or \"- size\"");
  }
  const std::string name(Unquoted(Trimmed(line.substr(0, colon))));
  const auto [entry, fresh] = shapes->try_emplace(name);
  if (!fresh) return InvalidArgumentError(name + " is there twice");
  *latest = &entry->second;
  const std::string_view rest = Trimmed(line.substr(colon + 1));
  return rest.empty() ? OkStatus() : ParseList(rest, *latest);
}

// Returns the growth of dimension `i`; nullopt if it does not grow.
std::optional<double> Growth(const std::vector<Dimension>& base,
                             const std::vector<std::int64_t>& shape, std::size_t i) {
  if (!base[i]) return std::nullopt;
  return static_cast<double>(shape[i]) / static_cast<double>(*base[i]);
}

const std::vector<Dimension>* Find(const BaseShapes& base, const std::string& name) {
  for (const std::string& key : {name, "module." + name}) {
    if (const auto found = base.find(key); found != base.end()) return &found->second;
  }
  return nullptr;
}

}  // namespace

StatusOr<BaseShapes> ParseBaseShapes(std::string_view text) {
  BaseShapes shapes;
  std::vector<Dimension>* latest = nullptr;
  for (int number = 1; !text.empty(); ++number) {
    const auto end = text.find('\n');
    const std::string_view line = Trimmed(text.substr(0, end));
    text = end == std::string_view::npos ? "" : text.substr(end + 1);
    if (line.empty() || line.front() == '#' || line == "---" || line == "{}") continue;
    if (const Status status = TakeLine(line, &shapes, &latest); !status.ok()) {
      return InvalidArgumentError("line " + std::to_string(number) + ": " + status.message());
    }
  }
  return shapes;
}

StatusOr<BaseShapes> ReadBaseShapes(const std::string& path) {
  const auto text = ReadFile(path);
  if (!text.ok()) return text.status();
  auto shapes = ParseBaseShapes(*text);
  if (!shapes.ok()) return InvalidArgumentError(path + ": " + shapes.status().message());
  return shapes;
}

Status CheckBaseShapes(const BaseShapes& base, const Shapes& shapes) {
  for (const auto& [name, shape] : shapes) {
    const std::vector<Dimension>* const found = Find(base, name);
    if (found == nullptr) return InvalidArgumentError("there is no base shape of " + name);
    if (found->size() != shape.size()) {
      return InvalidArgumentError(name + " has " + std::to_string(shape.size()) +
                                  " dimensions and its base shape " +
                                  std::to_string(found->size()));
    }
    const auto growing = std::count_if(found->begin(), found->end(),
                                       [](const Dimension& size) { return size.has_value(); });
    if (growing > 2) {
      return InvalidArgumentError("more than two dimensions of " + name + " grow with the width");
    }
  }
  if (base.size() != shapes.size()) {
    for (const auto& [name, shape] : base) {
      if (!shapes.contains(name) &&
          !(name.starts_with("module.") && shapes.contains(name.substr(7))))
        return InvalidArgumentError("the model has no parameter " + name);
    }
  }
  return OkStatus();
}

ParameterGrouper WithMuRates(BaseShapes base, Shapes shapes, bool like_sgd,
                             ParameterGrouper inner) {
  return [base = std::move(base), shapes = std::move(shapes), like_sgd, inner = std::move(inner)](
             int block, const std::string& name, const at::Tensor& parameter) {
    ParameterGroup group = inner(block, name, parameter);
    const std::vector<Dimension>* const base_shape = Find(base, name);
    const std::vector<std::int64_t>& shape = shapes.at(name);
    DS_CHECK(base_shape != nullptr && base_shape->size() == shape.size());
    std::vector<double> growths;
    for (std::size_t i = 0; i < shape.size(); ++i) {
      if (const auto growth = Growth(*base_shape, shape, i)) growths.push_back(*growth);
    }
    double divisor = 1.0;  // of the rate
    if (growths.size() == 2) divisor = like_sgd ? growths[1] / growths[0] : growths[1];
    if (growths.size() == 1 && like_sgd) divisor = 1.0 / growths[0];
    group.lr_factor /= divisor;
    group.weight_decay_factor *= divisor;
    return group;
  };
}

}  // namespace ds::optim
