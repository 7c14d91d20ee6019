#include "runtime/config/memory_estimate.h"

#include <algorithm>
#include <string>

namespace ds::config {
namespace {

// Largest count for which 18 bytes per parameter are exact in a double, as the formulas need.
constexpr std::int64_t kMostParams = 100'000'000'000'000;
constexpr std::int64_t kMostGpusPerNode = 4096;
constexpr std::int64_t kMostNodes = 1 << 20;

// Bytes for each parameter.
constexpr std::int64_t kHalf = 2;        // in 16 bit
constexpr std::int64_t kFull = 4;        // in 32 bit
constexpr std::int64_t kLayer = 4;       // a gathered layer: parameters and gradients in 16 bit
constexpr std::int64_t kAllStates = 18;  // gradients in 16 and 32 bit, 32-bit copy, two moments
constexpr std::int64_t kOffloaded = 16;  // without the 16-bit parameters
constexpr double kBufferFactor = 1.5;    // further memory of the host

Status CheckRange(const char* name, std::int64_t value, std::int64_t most) {
  if (value >= 1 && value <= most) return OkStatus();
  return InvalidArgumentError(std::string(name) + " must be between 1 and " + std::to_string(most) +
                              ", not " + std::to_string(value));
}

Status Check(const MemoryQuestion& question) {
  DS_RETURN_IF_ERROR(CheckRange("the number of parameters", question.params, kMostParams));
  DS_RETURN_IF_ERROR(CheckRange("the parameters of the largest layer",
                                question.largest_layer_params, kMostParams));
  DS_RETURN_IF_ERROR(
      CheckRange("the number of GPUs per node", question.num_gpus_per_node, kMostGpusPerNode));
  DS_RETURN_IF_ERROR(CheckRange("the number of nodes", question.num_nodes, kMostNodes));
  if (question.largest_layer_params > question.params) {
    return InvalidArgumentError("the largest layer has more parameters (" +
                                std::to_string(question.largest_layer_params) +
                                ") than the model (" + std::to_string(question.params) + ")");
  }
  const double gpus = static_cast<double>(question.num_gpus_per_node * question.num_nodes);
  const double most = static_cast<double>(question.params) * std::max(gpus, 4.0) * 4 * 1.5;
  if (most < 9e18) return OkStatus();
  return InvalidArgumentError("this number of parameters and GPUs needs more than 8 EiB");
}

// Computes every formula in the reference's order of operations: its fractions are doubles.
class Estimator {
 public:
  explicit Estimator(const MemoryQuestion& question)
      : question_(question),
        gpus_(question.num_gpus_per_node * question.num_nodes),
        per_node_(1.0 / static_cast<double>(question.num_nodes)) {}

  MemoryRow Zero2(bool offload) const {
    MemoryRow row{.stage = 2, .offload_optimizer = offload};
    row.gpu_bytes = kHalf * question_.params + (offload ? 0 : Share(kAllStates));
    row.cpu_bytes = offload ? Host(Params(std::max<std::int64_t>(kFull * gpus_, kOffloaded)))
                            : Host(Params(kFull * question_.num_gpus_per_node));
    return row;
  }

  MemoryRow Zero3(bool offload_optimizer, bool offload_param, bool zero_init) const {
    MemoryRow row{.stage = 3,
                  .offload_optimizer = offload_optimizer,
                  .offload_param = offload_param,
                  .zero_init = zero_init};
    row.gpu_bytes = kLayer * question_.largest_layer_params;
    if (!offload_param) row.gpu_bytes += Share(offload_optimizer ? kHalf : kAllStates);
    const std::int64_t building = kFull * question_.num_gpus_per_node;
    if (!offload_optimizer) {
      row.cpu_bytes =
          Host(zero_init ? static_cast<double>(question_.largest_layer_params * building)
                         : Params(building));
    } else {
      row.cpu_bytes = OffloadedHost(offload_param ? kAllStates : kOffloaded, building, zero_init);
    }
    return row;
  }

 private:
  // Returns the share of one GPU.
  std::int64_t Share(std::int64_t bytes) const {
    return static_cast<std::int64_t>(static_cast<double>(bytes * question_.params) /
                                     static_cast<double>(gpus_));
  }

  double Params(std::int64_t bytes) const { return static_cast<double>(question_.params * bytes); }

  // Returns the host's part of the states, or the peak while each process builds the full model.
  std::int64_t OffloadedHost(std::int64_t bytes, std::int64_t building, bool zero_init) const {
    if (zero_init) return Host(Params(bytes) * per_node_);
    const double part = static_cast<double>(bytes) * per_node_;
    if (static_cast<double>(building) >= part) return Host(Params(building));
    return Host(static_cast<double>(question_.params) * part);
  }

  static std::int64_t Host(double bytes) {
    return static_cast<std::int64_t>(bytes * kBufferFactor);
  }

  const MemoryQuestion question_;
  const std::int64_t gpus_;
  const double per_node_;
};

}  // namespace

StatusOr<std::vector<MemoryRow>> EstimateMemory(const MemoryQuestion& question) {
  DS_RETURN_IF_ERROR(Check(question));
  const Estimator estimator(question);
  return std::vector<MemoryRow>{
      estimator.Zero2(true),
      estimator.Zero2(false),
      estimator.Zero3(true, true, true),
      estimator.Zero3(true, true, false),
      estimator.Zero3(true, false, true),
      estimator.Zero3(true, false, false),
      estimator.Zero3(false, false, true),
      estimator.Zero3(false, false, false),
  };
}

}  // namespace ds::config
