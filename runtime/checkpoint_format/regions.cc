#include "runtime/checkpoint_format/regions.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace ds::checkpoint {
namespace {

// Sums and byte counts of this many elements fit in 64 bits.
constexpr std::int64_t kMaxElements = std::int64_t{1} << 56;

Status CheckBox(std::span<const std::int64_t> tensor_shape, const Box& box) {
  if (box.offset.size() != tensor_shape.size() || box.shape.size() != tensor_shape.size()) {
    return InvalidArgumentError("the box has another number of dimensions than the tensor");
  }
  for (std::size_t i = 0; i < tensor_shape.size(); ++i) {
    if (box.offset[i] < 0 || box.shape[i] < 0 || box.offset[i] > tensor_shape[i] ||
        box.shape[i] > tensor_shape[i] - box.offset[i]) {
      return InvalidArgumentError(fmt::format("the box leaves the tensor in dimension {}", i));
    }
  }
  return OkStatus();
}

// Returns the dimension along which the boxes are placed side by side: the first in which two of
// the boxes differ.
std::size_t FindAlong(const Boxes& boxes) {
  const Shape &first = boxes[0].offset, &second = boxes[1].offset;
  return static_cast<std::size_t>(std::mismatch(first.begin(), first.end(), second.begin()).first -
                                  first.begin());
}

// Requires boxes that pass CheckBox.
Status CheckSideBySide(std::span<const std::int64_t> tensor_shape, const Boxes& boxes) {
  const std::size_t along = FindAlong(boxes);
  const Status apart = InvalidArgumentError("the boxes are not adjacent and in ascending order");
  if (along == tensor_shape.size()) return apart;
  std::int64_t end = 0;
  for (const Box& box : boxes) {
    for (std::size_t i = 0; i < tensor_shape.size(); ++i) {
      if (i != along && box.shape[i] != tensor_shape[i]) {
        return InvalidArgumentError(
            fmt::format("of several boxes one does not span the tensor in dimension {}", i));
      }
    }
    if (box.offset[along] < end) return apart;
    end = box.offset[along] + box.shape[along];
  }
  return OkStatus();
}

// Returns the first dimension from which on the box spans the tensor fully. A row of the box is a
// contiguous stretch: its extent in the last partial dimension times all later dimensions.
std::size_t FirstFullDimension(std::span<const std::int64_t> tensor_shape, const Box& box) {
  std::size_t full = tensor_shape.size();
  while (full > 0 && box.shape[full - 1] == tensor_shape[full - 1]) --full;
  return full;
}

std::int64_t Product(std::span<const std::int64_t> shape) {
  std::int64_t product = 1;
  for (const std::int64_t extent : shape) product *= extent;
  return product;
}

// Returns the start of row `row` of the box in the flattened global tensor. Only the first
// `row_dimensions` dimensions of the box are partial.
std::int64_t GlobalStartOfRow(std::span<const std::int64_t> tensor_shape, const Box& box,
                              std::size_t row_dimensions, std::int64_t row) {
  std::int64_t start = 0;
  std::int64_t stride = Product(tensor_shape.subspan(row_dimensions));
  for (std::size_t i = row_dimensions; i > 0; --i) {
    // The innermost of these dimensions is part of the row itself, so its coordinate is the offset.
    std::int64_t coordinate = box.offset[i - 1];
    if (i < row_dimensions) {
      coordinate += row % box.shape[i - 1];
      row /= box.shape[i - 1];
    }
    start += coordinate * stride;
    stride *= tensor_shape[i - 1];
  }
  return start;
}

// Each row of the dimensions before `along` contains one stretch of each box.
std::vector<Stretch> FindStretchesOfBoxes(std::span<const std::int64_t> tensor_shape,
                                          const Region& region) {
  const std::size_t along = FindAlong(region.boxes);
  const std::int64_t inner = Product(tensor_shape.subspan(along + 1));
  const std::int64_t row_length = ShapeOf(tensor_shape, region.boxes)[along] * inner;
  const std::int64_t end = region.flat_start + region.flat_count;
  std::vector<Stretch> stretches;
  for (std::int64_t row = region.flat_start / row_length; row * row_length < end; ++row) {
    std::int64_t box_start = row * row_length;
    for (const Box& box : region.boxes) {
      const std::int64_t box_end = box_start + box.shape[along] * inner;
      const std::int64_t from = std::max(box_start, region.flat_start);
      const std::int64_t to = std::min(box_end, end);
      const std::int64_t global = (row * tensor_shape[along] + box.offset[along]) * inner;
      if (from < to) {
        stretches.push_back({global + from - box_start, from - region.flat_start, to - from});
      }
      box_start = box_end;
    }
  }
  return stretches;
}

}  // namespace

Shape ShapeOf(std::span<const std::int64_t> tensor_shape, const Boxes& boxes) {
  if (boxes.empty()) return {tensor_shape.begin(), tensor_shape.end()};
  Shape shape = boxes[0].shape;
  for (std::size_t i = 1; i < boxes.size(); ++i) {
    const std::size_t along = FindAlong(boxes);
    shape[along] += boxes[i].shape[along];
  }
  return shape;
}

StatusOr<std::int64_t> ElementCount(std::span<const std::int64_t> shape) {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) {
    if (extent < 0) return InvalidArgumentError(fmt::format("negative dimension {}", extent));
    if (extent != 0 && count > kMaxElements / extent) {
      return InvalidArgumentError(fmt::format("shape [{}] is too large", fmt::join(shape, ", ")));
    }
    count *= extent;
  }
  return count;
}

Status CheckRegion(std::span<const std::int64_t> tensor_shape, const Region& region) {
  for (const Box& box : region.boxes) DS_RETURN_IF_ERROR(CheckBox(tensor_shape, box));
  if (region.boxes.size() > 1) DS_RETURN_IF_ERROR(CheckSideBySide(tensor_shape, region.boxes));
  DS_ASSIGN_OR_RETURN(const std::int64_t elements,
                      ElementCount(ShapeOf(tensor_shape, region.boxes)));
  if (region.flat_start < 0 || region.flat_count < 0 || region.flat_start > elements ||
      region.flat_count > elements - region.flat_start) {
    return InvalidArgumentError(fmt::format("{} elements from {} leave the {} that there are",
                                            region.flat_count, region.flat_start, elements));
  }
  return OkStatus();
}

std::vector<Stretch> FindStretches(std::span<const std::int64_t> tensor_shape,
                                   const Region& region) {
  std::vector<Stretch> stretches;
  if (region.flat_count == 0) return stretches;
  if (region.boxes.size() > 1) return FindStretchesOfBoxes(tensor_shape, region);
  const std::size_t full =
      region.boxes.empty() ? 0 : FirstFullDimension(tensor_shape, region.boxes[0]);
  if (full == 0) {
    stretches.push_back({region.flat_start, 0, region.flat_count});
    return stretches;
  }
  const Box& box = region.boxes[0];
  const std::int64_t row_length =
      box.shape[full - 1] * Product(std::span(tensor_shape).subspan(full));
  std::int64_t local = 0;
  while (local < region.flat_count) {
    const std::int64_t in_box = region.flat_start + local;
    const std::int64_t in_row = in_box % row_length;
    const std::int64_t count = std::min(row_length - in_row, region.flat_count - local);
    const std::int64_t row_start = GlobalStartOfRow(tensor_shape, box, full, in_box / row_length);
    stretches.push_back({row_start + in_row, local, count});
    local += count;
  }
  return stretches;
}

std::vector<Copy> IntersectStretches(std::span<const Stretch> source,
                                     std::span<const Stretch> target) {
  std::vector<Copy> copies;
  auto from = source.begin();
  auto to = target.begin();
  while (from != source.end() && to != target.end()) {
    const std::int64_t from_end = from->global + from->count;
    const std::int64_t to_end = to->global + to->count;
    const std::int64_t begin = std::max(from->global, to->global);
    const std::int64_t end = std::min(from_end, to_end);
    if (begin < end) {
      copies.push_back(
          {from->local + (begin - from->global), to->local + (begin - to->global), end - begin});
    }
    if (from_end <= to_end) ++from;
    if (to_end <= from_end) ++to;
  }
  return copies;
}

Share ShareOf(std::int64_t total, int index, int replicas) {
  DS_CHECK(total >= 0 && index >= 0 && index < replicas);
  const std::int64_t each = total / replicas;
  const std::int64_t longer = total % replicas;  // this many parts have one element more
  return {each * index + std::min<std::int64_t>(index, longer), each + (index < longer ? 1 : 0)};
}

}  // namespace ds::checkpoint
