#include "cli/commands/estimate_job.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/estimate/prediction_text.h"
#include "cli/flags/flag_parser.h"
#include "cli/flags/number_checks.h"
#include "cli/plan/launch_plan.h"
#include "cli/train/find_model.h"
#include "runtime/base/exit_codes.h"
#include "runtime/base/files.h"
#include "runtime/base/gpu_signs.h"
#include "runtime/base/parse_number.h"
#include "runtime/base/printable.h"
#include "runtime/config/file/check_config.h"
#include "runtime/config/file/config_text.h"
#include "runtime/tokenizer/corpus/tokenizer_folder.h"

namespace ds::cli {
namespace {

// "80G" is 80 GiB.
StatusOr<std::int64_t> ParseBytes(const std::string& text) {
  const std::size_t digits = text.find_first_not_of("0123456789");
  const std::string unit = digits == std::string::npos ? "" : text.substr(digits);
  const int shift = unit.empty() ? 0 : unit == "M" ? 20 : unit == "G" ? 30 : unit == "T" ? 40 : -1;
  const auto count = ParseNumber<std::int64_t>(std::string_view(text).substr(0, digits));
  if (shift < 0 || !count || *count < 1 || *count > (std::int64_t{1} << 50 >> shift)) {
    return InvalidArgumentError("estimate: --memory " + text +
                                ": give bytes, for example 80G, 512M or 85899345920");
  }
  return *count << shift;
}

// As the ranks beside this program would, in this environment.
bool RanksHereFindGpus() {
  const auto program = FindOwnExecutable();
  if (!program.ok()) return false;
  const char* const folders = std::getenv("LD_LIBRARY_PATH");
  const char* const devices = std::getenv("CUDA_VISIBLE_DEVICES");
  return FindGpus(
      FindGpuSigns(program->parent_path() / "dsrank", folders == nullptr ? "" : folders,
                   devices == nullptr ? std::nullopt : std::optional<std::string>(devices)));
}

constexpr std::int64_t kMostRanks = std::int64_t{1} << 20;

// Fills in how many ranks there are, and where.
Status FindRanks(const EstimateJobFlags& flags, std::int64_t nodes, std::int64_t ranks_per_node,
                 Prediction* question) {
  zero::StepSetting& setting = question->job.setting;
  if (flags.launch.hostfile) {
    DS_ASSIGN_OR_RETURN(const LaunchPlan launch, PlanFromThisHost(flags.launch));
    question->hosts = static_cast<int>(launch.world.hosts.size());
    setting.ranks = launch.world.world_size();
    for (const JobHost& host : launch.world.hosts) {
      question->ranks_of_host = std::max(question->ranks_of_host, host.rank_count());
    }
  } else {
    if (nodes > kMostRanks / ranks_per_node) {
      return InvalidArgumentError("estimate: " + std::to_string(nodes) + " hosts with " +
                                  std::to_string(ranks_per_node) + " ranks each are more than " +
                                  std::to_string(kMostRanks) + " ranks");
    }
    question->hosts = static_cast<int>(nodes);
    question->ranks_of_host = static_cast<int>(ranks_per_node);
    setting.ranks = static_cast<int>(nodes * ranks_per_node);
  }
  setting.ranks_of_host = question->ranks_of_host;
  setting.on_gpu = flags.device == "cuda" || (flags.device == "auto" && RanksHereFindGpus());
  return OkStatus();
}

StatusOr<config::DsConfig> ReadConfig(const EstimateJobFlags& flags, const std::string& model,
                                      const ShareFolder& share, int ranks) {
  config::JobFacts facts{.world_size = ranks, .steps_come_later = true};
  facts.flags.per_device_train_batch_size = flags.micro_batch;
  facts.flags.tp = flags.tensor_ranks;
  DS_ASSIGN_OR_RETURN(facts.model, FindModelFacts(model, share));
  DS_ASSIGN_OR_RETURN(const config::ConfigText text,
                      config::ReadConfigText(flags.deepspeed_config));
  config::CheckResult checked = config::CheckConfig(text.text, text.name, facts);
  if (!checked.ok) return InvalidArgumentError(checked.errors.front().message);
  if (flags.micro_batch) {
    checked.config.batch.train_micro_batch_size_per_gpu = *flags.micro_batch;
  }
  return std::move(checked.config);
}

}  // namespace

void AddEstimateJobFlags(CLI::App& app, EstimateJobFlags* flags) {
  app.add_option(FlagNames("deepspeed_config"), flags->deepspeed_config,
                 "predict what each rank of this job will hold, and what would make it less")
      ->type_name("FILE");
  app.add_option(FlagNames("hostfile", "-H"), flags->launch.hostfile, "the job's hosts")
      ->type_name("FILE");
  app.add_option(FlagNames("micro_batch"), flags->micro_batch,
                 "samples of a rank at once (default: the config's)")
      ->check(WholeNumber(1, 1 << 24))
      ->type_name("N");
  app.add_option(FlagNames("seq_len"), flags->seq_len, "tokens of a sample (default: 256)")
      ->check(WholeNumber(1, 1 << 24))
      ->type_name("S");
  app.add_option(FlagNames("recompute"), flags->recompute, "as for train (default: none)")
      ->type_name("none|full|attention|every:N");
  app.add_option(FlagNames("tile_mlp"), flags->mlp_tiles, "as for train (default: 1)")
      ->check(WholeNumber(1))
      ->type_name("N");
  app.add_option(FlagNames("tp"), flags->tensor_ranks, "as for train (default: the config's)")
      ->check(WholeNumber(1))
      ->type_name("N");
  app.add_option(FlagNames("device"), flags->device, "where the ranks compute (default: auto)")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}).description(""))
      ->type_name("auto|cpu|cuda");
  app.add_option(FlagNames("memory"), flags->memory,
                 "what a rank may have, of its GPU or of its host: says what fits")
      ->type_name("BYTES");
}

StatusOr<int> EstimateJob(const EstimateJobFlags& flags, const std::string& model,
                          std::int64_t nodes, std::int64_t ranks_per_node, bool json) {
  DS_ASSIGN_OR_RETURN(const ShareFolder share, ShareFolder::OfThisProgram());
  DS_ASSIGN_OR_RETURN(const std::filesystem::path path, FindModel(model, share));
  Prediction question;
  DS_ASSIGN_OR_RETURN(question.job.model, ReadJobModel(path));
  question.job.seq_len = flags.seq_len;
  question.job.packs_documents = tokenizer::HasTokenizer(path);  // as train cuts texts
  question.job.mlp_tiles = flags.mlp_tiles;
  DS_ASSIGN_OR_RETURN(question.job.recompute, config::ParseRecompute(flags.recompute));
  DS_RETURN_IF_ERROR(FindRanks(flags, nodes, ranks_per_node, &question));
  DS_ASSIGN_OR_RETURN(question.config, ReadConfig(flags, model, share, question.job.setting.ranks));
  DS_RETURN_IF_ERROR(engine::CheckMemoryIsKnown(question.config, question.job));
  if (!flags.memory.empty()) {
    DS_ASSIGN_OR_RETURN(question.room, ParseBytes(flags.memory));
  }
  const Prediction prediction = MakePrediction(std::move(question));
  if (json) {
    std::cout << ToJson(prediction).dump() << std::endl;
  } else {
    std::cout << Printable(ToText(prediction)) << std::flush;
  }
  return kExitOk;
}

}  // namespace ds::cli
