#pragma once

// TextPrinter prints generated texts, as plain text or as JSON lines. With Format::streams the only
// text is printed as it grows. Otherwise texts are printed in full, in the order of their prompts:
// each when it and all earlier ones have ended.
//
// A JSON line: {"index": 0, "prompt": TEXT or MESSAGES, "text": TEXT, "tokens": [ids],
// "prompt_tokens": N, "finish_reason": "stop" (an end token) or "length"}.
//
// Not thread-safe.

#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/inference/generate.h"
#include "runtime/inference/text_stream.h"

namespace ds::rank {

class TextPrinter : public inference::GenerationObserver {
 public:
  struct Format {
    bool json = false;
    bool streams = false;  // requires a single text, not in JSON
  };

  // All arguments must outlive this object. A null `tokenizer` means that each token is a byte.
  TextPrinter(std::FILE* out, const Format& format, const tokenizer::Tokenizer* tokenizer)
      : out_(out), format_(format), tokenizer_(tokenizer) {}

  // One prompt of a batch, as the user gave it, and its number of tokens.
  struct Announced {
    const nlohmann::ordered_json* prompt = nullptr;
    std::size_t tokens = 0;
  };
  // Begins a batch, the prompts of one call of Generate. `prompt` in OnToken and OnEnd is an index
  // into it.
  void Begin(const std::vector<Announced>& batch);

  void OnToken(std::size_t prompt, std::int64_t token) override;
  void OnEnd(std::size_t prompt, inference::Ending ending) override;
  bool accepts_more() const override { return status_.ok(); }

  // Returns the first error: a text that cannot be decoded or written.
  const Status& status() const { return status_; }

 private:
  struct Text {
    Announced announced;
    inference::TextStream stream;
    std::vector<std::int64_t> tokens;
    std::optional<inference::Ending> ending;  // nullopt: it still grows
  };
  // Prints the texts whose turn it is: ended ones, up to the first that still grows.
  void PrintEnded();
  void PrintFull(const Text& text);
  // Writes and flushes, unless an error has occurred before.
  void Write(const std::string& text);
  // Records the first error.
  void Note(const Status& status);

  std::FILE* out_;
  const Format format_;
  const tokenizer::Tokenizer* tokenizer_;
  std::vector<Text> batch_;
  std::size_t printed_of_batch_ = 0;
  std::size_t printed_ = 0;  // of all batches: the index of the next text
  Status status_;
};

}  // namespace ds::rank
