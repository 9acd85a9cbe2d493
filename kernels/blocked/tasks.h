// The pieces that an algorithm leaves to whatever threads there are.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>

namespace linalg::blocked {

using Task = std::function<void(int64_t)>;

// Calls task(i) for each i < count, some at once, perhaps on other threads, begun in this order;
// and returns when all are done. What a task computes depends on i alone.
using RunTasks = std::function<void(int64_t count, const Task& task)>;

// On the calling thread, one after the other.
inline void RunInTurn(int64_t count, const Task& task) {
  for (int64_t i = 0; i < count; ++i) task(i);
}

// The same of any function; a single task is simply done.
template <class Function>
void Run(const RunTasks& run_tasks, int64_t count, Function&& task) {
  if (count == 1) return task(0);
  if (count > 1) run_tasks(count, std::ref(task));
}

// Rows of a matrix that a task moves from one place to another.
inline constexpr int64_t kTaskRows = 64;

// Columns that a task computes: a multiple of every tile's, and of its rows.
template <class T>
inline constexpr int64_t kTaskColumns = 384 / sizeof(T);

// Calls use(first, last) for `count` pieces of [begin, end), each of `length` but the last.
template <class Use>
void RunPieces(const RunTasks& run_tasks, int64_t count, int64_t begin, int64_t end, int64_t length,
               Use&& use) {
  Run(run_tasks, count, [&](int64_t i) {
    const int64_t first = begin + i * length;
    use(first, i + 1 == count ? end : first + length);
  });
}

// Rows [0, n), in pieces of kTaskRows, of which the last takes the rest.
inline int64_t PiecesOfRows(int64_t n) { return std::max<int64_t>(n / kTaskRows, 1); }
template <class Use>
void ForEachPieceOfRows(const RunTasks& run_tasks, int64_t n, Use&& use) {
  RunPieces(run_tasks, PiecesOfRows(n), 0, n, kTaskRows, use);
}

// Columns [begin, end), in pieces of kTaskColumns or less.
template <class T>
int64_t PiecesOfColumns(int64_t begin, int64_t end) {
  return (end - begin + kTaskColumns<T> - 1) / kTaskColumns<T>;
}
template <class T, class Use>
void ForEachPieceOfColumns(const RunTasks& run_tasks, int64_t begin, int64_t end, Use&& use) {
  RunPieces(run_tasks, PiecesOfColumns<T>(begin, end), begin, end, kTaskColumns<T>, use);
}

// Calls ahead(), which later steps wait for and so is begun first, and use(first, last) for each
// of those pieces; the last pieces first where they are the longer ones.
template <class T, bool kLastFirst = false, class Use, class Ahead>
void RunAheadOfPieces(const RunTasks& run_tasks, int64_t begin, int64_t end, Use&& use,
                      Ahead&& ahead) {
  const int64_t pieces = PiecesOfColumns<T>(begin, end);
  Run(run_tasks, 1 + pieces, [&](int64_t i) {
    if (i == 0) return ahead();
    const int64_t first = begin + (kLastFirst ? pieces - i : i - 1) * kTaskColumns<T>;
    use(first, std::min(end, first + kTaskColumns<T>));
  });
}

}  // namespace linalg::blocked
