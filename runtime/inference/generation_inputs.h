#pragma once

// The inputs of a generation: the model, the settings of its folder, and prompts as tokens.

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

// LoadModel: returns a model with its weights, ready to run.

// Parses "float32", "bfloat16", "float16" or "auto". "auto" is the dtype of the weights according
// to `config`, or float32 if it names none.
StatusOr<c10::ScalarType> FindDtype(const std::string& name, const models::ModelConfig& config);

struct LoadedModel {
  std::shared_ptr<BlockList> blocks;  // in evaluation mode
  bool has_weights = false;           // false: the weights are random
  std::vector<std::string> unused;    // tensors of the folder that belong to no block
};

// Reads the weights of config.folder, or draws them with `seed` if there are none. Rejects a folder
// that does not match the model before it allocates memory. Adds the adapters of the PEFT folder
// `adapter`, if given, without merging them. `options` holds dtype and device.
StatusOr<LoadedModel> LoadModel(const models::ModelConfig& config, c10::TensorOptions options,
                                std::uint64_t seed, const std::filesystem::path& adapter = {});

// GenerationConfig: the settings of generation_config.json in a model's folder, parsed as
// transformers does: how tokens are chosen and which tokens end a text.
//
// Torch-free. Thread-safe.

struct GenerationConfig {
  SamplingOptions sampling;
  std::optional<std::int64_t> max_new_tokens;
  std::optional<std::int64_t> max_length;  // includes the prompt; used without max_new_tokens
  std::vector<std::int64_t> end_tokens;
};

// Parses the file's text. An absent or null key has transformers' default. Returns an error that
// names the key for a value out of range, and for a set key that would change the text and is not
// implemented. `file_name` is used in messages.
StatusOr<GenerationConfig> ParseGenerationConfig(std::string_view text,
                                                 const std::string& file_name);

// Reads the file of `folder`, or returns the defaults if there is none. `only_end_tokens` keeps the
// other settings at their defaults. If the file names no end token, the end tokens of `model`, a
// config.json, are used.
StatusOr<GenerationConfig> ReadGenerationConfig(const std::filesystem::path& folder,
                                                const nlohmann::ordered_json& model,
                                                bool only_end_tokens);

// PromptEncoder: converts prompts to a model's tokens. It applies the tokenizer to texts; it
// applies the chat template to conversations first.
//
// Torch-free. Not thread-safe.

class PromptEncoder {
 public:
  // `folder` must outlive this object. Null: each byte is a token.
  explicit PromptEncoder(const tokenizer::TokenizerFolder* folder);

  // `prompt` is a text, or a list of messages, which the assistant answers, or an object with such
  // "messages" and the "variables" of the chat template. A text gets the tokenizer's special tokens
  // around it; a conversation has the special tokens of its template. Returns an error if there are
  // no tokens, or no template.
  StatusOr<std::vector<std::int64_t>> Encode(const nlohmann::ordered_json& prompt);

 private:
  StatusOr<std::vector<std::int64_t>> EncodeText(const std::string& text, bool special_tokens);

  const tokenizer::TokenizerFolder* folder_;
  std::optional<tokenizer::Encoder> encoder_;
};

}  // namespace ds::inference
