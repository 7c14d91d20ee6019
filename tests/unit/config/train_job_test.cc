#include "runtime/config/train_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace ds::config {
namespace {

using ::testing::HasSubstr;

// A job in which no field has its default, so that a field that does not travel shows; but for
// eval_split, which takes the place of eval_data.
TrainJob FullJob() {
  return {.model = "models/gpt2",
          .data = {"a.bin", "b c.txt"},
          .data_weights = {3.0, 0.5},
          .token_dtype = "uint32",
          .tokenizer = "models/gpt2",
          .data_field = "rows",
          .text_field = "body",
          .messages_field = "dialog",
          .prompt_field = "question",
          .completion_field = "answer",
          .tools_field = "functions",
          .role_field = "who",
          .content_field = "says",
          .prompt_style = "alpaca",
          .max_length = 64,
          .truncation_mode = "keep_end",
          .assistant_only_loss = true,
          .on_bad_data = "skip",
          .data_cache = "/cache",
          .packing = "whole",
          .eval_data = {"d.jsonl"},
          .eval_every = 7,
          .save_best = true,
          .load_best = true,
          .eval_patience = 3,
          .max_minutes = 1.5,
          .warmup_share = 0.25,
          .seq_len = 128,
          .steps = 20,
          .epochs = 3,
          .shuffle = false,
          .seed = 18446744073709551615u,
          .save_every = 5,
          .save_total_limit = 2,
          .checkpoint_dir = "runs/x/checkpoints",
          .checkpoint_mark = ".shared-1-2",
          .resume_from = "runs/x/checkpoints/step-5",
          .start = 9007199254740991,
          .device = "cpu",
          .encrypt = true,
          .on_non_finite = "rewind",
          .recompute = "every:2",
          .mlp_tiles = 4,
          .sequence_kind = "ring",
          .sp_chunk = 64,
          .sp_offload = "/tmp/x",
          .pipeline_schedule = "interleaved",
          .pipeline_virtual_stages = 3,
          .no_decay_on_norms_and_biases = true,
          .layer_decay = 0.75,
          .ds_config = R"({"train_batch_size":8})",
          .derived_keys = {"scheduler.params.total_num_steps"},
          .save_hf_dir = "out",
          .router_aux_loss_coef = "auto",
          .neftune_noise_alpha = 5.0,
          .freeze = {"*.bias"},
          .lora_rank = 4,
          .lora_alpha = 6.5,
          .lora_targets = {"q_proj"},
          .lora_rslora = true,
          .lora_dora = true,
          .lora_dropout = 0.05,
          .quantize_base = "nf4",
          .lora_adapter = "adapter",
          .lora_merge = true};
}

std::string ErrorWith(const char* field, const nlohmann::json& value) {
  auto json = nlohmann::json::parse(ToJson(FullJob()));
  json[field] = value;
  const StatusOr<TrainJob> job = TrainJobFromJson(json.dump());
  return job.ok() ? "accepted" : job.status().message();
}

TEST(TrainJobTest, RoundTrips) {
  const StatusOr<TrainJob> read = TrainJobFromJson(ToJson(FullJob()));
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(*read, FullJob());
  const auto full = nlohmann::json::parse(ToJson(FullJob()));
  const auto defaults = nlohmann::json::parse(ToJson(TrainJob{}));
  for (const auto& [name, value] : defaults.items()) {
    if (name == "eval_split") continue;
    EXPECT_NE(value, full[name]) << name;
  }
  const TrainJob split{.model = "m", .data = {"d"}, .eval_split = 0.25};
  EXPECT_EQ(*TrainJobFromJson(ToJson(split)), split);
}

TEST(TrainJobTest, FieldsLeftOutKeepTheirDefault) {
  const StatusOr<TrainJob> read = TrainJobFromJson(R"({"model":"m","data":["d"]})");
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(*read, (TrainJob{.model = "m", .data = {"d"}}));
}

TEST(TrainJobTest, RefusesUnknownFieldsWithTheNearestName) {
  EXPECT_THAT(ErrorWith("seqlen", 4), HasSubstr("unknown field 'seqlen'; did you mean 'seq_len'?"));
}

TEST(TrainJobTest, RefusesWrongTypesAndValues) {
  EXPECT_THAT(ErrorWith("on_non_finite", "ignore"), HasSubstr("'on_non_finite' must be one of"));
  EXPECT_THAT(ErrorWith("save_every", 0), HasSubstr("above 0 when on_non_finite is 'rewind'"));
  EXPECT_THAT(ErrorWith("recompute", "all"), HasSubstr("'all' is none of none, full"));
  EXPECT_THAT(ErrorWith("mlp_tiles", 0), HasSubstr("'mlp_tiles' must be 1 or more"));
  EXPECT_THAT(ErrorWith("sequence_kind", "zigzag"), HasSubstr("'ulysses' 'ring', not 'zigzag'"));
  EXPECT_THAT(ErrorWith("portion", -1), HasSubstr("'portion' must be 0 or more"));
  EXPECT_THAT(ErrorWith("portion", 0), HasSubstr("above 0 when portions_in is given"));
  EXPECT_THAT(ErrorWith("pipeline_schedule", "dualpipe"), HasSubstr("not 'dualpipe'"));
  EXPECT_THAT(ErrorWith("pipeline_virtual_stages", -1), HasSubstr("must be 0 or more"));
  EXPECT_THAT(ErrorWith("layer_decay", 0), HasSubstr("above 0 and at most 1"));
  EXPECT_THAT(ErrorWith("layer_decay", 1.01), HasSubstr("above 0 and at most 1"));
  EXPECT_THAT(ErrorWith("layer_decay", "x"), HasSubstr("'layer_decay' must be a number"));
  EXPECT_THAT(ErrorWith("model", ""), HasSubstr("'model'"));
  EXPECT_THAT(ErrorWith("model", 3), HasSubstr("'model' must be a string"));
  EXPECT_THAT(ErrorWith("data", nlohmann::json::array()), HasSubstr("'data'"));
  EXPECT_THAT(ErrorWith("data", "one.txt"), HasSubstr("'data' must be a list of strings"));
  EXPECT_THAT(ErrorWith("data", {"x", 1}), HasSubstr("'data' must be a string"));
  EXPECT_THAT(ErrorWith("token_dtype", "int8"), HasSubstr("'uint16' 'uint32', not 'int8'"));
  EXPECT_THAT(ErrorWith("seq_len", 0), HasSubstr("'seq_len' must be 1 or more"));
  EXPECT_THAT(ErrorWith("seq_len", 1.5), HasSubstr("'seq_len' must be a whole number"));
  EXPECT_THAT(ErrorWith("seq_len", 9223372036854775808u), HasSubstr("'seq_len'"));
  EXPECT_THAT(ErrorWith("steps", -1), HasSubstr("'steps' must be 0 or more"));
  EXPECT_THAT(ErrorWith("epochs", 0), HasSubstr("'epochs' must be 1 or more"));
  EXPECT_THAT(ErrorWith("shuffle", "yes"), HasSubstr("'shuffle' must be true or false"));
  EXPECT_THAT(ErrorWith("seed", -1), HasSubstr("'seed'"));
  EXPECT_THAT(ErrorWith("save_every", -2), HasSubstr("'save_every' must be 0 or more"));
  EXPECT_THAT(ErrorWith("save_total_limit", -1), HasSubstr("'save_total_limit' must be 0 or more"));
  EXPECT_THAT(ErrorWith("save_best", false), HasSubstr("true with load_best"));
  EXPECT_THAT(ErrorWith("checkpoint_dir", ""), HasSubstr("'checkpoint_dir'"));
  EXPECT_THAT(ErrorWith("on_bad_data", "ignore"), HasSubstr("'on_bad_data' must be one of"));
  EXPECT_THAT(ErrorWith("eval_split", 0.5), HasSubstr("0 when there is eval_data"));
  EXPECT_THAT(ErrorWith("eval_split", 1.0), HasSubstr("below 1"));
  EXPECT_THAT(ErrorWith("eval_every", -1), HasSubstr("'eval_every' must be 0 or more"));
  EXPECT_THAT(ErrorWith("eval_every", 0), HasSubstr("above 0 with save_best or eval_patience"));
  EXPECT_THAT(ErrorWith("eval_patience", -1), HasSubstr("'eval_patience' must be 0 or more"));
  EXPECT_THAT(ErrorWith("max_minutes", -1.0), HasSubstr("'max_minutes' must be 0 or more"));
  EXPECT_THAT(ErrorWith("warmup_share", 1.0), HasSubstr("'warmup_share' must be 0 or more"));
  EXPECT_THAT(ErrorWith("eval_data", nlohmann::json::array()), HasSubstr("0 without eval_data"));
  EXPECT_THAT(ErrorWith("data_weights", {1.0}), HasSubstr("or one for each path of data"));
  EXPECT_THAT(ErrorWith("data_weights", {1.0, 0.0}), HasSubstr("'data_weights' must be above 0"));
  EXPECT_THAT(ErrorWith("data_weights", 1.0), HasSubstr("must be a list of numbers"));
  EXPECT_THAT(ErrorWith("prompt_style", "vicuna"), HasSubstr("'prompt_style' must be one of"));
  EXPECT_THAT(ErrorWith("max_length", -1), HasSubstr("'max_length' must be 0 or more"));
  EXPECT_THAT(ErrorWith("max_length", 129), HasSubstr("'seq_len' must be max_length or more"));
  EXPECT_THAT(ErrorWith("truncation_mode", "left"), HasSubstr("'keep_end', not 'left'"));
  EXPECT_THAT(ErrorWith("packing", "bfd"), HasSubstr("'packing' must be one of"));
  EXPECT_THAT(ErrorWith("lora_rank", -1), HasSubstr("'lora_rank' must be 0 or more"));
  EXPECT_THAT(ErrorWith("lora_alpha", -1), HasSubstr("'lora_alpha' must be 0 or more"));
  EXPECT_THAT(ErrorWith("lora_dropout", 1), HasSubstr("'lora_dropout' must be below 1"));
  EXPECT_THAT(ErrorWith("device", "tpu"), HasSubstr("'device' must be one of"));
}

TEST(TrainJobTest, RefusesOtherTypesThanObjects) {
  for (const char* text : {"", "[]", "{", "3", "{} x"}) {
    EXPECT_FALSE(TrainJobFromJson(text).ok()) << text;
  }
}

}  // namespace
}  // namespace ds::config
