#pragma once

// Compares FindAssistant with a folder of scripts/goldens/make_span_goldens.py: the text of every
// case is that of transformers, and the learnt parts are the ones that the sibling of the template
// marks with {% generation %}.
//
// Where the sibling writes other words of the past (Qwen3's keeps all thinking), the rest of the
// text must be equal, and each learnt part the end or the beginning of the sibling's.

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "runtime/base/files.h"
#include "runtime/tokenizer/corpus/assistant_spans.h"
#include "runtime/tokenizer/file/read_tokenizer.h"

namespace ds::testing {

class SpanGoldens {
 public:
  using Json = nlohmann::ordered_json;

  explicit SpanGoldens(const std::filesystem::path& folder)
      : golden_(Json::parse(*ReadFile(folder / "templates.json"))),
        cases_(Json::parse(*ReadFile(folder / "cases.json"))) {}

  const Json& golden() const { return golden_; }

  tokenizer::TokenizerFolder FolderWith(const std::string& chat_template) const {
    Json file = {{"added_tokens", Json::array()},
                 {"model", {{"type", "WordLevel"}, {"vocab", {{"?", 0}}}, {"unk_token", "?"}}}};
    for (const Json& token : golden_["special"]) {
      Json added = {{"content", token}, {"special", true}};
      added["id"] = 1 + file["added_tokens"].size();
      file["added_tokens"].push_back(added);
    }
    auto tokenizer = tokenizer::ParseTokenizerJson(file.dump(), "tokenizer.json");
    DS_CHECK(tokenizer.ok());
    tokenizer::TokenizerFolder folder{*std::move(tokenizer), {}, {}, Json::object()};
    auto parsed = tokenizer::ChatTemplate::Parse(chat_template);
    EXPECT_TRUE(parsed.ok()) << parsed.status().message();
    if (parsed.ok()) folder.chat_template = *std::move(parsed);
    folder.chat_variables = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
    return folder;
  }

  // Returns how many cases were compared.
  int CompareAll() const {
    int compared = 0;
    for (const auto& [name, source] : golden_["templates"].items()) {
      const tokenizer::TokenizerFolder folder = FolderWith(source.get<std::string>());
      if (!folder.chat_template) continue;
      for (const Json& each : cases_) {
        if (each["template"] != name) continue;
        SCOPED_TRACE(name + ", " + each["conversation"].get<std::string>());
        Compare(folder, each);
        ++compared;
      }
    }
    return compared;
  }

 private:
  using Spans = std::vector<tokenizer::Span>;

  // Spans that touch are one.
  static void Add(tokenizer::Span span, Spans* spans) {
    if (span.begin == span.end) return;
    if (!spans->empty() && spans->back().end == span.begin) {
      spans->back().end = span.end;
    } else {
      spans->push_back(span);
    }
  }

  void Compare(const tokenizer::TokenizerFolder& folder, const Json& each) const {
    tokenizer::ChatOptions options{.variables = folder.chat_variables};
    if (!each["tools"].is_null()) options.variables["tools"] = each["tools"];
    const auto chat = folder.chat_template->Render(each["messages"], options);
    ASSERT_TRUE(chat.ok()) << chat.status().message();
    ASSERT_EQ(chat->text, each["text"].get<std::string>());
    const auto found = tokenizer::FindAssistant(folder, each["messages"], options, *chat);
    if (each.contains("refused")) {
      EXPECT_EQ(found.status().code(), StatusCode::kInvalidArgument);
      return;
    }
    ASSERT_TRUE(found.ok()) << found.status().message();
    Spans spans, marked;
    for (const auto& part : *found) Add(part.span, &spans);
    for (const Json& part : each["spans"]) Add({part[0], part[1]}, &marked);
    const std::string training = each["training"].get<std::string>();
    ASSERT_EQ(spans.size(), marked.size()) << Words(chat->text, spans) << Words(training, marked);
    for (std::size_t i = 0; i < spans.size(); ++i) {
      CompareWords(chat->text, spans[i], training, marked[i]);
    }
    if (chat->text != training) {
      EXPECT_EQ(Rest(chat->text, spans), Rest(training, marked));
    }
  }

  static void CompareWords(const std::string& text, tokenizer::Span span,
                           const std::string& training, tokenizer::Span marked) {
    const std::string in_loss = text.substr(span.begin, span.end - span.begin);
    const std::string expected = training.substr(marked.begin, marked.end - marked.begin);
    if (text == training) {
      EXPECT_EQ(in_loss, expected);
    } else {
      EXPECT_TRUE(expected.ends_with(in_loss) || expected.starts_with(in_loss))
          << in_loss << "\n--- sibling:\n"
          << expected;
    }
  }

  static std::string Words(const std::string& text, const Spans& spans) {
    std::string words;
    for (const auto& span : spans) {
      words += "[" + text.substr(span.begin, span.end - span.begin) + "]";
    }
    return words + "\n";
  }

  // Returns the parts between the spans.
  static std::vector<std::string> Rest(const std::string& text, const Spans& spans) {
    std::vector<std::string> rest;
    std::size_t at = 0;
    for (const auto& span : spans) {
      rest.push_back(text.substr(at, span.begin - at));
      at = span.end;
    }
    rest.push_back(text.substr(at));
    return rest;
  }

  const Json golden_, cases_;
};

}  // namespace ds::testing
