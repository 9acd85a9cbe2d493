// Solutions of Hermitian positive definite systems with few right-hand sides, log det A, and the
// factor, from one read of each matrix.
//
// A thread or a team of threads does all of it in shared memory. Larger systems take the Cholesky
// handler and those that solve with its factor: linalg/_core/tuning.py.
#pragma once

#include "kernels/cuda/launch.h"
#include "kernels/small/positive_solve_logdet.h"
#include "kernels/team/positive_solve.h"

namespace linalg::cuda {

// Matrices are n by n. `factor` is null where that is not wanted.
template <class E>
struct GpuPositiveSolveProblem {
  int64_t batch;
  int n, cols;
  const E* a;
  const E* b;
  E* x;
  RealElement<E>* logdet;
  E* factor;
  int32_t* info;
};

template <class E>
struct SmallPositiveSolve {
  using V = RealElement<E>;
  GpuPositiveSolveProblem<E> problem;
  SharedArray<E> matrix, solution;
  SharedArray<V> logarithm, info;
  Offset<V> reciprocals;

  __device__ void Load(const Block& block) const {
    matrix.Load(problem.a, block);
    solution.Load(problem.b, block);
  }
  __device__ void Run(char* slice) const {
    E* const a = matrix.In(slice);
    const V failed = small::PositiveSolveLogdet(problem.n, a, problem.cols, solution.In(slice),
                                                *logarithm.In(slice), reciprocals.In(slice));
    if (problem.factor != nullptr) small::FinishTriangle(a, problem.n, /*lower=*/true, failed);
    *info.In(slice) = failed;
  }
  __device__ void Store(const Block& block) const {
    solution.Store(problem.x, block);
    logarithm.Store(problem.logdet, block);
    info.StoreIntegers(problem.info, block);
    if (problem.factor != nullptr) matrix.Store(problem.factor, block);
  }
};

template <class E>
struct TeamPositiveSolve {
  static constexpr int kMostThreads = kBlockThreads;
  using V = RealElement<E>;
  GpuPositiveSolveProblem<E> problem;
  Offset<E> matrix;  // with the right-hand sides as rows below it
  int ld;

  TeamPositiveSolve(SharedLayout& layout, const GpuPositiveSolveProblem<E>& problem)
      : problem(problem),
        matrix(layout.Take<E>(int64_t{problem.n + problem.cols} * (problem.n | 1))),
        ld(problem.n | 1) {}

  __device__ void Run(const Team& team, int64_t i, char* slice) const {
    const int n = problem.n, cols = problem.cols;
    const int64_t size = static_cast<int64_t>(n) * n, first = i * n * cols;
    E* const a = matrix.In(slice);
    E* const rows = a + n * ld;
    const E* const b = problem.b + first;
    team.Each([&](int thread) {
      for (int col = 0; col < cols; ++col) {
        for (int row = thread; row < n; row += team.size()) {
          rows[col * ld + row] = Conj(LoadGlobal(b + row * cols + col));
        }
      }
    });
    LoadMatrix(team, problem.a + i * size, n, n, a, ld);
    const int info = team::PositiveSolve(team, n, cols, a, ld);
    const V logdet = team::LogarithmOfDeterminant(team, n, a, ld);
    StoreMatrix(team, n, cols, problem.x + first, [&](int row, int col) {
      return info != 0 ? NaN<E>() : Conj(rows[col * ld + row]);
    });
    if (problem.factor != nullptr) {
      StoreMatrix(team, n, n, problem.factor + i * size,
                  team::TriangularFactor<E>{.a = a, .ld = ld, .lower = true, .info = info});
    }
    team.Each([&](int thread) {
      if (thread == 0) problem.logdet[i] = info != 0 ? NaN<V>() : logdet;
    });
    StoreInfo(team, info, problem.info + i);
  }
};

template <class T>
void RunPositiveSolve(cudaStream_t stream, const GpuPositiveSolveProblem<Element<T>>& problem) {
  using E = Element<T>;
  using V = RealElement<E>;
  const int64_t n = problem.n, cols = problem.cols;
  SharedLayout layout(sizeof(V));
  const auto thread = [&] {
    const SmallPositiveSolve<E> job{.problem = problem,
                                    .matrix = {n * n, layout.Take<E>(n * n)},
                                    .solution = {n * cols, layout.Take<E>(n * cols)},
                                    .logarithm = {1, layout.Take<V>(1)},
                                    .info = {1, layout.Take<V>(1)},
                                    .reciprocals = layout.Take<V>(n)};
    LaunchThreads(stream, job, problem.batch, layout);
  };
  const auto team = [&] {
    const TeamPositiveSolve<E> job(layout, problem);
    LaunchTeams(stream, job, problem.batch, PanelTeamSize(n, layout.bytes()), layout);
  };
  const bool small = n * (n + cols) * static_cast<int64_t>(sizeof(T)) <= kThreadBytes<E>;
  LaunchOnPath(small ? GpuPath::kThread : GpuPath::kTeam, On{GpuPath::kThread, thread},
               On{GpuPath::kTeam, team});
}

}  // namespace linalg::cuda
