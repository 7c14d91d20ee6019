// csv_monitor and tensorboard: what the files of a run say, as their readers read it.

#include "runtime/engine/monitor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <limits>

#include "runtime/base/files.h"
#include "runtime/checkpoint_format/crc32c.h"
#include "runtime/comm/communicator.h"
#include "tests/ranks/tiny_model.h"
#include "tests/support/program.h"
#include "tests/support/rank_harness.h"

namespace ds::tests {
namespace {

namespace fs = std::filesystem;
using engine::ListMonitorEvents;
using engine::MonitorEvent;
using ::testing::ElementsAre;

std::vector<std::string> NamesOf(const std::vector<MonitorEvent>& events) {
  std::vector<std::string> names;
  for (const MonitorEvent& event : events)
    names.push_back(event.name.substr(event.name.rfind('/')));
  return names;
}

TEST(MonitorEvents, AreDeepSpeeds) {
  config::DsConfig config;
  EXPECT_EQ(ListMonitorEvents(config, {.loss = 2.0}, {})[0].name, "Train/Samples/train_loss");
  EXPECT_EQ(ListMonitorEvents(config, {.loss = 2.0}, {})[0].value, 2.0);
  EXPECT_THAT(NamesOf(ListMonitorEvents(config, {}, {})), ElementsAre("/train_loss", "/lr"));
  config.fp16.enabled = true;
  const auto all =
      ListMonitorEvents(config, {}, engine::PhaseTimes{.forward = std::chrono::microseconds(1500)});
  EXPECT_THAT(NamesOf(all),
              ElementsAre("/train_loss", "/lr", "/loss_scale", "/elapsed_time_ms_forward",
                          "/elapsed_time_ms_backward", "/elapsed_time_ms_backward_inner",
                          "/elapsed_time_ms_backward_allreduce", "/elapsed_time_ms_step"));
  EXPECT_EQ(all[3].value, 1.5);
}

TEST(CsvMonitor, HasAFileForEachNumber) {
  const testing::TemporaryFolder folder;
  config::DsConfig config;
  config.csv_monitor = {
      .enabled = true, .output_path = (folder.path() / "logs").string(), .job_name = "run"};
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double loss : {0.5, nan}) {  // the second goes on with the first one's files
    const auto monitors = engine::OpenMonitors(config).value();
    ASSERT_EQ(monitors.size(), 1U);
    ASSERT_TRUE(monitors[0]->Write({{"Train/Samples/lr", 1e-05}, {"loss", loss}}, 4).ok());
    ASSERT_TRUE(monitors[0]->Write({{"loss", 0.25}}, 8).ok());
  }
  EXPECT_EQ(ReadFile(folder.path() / "logs/run/Train_Samples_lr.csv").value(),
            "step,lr\r\n4,1e-05\r\n4,1e-05\r\n");
  EXPECT_EQ(ReadFile(folder.path() / "logs/run/loss.csv").value(),
            "step,loss\r\n4,0.5\r\n8,0.25\r\n4,nan\r\n8,0.25\r\n");
}

TEST(Monitors, AreRefusedWhereTheyCannotBeWritten) {
  const testing::TemporaryFolder folder;
  ASSERT_TRUE(WriteFileAtomically(folder.path() / "file", "no folder").ok());
  config::DsConfig config;
  config.tensorboard = {.enabled = true, .output_path = (folder.path() / "file").string()};
  EXPECT_THAT(engine::OpenMonitors(config).status().message(),
              ::testing::StartsWith("tensorboard: "));
  config.tensorboard = {};
  // A folder where a file should be: seen before the first step.
  ASSERT_TRUE(MakeDirectories(folder.path() / "logs/run/Train_Samples_lr.csv").ok());
  config.csv_monitor = {
      .enabled = true, .output_path = (folder.path() / "logs").string(), .job_name = "run"};
  EXPECT_THAT(engine::OpenMonitors(config).status().message(),
              ::testing::StartsWith("csv_monitor: "));
}

// A number of the wire, and what stands behind it.
template <typename Number>
Number Take(std::string* bytes) {
  Number number{};
  std::memcpy(&number, bytes->data(), sizeof(number));
  bytes->erase(0, sizeof(number));
  return number;
}

// The data of the first record, whose checksums must fit.
std::string TakeRecord(std::string* bytes) {
  const auto masked = [](const std::string& text) {
    const std::uint32_t crc = checkpoint::Crc32c(text);
    return static_cast<std::uint32_t>(((crc >> 15) | (crc << 17)) + 0xa282ead8U);
  };
  const std::string length_bytes = bytes->substr(0, 8);
  const auto length = Take<std::uint64_t>(bytes);
  EXPECT_EQ(Take<std::uint32_t>(bytes), masked(length_bytes));
  std::string data = bytes->substr(0, length);
  bytes->erase(0, length);
  EXPECT_EQ(Take<std::uint32_t>(bytes), masked(data));
  return data;
}

TEST(TensorBoardMonitor, WritesRecordsOfEvents) {
  const testing::TemporaryFolder folder;
  config::DsConfig config;
  config.tensorboard = {.enabled = true, .output_path = folder.path().string(), .job_name = "run"};
  ManualClock clock;
  clock.Advance(std::chrono::milliseconds(1500));
  const auto monitors = engine::OpenMonitors(config, clock).value();
  ASSERT_TRUE(monitors[0]->Write({{"a/b", 0.5}}, 300).ok());
  const fs::path file = *fs::directory_iterator(folder.path() / "run");
  EXPECT_THAT(file.filename().string(), ::testing::StartsWith("events.out.tfevents.1."));
  std::string bytes = ReadFile(file).value();
  const std::string time("\x09\0\0\0\0\0\0\xf8\x3f", 9);  // 1.5
  EXPECT_EQ(TakeRecord(&bytes), time +
                                    "\x1a\x0d"
                                    "brain.Event:2");
  EXPECT_EQ(TakeRecord(&bytes), time +
                                    "\x10\xac\x02"
                                    "\x2a\x0c\x0a\x0a\x0a\x03"
                                    "a/b" +
                                    std::string("\x15\0\0\0\x3f", 5));
  EXPECT_EQ(bytes, "");
}

TEST(Monitors, ReportEachStepOfARun) {
  const testing::TemporaryFolder folder;
  testing::RunRanks(2, [&](comm::Communicator& world) {
    const TinyRun run{.stage = 1, .accumulation = 2};
    config::DsConfig config = TinyConfig(run);
    config.csv_monitor = {
        .enabled = true, .output_path = folder.path().string(), .job_name = "run"};
    const auto engine =
        Engine::create(MakeTinyModel(run.shape, at::kFloat), config, {.world = &world}).value();
    const std::vector<StepResult> steps = TrainTiny(*engine, run, 2);
    if (world.rank() != 0) return;
    const std::string losses = ReadFile(folder.path() / "run/Train_Samples_train_loss.csv").value();
    const auto line = [](std::int64_t samples, double loss) {
      return std::to_string(samples) + "," + nlohmann::json(loss).dump() + "\r\n";
    };
    EXPECT_EQ(losses, "step,train_loss\r\n" + line(steps[0].samples, steps[0].loss) +
                          line(steps[0].samples + steps[1].samples, steps[1].loss));
  });
}

}  // namespace
}  // namespace ds::tests
