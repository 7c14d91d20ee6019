#include "runtime/python/engine_bindings.h"

#include <pybind11/functional.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint_format/file_names.h"
#include "runtime/checkpoint_format/retention.h"
#include "runtime/config/model_state.h"
#include "runtime/device/memory_ledger.h"
#include "runtime/engine/chosen_state.h"
#include "runtime/engine/deepspeed_api.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/executor.h"
#include "runtime/engine/gathered_parameters.h"
#include "runtime/engine/loop/evaluate.h"
#include "runtime/engine/tensor_access.h"
#include "runtime/engine/unit_list.h"
#include "runtime/engine/unit_passes.h"
#include "runtime/python/config_text.h"
#include "runtime/python/process.h"
#include "runtime/python/python_errors.h"
#include "runtime/python/python_stage.h"
#include "runtime/python/step_reports.h"

namespace ds::python {
namespace {

namespace py = pybind11;
using Released = py::call_guard<py::gil_scoped_release>;

// name, tensor, class of its module, number of its group, factor of the decay, the pipeline stages
// that hold it if several do, whether it is of an expert that other ranks do not have
using ParameterTuple =
    std::tuple<std::string, at::Tensor, std::string, std::size_t, double, std::vector<int>, bool>;
using UnitTuple = std::tuple<std::string, std::vector<ParameterTuple>, std::vector<int>>;
using BufferTuple = std::pair<std::string, at::Tensor>;
using GroupRates = std::vector<std::optional<double>>;
using WriteValues = std::optional<engine::WriteFirstValues>;
using WriteClient = std::function<std::string(const std::string& path)>;

constexpr char kProgram[] = "dsrun python";  // as checkpoints name their writer

std::vector<engine::ModuleBuffers::Named> MakeBuffers(const std::vector<BufferTuple>& buffers) {
  std::vector<engine::ModuleBuffers::Named> named;
  for (const auto& [name, tensor] : buffers) named.push_back({name, tensor});
  return named;
}

// `write_values` is destroyed with the GIL, by the caller.
engine::UnitList MakeUnitList(const std::vector<UnitTuple>& units,
                              const std::vector<BufferTuple>& buffers,
                              const WriteValues& write_values) {
  engine::UnitList list;
  if (write_values) {
    list.write_first_values = [&write_values](int unit) {
      const py::gil_scoped_acquire gil;
      return (*write_values)(unit);
    };
  }
  for (const auto& [name, parameters, also_reads] : units) {
    engine::UnitDescription unit{.name = name, .also_reads = also_reads};
    for (const auto& [parameter, tensor, module_class, group, decay_factor, stages, expert] :
         parameters) {
      unit.parameters.push_back({parameter, tensor, module_class, stages, expert});
    }
    list.units.push_back(std::move(unit));
  }
  list.buffers = MakeBuffers(buffers);
  return list;
}

optim::ParameterGrouper MakeGrouper(const std::vector<UnitTuple>& units) {
  std::map<std::string, optim::ParameterGroup> groups;
  for (const auto& [name, parameters, also_reads] : units) {
    for (const auto& [parameter, tensor, module_class, group, decay_factor, stages, expert] :
         parameters) {
      groups[parameter] = {.weight_decay_factor = decay_factor, .schedule = group};
    }
  }
  return [groups = std::move(groups)](int, const std::string& name, const at::Tensor&) {
    return groups.at(name);
  };
}

// Checks the config for this rank.
CheckedConfig CheckConfigHere(const std::string& text) {
  const comm::RankIdentity& identity = Process::Get().identity();
  return CheckConfigText(text, identity.world_size,
                         {.on_cpu = Process::Get().device().device.is_cpu(),
                          .one_host = identity.world_size == identity.local_world_size});
}

void PrintNotice(const std::string& text) {
  Process& process = Process::Get();
  process.reporter().ReportNotice(text);
  if (process.identity().rank == 0) std::fprintf(stderr, "dsrun: %s\n", text.c_str());
}

// Python's view of an engine. Its functions run without the GIL.
class BoundEngine {
 public:
  BoundEngine(const std::vector<UnitTuple>& units, const std::vector<BufferTuple>& buffers,
              const std::string& config, const GroupRates& group_rates,
              const WriteValues& write_values)
      : groups_(group_rates.size()) {
    comm::Communicator& world = Process::Get().world();
    CheckedConfig checked = CheckConfigHere(config);
    warnings_ = std::move(checked.warnings);
    engine_ =
        ValueOrThrow(Engine::create(MakeUnitList(units, buffers, write_values), checked.config,
                                    {.world = &world,
                                     .device = Process::Get().device().device,
                                     .notify = PrintNotice,
                                     .parameter_group = MakeGrouper(units),
                                     .group_rates = group_rates}));
    passes_.emplace(*engine_);
    api_.emplace(*engine_);
  }

  Engine& engine() {
    TORCH_CHECK(engine_ != nullptr,
                "the engine has been destroyed: make another one with initialize()");
    return *engine_;
  }
  UnitPasses& passes() {
    engine();
    return *passes_;
  }
  DeepSpeedApi& api() {
    engine();
    return *api_;
  }
  TensorAccess access() { return TensorAccess(engine()); }
  const std::vector<std::string>& warnings() const { return warnings_; }

  void BeginForward(std::int64_t samples, std::int64_t labels, bool evaluates) {
    reports_.BeginForward(evaluates);
    CheckMemory();
    passes().BeginForward({.samples = samples, .labels = labels});
  }
  std::vector<at::Tensor> EndForward(std::vector<at::Tensor> outputs) {
    outputs = passes().EndForward(std::move(outputs));
    reports_.EndForward();
    return outputs;
  }
  StepResult Step() {
    CheckMemory();
    return Report(ValueOrThrow(engine().step()));
  }
  // The rates of the parameter groups for the next update.
  std::vector<double> Rates() { return api().group_rates(groups_); }
  void SetRates(const std::vector<double>& rates) {
    if (rates.size() != groups_) throw StatusError(InvalidArgumentError("a rate for each group"));
    ThrowIfError(api().set_group_rates(rates));
  }

  // Throws if the script has given a parameter other memory.
  void CheckMemory() { ThrowIfError(passes().CheckMemory()); }

  // One full step of this rank's pipeline stage, or of the only one.
  StepResult TrainBatch(const ReadBatch& read_batch, const RunStage& run_stage) {
    reports_.BeginForward(/*evaluates=*/false);
    PythonStage stage(passes(), run_stage);
    return Report(
        ValueOrThrow(engine::Executor(engine(), stage).RunStep(MakeBatchSource(read_batch))));
  }

  // Returns the mean of the last stage's losses over micro-batches and ranks.
  double EvaluateBatch(const ReadBatch& read_batch, const RunStage& run_stage,
                       std::int64_t micro_batches) {
    reports_.BeginForward(/*evaluates=*/true);
    PythonStage stage(passes(), run_stage);
    const engine::Evaluation evaluation =
        ValueOrThrow(engine::Evaluate(engine(), stage, MakeBatchSource(read_batch), micro_batches));
    reports_.EndForward();
    return evaluation.loss;
  }

  // `kind` is "param", "grad" or "state"; `state` is the state's name, else "". A gradient is
  // nullopt, as DeepSpeed's is None, before the step's micro-batches have been through backward.
  std::optional<at::Tensor> GetTensor(const std::string& kind, const std::string& name,
                                      const std::string& state, bool local) {
    TensorAccess access = this->access();
    if (kind == "param") {
      return ValueOrThrow(local ? access.GetLocalFp32Param(name) : access.GetFullFp32Param(name));
    }
    if (kind == "state") {
      return ValueOrThrow(local ? access.GetLocalOptimizerState(name, state)
                                : access.GetFullOptimizerState(name, state));
    }
    if (!access.HasGradients()) return std::nullopt;
    return ValueOrThrow(local ? access.GetLocalGrad(name) : access.GetFullGrad(name));
  }

  void SetTensor(const std::string& kind, const std::string& name, const std::string& state,
                 bool local, const at::Tensor& value) {
    TensorAccess access = this->access();
    if (kind == "param") {
      return ThrowIfError(local ? access.SetLocalFp32Param(name, value)
                                : access.SetFullFp32Param(name, value));
    }
    if (kind == "state") {
      return ThrowIfError(local ? access.SetLocalOptimizerState(name, state, value)
                                : access.SetFullOptimizerState(name, state, value));
    }
    ThrowIfError(local ? access.SetLocalGrad(name, value) : access.SetFullGrad(name, value));
  }

  // Returns this rank's bytes by use ("parameters", "optimizer_state", ...), over all tiers.
  std::map<std::string, std::int64_t> MemoryBytes() {
    std::map<std::string, std::int64_t> bytes;
    for (std::size_t i = 0; i < device::kMemoryUses; ++i) {
      const auto use = static_cast<device::MemoryUse>(i);
      std::int64_t& sum = bytes[std::string(device::MemoryUseName(use))];
      for (std::size_t tier = 0; tier < device::kMemoryTiers; ++tier) {
        sum += engine().ledger().Bytes(use, static_cast<device::MemoryTier>(tier));
      }
    }
    return bytes;
  }

  // Rank 0's dictionary has all parameters and buffers, the others' is empty.
  std::map<std::string, at::Tensor> Export() {
    CheckMemory();
    std::map<std::string, at::Tensor> values;
    ThrowIfError(engine().ExportParameters([&](const std::string& name, const at::Tensor& value) {
      values[name] = value.clone();
      return OkStatus();
    }));
    return values;
  }

  // `root` has one checkpoint; this one replaces it. `write_client` writes rank 0's other state to
  // the file, and returns an error or "".
  void Save(const std::string& root, const WriteClient& write_client, bool frozen) {
    CheckMemory();
    engine::ChosenState without_frozen(engine(), {.frozen = false});
    checkpoint::Stateful* const parts[] = {frozen ? &engine().state() : &without_frozen};
    const std::int64_t step = engine().finished_steps();
    const auto write_more = [&](const std::filesystem::path& folder) {
      const std::string error = write_client((folder / checkpoint::kClientStateFile).string());
      return error.empty() ? OkStatus() : InternalError(error);
    };
    const std::filesystem::path path =
        ValueOrThrow(checkpoint::SaveCheckpoint({.root = root,
                                                 .step = step,
                                                 .written_by = {{"program", kProgram}},
                                                 .write_more = write_more},
                                                parts, engine().world()));
    Process& process = Process::Get();
    if (process.identity().rank != 0) return;
    process.reporter().ReportCheckpoint(step, path.string());
    checkpoint::RemoveReplacedCheckpoints(root, step, kProgram);
  }

  void Load(const std::string& folder, const engine::StateChoice& choice) {
    ThrowIfError(engine::ChosenState(engine(), choice).Load(folder));
  }

  void OpenGathered(const std::vector<std::string>& names, std::optional<int> modifier_rank) {
    gathered_ = ValueOrThrow(GatheredParameters::Open(engine(), names, modifier_rank));
  }
  void CloseGathered(const std::string& error) {
    TORCH_CHECK(gathered_ != nullptr, "no parameters are gathered");
    const auto gathered = std::move(gathered_);
    const Status status = gathered->Close(error.empty() ? OkStatus() : InternalError(error));
    if (error.empty()) ThrowIfError(status);
  }

  void EnterLocalGradients(bool coalesce) {
    local_gradients_.emplace(
        ValueOrThrow(coalesce ? api().coalesce_grad_reduction() : api().no_sync()));
  }
  void LeaveLocalGradients() { local_gradients_.reset(); }

  void Destroy() {
    // The module keeps the values of parameters that are not sharded.
    if (api_) (void)api_->reload_states();
    local_gradients_.reset();
    gathered_.reset();
    api_.reset();
    passes_.reset();
    engine_.reset();
  }

 private:
  StepResult Report(StepResult result) {
    reports_.OnStep(engine(), result);
    return result;
  }

  std::size_t groups_;
  std::unique_ptr<Engine> engine_;
  std::optional<UnitPasses> passes_;
  std::optional<DeepSpeedApi> api_;
  std::optional<DeepSpeedApi::LocalGradients> local_gradients_;
  std::unique_ptr<GatheredParameters> gathered_;
  std::vector<std::string> warnings_;
  StepReports reports_;
};

using PyEngine = py::class_<BoundEngine>;

void BindPasses(PyEngine& bound) {
  bound.def("begin_forward", &BoundEngine::BeginForward, Released());
  bound.def(
      "enter", [](BoundEngine& self, int unit) { self.passes().Enter(unit); }, Released());
  bound.def("reads_also",
            [](BoundEngine& self, int unit, int other) { self.passes().ReadsAlso(unit, other); });
  bound.def(
      "leave",
      [](BoundEngine& self, int unit, std::vector<at::Tensor> outputs) {
        return self.passes().Leave(unit, std::move(outputs));
      },
      Released());
  bound.def("end_forward", &BoundEngine::EndForward, Released());
  bound.def(
      "backward",
      [](BoundEngine& self, const at::Tensor& loss, bool scale_wrt_gas, bool retain_graph) {
        self.engine().backward(loss, scale_wrt_gas, retain_graph);
      },
      Released());
  bound.def("step", &BoundEngine::Step, Released());
  bound.def(
      "zero_grad", [](BoundEngine& self) { ThrowIfError(self.api().zero_grad()); }, Released());
  bound.def("train_batch", &BoundEngine::TrainBatch, Released());
  bound.def("evaluate_batch", &BoundEngine::EvaluateBatch, Released());
}

void BindAccess(PyEngine& bound) {
  bound.def("check_memory", &BoundEngine::CheckMemory, Released());
  bound.def_property_readonly("sharded_parameters",
                              [](BoundEngine& self) { return self.passes().ListSharded(); });
  bound.def(
      "set_buffers",
      [](BoundEngine& self, const std::vector<BufferTuple>& buffers) {
        ThrowIfError(self.passes().SetBuffers(MakeBuffers(buffers)));
      },
      Released());
  bound.def("get_tensor", &BoundEngine::GetTensor, Released());
  bound.def("set_tensor", &BoundEngine::SetTensor, Released());
  bound.def("export_parameters", &BoundEngine::Export, Released());
  bound.def("open_gathered", &BoundEngine::OpenGathered, Released());
  bound.def("close_gathered", &BoundEngine::CloseGathered, Released());
}

void BindSettings(PyEngine& bound) {
  bound.def_property_readonly("rates", &BoundEngine::Rates);
  bound.def("set_rates", &BoundEngine::SetRates);
  bound.def_property_readonly("loss_scale",
                              [](BoundEngine& self) { return self.api().loss_scale(); });
  bound.def_property_readonly("global_grad_norm",
                              [](BoundEngine& self) { return self.api().global_grad_norm(); });
  bound.def_property_readonly("was_step_applied",
                              [](BoundEngine& self) { return self.api().was_step_applied(); });
  bound.def_property_readonly("finished_steps",
                              [](BoundEngine& self) { return self.engine().finished_steps(); });
  bound.def_property_readonly("skipped_steps",
                              [](BoundEngine& self) { return self.api().skipped_steps(); });
  bound.def_property_readonly("micro_steps",
                              [](BoundEngine& self) { return self.api().micro_steps(); });
  bound.def_property_readonly("global_samples",
                              [](BoundEngine& self) { return self.api().global_samples(); });
  bound.def_property_readonly("batch_sizes", [](BoundEngine& self) {
    const config::BatchConfig& batch = self.api().batch_sizes();
    return std::make_tuple(batch.train_batch_size, batch.train_micro_batch_size_per_gpu,
                           batch.gradient_accumulation_steps);
  });
  bound.def("set_train_batch_size", [](BoundEngine& self, std::int64_t size) {
    ThrowIfError(self.api().set_train_batch_size(size));
  });
  bound.def("set_train_micro_batch_size", [](BoundEngine& self, std::int64_t size) {
    ThrowIfError(self.api().set_train_micro_batch_size(size));
  });
  bound.def_property_readonly("is_boundary", [](BoundEngine& self) {
    return self.api().is_gradient_accumulation_boundary();
  });
  bound.def("set_boundary", [](BoundEngine& self, bool is_boundary) {
    ThrowIfError(self.api().set_gradient_accumulation_boundary(is_boundary));
  });
  bound.def("enter_local_gradients", &BoundEngine::EnterLocalGradients);
  bound.def("leave_local_gradients", &BoundEngine::LeaveLocalGradients);
  bound.def_property_readonly("parameter_count",
                              [](BoundEngine& self) { return self.engine().parameter_count(); });
}

void BindState(PyEngine& bound) {
  bound.def("save", &BoundEngine::Save, py::arg("root"), py::arg("write_client"),
            py::arg("frozen") = true, Released());
  bound.def(
      "load",
      [](BoundEngine& self, const std::string& folder, bool weights, bool optimizer_state,
         bool progress, bool schedule, bool strict) {
        self.Load(folder, {.weights = weights,
                           .optimizer_state = optimizer_state,
                           .progress = progress,
                           .schedule = schedule,
                           .strict = strict});
      },
      py::arg("folder"), py::kw_only(), py::arg("weights") = true,
      py::arg("optimizer_state") = true, py::arg("progress") = true, py::arg("schedule") = true,
      py::arg("strict") = true, Released());
  bound.def(
      "offload_states",
      [](BoundEngine& self, const std::vector<zero::StateKind>& include) {
        ThrowIfError(self.api().offload_states(include));
      },
      Released());
  bound.def(
      "reload_states", [](BoundEngine& self) { ThrowIfError(self.api().reload_states()); },
      Released());
  bound.def(
      "empty_partition_cache",
      [](BoundEngine& self) { ThrowIfError(self.api().empty_partition_cache()); }, Released());
  bound.def_property_readonly("memory_bytes", &BoundEngine::MemoryBytes);
  bound.def("destroy", &BoundEngine::Destroy, Released());
}

void BindResults(py::module_& module) {
  py::class_<StepResult>(module, "StepResult")
      .def_readonly("boundary", &StepResult::boundary)
      .def_readonly("skipped", &StepResult::skipped)
      .def_readonly("overflow", &StepResult::overflow)
      .def_readonly("step", &StepResult::step)
      .def_readonly("loss", &StepResult::loss)
      .def_readonly("grad_norm", &StepResult::grad_norm)
      .def_readonly("lr", &StepResult::lr)
      .def_readonly("loss_scale", &StepResult::loss_scale)
      .def_readonly("samples", &StepResult::samples);
  py::enum_<zero::StateKind>(module, "StateKind")
      .value("optim_states", zero::StateKind::kOptimStates)
      .value("hp_params", zero::StateKind::kHpParams)
      .value("lp_params", zero::StateKind::kLpParams)
      .value("lp_grads", zero::StateKind::kLpGrads)
      .value("contiguous_grad_buffer", zero::StateKind::kContiguousGradBuffer);
}

}  // namespace

void BindCheckpoints(py::module_& module) {
  module.def(
      "read_weights",
      [](const std::string& folder) { return ValueOrThrow(checkpoint::ReadWeights(folder)); },
      Released());
}

void BindEngine(py::module_& module) {
  BindResults(module);
  // Returns whether an engine with the config has parameters without values between passes.
  module.def("shards_parameters", [](const std::string& config) {
    const config::ZeroConfig zero = CheckConfigHere(config).config.zero_optimization;
    return config::ShardingOf(zero, Process::Get().identity().world_size).parameters;
  });
  PyEngine bound(module, "Engine");
  bound.def(py::init<const std::vector<UnitTuple>&, const std::vector<BufferTuple>&,
                     const std::string&, const GroupRates&, const WriteValues&>(),
            py::arg("units"), py::arg("buffers"), py::arg("config"), py::arg("group_rates"),
            py::arg("write_first_values") = py::none(), Released());
  bound.def_property_readonly("warnings", &BoundEngine::warnings);
  BindPasses(bound);
  BindAccess(bound);
  BindSettings(bound);
  BindState(bound);
}

}  // namespace ds::python
