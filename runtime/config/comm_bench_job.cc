#include "runtime/config/comm_bench_job.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace ds::config {
namespace {

bool IsKnown(const std::string& collective) {
  return std::find(kBenchCollectives.begin(), kBenchCollectives.end(), collective) !=
         kBenchCollectives.end();
}

bool IsSound(const CommBenchJob& job) {
  return !job.collectives.empty() &&
         std::all_of(job.collectives.begin(), job.collectives.end(), IsKnown) && job.min_size > 0 &&
         job.max_size >= job.min_size && job.warmups >= 0 && job.trials > 0;
}

}  // namespace

std::vector<std::int64_t> ListBenchSizes(const CommBenchJob& job) {
  std::vector<std::int64_t> sizes = {job.min_size};
  while (sizes.back() <= job.max_size / 2) sizes.push_back(sizes.back() * 2);
  return sizes;
}

std::string ToJson(const CommBenchJob& job) {
  const nlohmann::ordered_json json = {{"collectives", job.collectives}, {"min_size", job.min_size},
                                       {"max_size", job.max_size},       {"warmups", job.warmups},
                                       {"trials", job.trials},           {"dtype", job.dtype},
                                       {"device", job.device},           {"encrypt", job.encrypt}};
  return json.dump(2);
}

StatusOr<CommBenchJob> CommBenchJobFromJson(std::string_view text) {
  CommBenchJob job;
  try {
    const auto json = nlohmann::json::parse(text);
    job = {.collectives = json.at("collectives"),
           .min_size = json.at("min_size"),
           .max_size = json.at("max_size"),
           .warmups = json.at("warmups"),
           .trials = json.at("trials"),
           .dtype = json.at("dtype"),
           .device = json.at("device"),
           .encrypt = json.at("encrypt")};
  } catch (const nlohmann::json::exception&) {
    return InvalidArgumentError("bench job: a value is missing or of another type");
  }
  if (!IsSound(job)) return InvalidArgumentError("bench job: a value is out of range");
  return job;
}

}  // namespace ds::config
