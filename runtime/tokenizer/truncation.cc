#include "runtime/tokenizer/truncation.h"

#include <algorithm>

namespace ds::tokenizer {
namespace {

template <typename T>
void Keep(std::size_t count, bool from_left, std::vector<T>* list) {
  if (list->size() <= count) return;
  const auto surplus = static_cast<std::ptrdiff_t>(list->size() - count);
  if (from_left) {
    list->erase(list->begin(), list->begin() + surplus);
  } else {
    list->erase(list->end() - surplus, list->end());
  }
}

void KeepTokens(std::size_t count, bool from_left, Encoding* encoding) {
  Keep(count, from_left, &encoding->ids);
  Keep(count, from_left, &encoding->type_ids);
  Keep(count, from_left, &encoding->is_special);
  Keep(count, from_left, &encoding->offsets);
  Keep(count, from_left, &encoding->tokens);
}

// Returns the number of tokens that each of a pair keeps. The shorter one keeps all if it has less
// than half.
std::pair<std::size_t, std::size_t> ShareOut(std::size_t first, std::size_t second,
                                             std::size_t most) {
  std::size_t less = std::min(first, second);
  std::size_t more = less > most ? less : std::max(less, most - less);
  if (less + more > most) {
    less = most / 2;
    more = less + most % 2;
  }
  return first > second ? std::pair(more, less) : std::pair(less, more);
}

}  // namespace

StatusOr<Truncation> ReadTruncation(const JsonObject& component) {
  Truncation truncation;
  DS_ASSIGN_OR_RETURN(truncation.max_length, component.Number("max_length"));
  DS_ASSIGN_OR_RETURN(const std::string direction, component.TextOr("direction", "Right"));
  if (direction != "Left" && direction != "Right") {
    return component.Error("direction", "must be Left or Right");
  }
  truncation.from_left = direction == "Left";
  DS_ASSIGN_OR_RETURN(const std::string strategy, component.Text("strategy"));
  if (strategy == "OnlyFirst") {
    truncation.strategy = TruncationStrategy::kOnlyFirst;
  } else if (strategy == "OnlySecond") {
    truncation.strategy = TruncationStrategy::kOnlySecond;
  } else if (strategy != "LongestFirst") {
    return component.Error("strategy", "must be LongestFirst, OnlyFirst or OnlySecond");
  }
  return truncation;
}

Status Truncate(const Truncation& truncation, std::size_t added, std::vector<Encoding>* parts) {
  if (added > truncation.max_length) {
    return InvalidArgumentError("no text fits into " + std::to_string(truncation.max_length) +
                                " tokens with " + std::to_string(added) + " special ones");
  }
  const std::size_t most = truncation.max_length - added;
  const bool left = truncation.from_left;
  std::size_t total = 0;
  for (const Encoding& part : *parts) total += part.ids.size();
  if (total <= most) return OkStatus();
  if (most == 0) {
    for (Encoding& part : *parts) KeepTokens(0, left, &part);
    return OkStatus();
  }
  if (truncation.strategy == TruncationStrategy::kLongestFirst) {
    if (parts->size() == 1) {
      KeepTokens(most, left, &parts->front());
    } else {
      const auto [first, second] = ShareOut((*parts)[0].ids.size(), (*parts)[1].ids.size(), most);
      KeepTokens(first, left, &(*parts)[0]);
      KeepTokens(second, left, &(*parts)[1]);
    }
    return OkStatus();
  }
  const std::size_t target = truncation.strategy == TruncationStrategy::kOnlyFirst ? 0 : 1;
  const std::size_t surplus = total - most;
  if (target >= parts->size() || (*parts)[target].ids.size() <= surplus) {
    return InvalidArgumentError("the text that the tokenizer truncates cannot be shortened to " +
                                std::to_string(truncation.max_length) + " tokens");
  }
  KeepTokens((*parts)[target].ids.size() - surplus, left, &(*parts)[target]);
  return OkStatus();
}

}  // namespace ds::tokenizer
