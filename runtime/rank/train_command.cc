#include "runtime/rank/commands.h"

#include <c10/core/TensorOptions.h>

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/base/exit_codes.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/shared_folder.h"
#include "runtime/checkpoint_format/manifest.h"
#include "runtime/comm/agreement.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/join_job.h"
#include "runtime/config/file/check_config.h"
#include "runtime/device/dtype_policy.h"
#include "runtime/device/rank_device.h"
#include "runtime/engine/deepspeed_api.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/loop/best_evaluation.h"
#include "runtime/engine/loop/evaluate.h"
#include "runtime/engine/loop/train_loop.h"
#include "runtime/engine/make_mesh.h"
#include "runtime/models/weights/model_config.h"
#include "runtime/plan/memory/expert_rules.h"
#include "runtime/plan/model/model_ranks.h"
#include "runtime/rank/best_model.h"
#include "runtime/rank/rank_memory.h"
#include "runtime/rank/seen_tokens.h"
#include "runtime/rank/step_report.h"
#include "runtime/rank/torch_boundary.h"
#include "runtime/rank/train_data.h"
#include "runtime/rank/train_model.h"

namespace ds::rank {
namespace {

// TrainCommand: runs a job from its description to its end. Its phases run in order and share the
// members.
class TrainCommand : public engine::TrainLoopObserver {
 public:
  TrainCommand(const config::TrainJob& job, const comm::RankIdentity& identity,
               RankReporter& reporter)
      : job_(job),
        identity_(identity),
        reporter_(reporter),
        lineage_{.generation = identity.generation, .past = {}, .start = job.start} {}

  void Run();

  void OnStep(const StepResult& result, double seconds) override;
  void OnCheckpoint(std::int64_t step, const std::filesystem::path& path) override;
  void OnRewind(const StepResult& result, const std::filesystem::path& checkpoint) override;

 private:
  [[noreturn]] void EndWithFailure(const Failure& failure);

  Status CheckJob();
  Status ReadConfig();  // runs again once the number of steps is known, for values of "auto"
  Status Connect();
  Status BuildEngine();
  Status OpenData();
  Status TryEvaluation();
  Status TryExport();
  Status Resume();
  Status PlaceData(const checkpoint::Manifest& manifest);
  Status Train();
  Status ExportModel();
  ModelExport model_export() const { return {job_, model_config_, model_}; }
  engine::TrainLoopOptions LoopOptions();
  StatusOr<Bundle> ReadBatch(data::BatchStream& stream);
  StatusOr<engine::Evaluation> Evaluate();
  void ReportRunEnd(const std::string& early);
  auto sequence_kind() const { return models::ParseSequenceKind(job_.sequence_kind).value(); }

  const config::TrainJob& job_;
  const comm::RankIdentity& identity_;
  RankReporter& reporter_;
  config::DsConfig config_;
  SeenTokens seen_tokens_;  // for training
  models::ModelConfig model_config_;
  topology::Mesh mesh_;
  engine::StageOrder order_;
  std::optional<models::StageBlocks> part_;  // of the model; none: this rank has all blocks
  device::RankDevice device_;
  RankMemory memory_;
  std::unique_ptr<comm::Communicator> world_;
  TrainModel model_;
  std::unique_ptr<Engine> engine_;
  TrainData data_;
  engine::BestEvaluation best_;
  std::vector<checkpoint::Stateful*> parts_;
  checkpoint::Lineage lineage_;
  comm::Traffic traffic_;                              // before the current step
  std::int64_t total_steps_ = 0, finished_steps_ = 0;  // of the run
  std::optional<int> exit_code_of_cause_;  // of a failure with a status other than its phase's
};

engine::NonFinitePolicy ParsePolicy(const std::string& name) {
  if (name == "skip") return engine::NonFinitePolicy::kSkip;
  if (name == "rewind") return engine::NonFinitePolicy::kRewind;
  return name == "stop" ? engine::NonFinitePolicy::kStop : engine::NonFinitePolicy::kAsConfigured;
}

struct Phase {
  const char* name;  // shown to the user while it runs
  int exit_code;     // after a failure of the phase
  Status (TrainCommand::*run)();
  const char* hint;
};

// Ends the process at once. If it left the process group in good order, or sent the others the
// cause, they would fail while this process is alive, and one of them could end earlier and be
// blamed.
void TrainCommand::EndWithFailure(const Failure& failure) {
  reporter_.ReportError(failure);
  std::fflush(nullptr);
  std::_Exit(failure.exit_code);
}

void TrainCommand::Run() {
  const Phase phases[] = {
      {"check the job", kExitUsage, &TrainCommand::CheckJob, ""},
      {"connect the ranks", kExitFailure, &TrainCommand::Connect, ""},
      {"open the data", kExitUsage, &TrainCommand::OpenData, ""},
      {"build the model", kExitUsage, &TrainCommand::BuildEngine, ""},
      {"try the data to evaluate on", kExitUsage, &TrainCommand::TryEvaluation, ""},
      {"try the folder of --save_hf", kExitUsage, &TrainCommand::TryExport, ""},
      {"load the checkpoint", kExitCheckpoint, &TrainCommand::Resume,
       "`dsrun checkpoint verify DIR` names the damage"},
      {"train", kExitFailure, &TrainCommand::Train, ""},
      {"write the model", kExitFailure, &TrainCommand::ExportModel, ""}};
  for (const Phase& phase : phases) {
    reporter_.ReportPhase(phase.name, total_steps_);
    const Status status = AtTorchBoundary([&] { return (this->*phase.run)(); });
    if (IsOutOfMemory(status)) {
      EndWithFailure({.status = status.WithContext(phase.name),
                      .exit_code = kExitFailure,
                      .hint = kMemoryHint});
    }
    if (!status.ok()) {
      EndWithFailure({.status = status,
                      .exit_code = exit_code_of_cause_.value_or(phase.exit_code),
                      .hint = phase.hint,
                      .absence = world_ ? world_->absence() : comm::Absence()});
    }
  }
  reporter_.ReportEnd({{"steps", finished_steps_}});
}

Status TrainCommand::ReadConfig() {
  config::JobFacts facts{.world_size = identity_.world_size, .steps_come_later = true};
  if (total_steps_ > 0) facts.total_steps = total_steps_;
  if (job_.steps == 0 && job_.warmup_share > 0.0) facts.flags.warmup_steps = job_.warmup_share;
  config::CheckResult checked = config::CheckConfig(job_.ds_config, "ds_config", facts);
  if (!checked.ok) return InvalidArgumentError(checked.errors.front().message);
  const bool is_news = job_.steps == 0 && identity_.rank == 0 && !checked.early_end.empty();
  if (is_news) reporter_.ReportNotice(checked.early_end);
  config_ = std::move(checked.config);
  seen_tokens_ = SeenTokens(std::move(checked.data_efficiency));
  return OkStatus();
}

Status TrainCommand::CheckJob() {
  DS_RETURN_IF_ERROR(ReadConfig());
  DS_ASSIGN_OR_RETURN(model_config_, models::ReadModelConfig(job_.model));
  DS_RETURN_IF_ERROR(engine::TakeMoeSection(config_.moe, &model_config_.decoder));
  DS_RETURN_IF_ERROR(engine::TakeBalance(job_.router_aux_loss_coef, &model_config_.decoder));
  const topology::Degrees degrees = engine::DegreesOf(config_, identity_.world_size);
  DS_RETURN_IF_ERROR(
      CheckFitsModel(degrees, config::ReadModelFacts(model_config_.json.dump(), job_.model)));
  DS_ASSIGN_OR_RETURN(mesh_, engine::MakeMesh(degrees, config_, identity_.world_size));
  DS_RETURN_IF_ERROR(models::CheckModelRanks(model_config_.decoder, degrees.tensor,
                                             degrees.sequence, degrees.expert, sequence_kind()));
  DS_RETURN_IF_ERROR(
      models::CheckSampleParts(job_.seq_len, degrees.sequence, sequence_kind(), job_.sp_chunk));
  DS_ASSIGN_OR_RETURN(order_, engine::ParseStageOrder(job_, config_));
  DS_ASSIGN_OR_RETURN(part_, engine::FindStageBlocks(mesh_, identity_.rank, model_config_.decoder,
                                                     config_, order_));
  DS_ASSIGN_OR_RETURN(const device::DeviceChoice choice, device::DeviceChoiceFromName(job_.device));
  DS_ASSIGN_OR_RETURN(device_, device::OpenRankDevice(choice, identity_.local_rank));
  memory_.Open(device_.device);
  return OkStatus();
}

Status TrainCommand::Connect() {
  DS_ASSIGN_OR_RETURN(world_, comm::JoinJob(identity_, device_, reporter_.link(), job_.encrypt));
  return OkStatus();
}

Status TrainCommand::BuildEngine() {
  const models::ModelRanks ranks = engine::FindModelRanks(
      mesh_, *world_, sequence_kind(), config_.parallel.tensor_sums_overlap, job_.sp_chunk);
  const at::TensorOptions weights(precision::MakeDtypePolicy(config_).parameter);
  DS_ASSIGN_OR_RETURN(
      model_, OpenTrainModel(job_, model_config_, weights.device(device_.device), ranks, part_));
  DS_RETURN_IF_ERROR(seen_tokens_.Prepare(*model_.blocks, model_config_.decoder, job_.seq_len));
  DS_ASSIGN_OR_RETURN(const auto recompute, config::ParseRecompute(job_.recompute));
  EngineOptions options{.world = world_.get(),
                        .degrees = mesh_.degrees(),
                        .ledger = &memory_.ledger(),
                        .meter = memory_.meter(),
                        .device = device_.device,
                        .read_values = model_.MakeReader(job_.seed),
                        .seed = job_.seed,
                        .non_finite = ParsePolicy(job_.on_non_finite),
                        .recompute = config::DecideRecompute(recompute, config_),
                        .schedule = order_.kind,
                        .mlp_tiles = job_.mlp_tiles,
                        .sp_offload = job_.sp_offload,
                        .parameter_group = MakeGrouper(job_, model_.blocks->model_size())};
  if (!model_.unused.empty() && identity_.rank == 0) {
    reporter_.ReportNotice(DescribeUnused(model_, model_config_));
  }
  if (identity_.rank == 0) {
    const bool one_host = identity_.world_size == identity_.local_world_size;
    reporter_.ReportIdleKeys(job_, config_, {device_.device.is_cpu(), one_host});
    options.notify = [this](const std::string& text) { reporter_.ReportNotice(text); };
  }
  DS_ASSIGN_OR_RETURN(engine_, Engine::create(model_.blocks, config_, options));
  memory_.SetEfficiency(seen_tokens_.efficiency());
  memory_.Plan(model_config_.decoder, config_, job_, identity_, mesh_);
  return OkStatus();
}

Status TrainCommand::OpenData() {
  DS_RETURN_IF_ERROR(models::CheckSequenceLength(model_config_, job_.seq_len));
  const data::LoaderOptions options{.micro_batch = config_.batch.train_micro_batch_size_per_gpu,
                                    .seq_len = job_.seq_len,
                                    .vocab_size = model_config_.decoder.vocabulary,
                                    .reader = mesh_.MemberOf(identity_.rank, topology::kDataAxes),
                                    .order = {.shuffle = job_.shuffle, .seed = job_.seed},
                                    .metrics = seen_tokens_.efficiency().sample_metrics,
                                    .samples_per_step = config_.batch.train_batch_size,
                                    .batching = seen_tokens_.efficiency().dynamic_batching,
                                    .pinned = !device_.device.is_cpu()};
  DS_ASSIGN_OR_RETURN(data_, OpenTrainData(job_, options, identity_.rank == 0, &reporter_));
  DS_ASSIGN_OR_RETURN(data_.log, SampleLog::Open(identity_.rank, data_.blend.has_value()));
  DS_RETURN_IF_ERROR(CheckSameData(data_.training->State(), *world_));
  DS_ASSIGN_OR_RETURN(total_steps_,
                      CountSteps(job_, data_.positions_per_epoch, config_.batch.train_batch_size));
  DS_RETURN_IF_ERROR(ReadConfig());
  if (data_.blend && identity_.rank == 0) {
    reporter_.ReportNotice(
        "the blend: " + DescribeBlend(job_, data_, total_steps_ * config_.batch.train_batch_size));
  }
  return FitToData(total_steps_, data_.positions_per_epoch, &config_);
}

// Checks before training that the data to evaluate on has labels, so that unusable data is reported
// early. Collective: all ranks call it.
Status TrainCommand::TryEvaluation() {
  if (!data_.evaluation) return OkStatus();
  DS_RETURN_IF_ERROR(CheckSameData(data_.evaluation->State(), *world_));
  const StatusOr<std::int64_t> labels = data_.evaluation->CountLabels();
  DS_RETURN_IF_ERROR(
      comm::AgreeOnStatus(labels.status(), *world_).WithContext("the data to evaluate on"));
  if (comm::SumOverRanks(*labels, *world_) > 0) return OkStatus();
  return InvalidArgumentError("the evaluation data has no token to learn: its loss is not defined");
}

Status TrainCommand::Resume() {
  parts_ = {&engine_->state(), data_.training.get()};
  if (data_.evaluation) parts_.push_back(&best_);
  if (job_.resume_from.empty()) return OkStatus();
  const auto manifest = checkpoint::ReadManifest(job_.resume_from);
  DS_RETURN_IF_ERROR(comm::AgreeOnStatus(manifest.status(), *world_));
  // A checkpoint of a run without evaluation has no best evaluation, one of a script no position.
  std::vector<checkpoint::Stateful*> saved = {parts_[0]};
  for (checkpoint::Stateful* part : std::span(parts_).subspan(1)) {
    if (manifest->state.contains(part->state_name())) saved.push_back(part);
  }
  DS_RETURN_IF_ERROR(checkpoint::LoadCheckpoint(job_.resume_from, saved, *world_, &lineage_));
  if (!manifest->state.contains(data_.training->state_name())) {
    DS_RETURN_IF_ERROR(PlaceData(*manifest));
  }
  return job_.load_best ? CheckBestIsRetained(best_, job_.checkpoint_dir) : OkStatus();
}

// Places the data behind what the checkpoint has seen, if it does not say where it was.
Status TrainCommand::PlaceData(const checkpoint::Manifest& manifest) {
  const DeepSpeedApi api(*engine_);
  const bool by_tokens = seen_tokens_.efficiency().dynamic_batching.has_value();
  const std::int64_t position =
      by_tokens ? engine_->finished_steps() * config_.batch.train_batch_size : api.global_samples();
  DS_RETURN_IF_ERROR(
      data_.training->LoadState(data::Loader::MoveState(data_.training->State(), position)));
  if (identity_.rank != 0) return OkStatus();
  const bool has_schedule = !std::holds_alternative<config::ConstantRate>(config_.scheduler);
  reporter_.ReportNotice(DescribeForeign(job_.resume_from, manifest, position, has_schedule));
  return OkStatus();
}

engine::TrainLoopOptions TrainCommand::LoopOptions() {
  engine::TrainLoopOptions options{
      .total_steps = total_steps_,
      .save_every = job_.save_every,
      .save_total_limit = job_.save_total_limit,
      .checkpoint_root = job_.checkpoint_dir,
      .written_by = {{"program", std::string("dsrank ") + DS_VERSION},
                     {"zero_stage", config_.zero_optimization.stage}},
      .lineage = &lineage_,
      .seed = job_.seed,
      .evaluate_every = job_.eval_every,
      .best = data_.evaluation ? &best_ : nullptr,
      .save_best = job_.save_best,
      .patience = job_.eval_patience,
      .time_limit = std::chrono::duration<double, std::ratio<60>>(job_.max_minutes)};
  if (data_.evaluation) options.evaluate = [this] { return Evaluate(); };
  return options;
}

StatusOr<Bundle> TrainCommand::ReadBatch(data::BatchStream& stream) {
  const auto batch = stream.Next();
  if (!batch.ok()) exit_code_of_cause_ = kExitUsage;
  DS_RETURN_IF_ERROR(batch.status());
  Bundle bundle = ToBundle(*batch, device_.device, model_config_.decoder.experts > 0);
  if (&stream != data_.training.get()) return bundle;
  DS_RETURN_IF_ERROR(data_.log.Write(engine_->finished_steps() + 1, *batch));
  return seen_tokens_.Show(std::move(bundle), batch->step_part, *engine_,
                           identity_.rank == 0 ? &reporter_ : nullptr);
}

StatusOr<engine::Evaluation> TrainCommand::Evaluate() {
  data_.evaluation->Restart();
  const auto next = [this] { return ReadBatch(*data_.evaluation); };
  return engine::Evaluate(*engine_, next, data_.evaluation->batches_per_epoch());
}

void TrainCommand::ReportRunEnd(const std::string& early) {
  if (!early.empty()) reporter_.ReportNotice(early);
  if (job_.save_best && best_.best()) {
    reporter_.ReportNotice(DescribeBest(*best_.best(), job_.checkpoint_dir));
  }
}

Status TrainCommand::Train() {
  if (!job_.checkpoint_mark.empty()) {
    exit_code_of_cause_ = kExitCheckpoint;
    DS_RETURN_IF_ERROR(
        checkpoint::CheckSharedFolder(job_.checkpoint_dir, job_.checkpoint_mark, *world_));
    exit_code_of_cause_.reset();
  }
  model_.blocks->train(true);
  traffic_ = world_->traffic();
  const bool was_done = engine_->finished_steps() >= total_steps_;
  const auto end = engine::RunTrainLoop(
      *engine_, [this] { return ReadBatch(*data_.training); }, parts_, LoopOptions(), *this);
  finished_steps_ = engine_->finished_steps();
  if (end.saving) exit_code_of_cause_ = kExitCheckpoint;
  if (identity_.rank == 0 && end.status.ok()) ReportRunEnd(end.early);
  if (!end.status.ok() || !was_done || !data_.evaluation) return end.status;
  DS_ASSIGN_OR_RETURN(const engine::Evaluation evaluation, Evaluate());
  if (identity_.rank == 0) reporter_.ReportNotice(DescribeDoneRun(evaluation, total_steps_));
  return OkStatus();
}

// Checks the export before training, so that an unwritable folder is reported early. Leaves the
// folder in place.
Status TrainCommand::TryExport() {
  if (job_.save_hf_dir.empty()) return OkStatus();
  return model_export().Try(*world_).WithContext("--save_hf");
}

// Exports the model. If the export fails, the trained model is saved as a checkpoint.
Status TrainCommand::ExportModel() {
  if (job_.save_hf_dir.empty()) return OkStatus();
  if (job_.load_best) DS_RETURN_IF_ERROR(LoadBest(best_, job_.checkpoint_dir, *engine_));
  const Status written = model_export().Write(*engine_);
  const bool is_saved = job_.save_every > 0 || job_.load_best;  // saves a checkpoint anyway
  if (written.ok() || is_saved || job_.checkpoint_dir.empty()) return written;
  const std::int64_t step = engine_->finished_steps();
  const engine::TrainLoopOptions options = LoopOptions();
  const auto path = checkpoint::SaveCheckpoint({.root = options.checkpoint_root,
                                                .step = step,
                                                .written_by = options.written_by,
                                                .lineage = options.lineage},
                                               parts_, *world_);
  if (!path.ok()) return written;
  OnCheckpoint(step, *path);
  return written.WithContext("the model is kept in " + path->string());
}

void TrainCommand::OnStep(const StepResult& result, double seconds) {
  nlohmann::ordered_json memory = memory_.Report();
  reporter_.ReportBeacon(result.step, memory);
  const auto compared = memory_.ComparePlan(result.expert_routes, &memory);
  if (compared) reporter_.ReportNotice(*compared);
  if (identity_.rank != 0) return;
  if (result.skipped) reporter_.ReportNotice(DescribeSkip(result));
  if (config_.activation_checkpointing.profile) {
    reporter_.ReportNotice("step " + std::to_string(result.step) +
                           ", time of recomputed blocks, first and again: " +
                           DescribeRecompute(DeepSpeedApi(*engine_).take_recompute_times()));
  }
  const comm::Traffic traffic = world_->traffic();
  const comm::Traffic communicated = comm::Since(std::exchange(traffic_, traffic), traffic);
  const StepSeconds times{.step = seconds, .data = data_.training->TakeWaited()};
  reporter_.ReportStep(MakeStepReport(*engine_, result, times, communicated, std::move(memory)));
}

void TrainCommand::OnCheckpoint(std::int64_t step, const std::filesystem::path& path) {
  traffic_ = world_->traffic();
  if (identity_.rank == 0) reporter_.ReportCheckpoint(step, path.string());
}

void TrainCommand::OnRewind(const StepResult& result, const std::filesystem::path& checkpoint) {
  traffic_ = world_->traffic();
  if (identity_.rank != 0) return;
  reporter_.ReportNotice(DescribeRewind(result, checkpoint));
}

}  // namespace

void RunTrain(const config::TrainJob& job, const comm::RankIdentity& identity,
              RankReporter& reporter) {
  TrainCommand(job, identity, reporter).Run();
}

}  // namespace ds::rank
