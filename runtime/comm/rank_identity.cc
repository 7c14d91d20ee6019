#include "runtime/comm/rank_identity.h"

#include <cstdint>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string_view>

#include "runtime/base/parse_number.h"

namespace ds::comm {
namespace {

// Range of a variable's value, and `fallback` if it is unset; the value must be in [low, high].
struct Range {
  int low = 0;
  int high = std::numeric_limits<int>::max();
};

StatusOr<int> ReadIntegerVariable(const char* name, int fallback, Range range) {
  const char* text = std::getenv(name);
  if (text == nullptr) return fallback;
  const std::optional<int> number = ParseNumber<int>(text);
  if (!number.has_value()) {
    return InvalidArgumentError(std::string("environment variable ") + name + "=\"" + text +
                                "\" is not a whole number");
  }
  if (*number < range.low || *number > range.high) {
    return InvalidArgumentError(std::string("environment variable ") + name + "=" + text +
                                " is outside " + std::to_string(range.low) + ".." +
                                std::to_string(range.high));
  }
  return *number;
}

std::string ReadTextVariable(const char* name, const std::string& fallback) {
  const char* text = std::getenv(name);
  return text == nullptr ? fallback : std::string(text);
}

// Returns the variable's value in units of `unit`.
StatusOr<std::chrono::milliseconds> ReadTimeVariable(const char* name,
                                                     std::chrono::milliseconds unit) {
  constexpr std::chrono::milliseconds kLongest = std::chrono::hours(24 * 7);
  const char* const text = std::getenv(name);
  const std::optional<double> number = ParseNumber<double>(text);
  const double millis = number.value_or(0) * static_cast<double>(unit.count());
  if (millis >= 1 && millis <= static_cast<double>(kLongest.count())) {
    return std::chrono::milliseconds(static_cast<std::int64_t>(millis));
  }
  return InvalidArgumentError(
      std::string("environment variable ") + name + "=\"" + text + "\" is no time of " +
      (unit >= std::chrono::minutes(1) ? "minutes" : "seconds") + " up to a week");
}

// Fails if MPI or Slurm has started several ranks: each would be a world of its own.
Status CheckAlone() {
  for (const char* const name :
       {"OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    const char* const text = std::getenv(name);
    if (text == nullptr || ParseNumber<int>(text).value_or(1) <= 1) continue;
    return FailedPreconditionError(
        std::string("this process is one of ") + text + " (" + name +
        "), and RANK and WORLD_SIZE are not set: start the ranks with dsrun -n " + text);
  }
  return OkStatus();
}

}  // namespace

StatusOr<std::chrono::milliseconds> CollectiveTimeoutFromEnvironment() {
  if (std::getenv("DSRUN_COLLECTIVE_TIMEOUT") != nullptr) {
    return ReadTimeVariable("DSRUN_COLLECTIVE_TIMEOUT", std::chrono::seconds(1));
  }
  if (std::getenv("DEEPSPEED_TIMEOUT") != nullptr) {
    return ReadTimeVariable("DEEPSPEED_TIMEOUT", std::chrono::minutes(1));
  }
  return std::chrono::milliseconds(std::chrono::minutes(30));
}

StatusOr<RankIdentity> RankIdentityFromEnvironment() {
  const bool has_rank = std::getenv("RANK") != nullptr;
  const bool has_size = std::getenv("WORLD_SIZE") != nullptr;
  if (has_rank != has_size) {
    return InvalidArgumentError(std::string("environment variable ") +
                                (has_rank ? "WORLD_SIZE" : "RANK") + " is missing while " +
                                (has_rank ? "RANK" : "WORLD_SIZE") + " is set");
  }
  if (!has_rank) DS_RETURN_IF_ERROR(CheckAlone());
  RankIdentity id;
  DS_ASSIGN_OR_RETURN(id.world_size, ReadIntegerVariable("WORLD_SIZE", 1, {.low = 1}));
  DS_ASSIGN_OR_RETURN(id.rank, ReadIntegerVariable("RANK", 0, {.high = id.world_size - 1}));
  DS_ASSIGN_OR_RETURN(id.local_world_size, ReadIntegerVariable("LOCAL_WORLD_SIZE", id.world_size,
                                                               {.low = 1, .high = id.world_size}));
  DS_ASSIGN_OR_RETURN(
      id.local_rank, ReadIntegerVariable("LOCAL_RANK", id.rank, {.high = id.local_world_size - 1}));
  DS_ASSIGN_OR_RETURN(id.master_port,
                      ReadIntegerVariable("MASTER_PORT", 0, {.low = 1, .high = 65535}));
  DS_ASSIGN_OR_RETURN(id.generation, ReadIntegerVariable("DSRUN_GENERATION", 0, {}));
  id.job_id = ReadTextVariable("DSRUN_JOB_ID", id.job_id);
  if (id.world_size > 1 && id.master_port == 0) {
    return InvalidArgumentError("environment variable MASTER_PORT is missing (WORLD_SIZE is " +
                                std::to_string(id.world_size) + ")");
  }
  return id;
}

}  // namespace ds::comm
