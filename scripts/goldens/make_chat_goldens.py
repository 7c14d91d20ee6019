#!/usr/bin/env python3
"""Writes what transformers' renderer of chat templates makes of the templates of chat_templates.py.

    /tmp/goldens/bin/pip install transformers==5.23.0 jinja2==3.1.6
    /tmp/goldens/bin/python scripts/goldens/make_chat_goldens.py tests/unit/tokenizer/chat_goldens

strftime_now shows one fixed time, 24 November 2026, 13:05:09.
"""

import datetime
import json
import pathlib
import sys

import chat_templates
from transformers.utils import chat_template_utils


class FixedTime(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2026, 11, 24, 13, 5, 9)


def render(source, conversation, prompt):
    given = {key: value for key, value in conversation.items() if key not in ("messages", "tools", "documents")}
    generates = "generation %}" in source or "generation -%}" in source
    try:
        texts, spans = chat_template_utils.render_jinja_template(
            conversations=[conversation["messages"]], tools=conversation.get("tools"), documents=conversation.get("documents"),
            chat_template=source, add_generation_prompt=prompt, return_assistant_tokens_mask=generates,
            bos_token="<s>", eos_token="</s>", **given)
        made = {"text": texts[0]}
        if generates:
            made["generated"] = [list(span) for span in spans[0]]
        return made
    except Exception as error:
        return {"error": str(error)}


def main():
    chat_template_utils.datetime = FixedTime
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for name, source in chat_templates.TEMPLATES.items():
        for kind, conversation in chat_templates.CONVERSATIONS.items():
            for prompt in (False, True):
                rows.append({"template": name, "conversation": kind, "prompt": prompt} | render(source, conversation, prompt))
    dump = lambda value: json.dumps(value, ensure_ascii=False)
    (folder / "templates.json").write_text(
        "{\n" + ",\n".join(f"{dump(name)}: {dump(source)}" for name, source in chat_templates.TEMPLATES.items()) + "\n}\n", encoding="utf-8")
    (folder / "conversations.json").write_text(dump(chat_templates.CONVERSATIONS) + "\n", encoding="utf-8")
    (folder / "rendered.json").write_text("[\n" + ",\n".join(map(dump, rows)) + "\n]\n", encoding="utf-8")
    print(len(chat_templates.TEMPLATES), "templates,", len(rows), "cases,", sum("error" in row for row in rows), "errors")


if __name__ == "__main__":
    main()
