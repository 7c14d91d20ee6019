#pragma once

// A small decoder of a real family, trained on one rank or on a mesh of ranks: the same samples and
// the same first values however it is cut.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/loop/train_loop.h"
#include "runtime/models/weights/model_config.h"
#include "runtime/plan/pipeline/schedule.h"
#include "runtime/plan/sequence/token_ranges.h"

namespace ds::tests {

inline constexpr char kDroppingDecoder[] =
    R"({"model_type":"gpt2","vocab_size":47,"n_positions":16,"n_embd":24,"n_layer":2,"n_head":4,
        "embd_pdrop":0.1,"resid_pdrop":0.1,"attn_pdrop":0.1})";
// Fewer heads of the keys than of the queries.
inline constexpr char kLlamaDecoder[] =
    R"({"model_type":"llama","vocab_size":48,"hidden_size":24,"intermediate_size":42,
        "num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,
        "max_position_embeddings":16})";
// Each token sees five.
inline constexpr char kWindowedDecoder[] =
    R"({"model_type":"mistral","vocab_size":48,"hidden_size":24,"intermediate_size":42,
        "num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":4,
        "max_position_embeddings":16,"sliding_window":5})";
// Distances that differ by head, in numbers that three heads have and two times two have not.
inline constexpr char kDistancesDecoder[] =
    R"({"model_type":"bloom","vocab_size":47,"hidden_size":24,"n_layer":2,"n_head":3,
        "hidden_dropout":0.0,"attention_dropout":0.0})";
inline constexpr char kMixtralDecoder[] =
    R"({"model_type":"mixtral","vocab_size":48,"hidden_size":24,"intermediate_size":20,
        "num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,
        "max_position_embeddings":16,"num_local_experts":4,"num_experts_per_tok":2,
        "initializer_range":0.1})";
// A micro-batch of twelve tokens reaches twelve of the experts at most. One layer has none, the
// others have one more that all tokens go through.
inline constexpr char kManyExpertsDecoder[] =
    R"({"model_type":"qwen2_moe","vocab_size":48,"hidden_size":24,"intermediate_size":20,
        "num_hidden_layers":3,"num_attention_heads":4,"num_key_value_heads":2,
        "max_position_embeddings":16,"num_experts":16,"num_experts_per_tok":1,
        "moe_intermediate_size":8,"shared_expert_intermediate_size":12,"mlp_only_layers":[1],
        "initializer_range":0.1})";
inline constexpr std::int64_t kTrainedSteps = 3;  // of comparisons

struct DecoderRun {
  std::string model;      // a config.json's text
  bool residual = false;  // with an MLP next to its experts
  // The other ranks have samples of their own.
  int tensor = 1, sequence = 1, pipeline = 1;
  int expert = 1;
  bool data_before_expert = false;
  sequence_parallel::SequenceKind sequence_kind = sequence_parallel::SequenceKind::kUlysses;
  pipeline::ScheduleKind schedule = pipeline::ScheduleKind::kOneForwardOneBackward;
  int chunks = 1;  // of every stage
  std::string partition = "uniform";
  bool sends_parts = true;  // tensor ranks do, between stages
  bool tensor_sums_overlap = false;
  int stage = 0;
  std::int64_t accumulation = 1;
  bool bf16 = false;
  config::Fp16Config fp16 = {};
  bool packed = false;  // a sample is of three documents, of which none sees another
  config::RecomputeChoice recompute = {};
  config::OptimizerAlgorithm optimizer = config::AdamConfig{};
  std::string base_shapes = {};
  std::int64_t mlp_tiles = 1;
  std::int64_t sp_chunk = 0;  // of a sample, in attention; 0: all at once
  std::string sp_offload = {};
  bool offloads_optimizer = false;
  std::int64_t sub_group_size = 1'000'000'000;  // ZeRO's: of what is updated at once
  // To files in these folders; empty: not.
  std::string optimizer_folder = {}, parameter_folder = {};
  bool partitions_activations = false;
  std::optional<std::int64_t> buffered_parts = {};  // of these
  bool quantizes_frozen = false;                    // zero_quantized_nontrainable_weights
  int hpz_partition_size = 1;
  bool names_unused = false;   // and ends the run for them
  std::int64_t lora_rank = 0;  // of adapters on all linear layers, which are trained alone
  double lora_dropout = 0.0;
  std::vector<std::string> freeze = {};  // patterns
  bool gathers_ahead = false;            // at stage 3
  // Elements that may stay gathered, and unreduced, through a step; none: as many as in DeepSpeed.
  std::optional<std::int64_t> most_in_window = {};

  int ranks_of_a_sample() const { return tensor * sequence * pipeline; }
};

// One rank's engine of it; `world` and `ledger` outlive it.
std::unique_ptr<Engine> MakeDecoderEngine(const DecoderRun& run, comm::Communicator& world,
                                          device::MemoryLedger* ledger = nullptr);

// Trains from where the engine stands to `steps` finished steps.
std::vector<StepResult> TrainDecoder(Engine& engine, const DecoderRun& run, std::int64_t steps);

struct DecoderOutcome {
  std::vector<StepResult> steps;
  std::map<std::string, at::Tensor> parameters;  // whole, at the end
};

// All of it on a new world of so many ranks.
DecoderOutcome RunDecoder(const DecoderRun& run, int ranks, std::int64_t steps);

struct StepTolerance {
  double loss = 1e-5, norm = 1e-5;  // the norm's is relative where it is above 1
};

// Expects the same losses and norms, of as many tokens and samples.
void ExpectSameSteps(const std::vector<StepResult>& expected, const std::vector<StepResult>& ours,
                     const StepTolerance& tolerance = {});

// Expects the same parameters, but for the order of sums.
void ExpectSameParameters(const DecoderOutcome& expected, const DecoderOutcome& ours);

// Expects the same losses, norms and parameters, bit for bit.
void ExpectSameBits(const DecoderOutcome& expected, const DecoderOutcome& ours);

// Evaluates an untrained one on the samples of the first step.
engine::Evaluation EvaluateDecoder(const DecoderRun& run, int ranks);

// The steps behind the second, of a run whose state went through a checkpoint.
std::vector<StepResult> GoOnFromCheckpoint(const DecoderRun& first, int ranks_of_first,
                                           const DecoderRun& second, int ranks_of_second);

}  // namespace ds::tests
