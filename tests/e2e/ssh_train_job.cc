#include "tests/e2e/ssh_train_job.h"

#include "runtime/base/files.h"
#include "tests/e2e/dsrun.h"
#include "tests/places.h"

namespace ds::testing {

std::vector<std::string> SshTrainJob::Train(int stage, bool bf16, int steps) {
  nlohmann::json config = {
      {"train_micro_batch_size_per_gpu", 1},
      {"gradient_accumulation_steps", 1},
      {"bf16", {{"enabled", bf16}}},
      {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 1e-3}}}}},
      {"zero_optimization", {{"stage", stage}, {"overlap_comm", overlap_comm_}}},
  };
  config["zero_optimization"].update(zero_.is_null() ? nlohmann::json::object() : zero_);
  const std::filesystem::path path = folder() / "ds.json";
  EXPECT_TRUE(WriteFileAtomically(path, config.dump()).ok());
  return {"train",
          "--model",
          "gpt2-demo",
          "--data",
          DS_SOURCE_DIR "/LICENSE",
          "--deepspeed_config",
          path.string(),
          "--seq_len",
          "32",
          "--steps",
          std::to_string(steps)};
}

std::vector<std::string> SshTrainJob::OnHosts(const std::vector<std::string>& words,
                                              const std::vector<std::string>& flags) {
  return Dsrun({"--hostfile", (folder() / "hosts").string()}, flags, words);
}

std::vector<std::string> SshTrainJob::OnThisHost(int ranks, const std::vector<std::string>& words) {
  return Dsrun({"--num_gpus", std::to_string(ranks)}, {}, words);
}

std::vector<std::string> SshTrainJob::Dsrun(const std::vector<std::string>& where,
                                            const std::vector<std::string>& flags,
                                            const std::vector<std::string>& words) {
  ++jobs_;
  std::vector<std::string> command = {DS_BIN_DIR "/dsrun", "--device",  "cpu",         "-x",
                                      "OMP_NUM_THREADS=1", "--run_dir", job().string()};
  for (const auto* part : {&where, &flags, &words}) {
    command.insert(command.end(), part->begin(), part->end());
  }
  return command;
}

ProgramResult SshTrainJob::RunJob(const std::vector<std::string>& command) {
  return RunProgram(command, {.environment = hosts().Environment(), .working_directory = folder()});
}

std::unique_ptr<Program> SshTrainJob::StartJob(const std::vector<std::string>& command) {
  auto dsrun = std::make_unique<Program>(
      command, ProgramOptions{.environment = hosts().Environment(), .working_directory = folder()});
  EXPECT_TRUE(dsrun->WaitForOutput("step 1")) << dsrun->out() << dsrun->err();
  return dsrun;
}

std::unique_ptr<Program> SshTrainJob::Start(const std::vector<std::string>& flags, int slots) {
  WriteHostfile(slots);
  return StartJob(OnHosts(Train(0, false, 1000000), flags));
}

std::vector<double> SshTrainJob::Losses() {
  return Column(ReadJsonLines(job() / "metrics.jsonl"), "loss");
}

nlohmann::json SshTrainJob::JobVerdict() const {
  const auto text = ReadFile(job() / "verdict.json");
  return text.ok() ? nlohmann::json::parse(*text) : nlohmann::json::object();
}

}  // namespace ds::testing
