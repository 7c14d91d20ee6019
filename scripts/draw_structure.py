"""Draws a sheet of the structure as SVG: boxes by floor, with their arrows, and the torch line.

The arrows to one box merge into one line above it, of one colour, which passes the floors between as a point of each.
Boxes and points are ordered so that few lines cross (Sugiyama's method: sweeps by the mean of the neighbours, then
swaps of neighbours), and placed near their neighbours by isotonic regression.
"""

import collections
import html

BOX_WIDTH, BOX_HEIGHT, FLOOR_HEIGHT = 152, 34, 118
POINT_WIDTH, LETTER_WIDTH, MARGIN = 12, 6.2, 90
ORDER_SWEEPS, PLACE_SWEEPS = 24, 200

# A box, or the point at which the line of the arrows to a box passes a floor.
Item = collections.namedtuple("Item", "box point")


class Layout:
    """The items of each floor from left to right, the lines between them, and their positions."""

    def __init__(self, sheet, is_below):
        self.sheet, self.is_below = sheet, is_below
        self.rows = collections.defaultdict(list)
        for box in sheet.boxes:
            self.rows[sheet.floors[box]].append(Item(box, False))
        self.lines = set()  # (upper item, its floor, lower item)
        for pair in sheet.arrows:
            if pair not in sheet.up:
                self._add_arrow(*pair)
        self.top = max(self.rows)
        self._order()
        self._place()

    def _add_arrow(self, source, target):
        upper = Item(source, False)
        for floor in range(self.sheet.floors[source] - 1, self.sheet.floors[target], -1):
            point = Item(target, True)
            if point not in self.rows[floor]:
                self.rows[floor].append(point)
            self.lines.add((upper, floor + 1, point))
            upper = point
        self.lines.add((upper, self.sheet.floors[target] + 1, Item(target, False)))

    def _side(self, item, floor):
        """0 for items left of the torch line on a floor with boxes on both sides of it."""
        sides = {self.is_below(other.box) for other in self.rows[floor] if not other.point}
        return int(len(sides) == 2 and not self.is_below(item.box))

    def _neighbours(self, floor, step):
        """The items of the floor above (step 1) or below (-1) that each item of a floor has lines to."""
        found = collections.defaultdict(list)
        for upper, upper_floor, lower in self.lines:
            if step == 1 and upper_floor == floor + 1:
                found[lower].append(upper)
            elif step == -1 and upper_floor == floor:
                found[upper].append(lower)
        return found

    def _crossings(self, floor):
        """The crossings of the lines that lead down from a floor."""
        at = {(item, level): i for level in (floor, floor - 1) for i, item in enumerate(self.rows.get(level, []))}
        ends = [(at[upper, floor], at[lower, floor - 1]) for upper, level, lower in self.lines if level == floor]
        return sum((a - c) * (b - d) < 0 for i, (a, b) in enumerate(ends) for c, d in ends[:i])

    def _sort(self, floor, step):
        order = {item: i for i, item in enumerate(self.rows.get(floor + step, []))}
        neighbours = self._neighbours(floor, step)
        means = {item: (sum(order[other] for other in neighbours[item]) / len(neighbours[item])
                        if neighbours[item] else i) for i, item in enumerate(self.rows[floor])}
        self.rows[floor] = sorted(self.rows[floor], key=lambda item: (self._side(item, floor), means[item], item))

    def _order(self):
        for floor in self.rows:
            self.rows[floor] = sorted(self.rows[floor], key=lambda item: (self._side(item, floor), item))
        best = None
        for sweep in range(ORDER_SWEEPS):
            floors = range(self.top, 0, -1) if sweep % 2 == 0 else range(1, self.top + 1)
            for floor in floors:
                self._sort(floor, 1 if sweep % 2 == 0 else -1)
            crossings = sum(map(self._crossings, self.rows))
            if best is None or crossings < best[0]:
                best = (crossings, {floor: list(row) for floor, row in self.rows.items()})
        self.rows = collections.defaultdict(list, best[1])
        while any([self._swap(floor) for floor in sorted(self.rows)]):
            pass

    def _swap(self, floor):
        """Swaps neighbours on a floor where that leaves fewer crossings. Returns whether it did."""
        row, swapped = self.rows[floor], False
        for i in range(len(row) - 1):
            if self._side(row[i], floor) != self._side(row[i + 1], floor):
                continue
            before = self._crossings(floor) + self._crossings(floor + 1)
            row[i], row[i + 1] = row[i + 1], row[i]
            if self._crossings(floor) + self._crossings(floor + 1) < before:
                swapped = True
            else:
                row[i], row[i + 1] = row[i + 1], row[i]
        return swapped

    def is_labelled(self, item, floor):
        """A line has the name of its box where it begins."""
        return item.point and item not in self.rows.get(floor + 1, [])

    def _width(self, item, floor):
        if not item.point:
            return BOX_WIDTH
        return 2 * LETTER_WIDTH * len(short(item.box)) + POINT_WIDTH if self.is_labelled(item, floor) else POINT_WIDTH

    def _place(self):
        self.x = {}
        for floor, row in self.rows.items():
            for item, offset in zip(row, self._offsets(floor)):
                self.x[item, floor] = offset
        for sweep in range(PLACE_SWEEPS):
            floors = range(self.top, 0, -1) if sweep % 2 == 0 else range(1, self.top + 1)
            for floor in floors:
                self._move(floor)
        left = min(self.x.values())
        self.x = {key: x - left + MARGIN + BOX_WIDTH / 2 for key, x in self.x.items()}

    def _offsets(self, floor):
        """The positions of a floor's items when they stand as close as they may."""
        offsets, row = [0.0], self.rows[floor]
        for left, right in zip(row, row[1:]):
            gap = 10 if left.point and right.point else 22
            offsets.append(offsets[-1] + (self._width(left, floor) + self._width(right, floor)) / 2 + gap)
        return offsets

    def _move(self, floor):
        offsets, wishes = self._offsets(floor), []
        above, below = self._neighbours(floor, 1), self._neighbours(floor, -1)
        for item in self.rows[floor]:
            near = [(self.x[other, floor + 1], item.point and other.point) for other in above[item]]
            near += [(self.x[other, floor - 1], item.point and other.point) for other in below[item]]
            weights = [8 if straight else 1 for _, straight in near]
            total = sum(weights)
            wishes.append(sum(x * weight for (x, _), weight in zip(near, weights)) / total if total else
                          self.x[item, floor])
        shifts = isotonic([wish - offset for wish, offset in zip(wishes, offsets)])
        for item, offset, shift in zip(self.rows[floor], offsets, shifts):
            self.x[item, floor] = offset + shift

    def torch_line(self, floor):
        """The x of the torch line on a floor: None where all of its boxes are below it, 0 where all are above it."""
        row = self.rows[floor]
        left = [i for i, item in enumerate(row) if not item.point and self.is_below(item.box)]
        right = [i for i, item in enumerate(row) if not item.point and not self.is_below(item.box)]
        if not left or not right:
            return None if left else 0
        first = next(i for i, item in enumerate(row) if self._side(item, floor) == 1)
        last, first = row[first - 1], row[first]
        return (self.x[last, floor] + self._width(last, floor) / 2 + self.x[first, floor] -
                self._width(first, floor) / 2) / 2


def isotonic(values):
    """The nondecreasing values that are nearest to `values` by squares (pool adjacent violators)."""
    pools = []  # [sum, count]
    for value in values:
        pools.append([value, 1])
        while len(pools) > 1 and pools[-2][0] / pools[-2][1] > pools[-1][0] / pools[-1][1]:
            total, count = pools.pop()
            pools[-1][0] += total
            pools[-1][1] += count
    return [total / count for total, count in pools for _ in range(count)]


def short(box):
    return box.rsplit("/", 1)[-1]


class Drawing:
    def __init__(self, sheet, title, is_below):
        self.sheet, self.title, self.is_below = sheet, title, is_below
        self.layout = Layout(sheet, is_below)
        self.width = max(x for x in self.layout.x.values()) + BOX_WIDTH / 2 + MARGIN
        self.height = self.y(1) + BOX_HEIGHT + 20
        self.colour = {box: f"hsl({i * 137.5 % 360:.0f},70%,{38 if i % 2 else 45}%)"
                       for i, box in enumerate(sheet.boxes)}

    def y(self, floor):
        """The upper edge of a floor's boxes."""
        return 60 + (self.layout.top - floor) * FLOOR_HEIGHT

    def ports(self):
        """{(line, end): x}: lines leave and reach a box side by side, ordered by their other ends."""
        found, x = {}, self.layout.x
        for end in (0, 2):
            groups = collections.defaultdict(list)
            for line in self.layout.lines:
                groups[line[end], line[1] - end // 2].append(line)
            for (item, floor), lines in groups.items():
                lines.sort(key=lambda line: x[line[2 - end], line[1] - (2 - end) // 2])
                spread = 0 if item.point else min(BOX_WIDTH * 0.8, 16 * (len(lines) - 1))
                for i, line in enumerate(lines):
                    share = i / (len(lines) - 1) - 0.5 if len(lines) > 1 else 0.0
                    found[line, end] = x[item, floor] + spread * share
        return found

    def curves(self):
        ports = self.ports()
        for line in sorted(self.layout.lines):
            upper, floor, lower = line
            colour, x0, x1 = self.colour[lower.box], ports[line, 0], ports[line, 2]
            y0, y1 = self.y(floor) + BOX_HEIGHT, self.y(floor - 1)
            bend = (y1 - y0) / 2
            tip = "" if lower.point else ' marker-end="url(#tip)"'
            yield (f'<path d="M{x0:.1f} {y0} C{x0:.1f} {y0 + bend:.1f} {x1:.1f} {y1 - bend:.1f} {x1:.1f} {y1}" '
                   f'stroke="{colour}"{tip}/>')
        for source, target in self.sheet.up:
            x0, x1 = (self.layout.x[Item(box, False), self.sheet.floors[box]] for box in (source, target))
            y0, y1 = self.y(self.sheet.floors[source]), self.y(self.sheet.floors[target]) + BOX_HEIGHT
            yield f'<path class="up" d="M{x0:.1f} {y0} L{x1:.1f} {y1}" marker-end="url(#tip)"/>'

    def boxes(self):
        for floor, row in self.layout.rows.items():
            for item in row:
                x, y, name = self.layout.x[item, floor], self.y(floor), html.escape(short(item.box))
                if item.point:
                    yield f'<path d="M{x:.1f} {y} v{BOX_HEIGHT}" stroke="{self.colour[item.box]}"/>'
                    if self.layout.is_labelled(item, floor):
                        yield f'<text x="{x + 5:.1f}" y="{y + 12}" class="small" fill="{self.colour[item.box]}">{name}</text>'
                    continue
                fill = "#e3f0e3" if self.is_below(item.box) else "#fde8d4"
                yield (f'<rect x="{x - BOX_WIDTH / 2:.1f}" y="{y}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="4" '
                       f'fill="{fill}" stroke="{self.colour[item.box]}" stroke-width="2"/>')
                yield f'<text x="{x:.1f}" y="{y + 22}" text-anchor="middle">{name}</text>'

    def torch_line(self):
        """The line from the right edge, below the lowest boxes that need LibTorch, to the left edge."""
        points, at = [], None
        for floor in range(1, self.layout.top + 1):
            x = self.layout.torch_line(floor)
            x = self.width if x is None else x
            y = self.y(floor) + BOX_HEIGHT + (FLOOR_HEIGHT - BOX_HEIGHT) / 4
            if at is not None and x != at:
                points += [(at, y), (x, y)]
            at = x
        if not points:
            return
        yield f'<path class="torch" d="M{" L".join(f"{x:.1f} {y:.1f}" for x, y in points)}"/>'
        yield (f'<text x="{self.width - 8:.1f}" y="{points[0][1] - 6:.1f}" text-anchor="end" class="torch">torch line: '
               "above it LibTorch</text>")

    def text(self):
        floors = [f'<text x="10" y="{self.y(floor) + 22}" class="small" fill="#666">floor {floor}</text>'
                  for floor in range(1, self.layout.top + 1)]
        return "\n".join([
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width:.0f}" height="{self.height}" '
            f'viewBox="0 0 {self.width:.0f} {self.height}">',
            "<style>text { font: 14px sans-serif; } .small { font-size: 11px; } path { fill: none; stroke-width: 1.6; }\n"
            "path.up { stroke: red; stroke-width: 3; } path.torch { stroke: #c00; stroke-width: 2; stroke-dasharray: 9 5; } text.torch { fill: #c00; }</style>",
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" '
            'markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0 L8 4 L0 8 z" style="fill: context-stroke"/></marker></defs>',
            '<rect width="100%" height="100%" fill="white"/>',
            f'<text x="10" y="24">{html.escape(self.title)}</text>',
            '<text x="10" y="42" class="small">An arrow leads to a folder that is included. The arrows to one folder merge '
            "into a line of its colour. Red: an arrow up.</text>",
            *floors, *self.curves(), *self.torch_line(), *self.boxes(), "</svg>", ""])


def draw(sheet, title, is_below):
    """Returns the sheet as SVG. `is_below` tells whether a box is below the torch line."""
    return Drawing(sheet, title, is_below).text()
