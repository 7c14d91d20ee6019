#!/usr/bin/env python3
"""Turns the pages of the manual into a static site: one HTML file for each page and an index, without scripts.

    scripts/make_site.py DIR [FILE ...]     FILE: a page that is not in cli/manual, such as
                                            build/share/dsrun/ds_config.md

The files of DIR are replaced. `dsrun help NAME` in a text becomes a link to the page NAME.
"""

import argparse
import html
import pathlib
import re

from manual_pages import read_pages, spans

GROUPS = (
    ("Begin", ("quickstart", "install", "faq")),
    ("Launch", ("launch", "multi-node", "hosts")),
    ("Train", ("training", "fine-tune", "evaluate", "rates", "sections", "trainer")),
    ("Data and models", ("data", "rows", "chat", "models")),
    ("Scale", ("parallelism", "memory")),
    ("Operate", ("jobs", "runs", "checkpoints", "failures")),
    ("Other programs, Python, C++", ("migrate", "python", "cpp", "limitations")),
    ("References", ("flags", "ds_config", "metrics", "environment", "statuses")),
)
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; margin: 0; display: flex; color: #1b1f24; background: #fff; }
nav { flex: 0 0 13rem; padding: 1.5rem 1rem; background: #f5f6f8; min-height: 100vh; box-sizing: border-box; }
nav h2 { font-size: .8rem; text-transform: uppercase; color: #5a6270; margin: 1rem 0 .2rem; }
nav a { display: block; color: #1b1f24; text-decoration: none; padding: .1rem .3rem; }
nav a.here, nav a:hover { background: #dfe4ec; }
main { flex: 1 1 auto; min-width: 0; max-width: 54rem; padding: 1.5rem 2rem 4rem; }
pre { background: #f5f6f8; padding: .8rem 1rem; overflow-x: auto; font-size: .85rem; line-height: 1.4; }
code { font-family: ui-monospace, monospace; font-size: .9em; background: #f5f6f8; }
pre code { background: none; font-size: inherit; }
table { border-collapse: collapse; display: block; overflow-x: auto; }
th, td { border: 1px solid #d5d9e0; padding: .3rem .6rem; text-align: left; vertical-align: top; }
a { color: #0b57d0; }
"""
HELP = re.compile(r"dsrun help ([\w-]+)$")


class Site:
    def __init__(self, pages):
        self.pages = {page.name: page for page in pages}

    def link(self, target):
        """Where a link of a page leads: pages of the site by their own files."""
        name = pathlib.PurePosixPath(target).stem
        return f"{name}.html" if target.endswith(".md") and name in self.pages else target

    def inline(self, text):
        parts = []
        for kind, words, target in spans(text):
            shown = html.escape(words)
            named = HELP.match(words)
            if kind == "code" and named and named.group(1) in self.pages:
                parts.append(f'<a href="{named.group(1)}.html"><code>{shown}</code></a>')
            elif kind == "link":
                parts.append(f'<a href="{html.escape(self.link(target))}">{shown}</a>')
            else:
                tag = {"code": "code", "bold": "strong", "em": "em"}.get(kind)
                parts.append(f"<{tag}>{shown}</{tag}>" if tag else shown)
        return "".join(parts)

    def block(self, block):
        if block[0] == "heading":
            anchor = re.sub(r"[^\w]+", "-", block[2].lower()).strip("-")
            return f'<h{block[1]} id="{html.escape(anchor)}">{self.inline(block[2])}</h{block[1]}>'
        if block[0] == "text":
            return f"<p>{self.inline(block[1])}</p>"
        if block[0] == "code":
            return f"<pre><code>{html.escape(chr(10).join(block[1]))}</code></pre>"
        if block[0] == "list":
            tag = "ul" if block[1] == "-" else "ol"
            return f"<{tag}>" + "".join(f"<li>{self.inline(item)}</li>" for item in block[2]) + f"</{tag}>"
        head = "".join(f"<th>{self.inline(cell)}</th>" for cell in block[1])
        rows = "".join("<tr>" + "".join(f"<td>{self.inline(cell)}</td>" for cell in row) + "</tr>\n" for row in block[2])
        return f"<table>\n<tr>{head}</tr>\n{rows}</table>"

    def groups(self):
        """The groups with their pages; a page that none names is among the last."""
        grouped = {name for _, names in GROUPS for name in names}
        rest = tuple(name for name in self.pages if name not in grouped)
        for title, names in GROUPS + ((("Others", rest),) if rest else ()):
            found = [self.pages[name] for name in names if name in self.pages]
            if found:
                yield title, found

    def navigation(self, here):
        parts = ['<a href="index.html">dsrun</a>']
        for title, pages in self.groups():
            parts.append(f"<h2>{html.escape(title)}</h2>")
            for page in pages:
                mark = ' class="here"' if page.name == here else ""
                parts.append(f'<a{mark} href="{page.name}.html">{page.name}</a>')
        return "\n".join(parts)

    def document(self, name, title, body):
        return (f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
                f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{html.escape(title)}</title>\n'
                f"<style>{STYLE}</style>\n</head>\n<body>\n<nav>\n{self.navigation(name)}\n</nav>\n"
                f"<main>\n{body}\n</main>\n</body>\n</html>\n")

    def index(self):
        parts = ["<h1>dsrun</h1>", "<p>One launcher, one daemon and one LibTorch training runtime.</p>"]
        for title, pages in self.groups():
            rows = "".join(f'<li><a href="{page.name}.html">{page.name}</a>: {self.inline(page.summary)}</li>\n'
                           for page in pages)
            parts.append(f"<h2>{html.escape(title)}</h2>\n<ul>\n{rows}</ul>")
        return self.document("index", "dsrun", "\n".join(parts))

    def write(self, folder):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "index.html").write_text(self.index(), encoding="utf-8")
        for page in self.pages.values():
            title = f"<h1>{html.escape(page.name)}</h1>\n<p>{self.inline(page.summary)}</p>\n"
            body = title + "\n".join(map(self.block, page.blocks))
            (folder / f"{page.name}.html").write_text(self.document(page.name, f"dsrun: {page.name}", body), encoding="utf-8")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    options = parser.parse_args()
    Site(read_pages(options.files)).write(options.folder)


if __name__ == "__main__":
    main()
