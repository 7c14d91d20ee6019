#include "runtime/plan/sequence/token_ranges.h"

#include <string>

#include "runtime/plan/sequence/portion_plan.h"

namespace ds::sequence_parallel {

StatusOr<SequenceKind> ParseSequenceKind(std::string_view name) {
  if (name == "ulysses") return SequenceKind::kUlysses;
  if (name == "ring") return SequenceKind::kRing;
  return InvalidArgumentError("unknown kind of sequence parallelism '" + std::string(name) +
                              "': take ulysses or ring");
}

std::vector<TokenRange> FindTokens(SequenceKind kind, std::int64_t tokens, int rank, int ranks,
                                   std::int64_t portion) {
  const std::int64_t own = tokens / ranks;
  if (kind == SequenceKind::kUlysses && portion > 0) {
    std::vector<TokenRange> stretches;
    for (const TokenRange& all : CutPortions(tokens, portion)) {
      const std::int64_t count = all.count / ranks;
      stretches.push_back({all.first + rank * count, count});
    }
    return stretches;
  }
  if (kind == SequenceKind::kUlysses || own < 2) return {{rank * own, own}};
  const std::int64_t behind = own / 2, front = own - behind;
  return {{rank * front, front}, {ranks * front + (ranks - 1 - rank) * behind, behind}};
}

}  // namespace ds::sequence_parallel
