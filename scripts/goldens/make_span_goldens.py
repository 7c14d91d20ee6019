#!/usr/bin/env python3
"""Writes which words of conversations a model learns under chat templates: the text that transformers renders, and the
parts that a sibling of the template with {% generation %} marks.

    /tmp/goldens/bin/pip install transformers==5.24.0 jinja2==3.1.6
    /tmp/goldens/bin/python scripts/goldens/make_span_goldens.py tests/unit/tokenizer/span_goldens
    python scripts/goldens/make_span_goldens.py OUT --trl     the templates of the trl package instead (tests/peers)

The package's templates come from the repositories of their models and are not kept here.
"""

import copy
import importlib.util
import json
import pathlib
import re
import sys

import span_templates
from transformers.utils import chat_template_utils

SPECIAL = re.compile(r"<\|[^<>|\s]+\|>|<｜[^<>\s]+｜>|<\|[a-z_]+>|<[a-z_]+\|>|<[a-z]+_of_[a-z]+>|</?s>|<sop>|\[gMASK\]")
# Families without a training template in the package: header, end, and the parts of a turn that are not the model's.
RULES = {"llama3_": ("<|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>", "$^"),
         "gemma4": ("<|turn>model\n", "<turn|>\n", r"<\|tool_response>.*?<tool_response\|>")}
# Training templates of the package that mark the header of a turn, or a part of it, as well. dsrun leaves it out: the
# generation prompt has it.
MARKED_HEADERS = {"deepseek": ["<｜Assistant｜>", "<｜tool▁outputs▁end｜>"], "gptoss": ["<|start|>assistant"],
                  "muse_glimmer": ["<|start|>assistant"], "qwen2_5": ["\n"]}
# Marks that end a generation and that a training template leaves out where a conversation ends with calls.
LEFT_OUT_ENDS = {"diffusion_gemma": "<|tool_response>"}


def as_parts(conversation):
    """Content as lists of parts, as templates of models with images have it."""
    for message in conversation["messages"]:
        message["content"] = [{"type": "text", "text": message["content"]}]


def with_text_arguments(conversation):
    for message in conversation["messages"]:
        for each in message.get("tool_calls", []):
            each["function"]["arguments"] = json.dumps(each["function"]["arguments"])


def without_content(conversation):
    with_text_arguments(conversation)
    for message in conversation["messages"]:
        if "tool_calls" in message:
            message["content"] = None


VARIANTS = {"": lambda conversation: None, "parts": as_parts, "arguments as text": with_text_arguments,
            "calls without content": without_content}


def render(source, conversation, prompt=False):
    marked = re.search(r"\{%-?\s*generation", source) is not None
    texts, spans = chat_template_utils.render_jinja_template(
        conversations=[conversation["messages"]], tools=conversation.get("tools"), chat_template=source,
        add_generation_prompt=prompt, return_assistant_tokens_mask=marked, bos_token="<s>", eos_token="</s>")
    size = lambda end: len(texts[0][:end].encode())
    return texts[0], [[size(begin), size(end)] for begin, end in spans[0]] if marked else None


def by_rule(name, text):
    rules = [rule for family, rule in RULES.items() if name.startswith(family)]
    if not rules:
        return None
    header, end, others = rules[0]
    spans = []
    turns = f"{re.escape(header)}((?:.*?{re.escape(end)})+?(?=<|$)|.*?$)"
    for turn in re.finditer(turns, text, re.DOTALL):
        begin = turn.start(1)
        for other in [*re.finditer(others, turn.group(1), re.DOTALL), None]:
            stop = turn.end(1) if other is None else turn.start(1) + other.start()
            if stop > begin:
                spans.append([len(text[:begin].encode()), len(text[:stop].encode())])
            begin = turn.end(1) if other is None else turn.start(1) + other.end()
    return spans


def corrected(name, text, spans):
    """The marked spans without headers, with the ends that are left out."""
    data = text.encode()
    headers = [each.encode() for family, all in MARKED_HEADERS.items() if name.startswith(family) and name != "qwen2_5_vl" for each in all]
    left_out = LEFT_OUT_ENDS.get(name, "").encode()
    spans = [span for span in spans if span[0] < span[1]]
    for span in spans:
        span[0] += next((len(each) for each in headers if data[span[0]:].startswith(each)), 0)
        if left_out and data[span[1]:] == left_out:
            span[1] = len(data)
    return spans


def drops_something(source, conversation):
    """Whether the template leaves out the assistant's words, or one of its calls."""
    for i, message in enumerate(conversation["messages"]):
        if message["role"] != "assistant":
            continue
        changed = copy.deepcopy(conversation)
        given = changed["messages"][i]
        words = [f"qzkdsvx{k}" for k in range(len(given.get("tool_calls", [])))]
        for each, name in zip(given.get("tool_calls", []), words):
            each["function"]["name"] = name
        if not words:
            words = ["qzkdsvx"]
            if isinstance(given["content"], list):
                given["content"][-1]["text"] = words[0]
            else:
                given["content"] = words[0]
        written = render(source, changed)[0]
        if any(word not in written for word in words):
            return True
    return False


def make_case(name, source, sibling, conversation, given):
    text, marked = render(source, conversation)
    training = text
    if sibling is not None:
        # DeepSeek-V3's takes arguments as text, its training template takes them as they are.
        for each in (given, conversation):
            try:
                training, marked = render(sibling, each)
            except Exception:
                continue
            if training == text:
                break
    if drops_something(source, conversation):
        return {"messages": conversation["messages"], "tools": conversation.get("tools"), "text": text, "refused": True}
    if sibling is not None:
        marked = corrected(name, training, marked)
    spans = by_rule(name, text) if marked is None else marked
    return {"messages": conversation["messages"], "tools": conversation.get("tools"), "text": text,
            "training": training, "spans": spans}


def cases_of(name, source, sibling):
    """Of each conversation the first form of it that the template writes, or else one that is refused."""
    for kind, conversation in span_templates.CONVERSATIONS.items():
        made = []
        for variant, change in VARIANTS.items():
            changed = copy.deepcopy(conversation)
            change(changed)
            try:
                made.append({"template": name, "conversation": f"{kind} {variant}".strip()}
                            | make_case(name, source, sibling, changed, copy.deepcopy(conversation)))
            except Exception:
                continue
        yield from sorted(made, key=lambda case: "refused" in case)[:1]


def read_package():
    folder = pathlib.Path(importlib.util.find_spec("trl").origin).parent / "chat_templates"
    read = {file.stem: file.read_text(encoding="utf-8") for file in sorted(folder.glob("*.jinja"))}
    return {name: (source, read.get(f"{name}_training")) for name, source in read.items()}


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    kinds = read_package() if "--trl" in sys.argv else span_templates.KINDS
    cases = [case for name, (source, sibling) in kinds.items() for case in cases_of(name, source, sibling)]
    special = sorted({token for case in cases for token in SPECIAL.findall(case["text"])})
    dump = lambda value: json.dumps(value, ensure_ascii=False)
    golden = {"special": special,
              "templates": {name: source for name, (source, _) in kinds.items()},
              "refused": {} if "--trl" in sys.argv else span_templates.REFUSED}
    (folder / "templates.json").write_text(json.dumps(golden, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    (folder / "cases.json").write_text("[\n" + ",\n".join(map(dump, cases)) + "\n]\n", encoding="utf-8")
    print(len(kinds), "templates,", len(cases), "cases")


if __name__ == "__main__":
    main()
