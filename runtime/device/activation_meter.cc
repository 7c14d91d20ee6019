#include "runtime/device/activation_meter.h"

#include <c10/core/CachingDeviceAllocator.h>

#include <algorithm>

#include "runtime/base/check.h"
#include "runtime/device/counting_allocator.h"

namespace ds::device {
namespace {

c10::DeviceAllocator* FindDeviceAllocator(c10::Device device) {
  return dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(device.type()));
}

HeldBytes ReadStats(c10::Device device) {
  const auto stats = FindDeviceAllocator(device)->getDeviceStats(device.index());
  const auto all = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return {.bytes = stats.allocated_bytes[all].current, .peak = stats.allocated_bytes[all].peak};
}

}  // namespace

bool ActivationMeter::Counts(c10::Device device) {
  return device.is_cpu() ? CountingAllocator::Find() != nullptr
                         : FindDeviceAllocator(device) != nullptr;
}

ActivationMeter::ActivationMeter(MemoryLedger& ledger, c10::Device device)
    : ledger_(ledger), device_(device) {
  DS_CHECK(Counts(device));
  if (device.is_cpu()) {
    counting_ = CountingAllocator::Find();
    counting_->CompareWith(&ledger);
  }
  Mark();
  allocated_.peak = allocated_.bytes;
}

ActivationMeter::~ActivationMeter() {
  if (counting_ != nullptr) counting_->CompareWith(nullptr);
}

ActivationMeter::Reading ActivationMeter::Read() const {
  const std::int64_t booked = ledger_.BookedBytes(TierOf(device_.is_cpu()));
  Reading reading;
  if (counting_ != nullptr) {
    reading.allocated = {.bytes = counting_->BytesOut(), .peak = counting_->PeakBytesOut()};
    reading.activations.peak = counting_->PeakBeyondLedger();
  } else {
    reading.allocated = ReadStats(device_);
    reading.activations.peak = reading.allocated.peak - std::max(booked, booked_);
  }
  // Memory freed recently may still be booked.
  reading.activations.bytes = std::max<std::int64_t>(0, reading.allocated.bytes - booked);
  reading.activations.peak = std::max(reading.activations.peak, reading.activations.bytes);
  return reading;
}

ActivationMeter::Reading ActivationMeter::Mark() {
  const Reading reading = Read();
  const MemoryTier tier = TierOf(device_.is_cpu());
  ledger_.Set(MemoryUse::kActivations, tier, reading.activations.bytes);
  ledger_.RaisePeak(MemoryUse::kActivations, tier, reading.activations.peak);
  booked_ = ledger_.BookedBytes(tier);
  allocated_ = {.bytes = reading.allocated.bytes,
                .peak = std::max(allocated_.peak, reading.allocated.peak)};
  if (counting_ != nullptr) {
    counting_->ResetPeak();
  } else {
    FindDeviceAllocator(device_)->resetPeakStats(device_.index());
  }
  return reading;
}

}  // namespace ds::device
