#include "runtime/plan/memory/expert_bytes.h"

#include <algorithm>
#include <cmath>

#include "runtime/config/model_state.h"

namespace ds::models {
namespace {

constexpr std::int64_t kFp32Bytes = 4, kIndexBytes = sizeof(std::int64_t);

// Rows of this rank's tokens, one per route, and rows that arrive at its experts.
class RouteRows {
 public:
  RouteRows(const DecoderSpec& spec, const MicroBatch& batch)
      : routes_(batch.tokens() * spec.experts_per_token),
        arrived_(batch.expert_ranks == 1
                     ? routes_
                     : std::llround(batch.expert_load * static_cast<double>(routes_))),
        width_(config::Width(batch.type)) {}

  std::int64_t routes() const { return routes_; }
  std::int64_t arrived() const { return arrived_; }
  // Bytes of `each` values per row, in the activations' dtype.
  std::int64_t OfRoutes(std::int64_t each) const { return routes_ * each * width_; }
  std::int64_t OfArrived(std::int64_t each) const { return arrived_ * each * width_; }

 private:
  std::int64_t routes_, arrived_, width_;
};

// Returns the values per token in the shared expert, and in the combination of its result with the
// others'.
std::int64_t CountShared(const DecoderSpec& spec) {
  const std::int64_t shared = spec.shared_expert_width;
  if (shared == 0) return 0;
  if (spec.shared_expert_mix == SharedExpertMix::kGated) return 3 * shared + spec.width + 2;
  if (spec.shared_expert_mix == SharedExpertMix::kWeighted) return 3 * shared + 2 * spec.width + 2;
  return 3 * shared;
}

// Counts the arrived rows and the experts' activations, the results returned to their tokens, and
// the router's choice (indices of routes and tokens), in addition to the shared expert.
std::int64_t CountSaved(const DecoderSpec& spec, const MicroBatch& batch, const RouteRows& rows) {
  const std::int64_t tokens = batch.tokens(), width = config::Width(batch.type);
  const std::int64_t values = tokens * width;  // one value per token
  // Rows from other ranks are sorted by this rank's experts, and back.
  const bool sorts = batch.expert_ranks > 1 && spec.experts > batch.expert_ranks;
  return rows.OfArrived(spec.width + 3 * WidthOfExpert(spec)) + rows.OfRoutes(spec.width) +
         rows.routes() * (3 * kIndexBytes + 2 * kFp32Bytes) +
         (sorts ? rows.arrived() * 2 * kIndexBytes : 0) +
         spec.experts * (tokens * kFp32Bytes + values) +
         (spec.routes_in_fp32 && width < kFp32Bytes ? tokens * spec.width * kFp32Bytes : 0) +
         CountShared(spec) * values;
}

// Counts separate results, weighted ones (in fp32) and ones in token order; or the same of their
// gradients. If more rows arrive than the rank has sent: the experts' results, and a sorted copy.
std::int64_t CountTemporaries(const DecoderSpec& spec, const MicroBatch& batch,
                              const RouteRows& rows) {
  const std::int64_t width = config::Width(batch.type);
  const std::int64_t hidden = batch.tokens() * spec.width * width;
  const std::int64_t weighted = rows.routes() * spec.width * kFp32Bytes;
  const std::int64_t copy = width < kFp32Bytes ? rows.OfRoutes(spec.width) : 0;
  return std::max(hidden + rows.OfRoutes(2 * spec.width) + weighted + copy,
                  hidden + rows.OfRoutes(spec.width) + rows.OfArrived(2 * spec.width));
}

}  // namespace

ExpertBytes CountExpertBytes(const DecoderSpec& spec, const MicroBatch& batch) {
  const RouteRows rows(spec, batch);
  return {.saved = CountSaved(spec, batch, rows),
          .temporaries = CountTemporaries(spec, batch, rows),
          .passing = rows.OfArrived(2 * spec.width),
          .delayed = rows.OfArrived(2 * spec.width + 3 * WidthOfExpert(spec))};
}

double MostExpertLoad(const DecoderSpec& spec, int expert_ranks) {
  if (spec.experts == 0 || expert_ranks == 1) return 1.0;
  const std::int64_t own = spec.experts / expert_ranks, routes = spec.experts_per_token;
  return static_cast<double>(expert_ranks * std::min(routes, own)) / static_cast<double>(routes);
}

}  // namespace ds::models
