#include "cli/estimate/prediction_text.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "runtime/base/byte_size.h"

namespace ds::cli {
namespace {

std::string ShowSize(std::int64_t bytes) { return ByteSize(static_cast<std::uint64_t>(bytes)); }

std::string Count(std::int64_t count, const char* noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

const char* TypeName(config::DataType type) {
  switch (type) {
    case config::DataType::kBf16:
      return "bf16";
    case config::DataType::kFp16:
      return "fp16";
    case config::DataType::kFp32:
      break;
  }
  return "fp32";
}

std::string DescribeRoom(const Prediction& prediction) {
  if (!prediction.room) {
    return "give --memory BYTES, what a rank may have, to be told what fits\n";
  }
  std::string text = fmt::format("{} in {}", prediction.fits() ? "fits" : "does NOT fit",
                                 ShowSize(*prediction.room));
  if (prediction.largest_micro_batch == 0) return text + ", with any micro-batch\n";
  return text +
         fmt::format("; the largest micro-batch that does: {}\n", prediction.largest_micro_batch);
}

}  // namespace

Prediction MakePrediction(Prediction question) {
  question.rank = PredictMemory(question.config, question.job);
  question.changes = ListChanges(question.config, question.job);
  if (question.room) {
    question.largest_micro_batch = LargestMicroBatch(question.config, question.job, *question.room);
  }
  return question;
}

std::string ToText(const Prediction& prediction) {
  const MemoryPrediction& rank = prediction.rank;
  const zero::HeldMemory& peak = rank.step.peak;
  const char* const tier = rank.on_gpu ? "on its GPU" : "on its host";
  std::string text = fmt::format(
      "{} on {}, {} x {} tokens a micro-batch, {}, ZeRO stage {}\n\n"
      "what each rank holds {} at the most, in {}:\n",
      Count(prediction.job.setting.ranks, "rank"), Count(prediction.hosts, "host"),
      prediction.config.batch.train_micro_batch_size_per_gpu, prediction.job.seq_len,
      TypeName(prediction.config.training_dtype()), prediction.config.zero_optimization.stage, tier,
      rank.step.when);
  const auto row = [&](const char* name, std::int64_t bytes) {
    text += fmt::format("  {:<18}{:>11}\n", name, ShowSize(bytes));
  };
  row("parameters", peak.parameters);
  row("gradients", peak.gradients);
  row("optimizer state", peak.optimizer_state);
  row("master weights", peak.master_weights);
  row("buffers of ZeRO", peak.comm_buffers);
  row("activations", peak.activations);
  if (peak.other > 0) row("the optimizer's", peak.other);
  const zero::AwayMemory& away = rank.step.away;
  if (!rank.on_gpu && away.file_buffers > 0) row("buffers for files", away.file_buffers);
  if (!rank.on_gpu) row("the program", rank.process_bytes);
  row("together", rank.bytes());
  if (rank.on_gpu) {
    text += fmt::format("and {} of its host for the program\n", ShowSize(rank.process_bytes));
    if (away.host > 0) text += fmt::format("and {} there of state\n", ShowSize(away.host));
  }
  if (away.files > 0) text += fmt::format("and {} in files\n", ShowSize(away.files));
  text += fmt::format("a host with {}: {}\n\n", Count(prediction.ranks_of_host, "rank"),
                      ShowSize(prediction.host_bytes()));
  text += DescribeRoom(prediction);
  if (!prediction.changes.empty()) text += "\nless with\n";
  for (const Change& change : prediction.changes) {
    text += fmt::format("  {:<48}{:>11}\n", change.what, ShowSize(change.bytes));
  }
  return text;
}

nlohmann::ordered_json ToJson(const Prediction& prediction) {
  const MemoryPrediction& rank = prediction.rank;
  nlohmann::ordered_json json = {
      {"ranks", prediction.job.setting.ranks},
      {"hosts", prediction.hosts},
      {"micro_batch", prediction.config.batch.train_micro_batch_size_per_gpu},
      {"seq_len", prediction.job.seq_len},
      {"stage", prediction.config.zero_optimization.stage},
      {"tier", rank.on_gpu ? "device" : "host"},
      {"planned", engine::ToJson(rank.step)},
      {"process", rank.process_bytes},
      {"rank_device", rank.device_bytes()},
      {"rank_host", rank.host_bytes()},
      {"host", prediction.host_bytes()}};
  if (prediction.room) {
    json["room"] = *prediction.room;
    json["fits"] = prediction.fits();
    json["largest_micro_batch"] = prediction.largest_micro_batch;
  }
  json["changes"] = nlohmann::ordered_json::array();
  for (const Change& change : prediction.changes) {
    json["changes"].push_back({{"change", change.what}, {"bytes", change.bytes}});
  }
  return json;
}

}  // namespace ds::cli
