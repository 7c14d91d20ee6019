#include "runtime/plan/sequence/token_ranges.h"

#include <string>

#include "runtime/plan/sequence/chunk_plan.h"

namespace ds::sequence_parallel {

StatusOr<SequenceKind> ParseSequenceKind(std::string_view name) {
  if (name == "ulysses") return SequenceKind::kUlysses;
  if (name == "ring") return SequenceKind::kRing;
  return InvalidArgumentError("unknown kind of sequence parallelism '" + std::string(name) +
                              "': take ulysses or ring");
}

std::vector<TokenRange> FindTokens(SequenceKind kind, std::int64_t tokens, int rank, int ranks,
                                   std::int64_t chunk) {
  const std::int64_t own = tokens / ranks;
  if (kind == SequenceKind::kUlysses && chunk > 0) {
    std::vector<TokenRange> stretches;
    for (const TokenRange& all : SplitIntoChunks(tokens, chunk)) {
      const std::int64_t count = all.count / ranks;
      stretches.push_back({all.first + rank * count, count});
    }
    return stretches;
  }
  if (kind == SequenceKind::kUlysses || own < 2) return {{rank * own, own}};
  const std::int64_t back = own / 2, front = own - back;
  return {{rank * front, front}, {ranks * front + (ranks - 1 - rank) * back, back}};
}

}  // namespace ds::sequence_parallel
