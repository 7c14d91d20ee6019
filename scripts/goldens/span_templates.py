"""Small chat templates of the kinds that families publish, each with a sibling that marks the assistant's words with
{% generation %} as TRL's training templates do, and conversations to render with them. Needs nothing but Python."""

# Every kind: (template as published, sibling with {% generation %}). Both write the same text, except where a template
# drops or adds words of the past, as the real ones do.
CHATML = "{%- for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
CHATML_MARKED = """{%- for m in messages %}
{%- if m.role == 'assistant' %}{{ '<|im_start|>assistant\\n' }}{% generation %}{{ m.content + '<|im_end|>\\n' }}{% endgeneration %}
{%- else %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endif %}{% endfor %}"""
PROMPT = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"

KINDS = {
    "chatml": (CHATML + PROMPT, CHATML_MARKED + PROMPT),
    # No generation prompt: the header is the text before the words.
    "no_prompt": (CHATML, CHATML_MARKED),
    # The last turn alone shows its thinking, as Qwen3's does.
    "thinks_in_last": (
        """{%- for m in messages %}
{%- set words = m.content.split('</think>')[-1].lstrip('\\n') if m.role == 'assistant' else m.content %}
{{- '<|im_start|>' + m.role + '\\n' }}
{%- if m.role == 'assistant' and loop.last %}{{- '<think>\\n' + (m.reasoning_content or '') + '\\n</think>\\n\\n' }}{% endif %}
{{- words + '<|im_end|>\\n' }}{% endfor %}""" + PROMPT,
        """{%- for m in messages %}
{%- set words = m.content.split('</think>')[-1].lstrip('\\n') if m.role == 'assistant' else m.content %}
{{- '<|im_start|>' + m.role + '\\n' }}
{%- if m.role == 'assistant' %}{% generation %}
{%- if loop.last %}{{- '<think>\\n' + (m.reasoning_content or '') + '\\n</think>\\n\\n' }}{% endif %}
{{- words + '<|im_end|>\\n' }}{% endgeneration %}
{%- else %}{{- words + '<|im_end|>\\n' }}{% endif %}{% endfor %}""" + PROMPT),
    # The prompt opens the thinking, and turns of the past have none, as DeepSeek's and Nemotron's.
    "prompt_thinks": (
        """{{ bos_token }}{%- for m in messages %}{%- if m.role == 'user' %}{{ '<|User|>' + m.content }}
{%- elif m.role == 'assistant' %}{{ '<|Assistant|>' + m.content.split('</think>')[-1] + eos_token }}
{%- else %}{{ m.content }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|Assistant|><think>\\n' }}{% endif %}""",
        """{{ bos_token }}{%- for m in messages %}{%- if m.role == 'user' %}{{ '<|User|>' + m.content }}
{%- elif m.role == 'assistant' %}{{ '<|Assistant|>' }}{% generation %}{{ m.content.split('</think>')[-1] + eos_token }}{% endgeneration %}
{%- else %}{{ m.content }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|Assistant|><think>\\n' }}{% endif %}"""),
    # An end of text after the last turn, and none before a prompt, as Phi-3's.
    "eos_after_all": (
        """{% for m in messages %}{{ '<|' + m.role + '|>\\n' + m.content + '<|end|>\\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% else %}{{ eos_token }}{% endif %}""",
        """{% for m in messages %}{%- if m.role == 'assistant' %}{{ '<|assistant|>\\n' }}{% generation %}{{ m.content + '<|end|>\\n' }}{% endgeneration %}
{%- else %}{{ '<|' + m.role + '|>\\n' + m.content + '<|end|>\\n' }}{% endif %}{% endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>\\n' }}
{%- elif messages[-1].role == 'assistant' %}{% generation %}{{ eos_token }}{% endgeneration %}{% else %}{{ eos_token }}{% endif %}"""),
    # The next turn's mark ends a turn, as GLM's.
    "next_mark_ends": (
        """{{ bos_token }}{%- for m in messages %}{{ '<|' + m.role + '|>' }}{{ '\\n' + m.content | trim }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}""",
        """{{ bos_token }}{%- for m in messages %}
{%- if m.role == 'assistant' %}{{ '<|assistant|>' }}{% generation %}{{ '\\n' + m.content | trim }}{{ '<|' + loop.nextitem.role + '|>' if not loop.last }}{% endgeneration %}
{%- else %}{{ '<|' + m.role + '|>' if loop.first or loop.previtem.role != 'assistant' }}{{ '\\n' + m.content | trim }}{% endif %}{% endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"""),
    # The user's turn ends where the answer begins, and a space follows the end, as Llama 2's and Mistral's.
    "in_user": (
        """{{ bos_token }}{% for m in messages %}{%- if m.role == 'assistant' %}{{ ' ' + m.content + eos_token + ' ' }}
{%- else %}{{ '[INST] ' + m.content + ' [/INST]' }}{% endif %}{% endfor %}""",
        """{{ bos_token }}{% for m in messages %}{%- if m.role == 'assistant' %}{% generation %}{{ ' ' + m.content + eos_token }}{% endgeneration %}{{ ' ' }}
{%- else %}{{ '[INST] ' + m.content + ' [/INST]' }}{% endif %}{% endfor %}"""),
    # The prompt is written inside of the last turn, as Tulu's and Zephyr's.
    "prompt_in_turn": (
        """{% for m in messages %}{{ '<|' + m.role + '|>\\n' + m.content }}{% if m.role == 'assistant' %}{{ eos_token }}{% endif %}
{%- if not loop.last %}{{ '\\n' }}{% elif add_generation_prompt %}{{ '\\n<|assistant|>\\n' }}{% endif %}{% endfor %}""",
        """{% for m in messages %}{{ '<|' + m.role + '|>\\n' }}{% if m.role == 'assistant' %}{% generation %}{{ m.content + eos_token }}
{%- if not loop.last %}{{ '\\n' }}{% endif %}{% endgeneration %}{% else %}{{ m.content }}
{%- if not loop.last %}{{ '\\n' }}{% elif add_generation_prompt %}{{ '\\n<|assistant|>\\n' }}{% endif %}{% endif %}{% endfor %}"""),
    # Several channels in a turn, another end for the last one, as gpt-oss's.
    "channels": (
        """{%- for m in messages %}{%- if m.role == 'assistant' %}
{%- if m.thinking and loop.last %}{{ '<|start|>assistant<|channel|>analysis<|message|>' + m.thinking + '<|end|>' }}{% endif %}
{{- '<|start|>assistant<|channel|>final<|message|>' + m.content }}{{ '<|return|>' if loop.last else '<|end|>' }}
{%- else %}{{ '<|start|>' + m.role + '<|message|>' + m.content + '<|end|>' }}{% endif %}{% endfor %}
{%- if add_generation_prompt %}{{ '<|start|>assistant' }}{% endif %}""",
        """{%- for m in messages %}{%- if m.role == 'assistant' %}{{ '<|start|>assistant' }}{% generation %}
{%- if m.thinking and loop.last %}{{ '<|channel|>analysis<|message|>' + m.thinking + '<|end|><|start|>assistant' }}{% endif %}
{{- '<|channel|>final<|message|>' + m.content }}{{ '<|return|>' if loop.last else '<|end|>' }}{% endgeneration %}
{%- else %}{{ '<|start|>' + m.role + '<|message|>' + m.content + '<|end|>' }}{% endif %}{% endfor %}
{%- if add_generation_prompt %}{{ '<|start|>assistant' }}{% endif %}"""),
    # Calls, and the answers of tools inside of the turn that calls them, as Gemma 4's.
    "answers_in_turn": (
        """{%- for m in messages %}{%- if m.role != 'tool' %}
{%- set goes_on = m.role == 'assistant' and loop.index0 > 0 and messages[loop.index0 - 1].role == 'tool' %}
{%- if not goes_on %}{{ '<|turn>' + m.role + '\\n' }}{% endif %}
{%- for call in m.tool_calls or [] %}{{ '<|call>' + call.function.name + call.function.arguments | tojson + '<call|>' }}{% endfor %}
{%- set calls = m.tool_calls %}
{%- if calls %}{% for k in range(loop.index0 + 1, messages | length) %}{% set answer = messages[k] %}
{%- if answer.role != 'tool' %}{% break %}{% endif %}{{ '<|answer>' + calls[0].function.name + ': ' + answer.content + '<answer|>' }}{% endfor %}
{%- else %}{{ m.content + '<turn|>\\n' }}{% endif %}{% endif %}{% endfor %}
{%- if add_generation_prompt and messages[-1].role != 'tool' %}{{ '<|turn>assistant\\n' }}{% endif %}""",
        """{%- for m in messages %}{%- if m.role != 'tool' %}
{%- set goes_on = m.role == 'assistant' and loop.index0 > 0 and messages[loop.index0 - 1].role == 'tool' %}
{%- if not goes_on %}{{ '<|turn>' + m.role + '\\n' }}{% endif %}
{%- if m.tool_calls %}{% generation %}{%- for call in m.tool_calls or [] %}{{ '<|call>' + call.function.name + call.function.arguments | tojson + '<call|>' }}{% endfor %}{% endgeneration %}{% endif %}
{%- set calls = m.tool_calls %}
{%- if calls %}{% for k in range(loop.index0 + 1, messages | length) %}{% set answer = messages[k] %}
{%- if answer.role != 'tool' %}{% break %}{% endif %}{{ '<|answer>' + calls[0].function.name + ': ' + answer.content + '<answer|>' }}{% endfor %}
{%- elif m.role == 'assistant' %}{% generation %}{{ m.content + '<turn|>\\n' }}{% endgeneration %}
{%- else %}{{ m.content + '<turn|>\\n' }}{% endif %}{% endif %}{% endfor %}
{%- if add_generation_prompt and messages[-1].role != 'tool' %}{{ '<|turn>assistant\\n' }}{% endif %}"""),
    # Calls as JSON, with macros and a set block, over the messages without the first, as Llama 3.1's and Qwen2.5's.
    "calls": (
        """{%- macro write_call(call) %}{{ '\\n<tool_call>\\n' }}{{ {'name': call.name, 'arguments': call.arguments} | tojson }}{{ '\\n</tool_call>' }}{% endmacro %}
{%- set rest = messages[1:] if messages[0].role == 'system' else messages %}
{%- if messages[0].role == 'system' %}{{ '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}{% endif %}
{%- for m in rest %}{%- if m.role == 'tool' %}
{%- if loop.previtem.role != 'tool' %}{{ '<|im_start|>user' }}{% endif %}{{ '\\n<tool_response>\\n' + m.content + '\\n</tool_response>' }}
{%- if loop.last or loop.nextitem.role != 'tool' %}{{ '<|im_end|>\\n' }}{% endif %}
{%- else %}{% set words %}{{ m.content }}{% for call in m.tool_calls or [] %}{{ write_call(call.function) }}{% endfor %}{% endset %}
{{- '<|im_start|>' + m.role + '\\n' + words + '<|im_end|>\\n' }}{% endif %}{% endfor %}""" + PROMPT,
        """{%- macro write_call(call) %}{{ '\\n<tool_call>\\n' }}{{ {'name': call.name, 'arguments': call.arguments} | tojson }}{{ '\\n</tool_call>' }}{% endmacro %}
{%- set rest = messages[1:] if messages[0].role == 'system' else messages %}
{%- if messages[0].role == 'system' %}{{ '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}{% endif %}
{%- for m in rest %}{%- if m.role == 'tool' %}
{%- if loop.previtem.role != 'tool' %}{{ '<|im_start|>user' }}{% endif %}{{ '\\n<tool_response>\\n' + m.content + '\\n</tool_response>' }}
{%- if loop.last or loop.nextitem.role != 'tool' %}{{ '<|im_end|>\\n' }}{% endif %}
{%- elif m.role == 'assistant' %}{{ '<|im_start|>assistant\\n' }}{% generation %}{{ m.content }}{% for call in m.tool_calls or [] %}{{ write_call(call.function) }}{% endfor %}{{ '<|im_end|>\\n' }}{% endgeneration %}
{%- else %}{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endif %}{% endfor %}""" + PROMPT),
    # Messages by their index.
    "by_index": (
        """{%- for i in range(messages | length) %}{% set m = messages[i] %}{{ m.role | upper + ': ' + m.content | trim + ('</s>\\n' if m.role == 'assistant' else '\\n') }}{% endfor %}
{%- if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}""",
        """{%- for i in range(messages | length) %}{% set m = messages[i] %}{{ m.role | upper + ':' }}
{%- if m.role == 'assistant' %}{% generation %}{{ ' ' + m.content | trim + '</s>\\n' }}{% endgeneration %}{% else %}{{ ' ' + m.content | trim + '\\n' }}{% endif %}{% endfor %}
{%- if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}"""),
}

# Templates that are refused, with the words of the error.
REFUSED = {
    # An answer stands in a turn with the question.
    "pairs": ("{% for m in messages %}{% if m.role == 'assistant' %}{{ '[' + messages[loop.index0 - 1].content + '] ' + m.content + '\\n' }}{% endif %}{% endfor %}",
              "writes words of other messages in its span"),
    "pairs_of_parts": ("{% for m in messages %}{% if m.role == 'assistant' %}{% for w in messages[loop.index0 - 1].content.split(' ') %}{{ w | upper }}{% endfor %}{{ m.content }}{% endif %}{% endfor %}",
                       "writes words of other messages in its span"),
    "no_loop": ("{{ messages[0].content }} {{ messages[1].content }}", "writes nothing of it in a loop over the messages"),
    "loop_in_macro": ("{% macro all() %}{% for m in messages %}{{ m.content }}{% endfor %}{% endmacro %}{{ all() }}",
                      "writes nothing of it in a loop over the messages"),
    "twice": ("{% for m in messages %}{{ m.content }}{% endfor %}{{ '---' }}{% for m in messages %}{{ m.content }}{% endfor %}",
              "writes it in two places"),
    "other_header": (CHATML + "{% if add_generation_prompt %}{{ '<|bot|>' }}{% endif %}",
                     'begins it with "<|im_start|>assistant\\nHi.<|im_end|>\\n" and a generation prompt with "<|bot|>"'),
}

TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "The weather of a place.",
                                           "parameters": {"type": "object", "properties": {"place": {"type": "string", "description": "a city"}},
                                                          "required": ["place"]}}}]


def call(place, number=1):
    return {"id": f"call0000{number}", "type": "function", "function": {"name": "get_weather", "arguments": {"place": place}}}


def user(words):
    return {"role": "user", "content": words}


def assistant(words, **more):
    return {"role": "assistant", "content": words} | more


def tool(words, number=1):
    return {"role": "tool", "name": "get_weather", "content": words, "tool_call_id": f"call0000{number}"}


CONVERSATIONS = {
    "one": {"messages": [user("Hello, who are you?"), assistant("Größe 你好 😀.")]},
    "two": {"messages": [user("Hello?"), assistant("Hi."), user("And?"), assistant("Bye now.")]},
    "system": {"messages": [{"role": "system", "content": "Be brief."}, user("Hello?"), assistant("Hi. "), user("And?"), assistant(" Bye\nnow.")]},
    "open": {"messages": [user("Hello?"), assistant("Hi."), user("And?")]},
    "thinking": {"messages": [user("2 + 2?"), assistant("4.", reasoning_content="Easy."), user("3 + 3?"), assistant("6.", reasoning_content="Also\neasy.")]},
    "thinking_in_words": {"messages": [user("2 + 2?"), assistant("<think>\nEasy.\n</think>\n\n4."), user("3 + 3?"),
                                       assistant("<think>\nAlso easy.\n</think>\n\n6.")]},
    "same_words": {"messages": [user("Hi."), assistant("Hi."), user("<think>"), assistant("Hi.")]},
    "tools": {"tools": TOOLS, "messages": [
        user("Weather?"), assistant("", tool_calls=[call("Rome")]), tool("21.5"), assistant("It is 21.5."),
        user("And Oslo?"), assistant("", tool_calls=[call("Oslo")]), tool("cold"), assistant("Cold.")]},
    "tools_thinking": {"tools": TOOLS, "messages": [
        user("Weather?"), assistant("", reasoning_content="I ask.", tool_calls=[call("Rome")]), tool("21.5"),
        assistant("It is 21.5.", reasoning_content="Good.")]},
    "two_calls": {"tools": TOOLS, "messages": [
        user("Weather?"), assistant("Let me see.", tool_calls=[call("Rome"), call("Oslo", 2)]), tool("21.5"), tool("cold", 2),
        assistant("Warm, cold.")]},
    "named_tool": {"tools": TOOLS, "messages": [
        user("Weather?"), assistant("I will call get_weather.", tool_calls=[call("Rome")]), tool("21.5"), assistant("get_weather: 21.5.")]},
    "call_last": {"tools": TOOLS, "messages": [user("Weather?"), assistant("", tool_calls=[call("Rome")])]},
}
