// Where a matrix lies while kernels/blocked works on it.
#pragma once

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/blocked/tasks.h"
#include "kernels/blocked/tile.h"
#include "kernels/kept_memory.h"

namespace linalg::blocked {

// Columns that are factored at once by themselves: registers of neighbours, and rows of a tile.
template <class T>
inline constexpr int kPanel = std::max(8, kWidth<T>);

inline constexpr int64_t RoundUp(int64_t x, int64_t multiple) {
  return (x + multiple - 1) / multiple * multiple;
}

// Memory for one matrix after another. Tiles and panels reach beyond it: by rows on either side,
// and to the right up to a multiple of kPanel; nothing that depends on these margins comes back
// into the matrix. Rows are an odd number of cache lines apart, so that a column of them is spread
// over the whole cache. Throws std::bad_alloc.
template <class T>
class Workspace {
 public:
  Workspace(int64_t rows, int64_t cols)
      : ld_((RoundUp(RoundUp(cols, kPanel<T>) * sizeof(T), kCacheLine) / kCacheLine | 1) *
            kCacheLine / sizeof(T)) {
    const int64_t bytes = (rows + 2 * kMargin) * ld_ * sizeof(T);
    memory_ = TakeMemory(bytes);
    T* const first = static_cast<T*>(memory_.get());
    // A margin that is never written holds numbers all the same.
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

// A row-major matrix is copied to a workspace, or back from it.
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

// Hands out the rows of a workspace from the first on, each piece with the rows that tiles reach
// beyond it.
template <class T>
class RowArena {
 public:
  explicit RowArena(Rows<T> rows) : next_(rows) {}

  // The rows that Take takes.
  static int64_t RowCount(int64_t count) { return count + kTileRows; }

  Rows<T> Take(int64_t count) { return std::exchange(next_, next_.At(RowCount(count), 0)); }
  T* TakeOne() { return std::exchange(next_, next_.At(1, 0)).data; }

 private:
  Rows<T> next_;
};

}  // namespace linalg::blocked
