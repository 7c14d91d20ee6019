#include "runtime/zero/undeclared_reads.h"

#include <ATen/record_function.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <map>
#include <optional>

namespace ds::zero {

// The state of the observer, a plain function, which finds it through the thread.
struct UndeclaredReads::Watch : c10::DebugInfoBase {
  static constexpr auto kKind = c10::DebugInfoKind::PRODUCER_INFO;

  struct Buffer {
    int unit = 0;
    const FlatParameters* parameters = nullptr;
  };
  std::map<const c10::StorageImpl*, Buffer> others;  // undeclared parameters of other units
  struct UndeclaredRead {
    int unit = 0;
    std::string parameter;
  };
  std::optional<UndeclaredRead> found;

  void Look(const at::Tensor& tensor) {
    if (found || !tensor.defined() || !tensor.has_storage()) return;
    const auto other = others.find(tensor.storage().unsafeGetStorageImpl());
    if (other == others.end()) return;
    const auto& [unit, parameters] = other->second;
    const FlatLayout& layout = parameters->layout();
    int i = 0;
    while (i + 1 < layout.size() && layout.parameter(i + 1).start <= tensor.storage_offset()) ++i;
    found = {unit, parameters->parameter(i).name};
  }

  static std::unique_ptr<at::ObserverContext> Observe(const at::RecordFunction& function) {
    auto* const watch = static_cast<Watch*>(c10::ThreadLocalDebugInfo::get(kKind));
    if (watch == nullptr) return nullptr;
    for (const c10::IValue& input : function.inputs()) {
      if (input.isTensor()) watch->Look(input.toTensor());
      if (!input.isTensorList()) continue;
      for (const at::Tensor& tensor : input.toTensorVector()) watch->Look(tensor);
    }
    return nullptr;
  }
};

struct UndeclaredReads::Installed {
  explicit Installed(const std::shared_ptr<Watch>& watch)
      : info(Watch::kKind, watch),
        callback(at::addThreadLocalCallback(
            at::RecordFunctionCallback(Watch::Observe).needsInputs(true))) {}
  ~Installed() { at::removeCallback(callback); }
  Installed(const Installed&) = delete;
  Installed& operator=(const Installed&) = delete;

  c10::DebugInfoGuard info;
  at::CallbackHandle callback;
};

UndeclaredReads::UndeclaredReads(const ShardedModel& model, int index)
    : model_(model), index_(index), watch_(std::make_shared<Watch>()) {
  const std::vector<int>& declared = model.units()[static_cast<std::size_t>(index)]->also_reads();
  for (int unit = 0; unit < static_cast<int>(model.units().size()); ++unit) {
    if (unit == index || std::find(declared.begin(), declared.end(), unit) != declared.end()) {
      continue;
    }
    for (const auto& bucket : model.units()[static_cast<std::size_t>(unit)]->buckets()) {
      const FlatParameters& parameters = bucket->parameters();
      watch_->others[parameters.full().storage().unsafeGetStorageImpl()] = {unit, &parameters};
      for (int i = 0; i < parameters.layout().size(); ++i) {  // of a released one, its guard
        const at::Tensor& tensor = parameters.parameter(i).tensor;
        watch_->others[tensor.storage().unsafeGetStorageImpl()] = {unit, &parameters};
      }
    }
  }
  installed_ = std::make_unique<Installed>(watch_);
}

UndeclaredReads::~UndeclaredReads() = default;

std::string UndeclaredReads::Describe() const {
  if (!watch_->found) return "";
  const auto& [unit, parameter] = *watch_->found;
  const std::string& name = model_.units()[static_cast<std::size_t>(unit)]->name();
  return model_.units()[static_cast<std::size_t>(index_)]->name() + " reads the parameter " +
         parameter + " of " + name + ", which is not gathered then: " +
         (unit < index_ ? "name that block in also_reads of this one (BlockList::Add)"
                        : "give it to the first block that reads it, and name that one in "
                          "also_reads of the others (BlockList::Add)");
}

}  // namespace ds::zero
