#include "runtime/tokenizer/models/vocabulary.h"

#include "runtime/base/printable.h"

namespace ds::tokenizer {
namespace {

constexpr std::size_t kSparseIds = std::size_t{1} << 20;  // number of ids that may be missing

}  // namespace

Status Vocabulary::Add(std::string token, std::uint32_t id, std::size_t expected_size) {
  if (id >= 8 * expected_size + kSparseIds) {
    return InvalidArgumentError("the token '" + Printable(token) + "' has the id " +
                                std::to_string(id) + ", in a vocabulary of " +
                                std::to_string(expected_size) + " tokens");
  }
  const auto found = ids_.find(token);
  if (found != ids_.end()) {
    found->second = id;
    token = std::string(found->first);
  }
  tokens_.push_back(std::move(token));
  if (found == ids_.end()) ids_.emplace(tokens_.back(), id);
  if (id >= by_id_.size()) by_id_.resize(id + std::size_t{1}, nullptr);
  by_id_[id] = &tokens_.back();
  return OkStatus();
}

std::optional<std::uint32_t> Vocabulary::Find(std::string_view token) const {
  const auto found = ids_.find(token);
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

}  // namespace ds::tokenizer
