#include "runtime/autograd/run_state.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/autocast_mode.h>

#include <mutex>
#include <utility>

namespace ds::activation {
namespace {

at::Tensor ReadGenerator(at::Generator generator) {
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

void WriteGenerator(at::Generator generator, const at::Tensor& state) {
  const std::lock_guard lock(generator.mutex());
  generator.set_state(state);
}

}  // namespace

RunState::RunState(c10::Device device) : device_(device), draws_(ReadDraws(device)) {
  if (at::autocast::is_autocast_enabled(device.type())) {
    autocast_ = at::autocast::get_autocast_dtype(device.type());
  }
}

RunState::Draws RunState::ReadDraws(c10::Device device) {
  Draws draws{.cpu = ReadGenerator(at::detail::getDefaultCPUGenerator())};
  if (device != c10::kCPU) {
    draws.other = ReadGenerator(at::globalContext().defaultGenerator(device));
  }
  return draws;
}

void RunState::WriteDraws(const Draws& draws, c10::Device device) {
  WriteGenerator(at::detail::getDefaultCPUGenerator(), draws.cpu);
  if (draws.other.defined()) {
    WriteGenerator(at::globalContext().defaultGenerator(device), draws.other);
  }
}

RunState::ReplayOfDraws::ReplayOfDraws(const Draws& from, c10::Device device)
    : device_(device), before_(ReadDraws(device)) {
  WriteDraws(from, device);
}

RunState::ReplayOfDraws::~ReplayOfDraws() { WriteDraws(before_, device_); }

}  // namespace ds::activation
