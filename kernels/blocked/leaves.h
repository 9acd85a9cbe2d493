// The tree of divide and conquer. A tridiagonal or bidiagonal matrix is split into leaves. Leaves
// are solved one per lane, then merged in pairs.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>

#include "kernels/blocked/tile.h"

namespace linalg::blocked {

// Two neighbouring parts of `upper` and `lower` rows, the first of which is row `first`. `between`,
// zero or one, is the number of rows between them.
struct Halves {
  int64_t first, upper, between, lower;
  int64_t size() const { return upper + between + lower; }
  int64_t lower_begin() const { return upper + between; }
};

// The chosen values of a matrix, by their indices in ascending order.
struct Chosen {
  int64_t start, count;
};

// The number of leaves is a power of two. Each has at most `most` rows, with `between` rows between
// neighbours.
class Leaves {
 public:
  Leaves(int64_t n, int64_t most, int64_t between) : rows_(n + between), between_(between) {
    while (LargestSize() > most) count_ *= 2;
  }

  int64_t LargestSize() const { return (rows_ + count_ - 1) / count_ - between_; }

  // Solves the leaves register by register. Loads their diagonals and off-diagonals into the lanes
  // of `diagonal` and `beside`. Then calls solve(), and write(lane, first, size) for each leaf.
  // Both arrays have LargestSize() rows; shorter leaves are padded with zeros.
  template <class V, class Solve, class Write>
  void ForEachRegister(const Lane<V>* d, const Lane<V>* e, V* diagonal, V* beside, Solve&& solve,
                       Write&& write) const {
    for (int64_t leaf = 0; leaf < count_; leaf += kLanesOf<V>) {
      const int lanes = static_cast<int>(std::min<int64_t>(kLanesOf<V>, count_ - leaf));
      const auto for_each = [&](auto&& use) {
        for (int lane = 0; lane < lanes; ++lane) {
          const int64_t first = Begin(leaf + lane);
          use(lane, first, Begin(leaf + lane + 1) - between_ - first);
        }
      };
      std::fill_n(diagonal, LargestSize(), V{});
      std::fill_n(beside, LargestSize(), V{});
      for_each([&](int lane, int64_t first, int64_t size) {
        for (int64_t i = 0; i < size; ++i) {
          diagonal[i][lane] = d[first + i];
          if (i < size - 1 + between_) beside[i][lane] = e[first + i];
        }
      });
      solve();
      for_each(write);
    }
  }

  // Calls merge(halves) for all merges, children first.
  template <class Merge>
  void ForEachMerge(Merge&& merge) const {
    for (int64_t step = 1; step < count_; step *= 2) {
      for (int64_t leaf = 0; leaf < count_; leaf += 2 * step) {
        const int64_t first = Begin(leaf), middle = Begin(leaf + step);
        merge(Halves{.first = first,
                     .upper = middle - between_ - first,
                     .between = between_,
                     .lower = Begin(leaf + 2 * step) - between_ - middle});
      }
    }
  }

 private:
  int64_t Begin(int64_t leaf) const { return leaf * rows_ / count_; }

  int64_t rows_, between_, count_ = 1;
};

// The indices that sort the `count` <= kMost elements of one lane in ascending order.
template <int kMost, class V>
std::array<int32_t, kMost> SortLane(const V* values, int lane, int64_t count) {
  std::array<int32_t, kMost> order;
  std::iota(order.begin(), order.begin() + count, 0);
  std::sort(order.begin(), order.begin() + count,
            [&](int32_t i, int32_t j) { return values[i][lane] < values[j][lane]; });
  return order;
}

}  // namespace linalg::blocked
