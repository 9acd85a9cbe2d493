// Splitting an algorithm into tasks for a thread pool.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>

namespace linalg::blocked {

using Task = std::function<void(int64_t)>;

// Calls task(i) for each i < count and returns when all are done. Tasks start in order and may run
// concurrently on other threads. The result of a task depends on i alone.
using RunTasks = std::function<void(int64_t count, const Task& task)>;

inline void RunInTurn(int64_t count, const Task& task) {
  for (int64_t i = 0; i < count; ++i) task(i);
}

// Runs any callable as tasks. A single task is called directly.
template <class Function>
void Run(const RunTasks& run_tasks, int64_t count, Function&& task) {
  if (count == 1) return task(0);
  if (count > 1) run_tasks(count, std::ref(task));
}

// Rows per task where a task only copies.
inline constexpr int64_t kTaskRows = 64;

// Columns per task where a task computes: a multiple of every tile's columns and rows.
template <class T>
inline constexpr int64_t kTaskColumns = 384 / sizeof(T);

// Calls use(first, last) for `count` pieces of [begin, end). All but the last have `length`
// elements.
template <class Use>
void RunPieces(const RunTasks& run_tasks, int64_t count, int64_t begin, int64_t end, int64_t length,
               Use&& use) {
  Run(run_tasks, count, [&](int64_t i) {
    const int64_t first = begin + i * length;
    use(first, i + 1 == count ? end : first + length);
  });
}

// Splits rows [0, n) into pieces of kTaskRows. The last piece takes the rest.
inline int64_t PiecesOfRows(int64_t n) { return std::max<int64_t>(n / kTaskRows, 1); }
template <class Use>
void ForEachPieceOfRows(const RunTasks& run_tasks, int64_t n, Use&& use) {
  RunPieces(run_tasks, PiecesOfRows(n), 0, n, kTaskRows, use);
}

// Splits columns [begin, end) into pieces of at most kTaskColumns.
template <class T>
int64_t PiecesOfColumns(int64_t begin, int64_t end) {
  return (end - begin + kTaskColumns<T> - 1) / kTaskColumns<T>;
}
template <class T, class Use>
void ForEachPieceOfColumns(const RunTasks& run_tasks, int64_t begin, int64_t end, Use&& use) {
  RunPieces(run_tasks, PiecesOfColumns<T>(begin, end), begin, end, kTaskColumns<T>, use);
}

// Calls ahead() and, for each piece of the columns, use(first, last). Starts with ahead(), since
// later steps wait for it. kLastFirst starts the last pieces before the others, for triangles where
// they are the longest.
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
