#include "runtime/plan/model/model_ranks.h"

#include <string>

#include "runtime/base/divisors.h"
#include "runtime/plan/model/rope_spec.h"

namespace ds::models {
namespace {

// Such angles depend on the longest position of a rank, and a sequence rank sees only its own
// tokens.
bool RotatesByLength(const DecoderSpec& spec) {
  if (spec.positions != Positions::kRotary) return false;
  return DependsOnLength(spec.rope) || (spec.windowed_rope && DependsOnLength(*spec.windowed_rope));
}

Status CheckExpertRanks(const DecoderSpec& spec, int expert) {
  if (expert == 1) return OkStatus();
  if (spec.experts == 0) {
    return InvalidArgumentError("the model has no experts that " + std::to_string(expert) +
                                " ranks could have between them: leave --ep out");
  }
  if (spec.experts % expert == 0) return OkStatus();
  return InvalidArgumentError(std::to_string(expert) + " ranks cannot share the " +
                              std::to_string(spec.experts) + " experts of a layer: take " +
                              NameNearestDivisors(spec.experts, expert));
}

Status CheckShared(const std::string& what, std::int64_t tokens, int sequence) {
  if (tokens % sequence == 0) return OkStatus();
  const std::int64_t below = tokens / sequence * sequence;
  return InvalidArgumentError(std::to_string(sequence) + " sequence ranks cannot share " + what +
                              " of " + std::to_string(tokens) + " tokens: take " +
                              (below > 0 ? std::to_string(below) + " or " : std::string()) +
                              std::to_string(below + sequence));
}

}  // namespace

StatusOr<sequence_parallel::HeadShares> ShareHeads(const TensorPlan& plan, int sequence,
                                                   SequenceKind kind) {
  // If every tensor rank has all keys, it uses one key head.
  const std::int64_t keys = plan.copied_key_head() ? 1 : plan.slice().kv_heads;
  if (kind == SequenceKind::kRing) {
    const auto ranks = static_cast<std::size_t>(sequence);
    return sequence_parallel::HeadShares{.queries = {ranks, {0, plan.slice().heads}},
                                         .keys = {ranks, {0, keys}}};
  }
  return sequence_parallel::ShareHeads(plan.slice().heads, keys, sequence);
}

Status CheckModelRanks(const DecoderSpec& spec, int tensor, int sequence, int expert,
                       SequenceKind kind) {
  DS_RETURN_IF_ERROR(CheckExpertRanks(spec, expert));
  if (sequence > 1 && RotatesByLength(spec)) {
    return UnimplementedError(
        "sequence parallelism is not built for rotary positions that depend on the length");
  }
  if (sequence > 1 && spec.balances_experts) {
    return UnimplementedError(
        "sequence parallelism is not built for a loss with the balance of experts: leave it out "
        "with --router_aux_loss_coef 0, and output_router_logits false in config.json");
  }
  // The first slice has the most heads, the last one the fewest.
  for (const int part : {0, tensor - 1}) {
    DS_ASSIGN_OR_RETURN(const TensorPlan plan, TensorPlan::Create(spec, part, tensor));
    const Status shared = ShareHeads(plan, sequence, kind).status();
    if (!shared.ok()) {
      return Status(shared.code(),
                    std::string(shared.message()) + "; --sp_kind ring takes any number of ranks");
    }
  }
  return OkStatus();
}

Status CheckSampleParts(std::int64_t seq_len, int sequence, SequenceKind kind,
                        std::int64_t sp_chunk) {
  if (sequence > 1 && sp_chunk > 0 && kind == SequenceKind::kRing) {
    return InvalidArgumentError(
        "chunked attention (--sp_chunk) is built for --sp_kind ulysses: in a ring a rank only has "
        "the keys of its own tokens and of a neighbour's; leave one of the two out");
  }
  DS_RETURN_IF_ERROR(CheckShared("samples (--seq_len)", seq_len, sequence));
  return CheckShared("portions (--sp_chunk)", sp_chunk, sequence);
}

}  // namespace ds::models
