// Triangular solves on row-major matrices, shared by every handler that substitutes.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/arithmetic/exchange.h"
#include "kernels/arithmetic/triangle.h"
#include "kernels/blocked/substitution.h"
#include "kernels/cpu/cache_blocks.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/lapack.h"
#include "kernels/cpu/once.h"
#include "kernels/cpu/problem.h"
#include "kernels/cpu/range.h"
#include "kernels/cpu/results.h"
#include "kernels/cpu/tuning.h"
#include "kernels/small/one_system.h"
#include "kernels/systems.h"

namespace linalg {

// Whether BLAS cannot divide by some diagonal element of the n by n triangle.
template <class T>
bool DiagonalHasNoReciprocal(int64_t n, const T* a) {
  for (int64_t i = 0; i < n; ++i) {
    if (HasNoReciprocal(a[i * (n + 1)])) return true;
  }
  return false;
}

// Solves one system of order n after another in tiles.
template <class T>
class RhsInTiles {
 public:
  RhsInTiles(int64_t n, int64_t nrhs) : workspace_(n, nrhs), substitution_(n) {}

  // Copies the right-hand sides `b` to a workspace, transposed where the matrix is on their right.
  // There replace(x, substitution) solves for them. Copies the solution to `target`.
  template <class Replace>
  void Solve(ffi::ThreadPool& pool, bool left_side, int64_t rows, int64_t cols, const T* b,
             T* target, Replace&& replace,
             const blocked::RunTasks& run_tasks = blocked::RunInTurn) {
    const blocked::Rows<T> x = workspace_.rows();
    if (left_side) {
      blocked::CopyRows(rows, cols, b, x, run_tasks);
    } else {
      Transpose(pool, rows, cols, b, cols, x.data, x.ld);
    }
    replace(x, substitution_);
    if (left_side) {
      blocked::CopyRows(rows, cols, x, target, run_tasks);
    } else {
      Transpose(pool, cols, rows, x.data, x.ld, target, cols);
    }
  }

 private:
  blocked::Workspace<T> workspace_;
  blocked::Substitution<T> substitution_;
};

// Replaces the row-major rows-by-cols `b` by the solution x.
//
// BLAS sees a row-major matrix as its transpose: the triangle, the side and the order of `b` flip,
// and the operation stays. BLAS lacks a conjugate without transposition, so conj(b) is solved
// instead. Tiles divide by numbers that have no reciprocal.
template <class T>
void SolveTriangular(ffi::ThreadPool& pool, const Triangle& triangle, int64_t n, const T* a,
                     int64_t rows, int64_t cols, T* b) {
  if (rows == 0 || cols == 0) return;
  if (!triangle.unit_diagonal && DiagonalHasNoReciprocal(n, a)) {
    const int64_t nrhs = triangle.left_side ? cols : rows;
    return RhsInTiles<T>(n, nrhs).Solve(
        pool, triangle.left_side, rows, cols, b, b,
        [&](blocked::Rows<T> x, blocked::Substitution<T>& substitution) {
          substitution.Solve(triangle, a, nrhs, x);
        });
  }
  const bool vector = (triangle.left_side ? cols : rows) == 1;
  // Row-major storage does not transpose a column vector, so the operation is applied to a
  // transpose.
  const bool transpose = vector && triangle.left_side ? !triangle.transpose : triangle.transpose;
  const bool conjugate = kIsComplex<T> && triangle.conjugate;
  const bool conjugate_b = conjugate && !transpose;
  const char uplo = triangle.lower ? 'U' : 'L';
  const char trans = !transpose ? 'N' : conjugate ? 'C' : 'T';
  const char diag = triangle.unit_diagonal ? 'U' : 'N';
  if (conjugate_b) Conjugate(rows * cols, b);
  if (vector) {
    lapack::Trsv(uplo, trans, diag, ToInt(n), a, ToInt(n), b);
  } else {
    lapack::Trsm(triangle.left_side ? 'R' : 'L', uplo, trans, diag, ToInt(cols), ToInt(rows), a,
                 ToInt(n), b, ToInt(cols));
  }
  if (conjugate_b) Conjugate(rows * cols, b);
}

template <class T>
void SolveTriangular(ffi::ThreadPool& pool, const TwoTriangles& triangles, int64_t n, const T* a,
                     int64_t cols, T* b) {
  SolveTriangular(pool, triangles.first, n, a, n, cols, b);
  SolveTriangular(pool, triangles.second, n, a, n, cols, b);
}

// Solves with the LU factors of an n by n matrix.
template <class T>
struct LuSubstitution {
  int64_t n;
  const T* lu;
  const int32_t* pivots;
  bool transpose = false;
  bool conjugate = false;

  // Replaces the row-major n-by-cols `b` by the solution x.
  void Solve(ffi::ThreadPool& pool, int64_t cols, T* b) const {
    Solve(cols, b, cols,
          [&](const TwoTriangles& triangles) { SolveTriangular(pool, triangles, n, lu, cols, b); });
  }
  // Solves in tiles, in a workspace.
  void Solve(int64_t cols, blocked::Rows<T> b, blocked::Substitution<T>& substitution,
             const blocked::RunTasks& run_tasks) const {
    Solve(cols, b.data, b.ld, [&](const TwoTriangles& triangles) {
      substitution.Solve(triangles, lu, cols, b, run_tasks);
    });
  }

 private:
  template <class Substitute>
  void Solve(int64_t cols, T* b, int64_t ld, Substitute&& substitute) const {
    if (!transpose) ExchangeRows(n, pivots, cols, b, ld, /*back=*/false);
    substitute(LuTriangles(transpose, conjugate, /*column_major=*/false));
    if (transpose) ExchangeRows(n, pivots, cols, b, ld, /*back=*/true);
  }
};

template <class T>
void AdviseHugePages(const Systems<T>& systems) {
  AdviseHugePages(systems.x, systems.batch * systems.size() * sizeof(T));
}

// Whether one system per lane pays off.
template <class T>
bool IsTiny(const Systems<T>& systems) {
  const int64_t n = systems.n;
  return n <= kLaneTriangular &&
         static_cast<double>(n * n * systems.nrhs()) <= kLaneTriangularOperations;
}

// Calls solve(first, a, x, spare) for groups of small systems in lanes. `x` holds the right-hand
// sides, to be solved in place. solve() may overwrite `a`, and has 2 n registers to spare, then
// `spare` elements. `operations` counts the fused multiply-adds of one system.
template <class T, class Solve>
void ForEachSmallSystem(ffi::ThreadPool& pool, const Systems<T>& systems, double operations,
                        Solve&& solve, int64_t spare = 0) {
  AdviseHugePages(systems);
  constexpr int64_t kParts = kPartsOf<T>;
  const int64_t matrix = systems.n * systems.n, size = systems.size();
  const double nanoseconds =
      SmallNanoseconds(kLanes<T>, (matrix + size) * kParts, operations * kParts * kParts);
  const int64_t registers_needed = (matrix + size + spare) * kParts + 2 * systems.n;
  const auto solve_group = [&]<class V>(int64_t i, V* registers) {
    auto* a = reinterpret_cast<Element<T, V>*>(registers);
    auto* x = a + matrix;
    LoadElements(systems.a + i * systems.a_stride, systems.a_stride, matrix, a);
    LoadElements(systems.b + i * size, size, size, x);
    solve(i, a, x, registers + (matrix + size) * kParts);
    StoreElements(x, size, systems.x + i * size);
  };
  ForEachGroup<T>(pool, systems.batch, registers_needed, nanoseconds, solve_group,
                  systems.b == systems.x);
}

// Calls solve(index, a, x) for one small system after another, to the bits of ForEachSmallSystem.
// `x` is a OneSystem.
template <class T, class Solve>
void ForEachOneSystem(ffi::ThreadPool& pool, const Systems<T>& systems, Solve&& solve) {
  using E = Element<T>;
  const auto run = [&]<class Row>(Row) {
    const int n = ToInt(systems.n), nrhs = ToInt(systems.nrhs());
    const int64_t size = small::OneSystem<Row, E>::Size(n, nrhs), matrix = systems.a_stride;
    ForEachRange(pool, systems.batch, LapackNanoseconds(systems.Operations()),
                 [&](int64_t first, int64_t last) {
                   using V = Vector<Real<T>, kLanes<T>>;
                   const Registers<V> memory(size / kLanes<T> + 1);
                   small::OneSystem<Row, E> x(n, nrhs, reinterpret_cast<Real<T>*>(memory.get()));
                   for (int64_t i = first; i < last; ++i) {
                     const int64_t offset = i * systems.size();
                     x.Load(reinterpret_cast<const E*>(systems.b + offset), !systems.left_side);
                     solve(i, reinterpret_cast<const E*>(systems.a + i * matrix), x);
                     x.Store(reinterpret_cast<E*>(systems.x + offset), !systems.left_side);
                   }
                 });
  };
  // Registers of few columns wait for the numbers that were stored one by one.
  if (systems.nrhs() <= kFewRhsOfOne) return run(Real<T>());
  run(Vector<Real<T>, kLanes<T>>());
}

// Solves with given triangles or factors.
//
// solve_small(first, a, x, spare) solves in lanes, as in ForEachSmallSystem. solve_one(index, a, x)
// solves one system that fills no lanes, as in ForEachOneSystem. solve_blocked(index, a, x,
// substitution, run_tasks) solves in tiles. Its `x` is in a workspace, transposed where the matrix
// is on its right. solve(index, a, x) solves in place by BLAS.
template <class T, class SolveSmall, class SolveOne, class SolveBlocked, class Solve>
struct SystemsProblem {
  Systems<T> systems;
  SolveSmall solve_small;
  SolveOne solve_one;
  SolveBlocked solve_blocked;
  Solve solve;

  CpuPath path() const {
    if (IsTiny(systems)) return CpuPath::kLane;
    const int64_t nrhs = systems.nrhs();
    const bool fills_tiles = kLeastTileTriangular <= systems.n && kLeastTileRhs <= nrhs;
    return fills_tiles && nrhs <= kMostTileRhs ? CpuPath::kTile : CpuPath::kLapack;
  }

  void RunInLanes(ffi::ThreadPool& pool) const {
    if (systems.batch < kLeastGroup<T>) return ForEachOneSystem(pool, systems, solve_one);
    ForEachSmallSystem(pool, systems, systems.Operations(), solve_small);
  }

  void RunInTiles(ffi::ThreadPool& pool) const {
    AdviseHugePages(systems);
    ForEachInTasks(
        pool, systems.batch, BlockedNanoseconds<T>(systems.Operations()),
        [&] { return RhsInTiles<T>(systems.n, systems.nrhs()); },
        [&](RhsInTiles<T>& rhs, int64_t i, const blocked::RunTasks& run_tasks) {
          const auto replace = [&](blocked::Rows<T> x, blocked::Substitution<T>& substitution) {
            solve_blocked(i, Matrix(i), x, substitution, run_tasks);
          };
          rhs.Solve(pool, systems.left_side, systems.rows, systems.cols,
                    systems.b + i * systems.size(), systems.x + i * systems.size(), replace,
                    run_tasks);
        });
  }

  void RunByLapack(ffi::ThreadPool& pool) const {
    AdviseHugePages(systems);
    ForEachByLapack(pool, systems.batch, systems.n, LapackNanoseconds(systems.Operations()),
                    [&](int64_t i) {
                      T* const x = systems.x + i * systems.size();
                      if (systems.b != systems.x) {
                        std::copy_n(systems.b + i * systems.size(), systems.size(), x);
                      }
                      solve(i, Matrix(i), x);
                    });
  }

 private:
  const T* Matrix(int64_t i) const { return systems.a + i * systems.a_stride; }
};
template <class T, class SolveSmall, class SolveOne, class SolveBlocked, class Solve>
SystemsProblem(Systems<T>, SolveSmall, SolveOne, SolveBlocked, Solve)
    -> SystemsProblem<T, SolveSmall, SolveOne, SolveBlocked, Solve>;

}  // namespace linalg
