// The extension module dsrun._native. The package around it (dsrun/*.py) is its only user.

#include <ATen/ops/empty_like.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/comm/agreement.h"
#include "runtime/config/sections/elasticity_section.h"
#include "runtime/python/engine_bindings.h"
#include "runtime/python/memory_bindings.h"
#include "runtime/python/process.h"
#include "runtime/python/python_errors.h"

namespace ds::python {
namespace {

namespace py = pybind11;
using Released = py::call_guard<py::gil_scoped_release>;

// Returns the group of these ranks of the job, ascending and with this one; of all if empty.
comm::Communicator& FindRanks(const std::vector<int>& ranks) {
  comm::Communicator& world = Process::Get().world();
  if (ranks.empty() || static_cast<int>(ranks.size()) == world.size()) return world;
  std::string name = "ranks";
  for (const int rank : ranks) name += " " + std::to_string(rank);
  return world.Group(name, ranks);
}

void BindProcess(py::module_& module) {
  module.def(
      "join",
      [](const std::string& device) {
        Process::Join(ValueOrThrow(device::DeviceChoiceFromName(device)));
      },
      Released());
  module.def("device", [] { return Process::Get().device().device.str(); });
  module.def("is_joined", &Process::IsJoined);
  module.def("leave", &Process::Leave, Released());
  module.def("report_failure", &Process::ReportFailure);
  module.def("rank", [] { return Process::Get().identity().rank; });
  module.def("world_size", [] { return Process::Get().identity().world_size; });
  module.def("local_rank", [] { return Process::Get().identity().local_rank; });
  module.def(
      "barrier", [] { comm::GatherNumber(0, Process::Get().world()); }, Released());
}

void BindCollectives(py::module_& module) {
  module.def(
      "broadcast",
      [](const at::Tensor& tensor, int source, const std::string& name,
         const std::vector<int>& ranks) {
        const auto found = std::find(ranks.begin(), ranks.end(), source) - ranks.begin();
        const int root = ranks.empty() ? source : static_cast<int>(found);
        FindRanks(ranks).Broadcast(tensor, root, name);
      },
      py::arg("tensor"), py::arg("source"), py::arg("name") = "comm.broadcast",
      py::arg("ranks") = std::vector<int>(), Released());
  module.def(
      "all_gather",
      [](const at::Tensor& output, const at::Tensor& input, const std::string& name) {
        Process::Get().world().AllGather(output, input, name);
      },
      Released());
  module.def(
      "all_reduce",
      [](const at::Tensor& tensor, const std::vector<int>& ranks) {
        FindRanks(ranks).AllReduce(tensor, comm::ReduceOp::kSum, "comm.all_reduce");
      },
      Released());
}

// Collectives of texts.
void BindTexts(py::module_& module) {
  // Returns the texts of all ranks, in their order, on rank 0; an empty list elsewhere.
  module.def(
      "gather_texts",
      [](const std::string& text) { return comm::GatherTexts(text, Process::Get().world()); },
      Released());
  // Returns rank 0's text.
  module.def(
      "broadcast_text",
      [](const std::string& text) {
        return comm::BroadcastText(text, /*root=*/0, Process::Get().world());
      },
      Released());
  // Raises the error of the first rank that has one ("": none), on every rank.
  module.def(
      "agree",
      [](const std::string& error) {
        const Status mine = error.empty() ? OkStatus() : InternalError(error);
        ThrowIfError(comm::AgreeOnStatus(mine, Process::Get().world()));
      },
      Released());
  // Ends the ranks' connections: each rank's next call, or the one it waits in, raises `reason`.
  module.def(
      "abort", [](const std::string& reason) { Process::Get().world().Abort(reason); }, Released());
}

// The collectives of layers of experts. `ranks` are ascending.
void BindExpertCollectives(py::module_& module) {
  // Sends part r of `input`, along dimension 0, to the r-th of the ranks; part r of the result is
  // from it.
  module.def(
      "all_to_all",
      [](const at::Tensor& input, const std::vector<int>& ranks, const std::string& name) {
        const at::Tensor output = at::empty_like(input, at::MemoryFormat::Contiguous);
        FindRanks(ranks).AllToAll(output, input.contiguous(), {}, {}, name);
        return output;
      },
      Released());
  // Returns the largest of the ranks' numbers.
  module.def(
      "find_largest",
      [](std::int64_t mine, const std::vector<int>& ranks) {
        const auto numbers = comm::GatherNumber(mine, FindRanks(ranks));
        return *std::max_element(numbers.begin(), numbers.end());
      },
      Released());
}

// (batch size, valid numbers of GPUs, micro-batch size or nullopt)
using ElasticTuple =
    std::tuple<std::int64_t, std::vector<std::int64_t>, std::optional<std::int64_t>>;

ElasticTuple FindElasticBatch(const std::string& config, std::optional<std::int64_t> num_gpus) {
  config::ElasticBatch batch =
      ValueOrThrow(config::ElasticBatchOf(config, "config", {.num_gpus = num_gpus}));
  return {batch.final_batch_size, std::move(batch.valid_gpus), batch.micro_batch_size};
}

void BindFunctions(py::module_& module) { module.def("find_elastic_batch", &FindElasticBatch); }

}  // namespace

PYBIND11_MODULE(_native, module) {
  module.attr("version") = DS_VERSION;
  module.attr("torch_version") = DS_TORCH_VERSION;
  ThrowOnFailedCheck(true);
  RegisterErrors(module);
  BindFunctions(module);
  BindProcess(module);
  BindCollectives(module);
  BindTexts(module);
  BindExpertCollectives(module);
  BindEngine(module);
  BindCheckpoints(module);
  BindMemory(module);
}

}  // namespace ds::python
