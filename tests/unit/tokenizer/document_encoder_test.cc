// Rows of data against TRL's SFTTrainer: ids, and which of them are learnt. Made by
// scripts/goldens/make_row_goldens.py. Rows that are refused are named by their keys.

#include "runtime/tokenizer/corpus/document_encoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "runtime/base/files.h"
#include "runtime/tokenizer/corpus/row_json.h"
#include "runtime/tokenizer/corpus/written_chat.h"
#include "tests/places.h"

namespace ds::tokenizer {
namespace {

using OrderedJson = nlohmann::ordered_json;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

const fs::path kRowGoldens = fs::path(DS_SOURCE_DIR) / "tests/unit/tokenizer/row_goldens";

TokenizerFolder ReadGoldenFolder() {
  auto read = ReadTokenizerFolder(kRowGoldens);
  EXPECT_TRUE(read.ok()) << read.status().message();
  return *std::move(read);
}

const TokenizerFolder& GoldenFolder() {
  static const TokenizerFolder folder = ReadGoldenFolder();
  return folder;
}

DocumentOptions OptionsOf(const OrderedJson& json) {
  const auto text = [&](const char* name) { return json.value(name, std::string()); };
  return {.rows = {.text_field = text("text_field"),
                   .messages_field = text("messages_field"),
                   .prompt_field = text("prompt_field"),
                   .completion_field = text("completion_field"),
                   .tools_field = text("tools_field"),
                   .role_field = text("role_field"),
                   .content_field = text("content_field"),
                   .prompt_style = text("prompt_style")},
          .max_length = json.value("max_length", 0),
          .keeps_end = text("truncation_mode") == "keep_end",
          .assistant_only = json.value("assistant_only_loss", false)};
}

TEST(RowGoldensTest, RowsAreTokensAsTrlMakesThem) {
  const OrderedJson cases = OrderedJson::parse(*ReadFile(kRowGoldens / "cases.json"));
  ASSERT_GT(cases.size(), 40u);
  for (const OrderedJson& each : cases) {
    SCOPED_TRACE(each["name"].get<std::string>());
    TokenizerFolder folder = ReadGoldenFolder();
    if (const auto text = each["options"].find("template"); text != each["options"].end()) {
      folder.chat_template = ChatTemplate::Parse(text->get<std::string>()).value();
    }
    DocumentEncoder encoder(folder, OptionsOf(each["options"]));
    const auto document = encoder.EncodeLine(each["row"].dump());
    ASSERT_TRUE(document.ok()) << document.status().message();
    if (each.contains("left_out")) {
      EXPECT_EQ(document->left_out, EncodedDocument::OmitReason::kTooLong);
      EXPECT_TRUE(document->ids.empty());
      continue;
    }
    EXPECT_THAT(document->ids, ElementsAreArray(each["ids"].get<std::vector<std::uint32_t>>()));
    std::vector<int> in_loss(document->in_loss.begin(), document->in_loss.end());
    if (in_loss.empty()) in_loss.assign(document->ids.size(), 1);
    EXPECT_THAT(in_loss, ElementsAreArray(each["learnt"].get<std::vector<int>>()));
  }
}

std::string LineErrorOf(const std::string& line, const RowOptions& options = {}) {
  DocumentEncoder encoder(GoldenFolder(), {.rows = options});
  const auto document = encoder.EncodeLine(line);
  return document.ok() ? "is read" : std::string(document.status().message());
}

TEST(RowTest, TheAssistantAloneNeedsMessages) {
  DocumentEncoder encoder(GoldenFolder(), {.assistant_only = true});
  for (const char* row :
       {R"({"text": "hello"})", R"({"prompt": "hello", "completion": "there"})"}) {
    EXPECT_THAT(encoder.EncodeLine(row).status().message(), HasSubstr("--assistant_only_loss"));
  }
  EXPECT_TRUE(
      encoder.EncodeLine(R"({"prompt": "hello", "completion": "there", "label": false})").ok());
}

TEST(RowTest, KeysWithAMeaningThatIsNotBuiltAreNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"messages": [], "images": ["a.png"], "text": "a"})", "\"images\""},
      {R"({"input_ids": [1, 2], "text": "a"})", "\"input_ids\""},
      {R"({"prompt": "a", "completion": "b", "tools": [{"type": "function"}]})", "\"tools\""},
      {R"({"prompt": "a", "completion": "b", "system": "c"})", "\"system\""},
      {R"({"prompt": "a", "completion": "b", "chat_template_kwargs": {"c": 1}})",
       "\"chat_template_kwargs\""},
      {R"({"prompt": "a", "completion": "b", "label": "good"})", "\"label\" is \"good\""},
      {R"({"messages": [{"role": "assistant", "content": "a"}], "label": "bad"})",
       "\"label\" is \"bad\""},
      {R"({"chosen": "a", "rejected": "b", "label": 2})", "\"label\" is 2"},
      {R"({"instruction": "a", "output": "b", "kto_tag": "no"})", "\"kto_tag\" is \"no\""},
      {R"({"prompt": "a", "completion": [{"role": "assistant", "content": "b"}]})",
       "\"prompt\" and \"completion\" must be two texts"},
      {R"({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]})", "\"image_url\""},
      {R"({"messages": [{"role": "user", "content": "a"}, {"content": "b"}]})",
       "\"messages\", message 2: it has no \"role\""},
      {R"({"messages": [{"role": "assistant", "content": "a", "weight": 0.5}]})",
       "\"weight\" is 0.5"},
      {R"({"messages": [{"role": "user", "content": "a", "train": true}]})", "\"train\" is 1"},
      {R"({"messages": [{"role": "assistant", "content": "a", "weight": 1, "train": false}]})",
       R"("weight" and "train" contradict each other: leave one out)"},
      {R"({"messages": [{"role": "assistant", "content": "a", "loss_weight": 2.0}]})",
       "\"loss_weight\" is 2.0"},
      {R"({"messages": [{"role": "assistant", "content": "a",
           "train_detail": [{"begin_offset": 0, "end_offset": 1, "train": false}]}]})",
       "\"train_detail\""},
      {R"({"messages": [{"role": "assistant", "content": "a"}], "mask_history": true})",
       "\"mask_history\""},
      {R"({"messages": [{"role": "user", "content": "a"}], "tools": "no JSON"})",
       "\"tools\" is a text, but no JSON"},
      {R"({"messages": [{"role": "user", "content": "a"}], "tools": ["a"]})",
       "\"tools\" has an element that is no object"},
      {R"({"messages": [{"role": "user", "content": "a"}], "tools": [{}], "functions": [{}]})",
       "\"functions\""},
      {R"({"messages": [{"role": "user", "content": "a"}],
           "chat_template_kwargs": {"chat_template": "x"}})",
       "\"chat_template\""},
      {R"({"messages": [{"role": "user", "content": "a"}],
           "conversations": [{"from": "human", "value": "a"}]})",
       "name one with --messages_field"},
      {R"({"messages": [{"role": "assistant", "tool_calls": [{"name": "a"}, {"name": "b"}]}],
           "parallel_tool_calls": false})",
       "\"parallel_tool_calls\""},
      {R"({"conversations": [{"from": "function_call", "value": "a"}]})",
       "the function call is a text, but no JSON"},
      {R"({"messages": [{"role": "system", "content": "a"}], "system": "b"})", "\"system\""},
      {R"({"instruction": "a", "output": "b", "history": [["a"]]})", "\"history\""},
  };
  for (const auto& [line, part] : cases) EXPECT_THAT(LineErrorOf(line), HasSubstr(part)) << line;
}

TEST(RowTest, NamesPresentAndExpectedKeysOfAnUnknownRow) {
  const std::string error =
      LineErrorOf(R"({"id": 1, "question": "a", "answer": "b", "text": null})");
  EXPECT_THAT(error, HasSubstr("the row has \"id\", \"question\", \"answer\", and rows are read"));
  EXPECT_THAT(error, HasSubstr("--prompt_field and --completion_field"));
  EXPECT_THAT(LineErrorOf(R"({"messages": []})"),
              HasSubstr("the row has \"messages\" (empty), and"));
  EXPECT_THAT(LineErrorOf(R"({"prompt": "a"})"), HasSubstr("the row has \"prompt\", and"));
  EXPECT_THAT(LineErrorOf(R"({"a": "b"})", {.text_field = "c"}), HasSubstr("no text under \"c\""));
}

TEST(RowTest, OtherKeysAreIgnored) {
  EXPECT_EQ(LineErrorOf(R"({"text": "a", "label": 3, "id": 1, "system": "b", "images": []})"),
            "is read");
  EXPECT_EQ(LineErrorOf(R"({"text": "a", "label": false})"), "is read") << "a class, no judgement";
  EXPECT_EQ(LineErrorOf(R"({"prompt": "a", "completion": "b", "tools": "", "system": ""})"),
            "is read");
  EXPECT_EQ(LineErrorOf(R"({"messages": [{"role": "assistant", "content": "a"}], "label": 1,
                        "parallel_tool_calls": true})"),
            "is read");
  const RowOptions named{.prompt_field = "prompt"};
  EXPECT_EQ(
      LineErrorOf(R"({"prompt": "a", "completion": "b", "label": "c", "tools": [{}]})", named),
      "is read")
      << "named keys are all that is read";
  EXPECT_EQ(LineErrorOf(R"({"messages": [{"role": "assistant", "content": "a"}], "label": 3})",
                        {.messages_field = "messages"}),
            "is read");
}

TEST(RowTest, SkipsRowsRejectedByALabel) {
  for (const char* line :
       {R"({"prompt": "a", "completion": "b", "label": false})",
        R"({"prompt": "a", "completion": "b", "label": 0})",
        R"({"messages": [{"role": "assistant", "content": "a"}], "kto_tag": false})",
        R"({"messages": [{"role": "assistant", "content": "a"}], "label": 0})",
        R"({"instruction": "a", "output": "b", "kto_tag": false})",
        R"({"instruction": "a", "output": "b", "kto_tag": 0})",
        R"({"prompt": [{"role": "user", "content": "a"}],
            "completion": [{"role": "assistant", "content": "b"}], "label": false})"}) {
    DocumentEncoder encoder(GoldenFolder(), {});
    const auto document = encoder.EncodeLine(line);
    ASSERT_TRUE(document.ok()) << document.status().message();
    EXPECT_EQ(document->left_out, EncodedDocument::OmitReason::kRejected) << line;
    EXPECT_TRUE(document->ids.empty());
  }
}

TEST(RowTest, NamedContentIsTheOneThatIsChecked) {
  const RowOptions named{.content_field = "says"};
  EXPECT_THAT(
      LineErrorOf(R"({"messages": [{"role": "user", "says": ["x"], "content": "a"}]})", named),
      HasSubstr("\"content\" has a part"));
}

TEST(RowTest, NestedWithoutEndIsRefused) {
  const auto nest = [](const std::string& inside, int depth) {
    return std::string(static_cast<std::size_t>(depth), '[') + inside +
           std::string(static_cast<std::size_t>(depth), ']');
  };
  EXPECT_EQ(LineErrorOf(R"({"text": "a", "more": )" + nest("1", 90) + "}"), "is read");
  const std::string deep = nest("", 100'000), message = R"({"role": "user", "content": "a"})";
  for (const std::string& line :
       {R"({"text": "a", "more": )" + deep + "}", R"({"messages": )" + deep + "}",
        R"({"messages": [)" + message + R"(], "tools": ")" + deep + "\"}",
        R"({"messages": [{"role": "assistant", "tool_calls": [{"name": "f", "arguments": ")" +
            deep + "\"}]}]}"}) {
    EXPECT_THAT(LineErrorOf(line), HasSubstr("nested more than 100 deep")) << line.substr(0, 80);
  }
}

TEST(RowTest, AnObjectWithTooManyKeysIsRefused) {
  const auto object = [](std::size_t keys) {
    std::string text;
    for (std::size_t i = 0; i < keys; ++i) {
      text += (i == 0 ? "{\"k" : ",\"k") + std::to_string(i) + "\":1";
    }
    return text + "}";
  };
  const std::string most = object(kMostRowKeys), more = object(kMostRowKeys + 1);
  EXPECT_EQ(LineErrorOf(R"({"text": "a", "more": )" + most + "}"), "is read");
  EXPECT_THAT(LineErrorOf(R"({"text": "a", "more": )" + more + "}"),
              HasSubstr("an object has more than 10000 keys: leave out"));
  EXPECT_THAT(LineErrorOf(object(200'000)), HasSubstr("an object has more than 10000 keys"));
}

TEST(RowTest, ANumberPastDoublesIsRefused) {
  EXPECT_THAT(LineErrorOf(R"({"text": "a", "n": 1e999})"),
              HasSubstr("1e999 is larger than the largest double"));
  EXPECT_THAT(LineErrorOf(R"({"messages": [{"role": "user", "content": "a"}], "n": [-1e999]})"),
              HasSubstr("1e999 is larger than the largest double"));
}

TEST(RowTest, AKeyThatAnObjectHasTwiceIsNamed) {
  const std::string message = R"({"role": "user", "content": "a"})";
  for (const std::string& line :
       {std::string(R"({"text": "a", "text": "b"})"),
        std::string(R"({"messages": [{"role": "user", "content": "b", "text": 1, "text": 2}]})"),
        R"({"messages": [)" + message + R"(], "tools": "[{\"text\": 1, \"text\": 1}]"})"}) {
    EXPECT_THAT(LineErrorOf(line), HasSubstr("an object has the key \"text\" twice")) << line;
  }
  EXPECT_EQ(LineErrorOf(R"({"text": "a", "b": {"text": 1}, "c": [{"text": 1}, {"text": 2}]})"),
            "is read");
}

TEST(RowTest, RefusesIntegersThatWouldLoseDigits) {
  const auto called = [](const std::string& arguments) {
    return LineErrorOf(R"({"messages": [{"role": "assistant", "content": "9223372036854775808",
                       "tool_calls": [{"function": {"name": "f", "arguments": )" +
                       arguments + "}}]}]}");
  };
  for (const std::string number :
       {"9223372036854775808", "-9223372036854775809", "123456789012345678901234567890"}) {
    const auto refused = HasSubstr("the whole number " + number + " does not fit in 64 bits");
    EXPECT_THAT(called("{\"n\": " + number + "}"), refused);
    EXPECT_THAT(called("\"{\\\"n\\\": [" + number + "]}\""), refused);
    EXPECT_EQ(LineErrorOf("{\"text\": \"a\", \"id\": " + number + "}"), "is read") << "no text";
  }
  for (const char* number : {"9223372036854775807", "-9223372036854775808", "1e22", "1.5e300",
                             "\"9223372036854775808\""}) {
    EXPECT_EQ(called(std::string("{\"n\": ") + number + "}"), "is read") << number;
  }
}

TEST(RowTest, WithoutAnAnswerNothingIsRemoved) {
  const std::string line = R"({"messages": [{"role": "user", "content": "hello"}]})";
  DocumentEncoder full(GoldenFolder(), {}), cut(GoldenFolder(), {.max_length = 64});
  const auto expected = full.EncodeLine(line), got = cut.EncodeLine(line);
  ASSERT_TRUE(expected.ok() && got.ok());
  EXPECT_EQ(got->left_out, EncodedDocument::OmitReason::kNo);
  EXPECT_EQ(got->ids, expected->ids);
}

// The text that the golden folder's tokenizer and another template make of a row.
std::string TextOf(const std::string& source, const std::string& line) {
  TokenizerFolder folder = ReadGoldenFolder();
  folder.chat_template = *ChatTemplate::Parse(source);
  const auto row = ReadRow(line, {}, /*has_template=*/true);
  if (!row.ok()) return std::string(row.status().message());
  const auto chat = WriteChat(std::get<ChatRow>(*row), folder);
  return chat.ok() ? chat->full.text : std::string(chat.status().message());
}

TEST(WrittenChatTest, PartsAreOneTextWhereTheTemplateReadsTexts) {
  const std::string line = R"({"messages": [{"role": "user", "content": [
      {"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]})";
  EXPECT_EQ(TextOf("{% for m in messages %}<{{ m.role + m.content }}>{% endfor %}", line),
            "<usera\nb>");
  EXPECT_EQ(TextOf("{% for m in messages %}<{{ m.content }}>{% endfor %}", line), "<a\nb>");
  EXPECT_EQ(TextOf("{% for m in messages %}{% for p in m.content %}<{{ p.text }}>{% endfor %}"
                   "{% endfor %}",
                   line),
            "<a><b>");
  // Qwen3's template drops what is no text, and Gemma 4's reads lists of some roles only.
  EXPECT_EQ(
      TextOf("{% for m in messages %}{{ m.content if m.content is string }}{% endfor %}", line),
      "a\nb");
  EXPECT_EQ(TextOf("{% for m in messages %}{% if m.role == 'system' %}{{ m.content }}{% else %}"
                   "{{ m.content[0].text }}{% endif %}{% endfor %}",
                   R"({"messages": [{"role": "system", "content": [{"type": "text", "text": "s"}]},
                       {"role": "user", "content": [{"type": "text", "text": "u"}]}]})"),
            "su");
}

TEST(WrittenChatTest, AWrapperOfACallHasNoNulls) {
  EXPECT_EQ(TextOf("{% for m in messages %}{% for c in m.tool_calls %}{{ c | tojson }}{% endfor %}"
                   "{% endfor %}",
                   R"({"messages": [{"role": "assistant", "tool_calls": [
                       {"id": null, "type": null, "function": {"name": "f",
                        "arguments": {"a": null}}},
                       {"function": null, "name": "g", "arguments": {"b": [null]}}]}]})"),
            R"({"function": {"name": "f", "arguments": {"a": null}}})"
            R"({"name": "g", "arguments": {"b": [null]}})");
}

TEST(WrittenChatTest, OnlyContentIsNone) {
  const std::string shown =
      "{% for m in messages %}{{ m.content is none }} {{ m.content is defined }} "
      "{{ 'tool_calls' in m }} {{ 'name' in m }}{% endfor %}";
  EXPECT_EQ(TextOf(shown, R"({"messages": [{"role": "assistant", "content": null,
                                            "name": null, "tool_calls": null}]})"),
            "True True False False");
  EXPECT_EQ(TextOf(shown, R"({"messages": [{"role": "assistant",
                                            "tool_calls": [{"name": "f"}]}]})"),
            "False False True False");
}

}  // namespace
}  // namespace ds::tokenizer
