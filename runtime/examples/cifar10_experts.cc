// Trains a convolutional network with experts on CIFAR-10, like DeepSpeedExamples'
// cifar10_deepspeed.py:
//
//   dsrun --num_gpus 4 run -- build/bin/cifar10_experts ds_config.json FOLDER [EPOCHS] [flags]
//
// It has the flags of that script: --epochs N, --log-interval STEPS, --dtype fp32|bf16|fp16
// (default: from the ds_config), --num-experts N, --top-k K, --min-capacity N, --noisy-gate-policy
// NAME, --mlp-type standard|residual; --moe is always on.
//
// FOLDER holds the data set's binary version (cifar-10-batches-bin: data_batch_1.bin and more,
// test_batch.bin). Prints the loss of each epoch, the accuracy on the test images, and the number
// of test images sent to each expert. "expert_parallel": {"enabled": true, "autoep_size": 2}
// distributes the experts among ranks; zero_optimization.stage shards each rank's parameters.

#include <ATen/TensorOperators.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/files.h"
#include "runtime/base/isa_probe.h"
#include "runtime/base/parse_number.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/join_job.h"
#include "runtime/comm/rank_identity.h"
#include "runtime/config/file/check_config.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/loop/evaluate.h"
#include "runtime/engine/make_mesh.h"
#include "runtime/parallel/expert/expert_layer.h"

namespace {

constexpr std::int64_t kClasses = 10, kFeatures = 84;
constexpr std::int64_t kPixels = 3 * 32 * 32, kRecord = 1 + kPixels;  // bytes: label, image

// Values from the command line.
struct Arguments {
  std::string config, folder;
  int epochs = 1;
  int log_interval = 0;  // steps; 0: only the loss of each epoch
  std::string dtype;     // "": from the config
  ds::moe::ExpertLayerOptions experts{.width = kFeatures,
                                      .experts = 4,
                                      .capacity = {.factor = 1.25, .least = 0},
                                      .noise = ds::moe::GateNoise::kRSample};
};

// Stores a flag's value in `arguments`.
ds::Status TakeFlag(const std::string& flag, const std::string& value, Arguments* arguments) {
  ds::moe::ExpertLayerOptions& experts = arguments->experts;
  const auto number = ds::ParseNumber<int>(value);
  const bool fits = number && *number >= (flag == "--min-capacity" ? 0 : 1);
  if (fits && flag == "--epochs") {
    arguments->epochs = *number;
  } else if (fits && flag == "--log-interval") {
    arguments->log_interval = *number;
  } else if (fits && flag == "--num-experts") {
    experts.experts = *number;
  } else if (fits && flag == "--top-k") {
    experts.k = *number;
  } else if (fits && flag == "--min-capacity") {
    experts.capacity.least = *number;
  } else if (flag == "--dtype" && (value == "fp32" || value == "bf16" || value == "fp16")) {
    arguments->dtype = value;
  } else if (flag == "--mlp-type" && (value == "standard" || value == "residual")) {
    experts.residual = value == "residual";
  } else if (flag == "--noisy-gate-policy" && value == "RSample") {
    experts.noise = ds::moe::GateNoise::kRSample;
  } else if (flag == "--noisy-gate-policy" && value == "Jitter") {
    experts.noise = ds::moe::GateNoise::kJitter;
  } else if (flag == "--noisy-gate-policy" && value == "None") {
    experts.noise = ds::moe::GateNoise::kNone;
  } else {
    return ds::InvalidArgumentError(flag + " " + value + ": no such flag, or no such value of it");
  }
  return ds::OkStatus();
}

ds::StatusOr<Arguments> ParseArguments(const std::vector<std::string>& words) {
  Arguments arguments;
  std::vector<std::string> places;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--moe") continue;
    if (!words[i].starts_with("--")) {
      places.push_back(words[i]);
    } else {
      const std::string value = i + 1 < words.size() ? words[i + 1] : "";
      DS_RETURN_IF_ERROR(TakeFlag(words[i++], value, &arguments));
    }
  }
  if (places.size() < 2 || places.size() > 3) {
    return ds::InvalidArgumentError("usage: cifar10_experts DS_CONFIG FOLDER [EPOCHS] [flags]");
  }
  arguments.config = places[0];
  arguments.folder = places[1];
  if (places.size() == 3) DS_RETURN_IF_ERROR(TakeFlag("--epochs", places[2], &arguments));
  ds::moe::ExpertLayerOptions& experts = arguments.experts;
  experts.evaluation_factor = static_cast<double>(experts.experts);  // drops none
  if (experts.k > experts.experts) {
    return ds::InvalidArgumentError("--top-k: there are fewer experts (--num-experts)");
  }
  return arguments;
}

class Convolutions : public ds::Block {
 public:
  Convolutions()
      : Block("features"),
        first_(register_module("first", torch::nn::Conv2d(3, 6, 5))),
        second_(register_module("second", torch::nn::Conv2d(6, 16, 5))),
        wide_(register_module("wide", torch::nn::Linear(400, 120))),
        narrow_(register_module("narrow", torch::nn::Linear(120, kFeatures))) {}

  ds::Bundle forward(ds::Bundle bundle) override {
    // Weights have the config's dtype, images their own.
    const at::Tensor images = bundle.tensor("images").to(first_->weight.scalar_type());
    at::Tensor x = at::max_pool2d(at::relu(first_->forward(images)), {2, 2});
    x = at::max_pool2d(at::relu(second_->forward(x)), {2, 2}).flatten(1);
    bundle.hidden = at::relu(narrow_->forward(at::relu(wide_->forward(x))));
    return bundle;
  }

 private:
  torch::nn::Conv2d first_, second_;
  torch::nn::Linear wide_, narrow_;
};

class LinearExpert : public ds::moe::Expert {
 public:
  LinearExpert() : linear_(register_module("linear", torch::nn::Linear(kFeatures, kFeatures))) {}
  at::Tensor forward(const at::Tensor& rows) override { return linear_->forward(rows); }

 private:
  torch::nn::Linear linear_;
};

// The results on test images on this rank.
struct Seen {
  double images = 0, hits = 0;
  at::Tensor routes;  // by expert
};

class Experts : public ds::Block {
 public:
  Experts(const ds::moe::ExpertLayerOptions& options, Seen* seen) : Block("experts"), seen_(seen) {
    layer_ = register_module("moe", std::make_shared<ds::moe::ExpertLayer>(
                                        options, [] { return std::make_shared<LinearExpert>(); }));
  }

  ds::Bundle forward(ds::Bundle bundle) override {
    const auto result =
        layer_->forward(bundle.hidden, [](at::IntArrayRef shape) { return at::rand(shape); });
    bundle.hidden = result.output;
    bundle.extras["balance"] = result.balance_loss;
    if (!is_training()) seen_->routes += result.counts;
    return bundle;
  }

 private:
  std::shared_ptr<ds::moe::ExpertLayer> layer_;
  Seen* const seen_;
};

class Classifier : public ds::Block {
 public:
  explicit Classifier(Seen* seen)
      : Block("classifier"),
        linear_(register_module("linear", torch::nn::Linear(kFeatures, kClasses))),
        seen_(seen) {}

  ds::Bundle forward(ds::Bundle bundle) override {
    const at::Tensor logits = linear_->forward(bundle.hidden);
    const at::Tensor& labels = bundle.tensor("labels");
    bundle.loss = at::cross_entropy_loss(logits, labels) + 0.01 * bundle.extras.at("balance");
    if (!is_training()) {
      seen_->images += static_cast<double>(labels.numel());
      seen_->hits += logits.argmax(1).eq(labels).sum().item<double>();
    }
    return bundle;
  }

 private:
  torch::nn::Linear linear_;
  Seen* const seen_;
};

ds::Status CheckLabels(const std::string& records, const std::filesystem::path& file) {
  for (std::size_t at = 0; at < records.size(); at += kRecord) {
    const auto label = static_cast<unsigned char>(records[at]);
    if (label < kClasses) continue;
    return ds::InvalidArgumentError(file.string() + ": image " + std::to_string(at / kRecord) +
                                    " is of class " + std::to_string(label) + ", and there are " +
                                    std::to_string(kClasses) + ", from 0 on");
  }
  return ds::OkStatus();
}

ds::StatusOr<std::string> ReadRecords(const std::filesystem::path& folder, bool of_test) {
  std::string records;
  for (int i = 1; i <= 5; ++i) {
    const auto file =
        folder / (of_test ? "test_batch.bin" : "data_batch_" + std::to_string(i) + ".bin");
    if (i > 1 && (of_test || !std::filesystem::exists(file))) break;
    DS_ASSIGN_OR_RETURN(const std::string text, ds::ReadFile(file));
    if (text.empty() || text.size() % kRecord != 0) {
      return ds::InvalidArgumentError(file.string() + " has no records of " +
                                      std::to_string(kRecord) +
                                      " bytes: CIFAR-10's binary version");
    }
    DS_RETURN_IF_ERROR(CheckLabels(text, file));
    records += text;
  }
  return records;
}

std::int64_t CountRecords(const std::string& records) {
  return static_cast<std::int64_t>(records.size()) / kRecord;
}

// Returns records first, first + 1, ..., wrapping around at the end.
ds::Bundle MakeBatch(std::string& records, std::int64_t first, std::int64_t count) {
  const std::int64_t all = CountRecords(records);
  std::vector<at::Tensor> images;
  std::vector<std::int64_t> labels;
  for (std::int64_t i = first; i < first + count; ++i) {
    char* const record = records.data() + i % all * kRecord;
    labels.push_back(static_cast<unsigned char>(*record));
    images.push_back(at::from_blob(record + 1, {3, 32, 32}, at::kByte));
  }
  const at::Tensor pixels = at::stack(images).to(at::kFloat).div(127.5) - 1.0;
  return {.batch = {{"images", pixels}, {"labels", at::tensor(labels)}}};
}

// Reads a rank's records: micro-batch m of rank r of W has B records from (m W + r) B on.
class Reader {
 public:
  Reader(std::string records, const ds::comm::Communicator& world, std::int64_t micro_batch)
      : records_(std::move(records)), world_(world), micro_batch_(micro_batch) {}

  ds::StatusOr<ds::Bundle> Next() {
    const std::int64_t first = (taken_++ * world_.size() + world_.rank()) * micro_batch_;
    return MakeBatch(records_, first, micro_batch_);
  }
  // Number of micro-batches per rank, equal on all ranks.
  std::int64_t count() const { return CountRecords(records_) / (micro_batch_ * world_.size()); }

 private:
  std::string records_;
  const ds::comm::Communicator& world_;
  const std::int64_t micro_batch_;
  std::int64_t taken_ = 0;
};

// Prints the results of all ranks on the test images.
void PrintTest(const Seen& seen, ds::comm::Communicator& world) {
  at::Tensor sums = at::tensor({seen.images, seen.hits}, at::kDouble);
  world.AllReduce(sums, ds::comm::ReduceOp::kSum, "test images");
  world.AllReduce(seen.routes, ds::comm::ReduceOp::kSum, "routes");
  if (world.rank() != 0) return;
  std::printf("test images  %.0f  right %.3f  by expert", sums[0].item<double>(),
              sums[1].item<double>() / sums[0].item<double>());
  for (std::int64_t i = 0; i < seen.routes.numel(); ++i) {
    std::printf(" %ld", static_cast<long>(seen.routes[i].item<std::int64_t>()));
  }
  std::printf("\n");
}

std::shared_ptr<ds::BlockList> MakeModel(const ds::moe::ExpertLayerOptions& experts, Seen* seen) {
  at::manual_seed(1);  // initial values are rank 0's, and the same in every run
  auto model = std::make_shared<ds::BlockList>();
  model->Add(std::make_shared<Convolutions>());
  model->Add(std::make_shared<Experts>(experts, seen));
  model->Add(std::make_shared<Classifier>(seen));
  return model;
}

ds::Status RunEpochs(ds::Engine& engine, Reader& train, const Arguments& arguments) {
  const std::int64_t accumulation = engine.gradient_accumulation_steps();
  const std::int64_t steps = std::max<std::int64_t>(1, train.count() / accumulation);
  for (int epoch = 1; epoch <= arguments.epochs; ++epoch) {
    ds::StepResult last;
    for (std::int64_t i = 0; i < steps * accumulation; ++i) {
      DS_ASSIGN_OR_RETURN(ds::Bundle batch, train.Next());
      engine.backward(engine.forward(std::move(batch)));
      DS_ASSIGN_OR_RETURN(last, engine.step());
      const bool is_logged = arguments.log_interval > 0 && last.boundary &&
                             last.step % arguments.log_interval == 0 && engine.world().rank() == 0;
      if (is_logged) std::printf("step %ld  loss %.4f\n", static_cast<long>(last.step), last.loss);
    }
    if (engine.world().rank() == 0) std::printf("epoch %d  loss %.4f\n", epoch, last.loss);
  }
  return ds::OkStatus();
}

// Reads the ds_config and applies --dtype to it.
ds::StatusOr<ds::config::DsConfig> ReadConfig(const Arguments& arguments, int world_size) {
  DS_ASSIGN_OR_RETURN(const std::string text, ds::ReadFile(arguments.config));
  ds::config::JobFacts facts{.world_size = world_size};
  facts.flags.fp16 = arguments.dtype == "fp16";
  facts.flags.bf16 = arguments.dtype == "bf16";
  const auto checked = ds::config::CheckConfig(text, arguments.config, facts);
  if (!checked.ok) return ds::InvalidArgumentError(checked.errors.front().message);
  if (arguments.dtype == "fp32" && checked.config.training_dtype() != ds::config::DataType::kFp32) {
    return ds::InvalidArgumentError("--dtype fp32: " + arguments.config + " has another one");
  }
  return checked.config;
}

ds::Status Train(const Arguments& arguments) {
  DS_ASSIGN_OR_RETURN(const auto identity, ds::comm::RankIdentityFromEnvironment());
  DS_ASSIGN_OR_RETURN(const ds::config::DsConfig config,
                      ReadConfig(arguments, identity.world_size));
  const std::int64_t micro_batch = config.batch.train_micro_batch_size_per_gpu;
  DS_ASSIGN_OR_RETURN(std::string train_records, ReadRecords(arguments.folder, /*of_test=*/false));
  DS_ASSIGN_OR_RETURN(std::string test_records, ReadRecords(arguments.folder, /*of_test=*/true));
  DS_ASSIGN_OR_RETURN(const auto world, ds::comm::ConnectWorld(identity, {.device = c10::kCPU}));
  DS_ASSIGN_OR_RETURN(const auto mesh, ds::engine::MakeMesh({}, config, identity.world_size));
  Reader train(std::move(train_records), *world, micro_batch);
  Reader test(std::move(test_records), *world, micro_batch);
  for (const auto& [reader, what] : {std::pair(&train, "training"), std::pair(&test, "test")}) {
    if (reader->count() > 0) continue;
    return ds::InvalidArgumentError(std::string("fewer ") + what +
                                    " images than all ranks process at once");
  }
  ds::moe::ExpertLayerOptions experts = arguments.experts;
  experts.ranks = ds::engine::FindModelRanks(mesh, *world).experts;
  Seen seen{.routes = at::zeros({experts.experts}, at::kLong)};
  DS_ASSIGN_OR_RETURN(const auto engine, ds::Engine::create(MakeModel(experts, &seen), config,
                                                            {.world = world.get()}));
  at::manual_seed(static_cast<std::uint64_t>(identity.rank));
  DS_RETURN_IF_ERROR(RunEpochs(*engine, train, arguments));
  DS_RETURN_IF_ERROR(ds::engine::Evaluate(
                         *engine, [&] { return test.Next(); }, test.count())
                         .status());
  PrintTest(seen, *world);
  return ds::OkStatus();
}

int Fail(const std::string& message) {
  std::fprintf(stderr, "cifar10_experts: %s\n", message.c_str());
  return EXIT_FAILURE;
}

}  // namespace

int main(int argc, char** argv) {
  const auto arguments = ParseArguments({argv + 1, argv + argc});
  if (!arguments.ok()) return Fail(arguments.status().message());
  ds::ProbeAndCapIsa();  // before the first tensor operation
  try {
    const ds::Status status = Train(*arguments);
    return status.ok() ? EXIT_SUCCESS : Fail(status.message());
  } catch (const c10::Error& error) {  // an operator of LibTorch: without the stack
    return Fail(error.what_without_backtrace());
  } catch (const std::exception& error) {
    return Fail(error.what());
  }
}
