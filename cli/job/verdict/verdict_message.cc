#include "cli/job/verdict/verdict_message.h"

namespace ds::cli {

v1::JobVerdict MakeVerdictMessage(const Verdict& verdict) {
  v1::JobVerdict message;
  message.set_cause(static_cast<int>(verdict.cause));
  message.set_rank(verdict.rank);
  message.set_host(verdict.host);
  message.set_exit_code(verdict.exit_code);
  message.set_signal(verdict.signal);
  message.set_generation(verdict.generation);
  if (verdict.step.has_value()) message.set_step(*verdict.step);
  message.set_message(verdict.message);
  message.set_proof(verdict.proof);
  message.mutable_last_lines()->Assign(verdict.last_lines.begin(), verdict.last_lines.end());
  message.set_hint(verdict.hint);
  message.set_pid(verdict.pid);
  return message;
}

Verdict ReadVerdictMessage(const v1::JobVerdict& message) {
  return {.cause = static_cast<Cause>(message.cause()),
          .rank = message.rank(),
          .host = message.host(),
          .exit_code = message.exit_code(),
          .signal = message.signal(),
          .generation = message.generation(),
          .step = message.has_step() ? std::optional(message.step()) : std::nullopt,
          .message = message.message(),
          .proof = message.proof(),
          .last_lines = {message.last_lines().begin(), message.last_lines().end()},
          .hint = message.hint(),
          .pid = message.pid(),
          .evidence = std::nullopt};
}

}  // namespace ds::cli
