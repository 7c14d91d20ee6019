#!/usr/bin/env python3
"""Makes tests/unit/tokenizer/row_goldens: rows of data as token ids, and which of them TRL's SFTTrainer learns.

    python scripts/goldens/make_row_goldens.py tests/unit/tokenizer/row_goldens

Needs torch, transformers 5, datasets and trl 1.16 from PyPI. The tokenizer is a small byte-level BPE.
  tokenizer.json ...   the folder, with a chat template that marks what the assistant says
  cases.json           a line for each row: name, row, options, ids and learnt; or "left_out" where TRL drops the row
A row that TRL does not read is given to TRL as it reads it ("as_trl"): other names of roles, the arguments of a tool call
as an object (transformers' manual of tool use), an instruction as a conversation (LLaMA-Factory's manual of data) or
with Stanford Alpaca's prompt.
"""

import json
import pathlib
import sys
import types

import datasets
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer
from trl.trainer.utils import remove_none_values

WORDS = "alpha beta gamma hello there weather brief system user assistant tool call city Bern sun rain the of and".split()
# A message of the weight 0 is not marked: that is how the expected mask of such rows is made.
TEMPLATE = """{%- if mode is defined %}({{ mode }}){% endif %}
{%- if tools %}{{ tools | tojson }}
{% endif %}
{%- for m in messages %}
{{- '<|im_start|>' + m.role + '\\n' }}
{%- set said %}
{%- if m.thinking %}[{{ m.thinking }}|{{ m.reasoning_content }}]{% endif %}
{%- if m.content is string %}{{ m.content }}{% elif m.content %}{% for part in m.content %}{{ part.text }}{% endfor %}{% endif %}
{%- for call in m.tool_calls or [] %}<call>{{ call.function.name }} {{ call.function.arguments | tojson }}</call>{% endfor %}
{{- '<|im_end|>' }}
{%- endset %}
{%- if m.role == 'assistant' and m.weight != 0 %}{% generation %}{{ said }}{% endgeneration %}{% else %}{{ said }}{% endif %}
{{- '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""
# The blank after the head and the first letters of an answer are one token.
BLANK_AFTER_HEAD = """{%- for m in messages %}{{- m.role + ': ' }}
{%- if m.role == 'assistant' %}{% generation %}{{- m.content + '<|im_end|>' }}{% endgeneration %}{% else %}{{- m.content }}{% endif %}
{{- '\\n' }}{% endfor %}"""
INPUT = ("Below is an instruction that describes a task, paired with an input that provides further context. "
         "Write a response that appropriately completes the request.\n\n"
         "### Instruction:\n{instruction}\n\n### Input:\n{input}\n\n### Response:")
PLAIN = ("Below is an instruction that describes a task. "
         "Write a response that appropriately completes the request.\n\n"
         "### Instruction:\n{instruction}\n\n### Response:")

message = lambda role, content, **more: {"role": role, "content": content, **more}
HELLO = [message("user", "hello there"), message("assistant", "alpha beta")]
TURNS = HELLO + [message("user", "gamma?"), message("assistant", "the sun and the rain")]
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}]
NULL_TOOLS = [{"type": "function", "function": {"name": "weather", "description": None, "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "default": None, "enum": ["Bern", None]}}}}}]
CALL = lambda arguments: [{"type": "function", "id": "1", "function": {"name": "weather", "arguments": arguments}}]
CALLS = lambda arguments, **more: [message("user", "weather of Bern?"), {"role": "assistant", "tool_calls": CALL(arguments), **more},
                                   message("tool", "sun"), message("assistant", "the sun")]
ALPACA = {"instruction": "hello there", "input": "city of Bern", "output": "the sun"}
LONG = {"prompt": "alpha beta gamma alpha beta gamma ", "completion": "hello there weather brief system user assistant"}

# name: (row, row as TRL reads it or None, options)
CASES = {
    "text": ({"text": "hello there", "id": 3}, None, {}),
    "text with its end": ({"text": "hello there<|im_end|>"}, None, {}),
    "prompt and completion": ({"prompt": "hello ", "completion": "there"}, None, {}),
    "completion after a blank": ({"prompt": "hello", "completion": " there alpha"}, None, {}),
    "tokens merge over the end of the prompt": ({"prompt": "hello the", "completion": "re alpha"}, None, {}),
    "prompt of a completion is empty": ({"prompt": "", "completion": "there"}, None, {}),
    "label true": ({"prompt": "hello", "completion": " there", "label": True}, None, {}),
    "messages": ({"messages": TURNS}, None, {}),
    "messages go before a text": ({"messages": HELLO, "text": "gamma"}, None, {}),
    # TRL draws the key by which it tells whether such a row has messages, and the end of the text with it.
    "a completion goes before messages": ({"prompt": "hello", "completion": " there", "messages": TURNS}, {"prompt": "hello", "completion": " there"}, {}),
    "conversational completion": ({"prompt": HELLO[:1], "completion": HELLO[1:]}, None, {}),
    "completion of several messages": ({"prompt": TURNS[:1], "completion": TURNS[1:]}, None, {}),
    "prompt with an answer": ({"prompt": TURNS[:3], "completion": TURNS[3:]}, None, {}),
    "tools": ({"messages": HELLO, "tools": TOOLS}, None, {}),
    "tools as a text": ({"messages": HELLO, "tools": json.dumps(TOOLS)}, None, {}),
    "tools of a completion": ({"prompt": HELLO[:1], "completion": HELLO[1:], "tools": json.dumps(TOOLS, indent=1)}, None, {}),
    "template's variables": ({"messages": HELLO, "chat_template_kwargs": {"mode": "brief"}}, None, {}),
    "template's variables of a completion": ({"prompt": HELLO[:1], "completion": HELLO[1:], "chat_template_kwargs": {"mode": "rain"}}, None, {}),
    "tool calls": ({"messages": CALLS({"city": "Bern"}), "tools": TOOLS}, None, {}),
    "tool calls as OpenAI writes them": ({"messages": CALLS('{"city": "Bern"}', content=None)}, {"messages": CALLS({"city": "Bern"}, content=None)}, {}),
    "a call under OpenAI's older key": ({"messages": [CALLS(0)[0], message("assistant", None, function_call={"name": "weather", "arguments": '{"n": [1, 2]}'}),
                                                      message("function", "sun", name="weather")]},
                                        {"messages": [CALLS(0)[0], message("assistant", None, tool_calls=CALL({"n": [1, 2]})), message("tool", "sun")]}, {}),
    "null in an argument": ({"messages": CALLS({"city": None, "days": [1, None, {"hour": None}]})}, None, {}),
    "null in arguments as a text": ({"messages": CALLS('{"city": "Bern", "day": null}')}, {"messages": CALLS({"city": "Bern", "day": None})}, {}),
    "null in tools": ({"messages": HELLO, "tools": NULL_TOOLS}, None, {}),
    "null in tools as a text": ({"messages": HELLO, "tools": json.dumps(NULL_TOOLS)}, None, {}),
    "null in a variable": ({"messages": HELLO, "chat_template_kwargs": {"mode": {"sun": None, "rain": 1}}}, None, {}),
    "functions": ({"messages": HELLO, "functions": [TOOLS[0]["function"]]}, {"messages": HELLO, "tools": TOOLS}, {}),
    "reasoning": ({"messages": [HELLO[0], message("assistant", "there", reasoning="sun")]}, None, {}),
    "thinking": ({"messages": [HELLO[0], message("assistant", "there", thinking="rain")]}, None, {}),
    "parts": ({"messages": [message("user", [{"type": "text", "text": "hello "}, {"type": "text", "text": "there"}]), HELLO[1]]}, None, {}),
    "conversations with roles of templates": ({"conversations": [{"from": m["role"], "value": m["content"]} for m in TURNS]}, None, {}),
    "conversations as messages": ({"conversations": TURNS}, {"messages": TURNS}, {}),
    "conversations of ShareGPT": ({"conversations": [{"from": "system", "value": "brief"}, {"from": "human", "value": "hello"}, {"from": "gpt", "value": "there"}]},
                                  {"messages": [message("system", "brief"), message("user", "hello"), message("assistant", "there")]}, {}),
    "ShareGPT's tools": ({"conversations": [{"from": "human", "value": "weather?"}, {"from": "function_call", "value": json.dumps(CALL({"city": "Bern"})[0]["function"])},
                                            {"from": "observation", "value": "sun"}, {"from": "gpt", "value": "the sun"}], "system": "brief", "tools": json.dumps(TOOLS)},
                         {"messages": [message("system", "brief"), message("user", "weather?"), message("assistant", "", tool_calls=CALL({"city": "Bern"})),
                                       message("tool", "sun"), message("assistant", "the sun")], "tools": TOOLS}, {}),
    "weight 0": ({"messages": [TURNS[0], {**TURNS[1], "weight": 0}, TURNS[2], {**TURNS[3], "weight": 1}]}, None, {}),
    "instruction with an input": (ALPACA, {"messages": [message("user", "hello there\ncity of Bern"), message("assistant", "the sun")]}, {}),
    "instruction with a history": ({**ALPACA, "input": "", "system": "brief", "history": [["gamma", "beta"]]},
                                   {"messages": [message("system", "brief"), message("user", "gamma"), message("assistant", "beta"),
                                                 message("user", "hello there"), message("assistant", "the sun")]}, {}),
    "Alpaca's prompt": (ALPACA, {"prompt": INPUT.format(**ALPACA), "completion": "the sun"}, {"prompt_style": "alpaca"}),
    "Alpaca's prompt without an input": ({**ALPACA, "input": ""}, {"prompt": PLAIN.format(**ALPACA), "completion": "the sun"}, {"prompt_style": "alpaca"}),
    "named keys of a completion": ({"question": "hello ", "answer": "there", "prompt": "x"}, {"prompt": "hello ", "completion": "there"},
                                   {"prompt_field": "question", "completion_field": "answer"}),
    "named keys of messages": ({"dialog": [{"who": "user", "says": "hello"}, {"who": "assistant", "says": "there"}], "functions_json": json.dumps(TOOLS)},
                               {"messages": [message("user", "hello"), message("assistant", "there")], "tools": TOOLS},
                               {"messages_field": "dialog", "role_field": "who", "content_field": "says", "tools_field": "functions_json"}),
    "named keys go before the usual ones": ({"messages": [{"who": "user", "role": "x", "says": "hello", "content": ["x"]},
                                                          {"who": "assistant", "role": "user", "says": "there", "content": "sun", "value": "rain"}]},
                                            {"messages": [message("user", "hello"), message("assistant", "there")]}, {"role_field": "who", "content_field": "says"}),
    "a null key gives way": ({"conversations": [{"from": "human", "value": "hello", "role": None, "content": None}, {"from": "gpt", "value": "there", "role": None, "content": None}]},
                             {"messages": [message("user", "hello"), message("assistant", "there")]}, {}),
    "chosen": ({"prompt": "hello", "chosen": " there", "rejected": " gamma"}, {"prompt": "hello", "completion": " there"}, {}),
    "cut in the completion": (LONG, None, {"max_length": 14}),
    "cut in the prompt": (LONG, None, {"max_length": 6}),
    "not cut": (LONG, None, {"max_length": 64}),
    "a token of head and answer": ({"messages": [message("user", "hello"), message("assistant", "there alpha"), message("user", "gamma"),
                                                message("assistant", "sun")]}, None, {"template": BLANK_AFTER_HEAD}),
    "of a completion the assistant's alone": ({"prompt": TURNS[:1], "completion": TURNS[1:]}, None, {"assistant_only_loss": True}),
    "the end is kept": (LONG, None, {"max_length": 4, "truncation_mode": "keep_end"}),
    "a text is cut": ({"text": "alpha beta gamma hello there"}, None, {"max_length": 3}),
    "messages are cut": ({"messages": TURNS}, None, {"max_length": 20}),
    "messages are cut before an answer": ({"messages": TURNS}, None, {"max_length": 5}),
    "a conversational completion is cut": ({"prompt": TURNS[:3], "completion": TURNS[3:]}, None, {"max_length": 40}),
}
# Rows of one table: where one has a key, the others hold null.
TABLE = [{"messages": CALLS({"city": "Bern"}, content=""), "prompt": None, "completion": None, "chat_template_kwargs": {"mode": "sun", "other": None}},
         {"messages": HELLO, "tools": TOOLS, "chat_template_kwargs": None},
         {"prompt": "hello", "completion": " there", "label": None}]


def make_tokenizer(folder):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator([" ".join(WORDS)] * 5, trainers.BpeTrainer(
        vocab_size=400, special_tokens=["<|pad|>", "<|im_start|>", "<|im_end|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|pad|>")
    fast.chat_template = TEMPLATE
    fast.save_pretrained(folder)
    return fast


def prepare(tokenizer, row, options):
    """The row's ids and labels as SFTTrainer makes them; None where it drops the row."""
    arguments = SFTConfig(output_dir="/tmp/unused", max_length=options.get("max_length"), report_to=[], use_cpu=True, bf16=False,
                          truncation_mode=options.get("truncation_mode", "keep_start"), assistant_only_loss="messages" in row or "conversations" in row)
    if "completion" in row:
        arguments.assistant_only_loss = options.get("assistant_only_loss", False)
    tokenizer.chat_template = options.get("template", TEMPLATE)
    trainer = types.SimpleNamespace(completion_only_loss="completion" in row, chat_template=tokenizer.chat_template, _tokenizer=tokenizer)
    # Without a table no key is filled in with null.
    dataset = datasets.IterableDataset.from_generator(lambda: iter([json.loads(json.dumps(row))]))
    made = list(SFTTrainer._prepare_dataset(trainer, dataset, tokenizer, arguments, False, None, "train"))
    return (made[0]["input_ids"], made[0]["labels"]) if made else None


def make_case(tokenizer, name, row, as_trl, options):
    made = prepare(tokenizer, as_trl or row, options)
    case = {"name": name, "row": row, "options": options}
    if made is None:
        return case | {"left_out": True}
    ids, labels = made
    return case | {"ids": list(ids), "learnt": [int(label != -100) for label in labels]}


def main():
    datasets.disable_progress_bars()
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    tokenizer = make_tokenizer(out)
    cases = [make_case(tokenizer, name, *case) for name, case in CASES.items()]
    for number, row in enumerate(datasets.Dataset.from_list(TABLE)):
        bare = remove_none_values(row)
        if number == 0:
            bare["messages"][1].setdefault("content", "")
        cases.append(make_case(tokenizer, f"row {number} of a table", row, bare, {}))
    (out / "cases.json").write_text("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")
    print(len(cases), "cases,", sum("left_out" in case for case in cases), "left out")


if __name__ == "__main__":
    main()
