#include "cli/job/job_machine.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <utility>

#include "cli/host/host_daemon.h"
#include "cli/job/job_moment.h"
#include "cli/job/memory_shortage.h"
#include "cli/job/program_state.h"
#include "cli/job/python_versions.h"
#include "cli/job/same_machine.h"
#include "cli/job/verdict/make_verdict.h"
#include "cli/job/verdict/verdict_message.h"
#include "cli/job/wire_requests.h"
#include "daemon/inspect/judge.h"

namespace ds::cli {
namespace {

// Says why another try cannot help; "" when it may.
std::string FindReasonAgainstRestart(Cause cause) {
  switch (cause) {
    case Cause::kUserStop:
      return "the user stopped the job";
    case Cause::kConfig:
      return "the config, model or data must change first";
    case Cause::kCheckpoint:
      return "there is no usable checkpoint";
    case Cause::kPreflight:
    case Cause::kLaunch:
      return "the host refuses the job";
    case Cause::kInternal:
      return "dsrun itself failed";
    case Cause::kHostLost:
    case Cause::kDaemonLost:
    case Cause::kStall:
    case Cause::kNetwork:
    case Cause::kSuspended:
    case Cause::kExitCode:
    case Cause::kSignal:
    case Cause::kOutOfMemory:
    case Cause::kSharedMemoryFull:  // what the ranks had there is free again
    case Cause::kException:
    case Cause::kRankError:
      return "";
  }
  return "";
}

// Without steps (any program that reports none) nothing tells a repeated error from bad luck. Nor
// does a SIGKILL, which comes from outside the program: a cluster may take a rank twice in a step
// that is long. (Memory that ran out has a cause of its own.)
bool SameErrorAtSameStep(const Verdict& a, const Verdict& b) {
  if (a.cause == Cause::kSignal && a.signal == SIGKILL) return false;
  return a.step.has_value() && a.step == b.step && a.cause == b.cause && a.rank == b.rank &&
         a.host == b.host && a.exit_code == b.exit_code && a.signal == b.signal;
}

// A failed file server, or one that another takes over from, is back after a minute or two, and a
// host after a few minutes.
constexpr std::chrono::seconds kRetryEvery{5};
constexpr std::chrono::minutes kRetryFor{5};
constexpr std::chrono::minutes kTellEvery{1};

constexpr std::chrono::seconds kKeepEvery{1};

// Says whether the host takes the job. `path_source` as JobPlan has it.
JobOutcome CheckAnswer(const std::string& host, const StatusOr<v1::PrepareResponse>& answer,
                       const std::string& path_source) {
  if (!answer.ok()) return MakeRefusalVerdict(host, answer.status());
  for (const v1::Finding& finding : answer->findings()) {
    if (finding.level() != v1::Finding::FAIL) continue;
    Verdict verdict = MakeFindingVerdict(host, finding);
    if (finding.name() == "program" && !path_source.empty()) {
      AddHint("PATH is from " + path_source + ", not the host's own", &verdict);
    }
    return verdict;
  }
  return JobOutcome();
}

}  // namespace

Status CheckBeginning(const RankProgram& program, const std::string& saved) {
  std::string why = program.unusable;
  if (why.empty() && !saved.empty()) why = "checkpoint " + saved + " is gone";
  if (!program.begins_again || why.empty()) return OkStatus();
  return DataLossError("not restarted at step 0, because the run had a checkpoint: " + why +
                       "; repair it and run 'dsrun resume', or allow a restart from step 0 with "
                       "--restart_from_scratch");
}

bool Retries::OnFailure(const std::string& why, Time now) {
  next_ = now + kRetryEvery;
  const bool is_first = !until_.has_value();
  if (is_first) until_ = now + kRetryFor;
  if (!is_first && why == why_ && now - told_ < kTellEvery) return false;
  told_ = now;
  why_ = why;
  return true;
}

bool Retries::TakeDue(Time now) {
  if (!next_.has_value() || now < *next_) return false;
  next_.reset();
  return true;
}

RestartDecision RestartPolicy::Decide(const Verdict& verdict, const std::string& obstacle) {
  if (const std::string why = FindReasonAgainstRestart(verdict.cause); !why.empty())
    return {false, why};
  if (max_restarts_ == 0) return {false, "no restarts were asked for (--max_restarts)"};
  if (!obstacle.empty()) return {false, obstacle};
  if (previous_.has_value() && SameErrorAtSameStep(*previous_, verdict)) {
    return {false, "the same error at step " + std::to_string(*verdict.step) + " twice"};
  }
  if (used_ == max_restarts_) {
    return {false, "all " + std::to_string(max_restarts_) + " restarts are used up"};
  }
  ++used_;
  previous_ = verdict;
  return {true, "restart " + std::to_string(used_) + " of " + std::to_string(max_restarts_)};
}

JobMachine::JobMachine(JobPlan job, Parts parts)
    : job_(std::move(job)),
      parts_(std::move(parts)),
      observer_(parts_.observer),
      stop_(parts_.stop),
      prepared_(job_.world.hosts.size()),
      spares_(job_.CountSpareSlots()),
      restarts_(job_.flags.max_restarts),
      fence_(FromSeconds(job_.flags.lease_seconds), FromSeconds(job_.flags.grace_seconds)),
      generation_(job_.purpose.first_generation) {
  for (std::size_t i = 0; i < prepared_.size(); ++i) {
    prepared_[i].number = prepared_[i].host = static_cast<int>(i);
  }
  next_number_ = static_cast<int>(prepared_.size());
  for (const auto& [node_rank, failure] : parts_.absent.failures) Lose(node_rank, /*ended=*/true);
}

JobActions JobMachine::Begin() {
  BeginGeneration();
  return std::exchange(actions_, {});
}

JobActions JobMachine::Resume(const v1::JobState& state) {
  generation_ = state.generation();
  saved_ = state.saved();
  next_number_ = state.next_number();
  job_.master_addr = state.master_addr();
  lost_.clear();
  restarts_.Restore(state.used_restarts(), state.has_previous()
                                               ? std::optional(ReadVerdictMessage(state.previous()))
                                               : std::nullopt);
  spares_.Restore({state.used_spares().begin(), state.used_spares().end()});
  program_ = ReadProgramState(state.program());
  for (int i = 0; i < state.places_size(); ++i) {
    const v1::HostPlace& place = state.places(i);
    if (place.host() != prepared_[i].host) PutInPlace(job_.host(place.host()), i, &job_);
    prepared_[i] = {.number = place.number(), .host = place.host(), .answer = place.answer()};
  }
  for (int i = 0; i < state.places_size(); ++i) {
    static_cast<void>(BindHost(*prepared_[i].answer, i, &job_));  // it was possible before
  }
  RunGeneration(state.rank_key(), &state);
  return std::exchange(actions_, {});
}

v1::JobState JobMachine::MakeState(const std::string& rank_key) const {
  v1::JobState state;
  state.set_generation(generation_);
  state.set_rank_key(rank_key);
  state.set_master_addr(job_.master_addr);
  state.set_saved(saved_);
  state.set_next_number(next_number_);
  for (const PreparedHost& host : prepared_) {
    v1::HostPlace* place = state.add_places();
    place->set_number(host.number);
    place->set_host(host.host);
    *place->mutable_answer() = *host.answer;
  }
  for (const int spare : spares_.used()) state.add_used_spares(spare);
  state.set_used_restarts(restarts_.used());
  if (restarts_.previous()) *state.mutable_previous() = MakeVerdictMessage(*restarts_.previous());
  *state.mutable_program() = MakeProgramState(program_);
  return state;
}

JobActions JobMachine::Handle(const JobInput& input, Time now) {
  now_ = now;
  if (phase_ == Phase::kRunning) {
    run_->Handle(input, now);
  } else {
    std::visit([&](const auto& each) { On(each); }, input);
  }
  if (phase_ == Phase::kAsking && asking_.TakeDue(now_)) Ask();
  if (phase_ == Phase::kAwaitingReturn && returning_.TakeDue(now_)) TryReturn();
  if (phase_ == Phase::kFenced) PassFence();
  if (phase_ == Phase::kRunning) FollowGeneration();
  if (phase_ == Phase::kRunning) KeepMoment();
  return std::exchange(actions_, {});
}

std::optional<JobMachine::Time> JobMachine::next() const {
  if (phase_ == Phase::kRunning) return run_->next();
  if (phase_ == Phase::kAsking) return asking_.next();
  if (phase_ == Phase::kAwaitingReturn) return returning_.next();
  // The probe of a lost host is an input.
  if (phase_ == Phase::kFenced && early_losses_.empty()) return fence_.opens();
  return std::nullopt;
}

void JobMachine::BeginGeneration() {
  asking_ = {};
  returning_ = {};
  if (!is_starting()) return Ask();
  OnProgram(parts_.program->ForGeneration(generation_));
}

void JobMachine::Ask() {
  phase_ = Phase::kAsking;
  actions_.push_back({.generation = generation_, .what = AskProgram()});
}

void JobMachine::On(const ProgramAnswer& answer) {
  if (phase_ != Phase::kAsking || EndForUser()) return;
  OnProgram(answer.program);
}

void JobMachine::RetryProgram(const Status& trouble) {
  phase_ = Phase::kAsking;
  if (now_ == Time()) return asking_.BeginAt(now_ + kRetryEvery);  // the time is not known yet
  if (asking_.OnFailure("", now_)) {
    observer_->OnNotice("the folder of checkpoints cannot be used now: " + trouble.message() +
                        "; trying again every 5 s for 5 minutes (Ctrl-C ends the job; where the "
                        "storage hangs, a second one does)");
  }
  if (asking_.is_over(now_)) {
    return End(MakeProgramVerdict(
        trouble.WithContext("the folder of checkpoints could not be used for 5 minutes"),
        generation_));
  }
}

void JobMachine::OnProgram(StatusOr<RankProgram> program) {
  if (program.status().code() == StatusCode::kUnavailable) return RetryProgram(program.status());
  const bool may_begin = job_.flags.restart_from_scratch;
  Status fit = program.status();
  if (fit.ok() && !may_begin) fit = CheckBeginning(*program, saved_);
  if (!fit.ok()) return End(MakeProgramVerdict(fit, generation_));
  program_ = *std::move(program);
  pause_.reset();
  for (const std::string& notice : program_.notices) observer_->OnNotice(notice);
  if (!is_starting()) return GiveUpLost();
  phase_ = Phase::kPreparing;
  for (int i = 0; i < static_cast<int>(prepared_.size()); ++i) {
    if (!lost_.contains(i)) Prepare(i);
  }
  if (awaited_ == 0) OnAllPrepared();
}

void JobMachine::GiveUpLost() {
  phase_ = Phase::kGivingUp;
  awaited_ = static_cast<int>(lost_.size());
  for (const auto& [node_rank, host] : lost_) {
    actions_.push_back({.host = prepared_[node_rank].number, .what = GiveHostUp()});
  }
  if (awaited_ == 0) ReplaceNext();
}

void JobMachine::Prepare(int node_rank) {
  ++awaited_;
  v1::PrepareRequest request = MakePrepareRequest(job_, program_, node_rank, generation_);
  if (phase_ == Phase::kPort) request.set_describe_python(false);  // its host has answered before
  actions_.push_back(
      {.host = prepared_[node_rank].number, .generation = generation_, .what = std::move(request)});
}

void JobMachine::On(const UserSignal& signal) {
  const bool waits = phase_ == Phase::kAsking || phase_ == Phase::kAwaitingReturn;
  if (waits && EndForUser()) return;
  if (!IsForwarded(signal.number)) return;
  observer_->OnNotice("signal " + std::to_string(signal.number) +
                      " arrived while no rank was running and has no effect");
}

void JobMachine::On(const HostChange& change) {
  if (change.grade == HostGrade::kLost) early_losses_[change.host] = change;
}

void JobMachine::On(const Answer<v1::PrepareResponse>& answer) {
  const std::optional<int> node_rank = FindNodeRank(prepared_, answer.host);
  if (!node_rank.has_value()) return;
  const bool is_for_port = phase_ == Phase::kPort;
  if (!is_for_port) prepared_[*node_rank].answer = answer.answer;
  if (--awaited_ > 0 || EndForUser()) return;
  if (is_for_port) return OnPortAnswer(answer.answer);
  return phase_ == Phase::kReplacing ? OnReplacementPrepared() : OnAllPrepared();
}

void JobMachine::OnAllPrepared() {
  // Else the hostfile is wrong, and no spare makes it right.
  if (const JobOutcome differ = CheckMachines(); !differ.ok()) return Conclude(differ);
  std::map<int, Verdict> refusals;
  for (int i = 0; i < static_cast<int>(prepared_.size()); ++i) {
    if (lost_.contains(i)) continue;
    const JobOutcome ready = CheckHost(i);
    if (!ready.ok()) refusals.emplace(i, ready.failure());
  }
  if (!lost_.empty() || !refusals.empty()) return OnUnfit(refusals);
  WarnOfPythonDifference();
  const JobOutcome bound = BindToCores();
  return bound.ok() ? AwaitFence() : Conclude(bound);
}

void JobMachine::OnUnfit(const std::map<int, Verdict>& refusals) {
  if (refusals.size() > 1) {  // what is wrong on one host often is on others
    observer_->OnNotice(std::to_string(refusals.size()) + " of " +
                        std::to_string(prepared_.size()) + " hosts refuse the job:");
    for (const auto& [node_rank, each] : refusals) observer_->OnNotice("  " + each.message);
  }
  std::map<int, Verdict> unfit = refusals;
  unfit.insert(parts_.absent.failures.begin(), parts_.absent.failures.end());
  outcome_ = unfit.begin()->second;
  std::vector<int> node_ranks;
  for (const auto& [node_rank, verdict] : unfit) node_ranks.push_back(node_rank);
  if (!CanReplace(job_, node_ranks, spares_)) return EndUnreplaced();
  for (const auto& [node_rank, verdict] : unfit) {
    observer_->OnNotice(verdict.message + "; a spare host is to take its place");
    Lose(node_rank, /*ended=*/true);  // no rank runs there
  }
  const JobOutcome bound = BindToCores();
  if (!bound.ok()) return Conclude(bound);
  phase_ = Phase::kGivingUp;
  for (const auto& [node_rank, verdict] : refusals) {
    ++awaited_;
    actions_.push_back({.host = prepared_[node_rank].number, .what = GiveHostUp{.release = true}});
  }
  if (awaited_ == 0) ReplaceNext();
}

// Hosts that cannot be reached are listed as they are when there is no spare at all.
void JobMachine::EndUnreplaced() {
  for (const std::string& line : parts_.absent.table) observer_->OnNotice(line);
  Conclude(outcome_);
}

JobOutcome JobMachine::CheckMachines() const {
  if (job_.flags.share_machine) return JobOutcome();
  std::vector<HostMachine> hosts;
  for (int i = 0; i < static_cast<int>(prepared_.size()); ++i) {
    const StatusOr<v1::PrepareResponse>& answer = prepared_[i].answer;
    const bool is_lost = lost_.contains(i) && replacement_.node_rank != i;
    hosts.push_back({.host = job_.world.hosts[i].host,
                     .machine = is_lost || !answer.ok() ? "" : answer->machine()});
  }
  const std::map<std::size_t, Verdict> same =
      FindSameMachines(hosts, job_.flags.hostfile.value_or("the hostfile"));
  return same.empty() ? JobOutcome() : JobOutcome(same.begin()->second);
}

JobOutcome JobMachine::CheckHost(int node_rank) {
  const JobHost& host = job_.world.hosts[node_rank];
  const StatusOr<v1::PrepareResponse>& answer = prepared_[node_rank].answer;
  const JobOutcome taken = CheckAnswer(host.host, answer, job_.path_source);
  if (!taken.ok()) return taken;
  const v1::Finding clock = daemon::JudgeClock(answer->unix_nanos(), parts_.unix_nanos());
  if (clock.level() != v1::Finding::OK) {
    observer_->OnNotice("host " + host.host + ": its clock is " + clock.message() + "; " +
                        clock.hint());
  }
  observer_->OnPrepared(host.host, *answer);
  return Overcommit(CheckHostMemory({job_, *parts_.program, host, *answer}));
}

void JobMachine::WarnOfPythonDifference() {
  std::vector<HostPython> hosts;
  for (std::size_t i = 0; i < prepared_.size(); ++i) {
    const StatusOr<v1::PrepareResponse>& answer = prepared_[i].answer;
    if (answer.ok() && !answer->python().version().empty()) {
      hosts.push_back({job_.world.hosts[i].host, answer->python()});
    }
  }
  std::string warning = ExplainPythonDifference(hosts);
  if (!warning.empty() && warning != python_warning_) observer_->OnNotice(warning);
  python_warning_ = std::move(warning);
}

JobOutcome JobMachine::Overcommit(const JobOutcome& fits) {
  if (fits.ok() || !job_.purpose.memory.only_warns) return fits;
  observer_->OnNotice(fits.failure().message + "; " + fits.failure().proof);
  return JobOutcome();
}

JobOutcome JobMachine::BindToCores() {
  for (int i = 0; i < static_cast<int>(prepared_.size()); ++i) {
    if (lost_.contains(i)) continue;
    const JobOutcome bound = BindHostToCores(i);
    if (!bound.ok()) return bound;
  }
  return JobOutcome();
}

JobOutcome JobMachine::BindHostToCores(int node_rank) {
  const v1::PrepareResponse& answer = *prepared_[node_rank].answer;
  const Status bound = BindHost(answer, node_rank, &job_);
  if (!bound.ok()) return MakeCoresVerdict(bound);
  return Overcommit(CheckNodeMemory({job_, *parts_.program, job_.world.hosts[node_rank], answer}));
}

std::string JobMachine::ExplainNoGeneration() const {
  if (stop_->signal() != 0) return "the user stopped the job";
  return unended_;
}

void JobMachine::On(const HostGone& gone) {
  const std::optional<int> node_rank = FindNodeRank(prepared_, gone.host);
  if (phase_ != Phase::kGivingUp || !node_rank.has_value()) return;
  const auto lost = lost_.find(*node_rank);
  if (lost == lost_.end()) return;
  const bool is_fenced = !lost->second.ended && gone.lease_from.has_value();
  if (is_fenced) fence_.Add(lost->second.host.host, *gone.lease_from);
  if (--awaited_ > 0) return;
  stop_->Enter(JobPhase::kPreparing);  // what the user was told of has ended
  ReplaceNext();
}

void JobMachine::ReplaceNext() {
  if (lost_.empty()) {
    if (is_starting()) return AwaitFence();
    phase_ = Phase::kPort;
    return Prepare(0);  // at the port of the last generation a rank of it may still knock
  }
  if (EndForUser()) return;
  const auto& [node_rank, lost] = *lost_.begin();
  const auto spare = job_.IsReplaceable(node_rank)
                         ? spares_.Take(job_.world.hosts[node_rank].rank_count())
                         : std::nullopt;
  if (spare.has_value()) return Start(job_.spare_number(*spare), node_rank);
  if (!is_starting()) return AwaitReturn();
  observer_->OnNotice("no spare host could take the place of host " + lost.host.host);
  EndUnreplaced();
}

void JobMachine::Start(int host, int node_rank) {
  phase_ = Phase::kReplacing;
  replacement_ = {.number = next_number_++, .host = host, .node_rank = node_rank};
  actions_.push_back({.host = replacement_.number, .what = StartReplacement{replacement_}});
}

// A new daemon on the lost host itself starts when its ranks have ended: they use its devices.
void JobMachine::AwaitReturn() {
  phase_ = Phase::kAwaitingReturn;
  returning_.BeginAt(std::max(now_, fence_.opens()));
  if (fence_.Remaining(now_) > Time(0)) return observer_->OnNotice(fence_.Explain(now_));
  if (returning_.TakeDue(now_)) TryReturn();
}

void JobMachine::TryReturn() {
  const int node_rank = lost_.begin()->first;
  Start(prepared_[node_rank].host, node_rank);
}

bool JobMachine::is_return() const {
  return replacement_.host == prepared_[replacement_.node_rank].host;
}

void JobMachine::OnReplacementFailed(const std::string& why) {
  if (!is_return()) {
    observer_->OnNotice("spare " + why);
    return ReplaceNext();
  }
  phase_ = Phase::kAwaitingReturn;
  if (returning_.OnFailure(why, now_)) {
    observer_->OnNotice(why +
                        "; trying again every 5 s for 5 minutes, because no spare host fits "
                        "(Ctrl-C ends the job)");
  }
  if (!returning_.is_over(now_)) return;
  observer_->OnNotice("not restarted: host " + lost_.begin()->second.host.host +
                      " did not come back within 5 minutes");
  End(outcome_);
}

void JobMachine::On(const ReplacementAnswer& answer) {
  if (EndForUser()) return;  // the user's signal has made it fail
  const int node_rank = replacement_.node_rank;
  const JobHost& host = is_return() ? lost_.at(node_rank).host : job_.host(replacement_.host);
  if (!answer.answer.ok()) {
    return OnReplacementFailed("host " + host.host + ": " + answer.answer.status().message());
  }
  PutInPlace(host, node_rank, &job_);
  prepared_[node_rank].number = replacement_.number;
  job_.master_addr = answer.answer->master_addr;
  Prepare(node_rank);
}

void JobMachine::OnReplacementPrepared() {
  const int node_rank = replacement_.node_rank;
  JobOutcome ready = CheckMachines();
  if (ready.ok()) ready = CheckHost(node_rank);
  if (ready.ok()) ready = BindHostToCores(node_rank);
  if (!ready.ok()) {
    actions_.push_back({.host = replacement_.number, .what = GiveHostUp{.release = true}});
    return OnReplacementFailed(ready.failure().message);
  }
  const std::string& lost = lost_.begin()->second.host.host;
  observer_->OnNotice(is_return() ? "a new daemon runs on host " + lost
                                  : "spare host " + job_.world.hosts[node_rank].host +
                                        " replaces host " + lost);
  prepared_[node_rank].host = replacement_.host;
  lost_.erase(lost_.begin());
  if (lost_.empty()) WarnOfPythonDifference();
  ReplaceNext();
}

void JobMachine::OnPortAnswer(const StatusOr<v1::PrepareResponse>& answer) {
  const std::string& host = job_.world.hosts.front().host;
  if (NobodyAnswered(answer.status())) {
    Lose(0, /*ended=*/true);
    return Conclude(MakeDaemonLostVerdict(host, answer.status().message(), generation_));
  }
  const JobOutcome taken = CheckAnswer(host, answer, job_.path_source);
  if (!taken.ok()) return Conclude(taken);
  prepared_.front().answer->set_master_port(answer->master_port());
  AwaitFence();
}

bool JobMachine::EndForUser() {
  const int signal = stop_->signal();
  if (signal != 0) Conclude(MakeUserStopVerdict(signal, generation_));
  return signal != 0;
}

void JobMachine::AwaitFence() {
  phase_ = Phase::kFenced;
  if (fence_.Remaining(now_) > Time(0)) observer_->OnNotice(fence_.Explain(now_));
}

void JobMachine::PassFence() {
  if (EndForUser()) return;
  // Such a host may be one that is no longer part of the world.
  std::erase_if(early_losses_,
                [&](const auto& each) { return !FindNodeRank(prepared_, each.first).has_value(); });
  if (!early_losses_.empty()) return ConcludeEarlyLosses();
  if (fence_.Remaining(now_) > Time(0)) return;
  RunGeneration(parts_.draw_key(), /*taken_over=*/nullptr);
}

void JobMachine::RunGeneration(const std::string& rank_key, const v1::JobState* taken_over) {
  if (parts_.keep_state) parts_.keep_state(MakeState(rank_key));
  phase_ = Phase::kRunning;
  moment_kept_.reset();
  run_.emplace(GenerationState::Parts{
      .number = generation_,
      .is_taken_over = taken_over != nullptr,
      .stop_in_progress = taken_over == nullptr ? std::nullopt : ReadStop(*taken_over),
      .stop_cause = taken_over == nullptr ? JobOutcome() : ReadStopCause(*taken_over),
      .job = &job_,
      .program = &program_,
      .hosts = &prepared_,
      .observer = observer_,
      .stop = stop_,
      .has_input = parts_.has_input,
      .timeout = FromSeconds(job_.flags.lease_seconds),
      .rank_key = rank_key,
      .convert_time = parts_.convert_time,
      .actions = &actions_});
  run_->Begin();
}

// Before the requests of the stop are sent. Clocks drift slowly.
void JobMachine::KeepMoment() {
  if (!parts_.keep_moment) return;
  v1::JobMoment moment;
  moment.set_generation(generation_);
  if (auto stop = run_->DescribeStop()) *moment.mutable_stop() = *std::move(stop);
  std::string stop = moment.stop().SerializeAsString();
  const bool is_recent = moment_kept_.has_value() && now_ - *moment_kept_ < kKeepEvery;
  if (is_recent && stop == stop_kept_) return;
  for (const PreparedHost& host : prepared_) {
    const auto clock = parts_.find_clock ? parts_.find_clock(host.number) : std::nullopt;
    if (clock.has_value()) *moment.add_clocks() = MakeClockState(host.number, *clock);
  }
  parts_.keep_moment(moment);
  moment_kept_ = now_;
  stop_kept_ = std::move(stop);
}

void JobMachine::ConcludeEarlyLosses() {
  const auto awaits_probe = [](const auto& each) { return each.second.awaits_probe(); };
  if (std::any_of(early_losses_.begin(), early_losses_.end(), awaits_probe)) return;
  std::optional<Verdict> loss;
  for (const auto& [number, change] : std::exchange(early_losses_, {})) {
    const int node_rank = *FindNodeRank(prepared_, number);
    Lose(node_rank, /*ended=*/true);
    if (loss.has_value()) continue;
    loss = MakeHostLostVerdict(job_.world.hosts[node_rank].host, change, generation_);
  }
  Conclude(*loss);
}

void JobMachine::FollowGeneration() {
  // When it is heard of, and not when the last host has ended its ranks: pauses are forgotten.
  if (run_->failed() && !pause_.has_value()) pause_ = parts_.find_own_pause(std::nullopt);
  if (!run_->ended()) return;
  if (parts_.keep_state) parts_.keep_state(std::nullopt);
  for (const int node_rank : run_->lost()) Lose(node_rank, run_->HasEnded(node_rank));
  unended_ = run_->unended();
  if (!run_->saved().empty()) saved_ = run_->saved();
  Conclude(run_->Conclude());
}

void JobMachine::Conclude(JobOutcome outcome) {
  if (outcome.ok()) return End(std::move(outcome));
  outcome_ = JudgeOwnPause(std::move(outcome));
  stop_->Enter(JobPhase::kPreparing);  // what the user wants from now on is not overlooked below
  phase_ = Phase::kGivingUp;
  const RestartDecision decision = restarts_.Decide(outcome_.failure(), ExplainNoGeneration());
  if (!decision.restart) {
    if (job_.flags.max_restarts > 0) observer_->OnNotice("not restarted: " + decision.reason);
    return End(outcome_);
  }
  observer_->OnNotice(outcome_.failure().message + "; " + decision.reason);
  ++generation_;
  BeginGeneration();
}

void JobMachine::End(JobOutcome outcome) {
  outcome_ = std::move(outcome);
  phase_ = Phase::kEnded;
}

JobOutcome JobMachine::JudgeOwnPause(JobOutcome outcome) const {
  Verdict verdict = outcome.failure();
  std::optional<int> number;  // of the daemon of the host that is blamed
  for (std::size_t i = 0; i < prepared_.size(); ++i) {
    if (job_.world.hosts[i].host == verdict.host) number = prepared_[i].number;
  }
  const std::optional<OwnPause> pause = pause_.has_value() ? pause_ : parts_.find_own_pause(number);
  if (!pause.has_value()) return outcome;
  const bool is_loss = verdict.cause == Cause::kHostLost || verdict.cause == Cause::kDaemonLost;
  const bool is_leased =
      std::any_of(job_.world.hosts.begin(), job_.world.hosts.end(),
                  [&](const JobHost& host) { return host.remote && host.host == verdict.host; });
  if (is_loss && is_leased) return MakeSuspendedVerdict(*pause, verdict);
  // It may be what came of it: leases do not run out in the same moment, and ranks fail whose peers
  // are gone.
  if (verdict.rank >= 0) AddSuspension(*pause, &verdict);
  return verdict;
}

}  // namespace ds::cli
