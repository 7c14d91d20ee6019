#!/usr/bin/env python3
"""scripts/structure.py and scripts/draw_structure.py on small made-up trees."""

import pathlib
import sys
import unittest
import xml.etree.ElementTree

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import draw_structure  # noqa: E402
import structure  # noqa: E402

# Each folder has one source, which includes the headers of these folders.
SOUND = {
    "runtime/base": [],
    "runtime/plan": ["runtime/base"],
    "cli": ["runtime/base", "runtime/plan"],
    "runtime/comm": ["runtime/base", "runtime/plan"],
    "runtime/engine": ["runtime/base", "runtime/comm"],
}


def files_of(tree):
    return ([f"{folder}/code.cc" for folder in tree],
            [(f"{folder}/code.cc", f"{target}/code.h") for folder, targets in tree.items() for target in targets])


def sheet_of(tree):
    return structure.whole_sheet(*files_of(tree))


def draw(sheet):
    return draw_structure.draw(sheet, "a & b", lambda box: box in ("runtime/base", "runtime/plan", "cli"))


class StructureTest(unittest.TestCase):
    def test_floors_follow_includes(self):
        sheet = sheet_of(SOUND)
        self.assertEqual(sheet.floors, {"runtime/base": 1, "runtime/plan": 2, "cli": 3, "runtime/comm": 3,
                                        "runtime/engine": 4})
        self.assertEqual(structure.sheet_problems(sheet), [])
        self.assertEqual(sheet.counts(), "5 boxes, 7 arrows, 4 floors")

    def test_names_the_circle_and_its_arrow_up(self):
        sources, includes = files_of({**SOUND, "runtime/plan": ["runtime/base", "runtime/engine"]})
        includes.append(("runtime/engine/other.cc", "runtime/comm/code.h"))
        includes.append(("runtime/comm/other.cc", "runtime/plan/code.h"))
        sheet = structure.whole_sheet(sources, includes)
        self.assertEqual(structure.sheet_problems(sheet), [
            "circle: runtime/comm, runtime/engine, runtime/plan include one another",
            "arrow up: runtime/plan includes runtime/engine (1 includes)"])
        self.assertEqual(sheet.floors, sheet_of(SOUND).floors)
        self.assertIn('class="up"', draw(sheet))

    def test_names_each_of_two_circles(self):
        sheet = sheet_of({"runtime/a": ["runtime/b"], "runtime/b": ["runtime/a"],
                          "runtime/c": ["runtime/d"], "runtime/d": ["runtime/c"]})
        self.assertEqual(len(sheet.circles), 2)
        self.assertEqual(len(sheet.up), 2)

    def test_names_broken_limits(self):
        tower = {f"runtime/f{i}": [f"runtime/f{i - 1}"] if i else [] for i in range(24)}
        tower["cli"] = ["runtime/f3"]
        self.assertEqual(structure.sheet_problems(sheet_of(tower)), [
            "the tree has 25 folders, at most 24", "cli is on floor 5, at most 4"])
        sources = [f"runtime/models/m{i}.cc" for i in range(10)] + ["runtime/models/layers/layer.cc"]
        self.assertEqual(structure.sheet_problems(structure.inner_sheet("runtime/models", sources, []), "runtime/models"),
                         ["runtime/models has 11 subfolders and modules, at most 10"])

    def test_sheet_of_a_folder_has_its_modules(self):
        sources = ["runtime/models/block.cc", "runtime/models/block.h", "runtime/models/layers/a.cc", "runtime/zero/z.cc"]
        includes = [("runtime/models/layers/a.cc", "runtime/models/block.h"), ("runtime/zero/z.cc", "runtime/models/block.h")]
        sheet = structure.inner_sheet("runtime/models", sources, includes)
        self.assertEqual(sheet.floors, {"runtime/models/block": 1, "runtime/models/layers": 2})

    def test_counts_modules_with_one_user(self):
        sources = ["cli/a.h", "cli/a.cc", "cli/b.cc", "cli/c.cc", "cli/d.h", "tests/t.cc"]
        includes = [("cli/a.cc", "cli/a.h"), ("cli/b.cc", "cli/a.h"), ("tests/t.cc", "cli/a.h"),
                    ("cli/b.cc", "cli/d.h"), ("cli/c.cc", "cli/d.h")]
        self.assertEqual(structure.module_counts(sources, includes), "4 modules, 1 with one user (25.0 %)")

    def test_drawing_has_every_folder_and_the_torch_line(self):
        drawn = xml.etree.ElementTree.fromstring(draw(sheet_of(SOUND)))
        name = "{http://www.w3.org/2000/svg}"
        texts = [element.text for element in drawn.iter(name + "text")]
        for folder in SOUND:
            self.assertIn(folder.rsplit("/", 1)[-1], texts)
        self.assertIn("a & b", texts)
        self.assertEqual(sum(element.get("class") == "torch" for element in drawn.iter(name + "path")), 1)
        tips = [element for element in drawn.iter(name + "path") if element.get("marker-end")]
        # cli and comm join the arrow to base that engine begins.
        self.assertEqual(len(tips), 5)


if __name__ == "__main__":
    unittest.main()
