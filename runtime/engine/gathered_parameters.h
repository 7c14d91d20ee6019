#pragma once

// WithGatheredParameters gives temporary access to unsharded parameters, to read or to change them:
// DeepSpeed's zero.GatheredParameters.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/engine/engine.h"

namespace ds::engine {

// Calls `body` on every rank, without gradient recording, while the parameters with these full
// names have their values: in the training dtype, the same on every rank. Only their blocks are
// gathered meanwhile.
//
// Afterwards all ranks have the values that `body` wrote on `modifier_rank`, also in shards and
// fp32 masters. A master keeps its value if its 16-bit value is unchanged. Values written by other
// ranks are undone at every stage; so are all values without a modifier rank, or if `body` fails on
// any rank.
//
// Call it between passes, with the same arguments on all ranks; of experts that ranks have apart,
// each rank names its own, and all the corresponding ones. The values of another rank's experts are
// then those of the rank that has them in the modifier rank's place: with modifier rank 0, the
// first one with these experts.
//
// `body` must not call anything
// collective. Calls of `body` to this engine fail, except plain getters: they would invalidate the
// parameters. A nested WithGatheredParameters fails, too.
//
// All ranks return the same status. Errors: an unknown name, a rank that does not exist, a trained
// parameter to modify while the weights of an optimizer's ranks differ (ZeroOneAdam between two
// exchanges), an error of `body`.
Status WithGatheredParameters(Engine& engine, const std::vector<std::string>& names,
                              std::optional<int> modifier_rank,
                              const std::function<Status()>& body);

// The same as two calls, for bodies that are no function: `with` blocks of Python. All ranks call
// Open, then Close before they use the engine again or destroy this object.
class GatheredParameters {
 public:
  static StatusOr<std::unique_ptr<GatheredParameters>> Open(Engine& engine,
                                                            const std::vector<std::string>& names,
                                                            std::optional<int> modifier_rank);
  ~GatheredParameters();
  GatheredParameters(const GatheredParameters&) = delete;
  GatheredParameters& operator=(const GatheredParameters&) = delete;

  // `body` is the status of this rank's work meanwhile. Returns as WithGatheredParameters.
  Status Close(Status body);

 private:
  struct Gathered;
  explicit GatheredParameters(std::unique_ptr<Gathered> gathered);
  std::unique_ptr<Gathered> gathered_;  // null once closed
};

}  // namespace ds::engine

namespace ds {
using engine::GatheredParameters;
using engine::WithGatheredParameters;
}  // namespace ds
