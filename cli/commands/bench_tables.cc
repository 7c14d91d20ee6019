#include "cli/commands/bench_tables.h"

#include <fmt/format.h>

#include "runtime/base/byte_size.h"

namespace ds::cli {
namespace {

// Shows microseconds below a millisecond, as ds_bench does.
std::string ShowDuration(double seconds) {
  return seconds < 1e-3 ? fmt::format("{:.3f} us", seconds * 1e6)
                        : fmt::format("{:.3f} ms", seconds * 1e3);
}

std::string ShowRow(const nlohmann::json& step, double scale) {
  const std::string description = fmt::format("{}x{}", step.at("elements").get<std::int64_t>(),
                                              step.at("element_bytes").get<std::int64_t>());
  return fmt::format("{:<15}{:<18}{:<14}{:<20.3f}{:.3f}\n",
                     ByteSize(step.at("size_bytes").get<std::uint64_t>()), description,
                     ShowDuration(step.at("seconds").get<double>()),
                     step.at("throughput_gbps").get<double>() * scale,
                     step.at("busbw_gbps").get<double>() * scale);
}

}  // namespace

std::string ShowBenchTables(const BenchResults& results, BandwidthUnit unit) {
  const bool bits = unit == BandwidthUnit::kGigabits;
  const std::string name = bits ? "Gbps" : "GBps";
  std::string text;
  for (const std::string& collective : results.job.collectives) {
    text += fmt::format("\n---- Performance of {} on {} ranks, {}, {} warm-ups, {} trials ----\n",
                        collective, results.world_size, results.job.dtype, results.job.warmups,
                        results.job.trials);
    text += fmt::format("{:<15}{:<18}{:<14}{:<20}{}\n", "Size", "Description", "Duration",
                        "Throughput (" + name + ")", "BusBW (" + name + ")");
    for (const nlohmann::json& step : results.steps) {
      if (step.at("collective") == collective) text += ShowRow(step, bits ? 1.0 : 0.125);
    }
  }
  return text;
}

std::string ShowBenchJson(const BenchResults& results) {
  nlohmann::ordered_json document = {{"world_size", results.world_size},
                                     {"dtype", results.job.dtype},
                                     {"warmups", results.job.warmups},
                                     {"trials", results.job.trials},
                                     {"collectives", nlohmann::ordered_json::object()}};
  for (const nlohmann::json& step : results.steps) {
    document["collectives"][step.at("collective").get<std::string>()].push_back(
        {{"size_bytes", step.at("size_bytes")},
         {"elements", step.at("elements")},
         {"seconds", step.at("seconds")},
         {"throughput_gbps", step.at("throughput_gbps")},
         {"busbw_gbps", step.at("busbw_gbps")}});
  }
  return document.dump() + "\n";
}

}  // namespace ds::cli
