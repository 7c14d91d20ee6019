#include "runtime/engine/monitor.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>
#include <utility>

#include "runtime/base/files.h"
#include "runtime/base/host_name.h"
#include "runtime/checkpoint_format/crc32c.h"

namespace ds::engine {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "Train/Samples/";

// Formats a number as Python prints it.
std::string ShowNumber(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return nlohmann::json(value).dump();
}

class CsvMonitor : public Monitor {
 public:
  // Opens the files of the events that every step has.
  static StatusOr<std::unique_ptr<CsvMonitor>> Open(fs::path folder,
                                                    const std::vector<MonitorEvent>& events) {
    auto monitor = std::make_unique<CsvMonitor>(std::move(folder));
    for (const MonitorEvent& event : events) {
      DS_RETURN_IF_ERROR(monitor->OpenFile(event.name).status().WithContext("csv_monitor"));
    }
    return monitor;
  }
  explicit CsvMonitor(fs::path folder) : folder_(std::move(folder)) {}

  Status Write(const std::vector<MonitorEvent>& events, std::int64_t samples) override {
    for (const MonitorEvent& event : events) {
      DS_RETURN_IF_ERROR(WriteLine(event, samples).WithContext("csv_monitor"));
    }
    return OkStatus();
  }

 private:
  Status WriteLine(const MonitorEvent& event, std::int64_t samples) {
    DS_ASSIGN_OR_RETURN(AppendFile * file, OpenFile(event.name));
    return file->Append(std::to_string(samples) + "," + ShowNumber(event.value) + "\r\n");
  }
  StatusOr<AppendFile*> OpenFile(const std::string& event) {
    const auto found = files_.find(event);
    if (found != files_.end()) return &found->second;
    std::string name = event;
    std::replace(name.begin(), name.end(), '/', '_');
    const fs::path path = folder_ / (name + ".csv");
    std::error_code error;
    const bool goes_on = fs::exists(path, error) && fs::file_size(path, error) > 0;
    DS_ASSIGN_OR_RETURN(AppendFile file, AppendFile::Open(path));
    if (!goes_on) {
      DS_RETURN_IF_ERROR(file.Append("step," + event.substr(event.rfind('/') + 1) + "\r\n"));
    }
    return &files_.emplace(event, std::move(file)).first->second;
  }

  const fs::path folder_;
  std::map<std::string, AppendFile> files_;  // by event
};

template <typename Number>
std::string LittleEndian(Number number) {
  const auto bytes = std::bit_cast<std::array<char, sizeof(Number)>>(number);
  std::string text(bytes.begin(), bytes.end());
  if constexpr (std::endian::native == std::endian::big) std::reverse(text.begin(), text.end());
  return text;
}

// Fields of Protobuf's wire format. Field numbers are below 16.
std::string Varint(std::uint64_t value) {
  std::string text;
  for (; value >= 0x80; value >>= 7) text += static_cast<char>(value | 0x80);
  return text + static_cast<char>(value);
}
char FieldTag(int number, int wire_type) { return static_cast<char>(number << 3 | wire_type); }
std::string VarintField(int number, std::int64_t value) {
  return FieldTag(number, 0) + Varint(static_cast<std::uint64_t>(value));
}
std::string DoubleField(int number, double value) {
  return FieldTag(number, 1) + LittleEndian(value);
}
std::string FloatField(int number, float value) {
  return FieldTag(number, 5) + LittleEndian(value);
}
std::string BytesField(int number, std::string_view bytes) {
  return FieldTag(number, 2) + Varint(bytes.size()) + std::string(bytes);
}

// Returns a TFRecord: its length, the data, and a masked CRC-32C after each.
std::string MakeRecord(const std::string& data) {
  const auto checksum = [](std::string_view bytes) {
    return LittleEndian(std::rotr(checkpoint::Crc32c(bytes), 15) + 0xa282ead8U);
  };
  const std::string length = LittleEndian(std::uint64_t{data.size()});
  return length + checksum(length) + data + checksum(data);
}

// Writes tensorflow.Event messages: wall_time = 1, step = 2, file_version = 3, summary = 5. A
// summary's values are its fields 1, with tag = 1 and simple_value = 2.
class TensorBoardMonitor : public Monitor {
 public:
  static StatusOr<std::unique_ptr<TensorBoardMonitor>> Open(const fs::path& folder,
                                                            const Clock& clock) {
    const std::string name = "events.out.tfevents." +
                             std::to_string(clock.UnixNanos() / 1'000'000'000) + "." + HostName() +
                             "." + std::to_string(::getpid()) + ".0";
    DS_ASSIGN_OR_RETURN(AppendFile file, AppendFile::Open(folder / name));
    DS_RETURN_IF_ERROR(file.Append(MakeRecord(MakeTime(clock) + BytesField(3, "brain.Event:2"))));
    return std::make_unique<TensorBoardMonitor>(std::move(file), clock);
  }
  TensorBoardMonitor(AppendFile file, const Clock& clock) : file_(std::move(file)), clock_(clock) {}

  Status Write(const std::vector<MonitorEvent>& events, std::int64_t samples) override {
    std::string records;
    for (const MonitorEvent& event : events) {
      const std::string value =
          BytesField(1, event.name) + FloatField(2, static_cast<float>(event.value));
      records += MakeRecord(MakeTime(clock_) + VarintField(2, samples) +
                            BytesField(5, BytesField(1, value)));
    }
    return file_.Append(records);
  }

 private:
  static std::string MakeTime(const Clock& clock) {
    return DoubleField(1, static_cast<double>(clock.UnixNanos()) * 1e-9);
  }

  AppendFile file_;
  const Clock& clock_;
};

StatusOr<fs::path> MakeFolder(const config::StepMonitorConfig& config) {
  const fs::path folder = fs::path(config.output_path) / config.job_name;
  DS_RETURN_IF_ERROR(MakeDirectories(folder));
  return folder;
}

}  // namespace

std::vector<MonitorEvent> ListMonitorEvents(const config::DsConfig& config,
                                            const StepResult& result,
                                            const std::optional<PhaseTimes>& phases) {
  std::vector<MonitorEvent> events;
  const auto add = [&](std::string_view name, double value) {
    events.push_back({std::string(kPrefix) + std::string(name), value});
  };
  add("train_loss", result.loss);
  add("lr", result.lr);
  if (config.fp16.enabled) add("loss_scale", result.loss_scale);
  if (!phases) return events;
  const auto add_time = [&](std::string_view phase,
                            std::chrono::duration<double, std::milli> time) {
    add("elapsed_time_ms_" + std::string(phase), time.count());
  };
  add_time("forward", phases->forward);
  add_time("backward", phases->backward);
  add_time("backward_inner", phases->backward_inner);
  add_time("backward_allreduce", phases->backward_allreduce);
  add_time("step", phases->step);
  return events;
}

StatusOr<std::vector<std::unique_ptr<Monitor>>> OpenMonitors(const config::DsConfig& config,
                                                             const Clock& clock) {
  std::vector<std::unique_ptr<Monitor>> monitors;
  if (config.csv_monitor.enabled) {
    const StatusOr<fs::path> folder = MakeFolder(config.csv_monitor);
    if (!folder.ok()) return folder.status().WithContext("csv_monitor");
    DS_ASSIGN_OR_RETURN(auto monitor,
                        CsvMonitor::Open(*folder, ListMonitorEvents(config, {}, std::nullopt)));
    monitors.push_back(std::move(monitor));
  }
  if (config.tensorboard.enabled) {
    const StatusOr<fs::path> folder = MakeFolder(config.tensorboard);
    if (!folder.ok()) return folder.status().WithContext("tensorboard");
    DS_ASSIGN_OR_RETURN(auto monitor, TensorBoardMonitor::Open(*folder, clock));
    monitors.push_back(std::move(monitor));
  }
  return monitors;
}

}  // namespace ds::engine
