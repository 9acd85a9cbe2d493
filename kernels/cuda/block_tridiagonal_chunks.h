// Long general block-tridiagonal systems in chunks of steps, which teams share.
//
// Elimination of a chunk with row exchanges between neighbouring blocks leaves d equations without
// its inner unknowns (Wright, Stable parallel algorithms for two-point boundary value problems,
// 1992). It needs no regular minors. Eliminated forward, they join x of the step before the chunk
// and of its last step and the one after. Eliminated back, they join x of the step before, of the
// first step and of the step after.
//
// A pass over the chunks joins these to equations A x + B y = 0 between the last step before each
// chunk and its first one. G = A⁻¹ B is what elimination of all steps before leaves, so each chunk
// is then eliminated by itself, with the pivots of the whole system.
#pragma once

#include <limits>

#include "kernels/cuda/block_tridiagonal.h"
#include "kernels/team/lu.h"
#include "kernels/team/triangular.h"

namespace linalg::cuda {

// The square blocks that a team needs to eliminate a block of unknowns from two rows of blocks.
inline constexpr int64_t kBlocksOfElimination = 7;

// The equations of a chunk: d eliminated forward, then d eliminated back. They have the factors of
// x in the step beyond the chunk that is eliminated last, in the chunk's last step in that order,
// and in the step next to that outside of the chunk.
enum EquationOfChunk { kOpposite, kOwn, kBeside, kFactorsOfEquation };

// Two rows of blocks, of which one column of blocks is eliminated.
template <class E>
class TwoRows {
 public:
  TwoRows(SharedLayout& layout, int64_t d)
      : ld_(ToInt(d | 1)),
        column_(layout.Take<E>(2 * d * ld_)),
        other_(layout.Take<E>(2 * d * ld_)),
        pivots_(layout.Take<int>(d)),
        order_(layout.Take<int>(2 * d)) {}

  // The upper block of the column.
  __device__ __forceinline__ E* Column(char* slice) const { return column_.In(slice); }

  // Factors the column [top; bottom], of a block in shared and one in global memory.
  __device__ __forceinline__ void Factor(const Team& team, char* slice, int n, const E* top,
                                         const E* bottom) const {
    E* const a = column_.In(slice);
    const int ld = ld_;
    team::Move<E>(
        team, 2 * n, n,
        [=](int row, int j) {
          return row < n ? top[row * ld + j] : LoadGlobal(bottom + (row - n) * n + j);
        },
        [=](int row, int j, E x) { a[row * ld + j] = x; });
    // A singular column leaves something. The residual shows it.
    team::Lu(team, 2 * n, n, a, ld, pivots_.In(slice), order_.In(slice));
  }

  // Writes what is left of the column [top; bottom] in the second row. Null blocks are zero.
  __device__ __forceinline__ void Eliminate(const Team& team, char* slice, int n, const E* top,
                                            const E* bottom, E* target) const {
    const E* const a = column_.In(slice);
    E* const b = other_.In(slice);
    const int* const order = order_.In(slice);
    const int ld = ld_;
    team::Move<E>(
        team, 2 * n, n,
        [=](int row, int j) {
          const int from = order[row];
          if (from < n) return top == nullptr ? E{} : top[from * ld + j];
          return bottom == nullptr ? E{} : LoadGlobal(bottom + (from - n) * n + j);
        },
        [=](int row, int j, E x) { b[row * ld + j] = x; });
    team::SubstitutePanels(
        team, n, a, ld, /*lower=*/true, /*unit_diagonal=*/true, [=](int) { return n; }, b, ld);
    SubtractProduct(team, n, n, n, a + n * ld, ld, b, ld, b + n * ld, ld);
    const E* const left = b + n * ld;
    team::Move<E>(
        team, n, n, [=](int row, int j) { return left[row * ld + j]; },
        [=](int row, int j, E x) { target[row * ld + j] = x; });
  }

 private:
  int ld_;
  Offset<E> column_, other_;
  Offset<int> pivots_, order_;
};

// The equations of every chunk. One team eliminates forward, and another one back.
template <class E>
struct ChunkEquations {
  BlockTridiagonalShape shape;
  StepRanges ranges;
  Blocks<const E> lower, diagonal, upper;
  Blocks<E> equations;  // of each chunk
  Blocks<E> joined;     // A and B of each chunk but the first
  int32_t *suspects, *info;
};

template <class E>
struct TeamReduceChunk {
  static constexpr int kMostThreads = kBlockThreads;
  ChunkEquations<E> problem;
  int ld;
  TwoRows<E> rows;
  Offset<E> opposites, besides, nexts;

  TeamReduceChunk(SharedLayout& layout, const ChunkEquations<E>& problem)
      : problem(problem),
        ld(ToInt(problem.shape.d | 1)),
        rows(layout, problem.shape.d),
        opposites(layout.Take<E>(problem.shape.d * ld)),
        besides(layout.Take<E>(problem.shape.d * ld)),
        nexts(layout.Take<E>(problem.shape.d * ld)) {}

  __device__ void Run(const Team& team, int64_t unit, char* slice) const {
    const int64_t place = unit >> 1, steps = problem.shape.steps;
    const bool back = (unit & 1) != 0;
    const StepRanges::Range range = problem.ranges(place);
    const int64_t i = range.system, first = range.first, end = range.end;
    const int n = static_cast<int>(problem.shape.d), ld = this->ld;
    E *const opposite = opposites.In(slice), *const own = rows.Column(slice);
    E *beside = besides.In(slice), *next = nexts.In(slice);
    for (int64_t done = 0; done < end - first; ++done) {
      const int64_t t = back ? end - 1 - done : first + done;
      const E* const lower = t > 0 ? problem.lower.At(i, t - 1) : nullptr;
      const E* const upper = t + 1 < steps ? problem.upper.At(i, t) : nullptr;
      const E* const diagonal = problem.diagonal.At(i, t);
      const E *const behind = back ? upper : lower, *const ahead = back ? lower : upper;
      if (done > 0) rows.Factor(team, slice, n, own, behind);
      for (int part = 0; part < kFactorsOfEquation; ++part) {
        const E* const above = part == 0 ? opposite : part == 1 ? nullptr : beside;
        E* const target = part == 0 ? opposite : part == 1 ? next : own;
        if (done > 0) {
          const E* const below = part == 0 ? nullptr : part == 1 ? ahead : diagonal;
          rows.Eliminate(team, slice, n, above, below, target);
        } else {
          const E* const source = part == 0 ? behind : part == 1 ? ahead : diagonal;
          team::Move<E>(
              team, n, n,
              [=](int row, int j) {
                return source == nullptr ? E{} : LoadGlobal(source + row * n + j);
              },
              [=](int row, int j, E x) { target[row * ld + j] = x; });
        }
      }
      E* const last = beside;
      beside = next;
      next = last;
    }
    for (int part = 0; part < kFactorsOfEquation; ++part) {
      const E* const source = part == kOpposite ? opposite : part == kOwn ? own : beside;
      StoreMatrix(team, n, n, problem.equations.At(unit, part),
                  [=](int row, int j) { return source[row * ld + j]; });
    }
  }
};

template <class E>
struct TeamJoinChunks {
  static constexpr int kMostThreads = kBlockThreads;
  ChunkEquations<E> problem;
  int ld;
  TwoRows<E> rows;
  Offset<E> befores, afters;

  TeamJoinChunks(SharedLayout& layout, const ChunkEquations<E>& problem)
      : problem(problem),
        ld(ToInt(problem.shape.d | 1)),
        rows(layout, problem.shape.d),
        befores(layout.Take<E>(problem.shape.d * ld)),
        afters(layout.Take<E>(problem.shape.d * ld)) {}

  __device__ void Run(const Team& team, int64_t i, char* slice) const {
    const int n = static_cast<int>(problem.shape.d), ld = this->ld;
    E *const before = befores.In(slice), *const after = afters.In(slice);
    const int64_t count = problem.ranges.count;
    LoadMatrix(team, problem.equations.At(2 * i * count, kOwn), n, n, before, ld);
    LoadMatrix(team, problem.equations.At(2 * i * count, kBeside), n, n, after, ld);
    for (int64_t chunk = 1; chunk < count; ++chunk) {
      const int64_t place = i * count + chunk;
      for (int part = 0; part < 2; ++part) {
        const E* const source = part == 0 ? before : after;
        StoreMatrix(team, n, n, problem.joined.At(place, part),
                    [=](int row, int j) { return source[row * ld + j]; });
      }
      if (chunk + 1 == count) break;
      // x of the first step is eliminated with the equations eliminated back, then x of the step
      // before the chunk with the others.
      for (int pass = 0; pass < 2; ++pass) {
        const auto at = [&](EquationOfChunk part) {
          return problem.equations.At(2 * place + (pass == 0 ? 1 : 0), part);
        };
        rows.Factor(team, slice, n, pass == 0 ? after : before, at(pass == 0 ? kOwn : kOpposite));
        for (int part = 0; part < 2; ++part) {
          E* const target = part == 0 ? before : after;
          const EquationOfChunk beside = part == 0 ? kOwn : kBeside;
          const EquationOfChunk opposite = part == 0 ? kBeside : kOpposite;
          rows.Eliminate(team, slice, n, part == pass ? target : nullptr,
                         at(pass == 0 ? opposite : beside), target);
        }
      }
    }
    StoreInfo(team, 0, problem.suspects + i);
    StoreInfo(team, 0, problem.info + i);
  }
};

// The residual of a solution, by a thread for each column of a block. It is stored, or only
// compared with what rounding explains.
template <class E>
struct Residual {
  using V = RealElement<E>;
  ChunkEquations<E> problem;
  MatrixElements places;
  int64_t cols;
  const E* b;
  const E* x;
  E* residual;  // null: mark the systems in which it is too large

  __device__ void operator()(int64_t place) const {
    const int n = static_cast<int>(problem.shape.d);
    const auto [i, t, col] = places(place);
    const int64_t first = (place - col) * n + col;
    V largest{}, most{};
    bool is_nan = false;
    for (int row = 0; row < n; ++row) {
      E rest = LoadGlobal(b + first + row * cols);
      V size = Magnitude(rest);
      for (int side = -1; side <= 1; ++side) {
        if (t + side < 0 || t + side >= problem.shape.steps) continue;
        const Blocks<const E>& blocks = side < 0    ? problem.lower
                                        : side == 0 ? problem.diagonal
                                                    : problem.upper;
        const E* const a = blocks.At(i, side < 0 ? t - 1 : t) + row * n;
        const E* const y = x + first + side * n * cols;
        for (int j = 0; j < n; ++j) {
          const E left = LoadGlobal(a + j), right = LoadGlobal(y + j * cols);
          rest = NegMulAdd(left, right, rest);
          size = size + Magnitude(left) * Magnitude(right);
        }
      }
      if (residual != nullptr) StoreGlobal(rest, residual + first + row * cols);
      const V error = Magnitude(rest);
      is_nan |= !(error == error);
      largest = error > largest ? error : largest;
      most = size > most ? size : most;
    }
    if (residual != nullptr) return;
    const V explained = V(kResidualOfChunks * n) * std::numeric_limits<V>::epsilon() * most;
    if (is_nan || !(largest <= explained)) problem.suspects[i] = 1;
  }
};

template <class E>
struct AddCorrection {
  const E* correction;
  E* x;

  __device__ void operator()(int64_t i) const {
    StoreGlobal<E>(LoadGlobal(x + i) + LoadGlobal(correction + i), x + i);
  }
};

}  // namespace linalg::cuda
