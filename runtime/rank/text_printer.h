#pragma once

// TextPrinter prints generated texts, as text or as lines of JSON. A single text is printed as it
// grows. Several texts are printed in the order of their prompts, each when it has ended.
//
// A line of JSON: {"index": 0, "prompt": TEXT or MESSAGES, "text": TEXT, "tokens": [ids],
// "prompt_tokens": N, "finish_reason": "stop" (an end token) or "length"}.
//
// Not thread-safe.

#include <cstdio>
#include <deque>
#include <nlohmann/json.hpp>
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
    bool streams = false;  // there is one text, which is printed as it grows
  };

  // All arguments must outlive this object; `tokenizer` is null for bytes.
  TextPrinter(std::FILE* out, const Format& format, const tokenizer::Tokenizer* tokenizer)
      : out_(out), format_(format), tokenizer_(tokenizer) {}

  // Announced: one prompt of the next batch. The index in OnToken refers to the list passed to
  // Begin.
  struct Announced {
    const nlohmann::ordered_json* prompt = nullptr;
    std::size_t tokens = 0;
  };
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
    std::optional<inference::Ending> ending;
  };
  void PrintEnded();
  void PrintFull(const Text& text);
  void Write(const std::string& text);
  void Note(const Status& status);

  std::FILE* out_;
  const Format format_;
  const tokenizer::Tokenizer* tokenizer_;
  std::vector<Text> batch_;
  std::size_t printed_of_batch_ = 0;
  std::size_t printed_ = 0;
  Status status_;
};

}  // namespace ds::rank
