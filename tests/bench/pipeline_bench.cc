// The time that the stages of a pipeline wait, with layers that wait instead of computing, so that
// it does not depend on how many cores there are. Each rank that dsrun starts is a stage:
//
//     dsrun --num_gpus 4 run -- bench_pipeline zb-h1 LAYERS MICRO_BATCHES MILLISECONDS STEPS
//
// A layer takes so many milliseconds forward, as many for the gradient of its input and as many for
// that of its weight. Rank 0 prints {"schedule", "formula", "measured"} as JSON: the share of the
// stages' time in which they compute nothing, as the simulation has it and as the median step took.

#include <ATen/ops/ones.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "runtime/autograd/put_gradient.h"
#include "runtime/base/parse_number.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/executor.h"
#include "runtime/plan/pipeline/simulation.h"

namespace {

using ds::pipeline::ScheduleKind;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Milliseconds = std::chrono::duration<double, std::milli>;

struct Options {
  ScheduleKind kind = {};
  int layers = 0, micro_batches = 0, steps = 0;
  double milliseconds = 0.0;
};

class SleepFunction : public torch::autograd::Function<SleepFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            double milliseconds) {
    context->save_for_backward({weight});
    context->saved_data["milliseconds"] = milliseconds;
    std::this_thread::sleep_for(Milliseconds(milliseconds));
    return x.clone();
  }

  static variable_list backward(AutogradContext* context, const variable_list& upstream) {
    const at::Tensor weight = context->get_saved_variables()[0];
    const double milliseconds = context->saved_data["milliseconds"].toDouble();
    std::this_thread::sleep_for(Milliseconds(milliseconds));
    const auto write = [milliseconds](at::Tensor& target, float beta) {
      std::this_thread::sleep_for(Milliseconds(milliseconds));
      if (beta == 0.0F) target.zero_();
    };
    return {upstream[0], ds::gradients::PutOrMakeGradient(weight, write), {}};
  }
};

class SleepLayer : public ds::Block {
 public:
  SleepLayer(int index, const Options& options)
      : Block("layer." + std::to_string(index)), index_(index), options_(options) {
    weight_ = register_parameter("weight", ds::models::UnmaterialisedParameter({4}, {}));
  }
  ds::Bundle forward(ds::Bundle bundle) override {
    const at::Tensor& input = index_ == 0 ? bundle.tensor("input") : bundle.hidden;
    bundle.hidden = SleepFunction::apply(input, weight_, options_.milliseconds);
    if (index_ + 1 == options_.layers) bundle.loss = bundle.hidden.mean();
    return bundle;
  }

 private:
  const int index_;
  const Options options_;
  at::Tensor weight_;
};

std::shared_ptr<ds::BlockList> MakeModel(const Options& options,
                                         const ds::pipeline::VirtualStages& virtual_stages,
                                         int stage) {
  auto model = std::make_shared<ds::BlockList>();
  ds::models::StageBlocks part{
      .stage = stage, .stages = virtual_stages.stages, .all = options.layers};
  const int layers = options.layers / virtual_stages.count();
  for (int chunk = 0; chunk < virtual_stages.chunks; ++chunk) {
    const int first = virtual_stages.At({stage, chunk}) * layers;
    part.chunks.push_back({first, first + layers});
    for (int i = first; i < first + layers; ++i) {
      model->Add(std::make_shared<SleepLayer>(i, options));
    }
  }
  model->SetPart(part);
  return model;
}

double FindFormula(const ds::pipeline::PipelineSchedule& schedule) {
  const auto count = static_cast<std::size_t>(schedule.shape().virtual_stages());
  const ds::pipeline::StepTimes times{.tasks = std::vector<ds::pipeline::TaskTimes>(count)};
  return SimulateStep(schedule, PlanStagePrograms(schedule), times).value().BubbleFraction();
}

// The median behind the first step.
double MeasureStep(ds::Engine& engine, const Options& options) {
  std::vector<double> times;
  for (int step = 0; step < options.steps; ++step) {
    const auto begin = std::chrono::steady_clock::now();
    ds::engine::TrainStep(engine, []() -> ds::StatusOr<ds::Bundle> {
      return ds::Bundle{
          .batch = {{"input", at::ones({1, 4})}, {"labels", at::ones({1, 1}, at::kLong)}}};
    }).value();
    if (step > 0) times.push_back(Milliseconds(std::chrono::steady_clock::now() - begin).count());
  }
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2),
                   times.end());
  return times[times.size() / 2];
}

void Measure(const Options& options) {
  const int stage = std::atoi(std::getenv("RANK")), stages = std::atoi(std::getenv("WORLD_SIZE"));
  const ds::pipeline::VirtualStages virtual_stages{options.kind, stages,
                                                   ds::pipeline::DefaultChunksOf(options.kind)};
  ds::config::DsConfig config;
  config.batch = {.train_batch_size = options.micro_batches,
                  .train_micro_batch_size_per_gpu = 1,
                  .gradient_accumulation_steps = options.micro_batches};
  config.optimizer = {.lr = 0.01, .algorithm = ds::config::SgdConfig{}};
  config.zero_optimization.stage = 0;
  config.parallel.pipeline = stages;
  const auto engine = ds::Engine::create(MakeModel(options, virtual_stages, stage), config,
                                         {.schedule = options.kind})
                          .value();
  const double took = MeasureStep(*engine, options);
  if (stage != 0) return;
  const auto schedule = ds::pipeline::PipelineSchedule::Create(
      options.kind,
      {.stages = stages, .chunks = virtual_stages.chunks, .micro_batches = options.micro_batches});
  const double works = 3.0 * options.milliseconds * options.layers / stages * options.micro_batches;
  fmt::print("{{\"schedule\": \"{}\", \"formula\": {:.4f}, \"measured\": {:.4f}}}\n",
             NameOf(options.kind), FindFormula(schedule.value()), 1.0 - works / took);
}

}  // namespace

int main(int count, char** words) {
  if (count != 6) {
    fmt::print(stderr, "usage: bench_pipeline SCHEDULE LAYERS MICRO_BATCHES MILLISECONDS STEPS\n");
    return 2;
  }
  const auto number = [&](int i) { return ds::ParseNumber<int>(words[i]).value(); };
  Measure({.kind = ds::pipeline::ParseScheduleKind(words[1]).value(),
           .layers = number(2),
           .micro_batches = number(3),
           .steps = number(5),
           .milliseconds = static_cast<double>(number(4))});
}
