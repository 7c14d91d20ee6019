"""The manual's pages as blocks: the subset of Markdown that they are written in.

A page is a list of blocks:

    ("heading", level, text)    # to ####
    ("text", text)              one paragraph
    ("code", lines)             indented by four spaces, or between fences
    ("list", mark, items)       mark "-" or "1."; an item is one paragraph
    ("table", head, rows)       cells are texts; a row without a first cell continues the row above

Comments of a line are left out. In texts `code`, **bold**, *emphasis* and [links](to) may stand; spans() cuts them.
"""

import pathlib
import re

from tracked import ROOT

MANUAL = ROOT / "cli/manual"
TITLE = re.compile(r"# ([\w-]+): (.+)")
ITEM = re.compile(r"(-|\d+\.) +(.*)")
SPAN = re.compile(r"`(?P<code>[^`]+)`|\*\*(?P<bold>[^*]+)\*\*|(?<!\w)\*(?P<em>[^*\s][^*]*)\*(?!\w)|"
                  r"\[(?P<text>[^\]]+)\]\((?P<link>[^)\s]+)\)")
CELL_END = re.compile(r"(?<!\\)\|")


class Page:
    """A page with its name, its summary and the blocks below its title."""

    def __init__(self, path):
        text = pathlib.Path(path).read_text(encoding="utf-8")
        title = TITLE.match(text)
        if not title:
            raise ValueError(f"{path}: the first line is not '# NAME: summary'")
        self.name, self.summary = title.groups()
        self.blocks = parse(text.partition("\n")[2])


def read_pages(extra=()):
    """The pages of the manual and those of other files, by name."""
    pages = map(Page, [*MANUAL.glob("*.md"), *extra])
    return sorted(pages, key=lambda page: page.name)


def parse(text):
    lines = [line for line in text.split("\n") if not line.startswith("<!--")]
    blocks, at = [], 0
    while at < len(lines):
        block, at = next_block(lines, at)
        if block:
            blocks.append(block)
    return blocks


def next_block(lines, at):
    line = lines[at]
    if not line.strip():
        return None, at + 1
    if line.startswith("#"):
        mark, _, text = line.partition(" ")
        return ("heading", len(mark), text), at + 1
    if line.startswith("```"):
        end = next((number for number in range(at + 1, len(lines)) if lines[number].startswith("```")), len(lines))
        return ("code", lines[at + 1:end]), end + 1
    if line.startswith("    "):
        return code_block(lines, at)
    if line.startswith("|"):
        return table_block(lines, at)
    if ITEM.match(line):
        return list_block(lines, at)
    return text_block(lines, at)


def code_block(lines, at):
    end = at
    while end < len(lines) and (lines[end].startswith("    ") or not lines[end].strip()):
        end += 1
    code = [line[4:] for line in lines[at:end]]
    while not code[-1].strip():
        code.pop()
    return ("code", code), end


def cells(line):
    inner = line.strip().removeprefix("|")
    inner = inner[:-1] if inner.endswith("|") and not inner.endswith("\\|") else inner
    return [cell.strip().replace("\\|", "|") for cell in CELL_END.split(inner)]


def table_block(lines, at):
    end = at
    while end < len(lines) and lines[end].startswith("|"):
        end += 1
    head, rows = cells(lines[at]), []
    for row in map(cells, lines[at + 2:end]):
        row += [""] * (len(head) - len(row))
        if rows and not row[0]:
            rows[-1] = [" ".join(filter(None, pair)) for pair in zip(rows[-1], row)]
        else:
            rows.append(row)
    return ("table", head, rows), end


def list_block(lines, at):
    mark, items = ITEM.match(lines[at]).group(1), []
    ordered = mark != "-"
    while at < len(lines):
        item = ITEM.match(lines[at])
        if item and (item.group(1) != "-") == ordered:
            items.append(item.group(2))
        elif lines[at].startswith("  ") and lines[at].strip():
            items[-1] += " " + lines[at].strip()
        elif lines[at].strip() or at + 1 == len(lines) or not continues(lines[at + 1], ordered):
            break
        at += 1
    return ("list", "1." if ordered else "-", items), at


def continues(line, ordered):
    item = ITEM.match(line)
    return bool(item) and (item.group(1) != "-") == ordered


def text_block(lines, at):
    end = at
    while end < len(lines) and lines[end].strip() and not lines[end].startswith(("#", "|", "    ", "```")) and (
            end == at or not ITEM.match(lines[end])):
        end += 1
    return ("text", " ".join(line.strip() for line in lines[at:end])), end


def spans(text):
    """Yields (kind, text, target) of the parts of a text: kind is plain, code, bold, em or link."""
    at = 0
    for found in SPAN.finditer(text):
        if found.start() > at:
            yield "plain", text[at:found.start()], ""
        kind = found.lastgroup
        yield kind, found.group("text" if kind == "link" else kind), found.group("link") or ""
        at = found.end()
    if at < len(text):
        yield "plain", text[at:], ""
