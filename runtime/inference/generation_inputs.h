#pragma once

// A generation begins with these: the model, the settings of its folder, and prompts as tokens.

#include <c10/core/ScalarType.h>
#include <c10/core/TensorOptions.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/inference/sampling.h"
#include "runtime/models/block.h"
#include "runtime/models/weights/model_config.h"
#include "runtime/tokenizer/corpus/tokenizer_folder.h"

namespace ds::inference {

// LoadModel: a model with its weights, ready to run.

// "float32", "bfloat16" or "float16"; "auto" is what `config` says its weights are, else float32.
StatusOr<c10::ScalarType> FindDtype(const std::string& name, const models::ModelConfig& config);

struct LoadedModel {
  std::shared_ptr<BlockList> blocks;  // in evaluation mode
  bool has_weights = false;           // else they are drawn
  std::vector<std::string> unused;    // tensors of the folder that no block has
};

// Reads the weights of config.folder; where there are none, draws them by `seed`. Refuses a folder
// that does not suit the model before anything is allocated. Puts the adapters of a PEFT folder
// beside the weights, if there is one, unmerged. `options` say dtype and device.
StatusOr<LoadedModel> LoadModel(const models::ModelConfig& config, c10::TensorOptions options,
                                std::uint64_t seed, const std::filesystem::path& adapter = {});

// GenerationConfig: what the generation_config.json of a model's folder says of texts, read as
// transformers reads it: how tokens are chosen and which of them end a text.
//
// Torch-free. Threads: any.

struct GenerationConfig {
  SamplingOptions sampling;
  std::optional<std::int64_t> max_new_tokens;
  std::optional<std::int64_t> max_length;  // prompt included; counts without max_new_tokens
  std::vector<std::int64_t> end_tokens;
};

// A key that is absent or null has transformers' default. Refuses by name a value that is out of
// range, and a set key that would change the text and is not built; `file_name` is for messages.
StatusOr<GenerationConfig> ParseGenerationConfig(std::string_view text,
                                                 const std::string& file_name);

// Reads that of `folder`, or takes the default where it has none. `only_end_tokens` leaves the rest
// at its default, whatever it says. Where it names no end of a text, `model`, a config.json, may.
StatusOr<GenerationConfig> ReadGenerationConfig(const std::filesystem::path& folder,
                                                const nlohmann::ordered_json& model,
                                                bool only_end_tokens);

// PromptEncoder: prompts as the tokens that a model reads: texts by its tokenizer, conversations by
// its chat template first.
//
// Torch-free. Threads: one.

class PromptEncoder {
 public:
  // `folder` outlives it. Null: a byte is a token.
  explicit PromptEncoder(const tokenizer::TokenizerFolder* folder);

  // `prompt` is a text, or a list of messages, after which the assistant answers, or an object with
  // such "messages" and the "variables" of the chat template. A text gets
  // the special tokens that the tokenizer puts around one; a conversation has its template's. An
  // error where there is no token, or no template.
  StatusOr<std::vector<std::int64_t>> Encode(const nlohmann::ordered_json& prompt);

 private:
  StatusOr<std::vector<std::int64_t>> EncodeText(const std::string& text, bool special_tokens);

  const tokenizer::TokenizerFolder* folder_;
  std::optional<tokenizer::Encoder> encoder_;
};

}  // namespace ds::inference
