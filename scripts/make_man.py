#!/usr/bin/env python3
"""Turns the pages of the manual into manual pages: dsrun-NAME(7) for each page NAME.

    scripts/make_man.py --out DIR [FILE ...]     FILE: a page that is not in cli/manual, such as ds_config.md
"""

import argparse
import pathlib

from manual_pages import read_pages, spans

CODE_INDENT = 4
WIDTH = 76  # of columns of text
EMPTY = "\\&"


def escaped(text):
    """Text as troff shows it letter for letter."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga").replace("^", "\\(ha")
    text = text.replace("~", "\\(ti").replace('"', "\\(dq")
    return "\\&" + text if text.startswith(".") else text


def inline(text):
    marks = {"code": "\\fB", "bold": "\\fB", "em": "\\fI"}
    parts = []
    for kind, words, _ in spans(text):
        mark = marks.get(kind)
        parts.append(f"{mark}{escaped(words)}\\fR" if mark else escaped(words))
    line = "".join(parts)
    return "\\&" + line if line.startswith((".", "'")) else line


def bare(text):
    return "".join(words for _, words, _ in spans(text))


def code(lines):
    shown = "\n".join(escaped(line) for line in lines)
    return f".PP\n.nf\n.RS {CODE_INDENT}\n{shown}\n.RE\n.fi"


def term(head, text):
    return f".TP\n\\fB{escaped(bare(head)) or EMPTY}\\fR\n{text or EMPTY}"


def table(head, rows):
    """Columns that fit are columns of text; others are a list of terms, with the names of their columns."""
    if len(head) == 2:
        return "\n".join(term(first, inline(text)) for first, text in rows)
    plain = [[bare(cell) for cell in row] for row in [head, *rows]]
    widths = [max(len(row[column]) for row in plain) for column in range(len(head))]
    if sum(widths) + 2 * len(widths) > WIDTH:
        return "\n".join(term(row[0], "\n.br\n".join(f"{inline(name)}: {inline(cell)}" for name, cell in
                                                    zip(head[1:], row[1:]) if cell)) for row in rows)
    return code(["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in plain])


def block_text(block):
    if block[0] == "heading":
        return f"{'.SH' if block[1] == 2 else '.SS'} {inline(block[2])}"
    if block[0] == "text":
        return ".PP\n" + inline(block[1])
    if block[0] == "code":
        return code(block[1])
    if block[0] == "list":
        marks = ["\\(bu" if block[1] == "-" else f"{number}." for number in range(1, len(block[2]) + 1)]
        return "\n".join(f".IP {mark} 4\n{inline(item)}" for mark, item in zip(marks, block[2]))
    return table(block[1], block[2])


def man_page(page):
    head = f'.TH DSRUN\\-{escaped(page.name).upper()} 7 "" dsrun "User Guide"\n'
    head += f".SH NAME\ndsrun\\-{escaped(page.name)} \\- {inline(page.summary)}\n.SH DESCRIPTION\n"
    return head + "\n".join(map(block_text, page.blocks)) + "\n.SH SEE ALSO\n.BR dsrun (1)\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for page in read_pages(options.files):
        (options.out / f"dsrun-{page.name}.7").write_text(man_page(page), encoding="utf-8")


if __name__ == "__main__":
    main()
