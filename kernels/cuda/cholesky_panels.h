// Cholesky factors of a batch of larger matrices, panel by panel, in place in the output.
//
// The method is left-looking: cuBLAS subtracts the products of all columns to the left from a
// panel, and only the panel is written. So a batch moves few bytes, and cuBLAS does few operations
// above the diagonal. The products of a group of panels with the columns before it are one call.
//
// A panel then takes one launch. A block has some of the panel's rows, and factors the diagonal
// block for itself: that takes less time than a launch. No block may write the diagonal block while
// others read it. No later panel needs it, so the last launch factors all of them again.
#pragma once

#include "kernels/cuda/launch.h"
#include "kernels/cuda/panels.h"
#include "kernels/team/cholesky.h"

namespace linalg::cuda {

// Matrices are n by n.
template <class E>
struct CholeskyProblem {
  int n;
  HermitianPart part;
  const E* a;
  E* factor;
  int32_t* info;
};

// A square tile of a panel's width in shared memory.
struct PanelTile {
  static constexpr int kSize = kCholeskyPanel, kLd = kSize | 1, kElements = kSize * kLd;

  // The rows, or columns, of tile number i.
  __device__ __forceinline__ static int Count(int n, int64_t i) {
    const int left = n - static_cast<int>(i) * kSize;
    return left < kSize ? left : kSize;
  }

  // body(r, c) for the elements of a tile. Neighbouring threads take neighbouring columns.
  template <class Body>
  __device__ __forceinline__ static void ForEach(const Team& team, int thread, int rows, int cols,
                                                 Body&& body) {
    const int c = thread % kSize;
    if (c >= cols) return;
    for (int r = thread / kSize; r < rows; r += team.size() / kSize) body(r, c);
  }
};

// The tiles of a batch of lower triangles, `order` on a side. A short row of tiles shares a row of
// places with a long one, so every place has a tile.
class LowerTiles {
 public:
  explicit LowerTiles(int64_t order)
      : order_(order), even_(order % 2 == 0), places_((order + 1) / 2, order + even_) {}

  int64_t count() const { return (order_ + 1) / 2 * (order_ + even_); }

  __device__ __forceinline__ MatrixElements::Position operator()(int64_t place) const {
    const auto [matrix, row, col] = places_(place);
    const int64_t shorter = row + even_;  // the tiles of the short row
    if (col < shorter) return {matrix, shorter - 1, col};
    return {matrix, order_ - 1 - row, col - shorter};
  }

 private:
  int64_t order_;
  int even_;
  MatrixElements places_;
};

// Copies the lower triangle of the Hermitian part. Tiles are read in pairs on both sides of the
// diagonal, because a column of the operand must not be read element by element. The other triangle
// of a lower factor is zero from here on.
template <class E>
struct CopyHermitianPart {
  static constexpr int kMostThreads = kBlockThreads;
  CholeskyProblem<E> problem;
  LowerTiles tiles;
  Offset<E> below, above;

  CopyHermitianPart(SharedLayout& layout, const CholeskyProblem<E>& problem,
                    const LowerTiles& tiles)
      : problem(problem),
        tiles(tiles),
        below(layout.Take<E>(PanelTile::kElements)),
        above(layout.Take<E>(PanelTile::kElements)) {}

  __device__ void Run(const Team& team, int64_t i, char* slice) const {
    constexpr int kSize = PanelTile::kSize, kLd = PanelTile::kLd;
    const auto [matrix, tile_row, tile_col] = tiles(i);
    const HermitianPart part = problem.part;
    const int64_t n = problem.n, i0 = tile_row * kSize, j0 = tile_col * kSize;
    const int rows = PanelTile::Count(problem.n, tile_row);
    const int cols = PanelTile::Count(problem.n, tile_col);
    const bool is_diagonal = tile_row == tile_col;
    const E* const a = problem.a + matrix * n * n;
    E *const own = below.In(slice), *const other = is_diagonal ? own : above.In(slice);
    team.Phase([&](int thread) {
      if (is_diagonal || part.symmetrize || part.lower) {
        PanelTile::ForEach(team, thread, rows, cols, [&](int r, int c) {
          CopyGlobal(a + (i0 + r) * n + j0 + c, own + r * kLd + c);
        });
      }
      if (!is_diagonal && (part.symmetrize || !part.lower)) {
        PanelTile::ForEach(team, thread, cols, rows, [&](int r, int c) {
          CopyGlobal(a + (j0 + r) * n + i0 + c, other + r * kLd + c);
        });
      }
      FinishCopies();
    });
    E* const factor = problem.factor + matrix * n * n;
    E* const target = factor + i0 * n + j0;
    team.Phase([&](int thread) {
      if (!is_diagonal && part.lower) {
        PanelTile::ForEach(team, thread, cols, rows, [&](int r, int c) {
          StoreGlobal<E>(E{}, factor + (j0 + r) * n + i0 + c);
        });
      }
      PanelTile::ForEach(team, thread, rows, cols, [&](int r, int c) {
        const auto get = [&](int64_t k, int64_t l) {
          return k == i0 + r ? own[r * kLd + (l - j0)] : other[(k - j0) * kLd + (l - i0)];
        };
        const bool is_above = is_diagonal && c > r;
        StoreGlobal<E>(is_above ? E{} : part.At(i0 + r, j0 + c, get), target + r * n + c);
      });
    });
  }
};

// Factors a panel of `cols` columns, from row and column `first` on. A block has kRows rows below
// the diagonal block, or fewer.
template <class E>
struct FactorCholeskyPanel {
  static constexpr int kMostThreads = kBlockThreads;
  static constexpr int kRows = kCholeskyPanelRows<E>;
  CholeskyProblem<E> problem;
  int first, cols;
  LongDivider by_tiles;
  Offset<E> panel;

  FactorCholeskyPanel(SharedLayout& layout, const CholeskyProblem<E>& problem, int first, int cols,
                      int64_t tiles)
      : problem(problem),
        first(first),
        cols(cols),
        by_tiles(tiles),
        panel(layout.Take<E>((PanelTile::kSize + kRows) * PanelTile::kLd)) {}

  __device__ void Run(const Team& team, int64_t i, char* slice) const {
    constexpr int kLd = PanelTile::kLd;
    const int64_t n = problem.n, matrix = by_tiles(i);
    const int tile = static_cast<int>(i - matrix * by_tiles.divisor());
    E* const diagonal = problem.factor + matrix * n * n + first * (n + 1);
    // The block's rows follow the diagonal block in shared memory.
    const int skipped = tile * kRows, left = problem.n - first - cols - skipped;
    const int rows = cols + (left < kRows ? left : kRows);
    E* const a = panel.In(slice);
    team.Phase([&](int thread) {
      PanelTile::ForEach(team, thread, rows, cols, [&](int r, int c) {
        CopyGlobal(diagonal + (r < cols ? r : r + skipped) * n + c, a + r * kLd + c);
      });
      FinishCopies();
    });
    const int failed = team::Cholesky</*kDiagonal=*/false>(team, rows, cols, a, kLd);
    team.Phase([&](int thread) {
      if (failed == 0) {
        PanelTile::ForEach(team, thread, rows - cols, cols, [&](int r, int c) {
          StoreGlobal<E>(a[(cols + r) * kLd + c], diagonal + (cols + r + skipped) * n + c);
        });
      }
      if (thread != 0 || tile != 0) return;
      int32_t* const info = problem.info + matrix;
      if (first == 0) *info = failed;
      // The columns after a failure are factored too, in vain.
      if (first > 0 && failed != 0 && *info == 0) *info = first + failed;
    });
  }
};

// Writes the factors of the diagonal blocks, and NaN where info is not 0. An upper factor is the
// adjoint of the lower one, in whose place zeros are written. A team has a row of tiles.
template <class E>
struct FinishCholeskyPanels {
  static constexpr int kMostThreads = kBlockThreads;
  CholeskyProblem<E> problem;
  LongDivider by_tiles;
  Offset<E> tile;

  FinishCholeskyPanels(SharedLayout& layout, const CholeskyProblem<E>& problem, int64_t tiles)
      : problem(problem), by_tiles(tiles), tile(layout.Take<E>(PanelTile::kElements)) {}

  __device__ void Run(const Team& team, int64_t i, char* slice) const {
    E* const a = tile.In(slice);
    const int info = FinishRow(team, i, a);
    FinishDiagonal(team, i, info, a);
  }

 private:
  // A pair of tiles on both sides of the diagonal.
  struct Place {
    int rows, cols;
    E *below, *above;

    __device__ __forceinline__ Place(const CholeskyProblem<E>& problem, int64_t matrix, int64_t row,
                                     int64_t col)
        : rows(PanelTile::Count(problem.n, row)), cols(PanelTile::Count(problem.n, col)) {
      const int64_t n = problem.n;
      E* const factor = problem.factor + matrix * n * n;
      below = factor + (row * n + col) * PanelTile::kSize;
      above = factor + (col * n + row) * PanelTile::kSize;
    }
  };

  // Finishes the tiles before the diagonal one. Returns the matrix's info.
  __device__ __forceinline__ int FinishRow(const Team& team, int64_t i, E* a) const {
    constexpr int kLd = PanelTile::kLd;
    const int64_t n = problem.n, matrix = by_tiles(i), row = i - matrix * by_tiles.divisor();
    const int info = problem.info[matrix];
    const bool lower = problem.part.lower, failed = info != 0;
    // A lower factor that has not failed is there already, up to its diagonal blocks. But products
    // have written above the diagonal of a group.
    const int64_t in_group = row % (kCholeskyGroup / PanelTile::kSize);
    for (int64_t col = failed || !lower ? 0 : row - in_group; col < row; ++col) {
      const Place place(problem, matrix, row, col);
      if (!failed && !lower) Load(team, place, a);
      team.Phase([&](int thread) {
        if (failed || !lower) {
          PanelTile::ForEach(team, thread, place.rows, place.cols, [&](int r, int c) {
            StoreGlobal<E>(lower ? NaN<E>() : E{}, place.below + r * n + c);
          });
        }
        PanelTile::ForEach(team, thread, place.cols, place.rows, [&](int r, int c) {
          const E x = lower ? E{} : failed ? NaN<E>() : Conj(a[c * kLd + r]);
          StoreGlobal<E>(x, place.above + r * n + c);
        });
      });
    }
    return info;
  }

  __device__ __forceinline__ void FinishDiagonal(const Team& team, int64_t i, int info,
                                                 E* a) const {
    // Found again after the factorisation, which needs all registers.
    const auto place = [&] {
      const int64_t again = i + team::Again(0), matrix = by_tiles(again);
      const int64_t row = again - matrix * by_tiles.divisor();
      return Place(problem, matrix, row, row);
    };
    if (info == 0) {
      Load(team, place(), a);
      const int rows = place().rows;
      team::Cholesky(team, rows, rows, a, PanelTile::kLd);
    }
    team.Phase([&](int thread) {
      const team::TriangularFactor<E> result{
          .a = a, .ld = PanelTile::kLd, .lower = problem.part.lower, .info = info};
      const Place found = place();
      PanelTile::ForEach(team, thread, found.rows, found.cols, [&](int r, int c) {
        StoreGlobal<E>(result(r, c), found.below + r * int64_t{problem.n} + c);
      });
    });
  }

  __device__ __forceinline__ void Load(const Team& team, const Place& place, E* a) const {
    team.Phase([&](int thread) {
      PanelTile::ForEach(team, thread, place.rows, place.cols, [&](int r, int c) {
        CopyGlobal(place.below + r * int64_t{problem.n} + c, a + r * PanelTile::kLd + c);
      });
      FinishCopies();
    });
  }
};

template <class T>
class PanelCholesky {
  using E = Element<T>;

 public:
  PanelCholesky(cudaStream_t stream, int64_t batch, const CholeskyProblem<E>& problem)
      : stream_(stream), batch_(batch), n_(problem.n), problem_(problem), lent_(stream) {}

  void Run() const {
    const int64_t tiles = Ceil(n_, kCholeskyPanel);
    const LowerTiles lower(tiles);
    Launch(batch_ * lower.count(),
           [&](auto& layout) { return CopyHermitianPart<E>(layout, problem_, lower); });
    for (int64_t group = 0; group < n_; group += kCholeskyGroup) {
      const int64_t end = std::min(group + kCholeskyGroup, n_);
      Subtract(0, group, end);
      for (int64_t first = group; first < end; first += kCholeskyPanel) {
        const int64_t next = std::min(first + kCholeskyPanel, end);
        Subtract(group, first, next);
        const int64_t blocks = std::max<int64_t>(1, Ceil(n_ - next, kCholeskyPanelRows<E>));
        Launch(batch_ * blocks, [&](auto& layout) {
          return FactorCholeskyPanel<E>(layout, problem_, ToInt(first), ToInt(next - first),
                                        blocks);
        });
      }
    }
    Launch(batch_ * tiles,
           [&](auto& layout) { return FinishCholeskyPanels<E>(layout, problem_, tiles); });
  }

 private:
  static int64_t Ceil(int64_t count, int64_t size) { return (count + size - 1) / size; }

  template <class Make>
  void Launch(int64_t blocks, Make&& make) const {
    SharedLayout layout(sizeof(RealElement<E>));
    const auto job = make(layout);
    LaunchTeams(stream_, job, blocks, kBlockThreads, layout);
  }

  // Subtracts the part of columns [from, first) of the factor from columns [first, end).
  void Subtract(int64_t from, int64_t first, int64_t end) const {
    if (from == first) return;
    T* const rows = reinterpret_cast<T*>(problem_.factor) + first * n_;
    const Submatrix<const T> left{rows + from, n_, n_ * n_};
    const Submatrix<T> right{rows + first, n_, n_ * n_};
    Multiply<T>(lent_.get(), batch_, n_ - first, end - first, first - from, T(-1), left,
                left.Adjoint(), T(1), right);
  }

  cudaStream_t stream_;
  int64_t batch_, n_;
  CholeskyProblem<E> problem_;
  LentBlas lent_;
};

}  // namespace linalg::cuda
