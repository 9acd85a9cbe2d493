// The workspace of the kernels in kernels/blocked.
#pragma once

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/blocked/tasks.h"
#include "kernels/blocked/tile.h"
#include "kernels/kept_memory.h"

namespace linalg::blocked {

// Columns of a panel: a multiple of the register width and of a tile's rows.
template <class T>
inline constexpr int kPanel = std::max(8, kWidth<T>);

inline constexpr int64_t RoundUp(int64_t x, int64_t multiple) {
  return (x + multiple - 1) / multiple * multiple;
}

// Workspace for one matrix after another. Tiles and panels read and write margins: some rows on
// either side, and columns up to a multiple of kPanel. No element of the matrix depends on a
// margin. Rows are an odd number of cache lines apart, to spread a column over the whole cache.
// Throws std::bad_alloc.
template <class T>
class Workspace {
 public:
  Workspace(int64_t rows, int64_t cols)
      : ld_((RoundUp(RoundUp(cols, kPanel<T>) * sizeof(T), kCacheLine) / kCacheLine | 1) *
            kCacheLine / sizeof(T)) {
    const int64_t bytes = (rows + 2 * kMargin) * ld_ * sizeof(T);
    memory_ = TakeMemory(bytes);
    T* const first = static_cast<T*>(memory_.get());
    // Margins that are never written are still read, so they must hold numbers.
    std::memset(static_cast<void*>(first), 0, kMargin * ld_ * sizeof(T));
    std::memset(static_cast<void*>(first + (kMargin + rows) * ld_), 0, kMargin * ld_ * sizeof(T));
    for (int64_t i = 0; i < rows; ++i) {
      T* const row = first + (kMargin + i) * ld_;
      std::memset(static_cast<void*>(row + cols), 0, (ld_ - cols) * sizeof(T));
    }
    rows_ = {first + kMargin * ld_, ld_};
  }

  Rows<T> rows() const { return rows_; }

 private:
  static constexpr int64_t kMargin = 16;

  int64_t ld_;
  ReturnedMemory memory_;
  Rows<T> rows_;
};

// Copies a row-major matrix to a workspace, or back.
template <class T>
void CopyRows(int64_t rows, int64_t cols, const T* source, Rows<T> target,
              const RunTasks& run_tasks) {
  ForEachPieceOfRows(run_tasks, rows, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      std::copy_n(source + i * cols, cols, target.At(i, 0).data);
    }
  });
}
template <class T>
void CopyRows(int64_t rows, int64_t cols, Rows<T> source, T* target, const RunTasks& run_tasks) {
  ForEachPieceOfRows(run_tasks, rows, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      std::copy_n(source.At(i, 0).data, cols, target + i * cols);
    }
  });
}

// Hands out rows of a workspace in order. Each block includes the margin that tiles touch.
template <class T>
class RowArena {
 public:
  explicit RowArena(Rows<T> rows) : next_(rows) {}

  // The rows that Take uses up.
  static int64_t RowCount(int64_t count) { return count + kTileRows; }

  Rows<T> Take(int64_t count) { return std::exchange(next_, next_.At(RowCount(count), 0)); }
  T* TakeOne() { return std::exchange(next_, next_.At(1, 0)).data; }

 private:
  Rows<T> next_;
};

}  // namespace linalg::blocked
