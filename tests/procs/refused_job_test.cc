// What a rank would refuse before its first step is refused by `check` and by `train`, in the same
// words and with the same status, before a rank starts.

#include <nlohmann/json.hpp>

#include "tests/procs/checked_job.h"

namespace ds::testing {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

const std::string kGoldens = DS_SOURCE_DIR "/tests/numerics/goldens/";

struct RefusedJob {
  const char* name;
  Words flags;  // {} is the test's folder
  const char* words;
  std::string sections = "";  // of the ds_config
};

constexpr char kFiveSteps[] = R"(, "optimizer": {"type": "AdamW", "params": {"lr": 0.001}},
    "scheduler": {"type": "OneCycleLR", "params": {"max_lr": 0.01, "total_steps": 5}})";

const RefusedJob kJobs[] = {
    {"unknown target",
     {"--lora_rank", "2", "--lora_target_modules", "q_proj", "w1"},
     "no linear layer of the model's layers is called w1 (there are: down_proj, gate_proj"},
    {"unknown target between commas",
     {"--lora_rank", "2", "--lora_targets", "q_proj,k_prj"},
     "is called k_prj"},
    {"pattern without a match",
     {"--lora_rank", "2", "--lora_targets", "(q|v)_proj"},
     "a regular expression matches full names, which are like model.layers.0."},
    {"no pattern", {"--lora_rank", "2", "--lora_targets", "q_proj("}, "is not understood"},
    {"DoRA of shared rows",
     {"--lora_rank", "2", "--lora_dora", "--lora_targets", "down_proj", "--tp", "2"},
     "DoRA of down_proj, with rows sharded over tensor ranks, is not built"},
    {"dropout of tiles",
     {"--lora_rank", "2", "--lora_dropout", "0.1", "--tile_mlp", "2"},
     "--tile_mlp with dropout of adapters is not built"},
    {"bytes for shared matrices",
     {"--lora_rank", "2", "--quantize_base", "nf4", "--tp", "2"},
     "--quantize_base of matrices that tensor ranks have between them is not built"},
    {"frozen nothing",
     {"--freeze", "model.layer.*"},
     "no parameter of the model matches model.layer.*; their names are like model.layers.0."},
    {"frozen all", {"--freeze", "*"}, "every parameter is frozen: nothing is left to train"},
    {"adapter of another model",
     {"--lora_adapter", DS_SOURCE_DIR "/tests/numerics/goldens/adapters/gpt2"},
     "has an adapter of transformer.h.0.attn.c_attn: the model has no such linear layer"},
    {"adapter without its base",
     {"--model", "{}/described/config.json", "--lora_adapter", kGoldens + "adapters/regex"},
     "--model has no weights that it could belong to: give the folder of its base model"},
    {"export onto a file", {"--save_hf", "{}/file"}, "--save_hf: "},
    {"export next to an adapter",
     {"--save_hf", kGoldens + "adapters/gpt2"},
     "has an adapter (adapter_config.json), which transformers would apply"},
    {"export over a model",
     {"--save_hf", kGoldens + "gpt2"},
     "gpt2 holds a model that dsrun has not written"},
    {"export over an adapter",
     {"--save_hf", kGoldens + "adapters/gpt2", "--lora_rank", "2"},
     "adapters/gpt2 holds a model that dsrun has not written and would replace: name"},
    {"export below a file", {"--save_hf", "{}/file/model"}, "/file: Not a directory"},
    {"no folder for chunks",
     {"--sp_chunk", "4", "--sp_offload", "{}/none"},
     "make the folder, or mount its drive, first"},
    {"cache onto a file",
     {"--tokenizer", DS_SOURCE_DIR "/tests/numerics/goldens/sft", "--data", "{}/chats.jsonl",
      "--data_cache", "{}/file"},
     "/file: Not a directory; --data_cache names another place for the tokens of the data"},
    {"no files of a metric",
     {},
     "the metric vocabularyrarity: /no/such/samples.idx: No such file or directory",
     R"(, "data_efficiency": {"enabled": true, "data_sampling": {"enabled": true,
         "curriculum_learning": {"enabled": true, "curriculum_metrics": {"vocabularyrarity": {
           "index_to_sample_path": "/no/such/samples", "index_to_metric_path": "/no/such/metric",
           "difficulty_type": "value", "clustering_type": "schedule_based",
           "min_difficulty": 1, "max_difficulty": 10, "schedule_type": "fixed_linear",
           "schedule_config": {"total_curriculum_step": 10, "difficulty_step": 1}}}}}})"},
    {"no folder for the optimizer",
     {},
     "make the folder, or mount its drive, first",
     R"(, "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme",
         "nvme_path": "/no/such/drive"}})"},
    {"odd bytes",
     {"--data", "{}/odd.bin"},
     "odd.bin: 2001 bytes are not a multiple of 2-byte tokens; is --token_dtype right?"},
    {"token above the vocabulary",
     {"--data", "{}/large.bin"},
     "large.bin, token 100 (byte 200): token id 320 is outside the model's vocabulary of 320"},
    {"too few tokens",
     {"--data", "{}/few.bin"},
     "the data has 8 tokens, one sample of seq_len 8 needs 9"},
    {"all held out", {"--eval_split", "0.9999"}, "samples, and none would be left to train on"},
    {"bad evaluation", {"--eval_data", "{}/odd.bin"}, "the data to evaluate on: "},
    {"bytes above the vocabulary",
     {"--model", "{}/narrow.json", "--data", "{}/text.txt"},
     "text.txt, token 1 (byte 1): token id 120 is outside the model's vocabulary of 100 tokens"},
    {"rows without text",
     {"--data", "{}/rows.jsonl"},
     "rows.jsonl:2: there is no text under \"text\""},
    {"row that is no JSON",
     {"--tokenizer", DS_SOURCE_DIR "/tests/numerics/goldens/sft", "--data", "{}/broken.jsonl"},
     "broken.jsonl:3: the row is no JSON"},
    {"several rows on a line",
     {"--tokenizer", DS_SOURCE_DIR "/tests/numerics/goldens/sft", "--data", "{}/joined.jsonl"},
     "several rows on a line is to be named .json"},
    {"row without the field",
     {"--tokenizer", DS_SOURCE_DIR "/tests/numerics/goldens/sft", "--data", "{}/chats.jsonl",
      "--text_field", "body"},
     "chats.jsonl:1: "},
    {"nothing learnt",
     {"--tokenizer", DS_SOURCE_DIR "/tests/numerics/goldens/sft", "--data", "{}/asked.jsonl"},
     "the data contains no tokens that contribute"},
    {"another model's tokenizer",
     {"--model", "{}/narrow.json", "--tokenizer", DS_SOURCE_DIR "/tests/numerics/goldens/sft",
      "--data", "{}/chats.jsonl"},
     "chats.jsonl:1: the tokenizer gives token id "},
    {"number in the tokenizer's file",
     {"--tokenizer", "{}/tokenizer", "--data", "{}/chats.jsonl"},
     "the number 1e999 is larger than the largest double"},
    {"missing tensor", {"--model", "{}/missing"}, "tensor 'model.norm.weight' is missing"},
    {"other shape", {"--model", "{}/wider"}, "has shape [88, 32], expected [96, 32]"},
    {"pickle", {"--model", "{}/pickle"}, "pytorch_model.bin, a pickle, which is never executed"},
    {"skipped updates",
     {"--on_non_finite", "skip"},
     "a step with a gradient that is not finite cannot be skipped with super_offload",
     R"(, "gradient_clipping": 0.0, "zero_optimization": {"stage": 3,
         "offload_optimizer": {"device": "cpu", "super_offload": true}})"},
    {"schedule that ends",
     {"--steps", "10"},
     "the schedule of the ds_config ends after 5 steps, and this run has 10",
     kFiveSteps},
    {"schedule that ends in the epoch",
     {"--epochs", "1"},
     "the schedule of the ds_config ends after 5 steps, and this run has 640",
     kFiveSteps},
    {"two values of a flag",
     {"--max_steps", "5"},
     "--steps 1 and --max_steps 5 are one flag with two values: leave one of them out"},
    {"switch and its flag",
     {"--gradient_checkpointing", "--recompute", "attention"},
     "--gradient_checkpointing and --recompute attention are one flag with two values"},
    {"whole warm-up", {"--warmup_ratio", "1.0"}, "with the number of steps: 1.0 is not a share"},
};

std::string ReplaceAll(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at)) {
    text.replace(at, from.size(), to);
  }
  return text;
}

class RefusedJobTest : public CheckedJob {
 protected:
  RefusedJobTest() {
    Write("file", "");
    Write("odd.bin", std::string(2001, '\1'));
    std::string tokens(2000, '\0');
    tokens[200] = '\x40', tokens[201] = '\1';
    Write("large.bin", tokens);
    Write("few.bin", std::string(16, '\0'));
    Write("text.txt", "axx bxx cxx dxx");
    Write("rows.jsonl", "{\"text\": \"a\"}\n{\"words\": \"b\"}\n");
    const std::string row = *ReadFile(kGoldens + "sft/chats.jsonl");
    const std::string first = row.substr(0, row.find('\n') + 1);
    Write("chats.jsonl", row);
    Write("broken.jsonl", first + first + "{\"messages\": [\n");
    Write("joined.jsonl", first.substr(0, first.size() - 1) + first);
    Write("asked.jsonl", R"({"messages": [{"role": "user", "content": "w1 w2"}]})");
    WriteTokenizer();
    WriteModels();
  }

  void WriteTokenizer() const {
    Write("tokenizer/tokenizer.json", *ReadFile(kGoldens + "sft/tokenizer.json"));
    Write("tokenizer/tokenizer_config.json", R"({"model_max_length": 1e999})");
  }

  // Each is wrong in one place.
  void WriteModels() const {
    const std::string config = *ReadFile(kGoldens + "llama/config.json");
    const std::string weights = *ReadFile(kGoldens + "llama/model.safetensors");
    Write("missing/config.json", config);
    Write("missing/model.safetensors",
          ReplaceAll(weights, "model.norm.weight", "model.nom.weights"));
    Write("wider/config.json",
          ReplaceAll(config, "\"intermediate_size\": 88", "\"intermediate_size\": 96"));
    Write("wider/model.safetensors", weights);
    Write("pickle/config.json", config);
    Write("described/config.json", config);
    Write("pickle/pytorch_model.bin", "");
    Write("narrow.json", ReplaceAll(config, "\"vocab_size\": 320", "\"vocab_size\": 100"));
  }

  // With the job's own model and data where the flags name none.
  Words Complete(const RefusedJob& job) const {
    Words words = {"--seq_len", "8"};
    bool has_model = false, has_data = false, has_length = false;
    for (const std::string& flag : job.flags) {
      has_model = has_model || flag == "--model";
      has_data = has_data || flag == "--data";
      has_length = has_length || flag == "--steps" || flag == "--epochs";
      words.push_back(ReplaceAll(flag, "{}", folder_.path().string()));
    }
    if (!has_length) words.insert(words.begin(), {"--steps", "1"});
    if (!has_model) words.insert(words.end(), {"--model", kGoldens + "llama"});
    if (!has_data) words.insert(words.end(), {"--data", kGoldens + "tokens.bin"});
    return words;
  }
};

TEST_F(RefusedJobTest, CheckAndTrainRefuseAlike) {
  for (const RefusedJob& job : kJobs) {
    SCOPED_TRACE(job.name);
    const std::string config =
        Write("ds.json", R"({"train_micro_batch_size_per_gpu": 1)" + job.sections + "}");
    ExpectRefused(config, Complete(job), job.words);
  }
}

TEST_F(RefusedJobTest, TheJobItselfIsGood) {
  const std::string config = Write("ds.json", R"({"train_micro_batch_size_per_gpu": 1})");
  const Words sft = {"--tokenizer", kGoldens + "sft", "--data", "{}/chats.jsonl"};
  for (const Words& flags :
       {Words{}, sft, Words{"--lora_rank", "2", "--lora_targets", "all-linear"},
        Words{"--lora_rank", "2", "--lora_targets", "q_proj,v_proj"}, Words{"--max_steps", "1.0"},
        Words{"--save_hf", "{}/new/model"}, Words{"--freeze", "model.layers.0.*"}}) {
    SCOPED_TRACE(::testing::PrintToString(flags));
    const ProgramResult good = Run({"check", config, "--num_gpus", "2"},
                                   Complete({.name = "", .flags = flags, .words = ""}));
    EXPECT_EQ(good.status, 0) << good.err;
  }
  EXPECT_FALSE(fs::exists(folder_.path() / "new")) << "check leaves nothing";
}

// dsrun may have no more of a model than its description where it starts ranks on other hosts.
TEST_F(RefusedJobTest, WeightsOfAnAdaptersBaseMayBeOnOtherHostsOnly) {
  const std::string config = Write("ds.json", R"({"train_micro_batch_size_per_gpu": 1})");
  const Words words =
      Complete({.name = "",
                .flags = {"--model", "{}/described", "--lora_adapter", kGoldens + "adapters/regex"},
                .words = ""});
  const ProgramResult elsewhere = Run({"check", config}, words);
  EXPECT_EQ(elsewhere.status, 0) << elsewhere.err;
  EXPECT_EQ(Run({"check", config, "--num_gpus", "2"}, words).status, 2);
}

// A row past the bounds is the ranks' to find, and one that is passed over by the flag nobody's.
TEST_F(RefusedJobTest, BadRowsThatAreSkippedAreGood) {
  const std::string config = Write("ds.json", R"({"train_micro_batch_size_per_gpu": 1})");
  const ProgramResult good = Run({"check", config, "--num_gpus", "2"},
                                 Complete({.name = "",
                                           .flags = {"--tokenizer", kGoldens + "sft", "--data",
                                                     "{}/broken.jsonl", "--on_bad_data", "skip"},
                                           .words = ""}));
  EXPECT_EQ(good.status, 0) << good.err;
}

}  // namespace
}  // namespace ds::testing
