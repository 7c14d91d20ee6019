"""The structure of the source tree: its folders, the includes between them, their floors, and its modules."""

import collections
import pathlib

MAX_FOLDERS = 24  # on the sheet of the whole tree
MAX_INSIDE = {"runtime/models": 10}  # subfolders and modules of a folder, on a sheet of its own
MAX_FLOOR = {"cli": 4}
PROGRAMS = ("cli/", "daemon/", "proto/", "runtime/")


class Sheet:
    """Boxes and the arrows between them. An arrow leads from a box to a box that it includes.

    A circle is a set of boxes that include one another. Its arrows with the fewest includes, as many as it takes to
    break it, lead up. The floor of a box is 1 + the highest floor of the boxes that it includes, without arrows up.
    """

    def __init__(self, sources, includes, box_of):
        paths = [*sources, *(include for _, include in includes)]
        self.boxes = sorted({box_of(path) for path in paths} - {None})
        self.arrows = collections.Counter()  # (box, included box) -> number of include lines
        for source, include in includes:
            pair = (box_of(source), box_of(include))
            if None not in pair and pair[0] != pair[1]:
                self.arrows[pair] += 1
        self.circles, self.up = self._break_circles()
        self.floors = {}
        for box in self.boxes:
            self._find_floor(box)

    def included(self, box, arrows=None):
        return sorted(target for source, target in (self.arrows if arrows is None else arrows) if source == box)

    def _find_circles(self, arrows):
        reached = {}
        for box in self.boxes:
            seen, waiting = set(), [box]
            while waiting:
                for target in self.included(waiting.pop(), arrows):
                    if target not in seen:
                        seen.add(target)
                        waiting.append(target)
            reached[box] = seen
        circles = {tuple(other for other in self.boxes if other in reached[box] and box in reached[other])
                   for box in self.boxes if box in reached[box]}
        return sorted(circles)

    def _break_circles(self):
        """Returns the circles and the arrows up."""
        arrows, up = dict(self.arrows), []
        first = circles = self._find_circles(arrows)
        while circles:
            inside = [pair for pair in arrows if pair[0] in circles[0] and pair[1] in circles[0]]
            weakest = min(inside, key=lambda pair: (arrows[pair], self._count_bound(arrows, pair), pair))
            up.append(weakest)
            del arrows[weakest]
            circles = self._find_circles(arrows)
        return first, up

    def _count_bound(self, arrows, removed):
        """The number of boxes in circles without the arrow `removed`."""
        return sum(map(len, self._find_circles([pair for pair in arrows if pair != removed])))

    def _find_floor(self, box):
        if box not in self.floors:
            lower = [target for target in self.included(box) if (box, target) not in self.up]
            self.floors[box] = 1 + max(map(self._find_floor, lower), default=0)
        return self.floors[box]

    def problems(self):
        """One line for each circle and each arrow up."""
        found = [f"circle: {', '.join(circle)} include one another" for circle in self.circles]
        return found + [f"arrow up: {source} includes {target} ({self.arrows[source, target]} includes)"
                        for source, target in self.up]

    def counts(self):
        return f"{len(self.boxes)} boxes, {len(self.arrows)} arrows, {max(self.floors.values(), default=0)} floors"


def folder_box(path):
    """A folder of runtime, or a top-level folder of the programs; None for other paths."""
    if not path.startswith(PROGRAMS):
        return None
    parts = pathlib.PurePosixPath(path).parts
    return "/".join(parts[:2]) if parts[0] == "runtime" and len(parts) > 2 else parts[0]


def inner_box(folder):
    """Returns the function that finds the box of a path on the sheet of `folder`: a subfolder or a module of its own."""
    depth = len(pathlib.PurePosixPath(folder).parts)

    def box_of(path):
        parts = pathlib.PurePosixPath(path).with_suffix("").parts
        return "/".join(parts[:depth + 1]) if path.startswith(folder + "/") else None

    return box_of


def whole_sheet(sources, includes):
    return Sheet(sources, includes, folder_box)


def inner_sheet(folder, sources, includes):
    return Sheet(sources, includes, inner_box(folder))


def sheet_problems(sheet, inside=None):
    """The circles, the arrows up, and the limits that a sheet of the whole tree, or of the folder `inside`, breaks."""
    problems = sheet.problems()
    if inside is None and len(sheet.boxes) > MAX_FOLDERS:
        problems.append(f"the tree has {len(sheet.boxes)} folders, at most {MAX_FOLDERS}")
    if len(sheet.boxes) > (most := MAX_INSIDE.get(inside, len(sheet.boxes))):
        problems.append(f"{inside} has {len(sheet.boxes)} subfolders and modules, at most {most}")
    return problems + [f"{box} is on floor {sheet.floors[box]}, at most {most}" for box, most in MAX_FLOOR.items()
                       if sheet.floors.get(box, 0) > most]


def module_counts(sources, includes):
    """A sentence with the number of modules and of the modules that one other module includes. A module is the files
    of the programs that have one path without their endings."""
    def module_of(path):
        return str(pathlib.PurePosixPath(path).with_suffix(""))

    modules = {module_of(source) for source in sources if source.startswith(PROGRAMS)}
    users = collections.defaultdict(set)
    for source, include in includes:
        if module_of(source) in modules and module_of(source) != module_of(include):
            users[module_of(include)].add(module_of(source))
    one = sum(len(users[module]) == 1 for module in modules)
    return f"{len(modules)} modules, {one} with one user ({100 * one / max(len(modules), 1):.1f} %)"
