#!/usr/bin/env python3
"""The static site and the manual pages that scripts make of the manual, and how manual_test.py reads its commands.

    site_test.py [FILE ...]     FILE: further pages, such as ds_config.md
"""

import html.parser
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "tests/e2e"), str(ROOT / "tests/support")]
import manual_pages  # noqa: E402
import manual_test  # noqa: E402
from requirement import skip_without  # noqa: E402

NO_END = {"meta"}
FURTHER = []


class Checked(html.parser.HTMLParser):
    """The links, anchors and texts of code of a document; open_tags is empty at the end of a sound one."""

    def __init__(self, text):
        super().__init__()
        self.open_tags, self.links, self.code, self.wrong = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.links += [value for name, value in attributes if name == "href"]
        if tag not in NO_END:
            self.open_tags.append(tag)
        if tag == "pre":
            self.code.append("")

    def handle_endtag(self, tag):
        if not self.open_tags or self.open_tags.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data):
        if "pre" in self.open_tags:
            self.code[-1] += data


def run(*words):
    return subprocess.run([sys.executable, *map(str, words)], capture_output=True, text=True, check=True)


class SiteTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.pages = manual_pages.read_pages(FURTHER)
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)
        run(ROOT / "scripts/make_site.py", cls.folder / "site", *FURTHER)
        run(ROOT / "scripts/make_man.py", "--out", cls.folder / "man7", *FURTHER)

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def test_each_page_has_a_sound_file(self):
        self.assertGreater(len(self.pages), 20)
        for name in ["index", *(page.name for page in self.pages)]:
            checked = Checked((self.folder / "site" / f"{name}.html").read_text(encoding="utf-8"))
            self.assertEqual((checked.open_tags, checked.wrong), ([], []), name)

    def test_each_link_leads_somewhere(self):
        for path in (self.folder / "site").glob("*.html"):
            for link in Checked(path.read_text(encoding="utf-8")).links:
                if "://" not in link:
                    self.assertTrue((path.parent / link).exists(), f"{path.name}: {link}")

    def test_code_arrives_letter_for_letter(self):
        for page in self.pages:
            shown = Checked((self.folder / "site" / f"{page.name}.html").read_text(encoding="utf-8")).code
            self.assertEqual(shown, ["\n".join(block[1]) for block in page.blocks if block[0] == "code"], page.name)

    def test_comments_are_left_out(self):
        for path in [*(self.folder / "site").glob("*.html"), *(self.folder / "man7").glob("*.7")]:
            self.assertNotIn("not run:", path.read_text(encoding="utf-8"), path.name)

    def test_man_shows_every_page(self):
        for page in self.pages:
            text = (self.folder / "man7" / f"dsrun-{page.name}.7").read_text(encoding="utf-8")
            self.assertIn("\\- ", text.split(".SH DESCRIPTION")[0], page.name)

    def test_groff_warns_of_nothing(self):
        if shutil.which("groff") is None:
            skip_without(self, "groff", "groff is not installed")
        for path in sorted((self.folder / "man7").glob("*.7")):
            done = subprocess.run(["groff", "-man", "-ww", "-Wbreak", "-Tutf8", "-z", path], capture_output=True, text=True, check=False)
            self.assertEqual(done.stderr, "", path.name)


class PagesTest(unittest.TestCase):
    def test_blocks(self):
        text = ("## Title\n\nTwo\nlines.\n\n<!-- not run: a reason -->\n\n    code\n\n      more\n\n- one\n  item\n- two\n\n"
                "1. first\n2. second\n\n| a | b |\n|---|---|\n| `x\\|y` | z |\n| | more |\n\n```\nfenced\n```\n")
        self.assertEqual(manual_pages.parse(text), [
            ("heading", 2, "Title"), ("text", "Two lines."), ("code", ["code", "", "  more"]),
            ("list", "-", ["one item", "two"]), ("list", "1.", ["first", "second"]),
            ("table", ["a", "b"], [["`x|y`", "z more"]]), ("code", ["fenced"])])

    def test_spans(self):
        self.assertEqual(list(manual_pages.spans("a `b*c` **d** *e* [f](g.md) 2 * 3")), [
            ("plain", "a ", ""), ("code", "b*c", ""), ("plain", " ", ""), ("bold", "d", ""), ("plain", " ", ""),
            ("em", "e", ""), ("plain", " ", ""), ("link", "f", "g.md"), ("plain", " 2 * 3", "")])

    def test_a_page_needs_its_title(self):
        with tempfile.NamedTemporaryFile("w", suffix=".md") as file:
            file.write("# no summary\n")
            file.flush()
            with self.assertRaises(ValueError):
                manual_pages.Page(file.name)


def examples_of(text):
    """The commands that manual_test.py finds in a page."""
    with tempfile.TemporaryDirectory() as name:
        page = pathlib.Path(name) / "page.md"
        page.write_text(text, encoding="utf-8")
        return manual_test.examples_of(page)


class ExamplesTest(unittest.TestCase):
    def test_commands_have_their_output(self):
        found = examples_of("text\n\n    $ dsrun a \\\n        b\n    one\n    two\n\n    $ echo c\n")
        self.assertEqual([(each.command, each.shown) for each in found],
                         [("dsrun a \\\n    b", ["one", "two"]), ("echo c", [])])

    def test_programs_without_a_prompt_are_commands_without_output(self):
        found = examples_of("    dsrun a\n    other\n\n| `x` | `build/bin/dsrun b` |\n\n```\ndsrun c\n```\n")
        self.assertEqual(sorted(each.command for each in found), ["build/bin/dsrun b", "dsrun a", "dsrun c"])
        self.assertTrue(all(not each.shown for each in found))

    def test_a_block_is_left_out_for_a_reason_alone(self):
        block = "\n\n    dsrun a\n"
        self.assertEqual(examples_of("<!-- not run: needs two hosts -->" + block), [])
        for comment in ("<!-- not run: x -->" + block, "<!-- not run: needs two hosts -->\n\ntext",
                        "<!-- not run: needs two hosts -->\n\n    no command\n"):
            with self.assertRaises(ValueError):
                examples_of(comment)

    def test_numbers_and_dots_match(self):
        example = manual_test.Example("page", "dsrun a")
        example.shown = ["step 5/5  loss 1.25  3 MiB", "...end", "other", "..."]
        output = "step 12/12  loss 0.5  1.5 GiB\nthe end\nrest\n"
        self.assertEqual(manual_test.missing_lines(example, output), ["other"])


if __name__ == "__main__":
    FURTHER = sys.argv[1:]
    unittest.main(argv=sys.argv[:1])
