#include "runtime/comm/bandwidth.h"

namespace ds::comm {

Bandwidth ComputeBandwidth(std::string_view collective, std::int64_t bytes, double seconds,
                           int ranks) {
  const auto n = static_cast<double>(ranks);
  double handled = static_cast<double>(bytes);
  if (collective == "all_reduce") handled *= 2;
  if (collective == "all_gather") handled *= n;
  const bool goes_as_it_is = collective == "broadcast" || collective == "pt2pt";
  const double throughput = handled / seconds;
  return {.throughput = throughput, .bus = goes_as_it_is ? throughput : throughput * (n - 1) / n};
}

}  // namespace ds::comm
