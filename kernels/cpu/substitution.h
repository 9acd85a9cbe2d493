// Triangular solves on row-major matrices, shared by every handler that substitutes.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/arithmetic/divisor.h"
#include "kernels/arithmetic/exchange.h"
#include "kernels/arithmetic/triangle.h"
#include "kernels/blocked/substitution.h"
#include "kernels/cpu/cache_blocks.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/lapack.h"
#include "kernels/cpu/lapack_batch.h"
#include "kernels/cpu/range.h"
#include "kernels/cpu/results.h"
#include "kernels/cpu/tuning.h"
#include "kernels/systems.h"

namespace linalg {

template <class T>
void Conjugate(int64_t size, T* x) {
  if constexpr (kIsComplex<T>) {
    for (int64_t i = 0; i < size; ++i) x[i] = std::conj(x[i]);
  }
}

// Whether the n by n triangle has a diagonal element that BLAS does not divide by.
template <class T>
bool DiagonalHasNoReciprocal(int64_t n, const T* a) {
  for (int64_t i = 0; i < n; ++i) {
    if (HasNoReciprocal(a[i * (n + 1)])) return true;
  }
  return false;
}

// SolveTriangular for such a triangle.
template <class T>
void SubstituteByDivision(const Triangle& triangle, int64_t n, const T* a, int64_t rows,
                          int64_t cols, T* b) {
  using E = Element<T, Real<T>>;
  const bool left = triangle.left_side, transpose = triangle.Transposes();
  const int64_t count = left ? cols : rows, step = left ? cols : 1, next = left ? 1 : cols;
  const bool forward = triangle.Forward();
  const auto element = [&](int64_t i, int64_t j) {
    const E x = reinterpret_cast<const E*>(a)[transpose ? j * n + i : i * n + j];
    return triangle.conjugate ? Conj(x) : x;
  };
  E* const x = reinterpret_cast<E*>(b);
  for (int64_t k = 0; k < n; ++k) {
    const int64_t i = forward ? k : n - 1 - k;
    for (int64_t j = forward ? 0 : i + 1; j < (forward ? i : n); ++j) {
      const E factor = element(i, j);
      for (int64_t c = 0; c < count; ++c) {
        E& target = x[i * step + c * next];
        target = NegMulAdd(factor, x[j * step + c * next], target);
      }
    }
    if (triangle.unit_diagonal) continue;
    const Divisor<E> divisor(element(i, i));
    for (int64_t c = 0; c < count; ++c) {
      E& target = x[i * step + c * next];
      target = divisor.Divide(target);
    }
  }
}

// Replaces the row-major rows-by-cols `b` by the solution x.
//
// To BLAS a row-major matrix is its transpose: the triangle, the side and the order of `b` flip,
// the operation stays. What BLAS lacks, a conjugate without transposition, is the solve of conj(b).
template <class T>
void SolveTriangular(const Triangle& triangle, int64_t n, const T* a, int64_t rows, int64_t cols,
                     T* b) {
  if (rows == 0 || cols == 0) return;
  if (!triangle.unit_diagonal && DiagonalHasNoReciprocal(n, a)) {
    return SubstituteByDivision(triangle, n, a, rows, cols, b);
  }
  const bool vector = (triangle.left_side ? cols : rows) == 1;
  // A column vector is not transposed by being stored row-major, so op is applied to a transpose.
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
void SolveTriangular(const TwoTriangles& triangles, int64_t n, const T* a, int64_t cols, T* b) {
  SolveTriangular(triangles.first, n, a, n, cols, b);
  SolveTriangular(triangles.second, n, a, n, cols, b);
}

// LU factors of an n by n matrix as they lie, and what is solved with them.
template <class T>
struct LuSubstitution {
  int64_t n;
  const T* lu;
  const int32_t* pivots;
  bool column_major = false;
  bool transpose = false;
  bool conjugate = false;

  // Replaces the row-major n-by-cols `b` by the solution x.
  void Solve(int64_t cols, T* b) const {
    Solve(cols, b, cols,
          [&](const TwoTriangles& triangles) { SolveTriangular(triangles, n, lu, cols, b); });
  }
  // The same in tiles, in a workspace.
  void Solve(int64_t cols, blocked::Rows<T> b, blocked::Substitution<T>& substitution) const {
    Solve(cols, b.data, b.ld,
          [&](const TwoTriangles& triangles) { substitution.Solve(triangles, lu, cols, b); });
  }

 private:
  template <class Substitute>
  void Solve(int64_t cols, T* b, int64_t ld, Substitute&& substitute) const {
    if (!transpose) ExchangeRows(n, pivots, cols, b, ld, /*back=*/false);
    substitute(LuTriangles(transpose, conjugate, column_major));
    if (transpose) ExchangeRows(n, pivots, cols, b, ld, /*back=*/true);
  }
};

template <class T>
void AdviseHugePages(const Systems<T>& systems) {
  AdviseHugePages(systems.x, systems.batch * systems.size() * sizeof(T));
}

// Calls solve(index, a, x) for each system, x holding the right-hand sides to be solved in place;
// `operations` is the number of fused multiply-adds of each.
template <class T, class Solve>
void ForEachSystem(ffi::ThreadPool& pool, const Systems<T>& systems, double operations,
                   Solve&& solve) {
  const int64_t size = systems.size();
  AdviseHugePages(systems);
  const double nanoseconds = LapackNanoseconds(operations);
  ForEachByLapack(pool, systems.batch, systems.n, nanoseconds, [&](int64_t first, int64_t last) {
    if (systems.b != systems.x) {
      std::copy(systems.b + first * size, systems.b + last * size, systems.x + first * size);
    }
    for (int64_t i = first; i < last; ++i) {
      solve(i, systems.a + i * systems.a_stride, systems.x + i * size);
    }
  });
}

template <class T>
Path ChoosePath(Operation operation, const Systems<T>& systems) {
  return ChoosePath(operation, systems.n, systems.Sides(), kDtype<T>);
}

// The same for groups of small systems in lanes: solve(first, a, x, spare) may overwrite `a`, and
// has 2 n registers to spare.
template <class T, class Solve>
void ForEachSmallSystem(ffi::ThreadPool& pool, const Systems<T>& systems, double operations,
                        Solve&& solve) {
  AdviseHugePages(systems);
  constexpr int64_t kParts = kPartsOf<T>;
  const int64_t matrix = systems.n * systems.n, size = systems.size();
  const double nanoseconds =
      SmallNanoseconds(kLanes<T>, (matrix + size) * kParts, operations * kParts * kParts);
  const int64_t registers_needed = (matrix + size) * kParts + 2 * systems.n;
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

// The same in tiles: solve(index, a, x, substitution), x being a workspace with the right-hand
// sides, transposed where the matrix is to their right.
template <class T, class Solve>
void ForEachBlockedSystem(ffi::ThreadPool& pool, const Systems<T>& systems, Solve&& solve) {
  AdviseHugePages(systems);
  const int64_t n = systems.n, rows = systems.rows, cols = systems.cols, size = systems.size();
  const double nanoseconds = BlockedNanoseconds<T>(systems.Operations());
  ForEachRange(pool, systems.batch, nanoseconds, [&](int64_t first, int64_t last) {
    const blocked::Workspace<T> work(n, systems.Sides());
    blocked::Substitution<T> substitution(n);
    const blocked::Rows<T> x = work.rows();
    for (int64_t i = first; i < last; ++i) {
      const T* const source = systems.b + i * size;
      T* const target = systems.x + i * size;
      if (systems.left_side) {
        for (int64_t k = 0; k < rows; ++k) std::copy_n(source + k * cols, cols, x.At(k, 0).data);
      } else {
        Transpose(pool, rows, cols, source, cols, x.data, x.ld);
      }
      solve(i, systems.a + i * systems.a_stride, x, substitution);
      if (systems.left_side) {
        for (int64_t k = 0; k < rows; ++k) std::copy_n(x.At(k, 0).data, cols, target + k * cols);
      } else {
        Transpose(pool, cols, rows, x.data, x.ld, target, cols);
      }
    }
  });
}

// Solves with given triangles or factors: in lanes as ForEachSmallSystem, in tiles as
// ForEachBlockedSystem, by BLAS as ForEachSystem.
template <class T, class SolveSmall, class SolveBlocked, class Solve>
void SolveByPath(ffi::ThreadPool& pool, const Systems<T>& systems, SolveSmall&& solve_small,
                 SolveBlocked&& solve_blocked, Solve&& solve) {
  TakePath(
      ChoosePath(Operation::kTriangularSolve, systems),
      [&] { ForEachSmallSystem(pool, systems, systems.Operations(), solve_small); },
      [&] { ForEachBlockedSystem(pool, systems, solve_blocked); },
      [&] { ForEachSystem(pool, systems, systems.Operations(), solve); });
}

}  // namespace linalg
