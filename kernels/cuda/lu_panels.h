// The kernels of LU by panels, for matrices that shared memory cannot hold.
//
// Blocks of columns are finished from left to right. A block is factored panel by panel, each in
// registers. Then its exchanges reach all other columns, its rows to the right are solved for, and
// cuBLAS updates the rest.
#pragma once

#include "kernels/arithmetic/info.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/lu_factors.h"
#include "kernels/team/lu.h"

namespace linalg::cuda {

// Row-major matrices in place, and where the exchanges of a panel or block are noted: element p of
// an order is the row that came to place p.
template <class E>
struct PanelsProblem {
  E* a;
  int rows, cols;
  int32_t* pivots;
  int32_t* permutation;  // the order since the first panel
  int32_t* of_block;     // since the block's first panel
  int32_t* of_panel;
  int32_t* info;

  __host__ __device__ int Count() const { return rows < cols ? rows : cols; }
  __host__ __device__ int64_t Size() const { return static_cast<int64_t>(rows) * cols; }
};

// Factors a panel: some columns, from the diagonal on, of each matrix.
//
// A thread holds kRowsOfThread rows in registers. Rows are not exchanged: each thread knows the
// places of its rows, and a row is written to its place once it is finished. A step takes two
// barriers: one before the warps' candidates are compared, and one before the pivot's row is read.
//
// A step moves each row left by one register, so that the column to eliminate is always in the
// first. Multipliers gather behind the columns that are left. After each kChunk steps the compiled
// code has fewer columns.
template <class E, int kRowsOfThread>
class FactorLuPanel {
  using V = RealElement<E>;
  using Candidate = team::Candidate<V>;

 public:
  static constexpr int kMostThreads = 512;
  static constexpr int kRows = kRowsOfThread, kCols = 256 / kRows / sizeof(E);

  FactorLuPanel(SharedLayout& layout, const PanelsProblem<E>& problem, int first, int cols,
                bool begins_block)
      : problem_(problem),
        first_(first),
        cols_(cols),
        begins_block_(begins_block),
        row_(layout.Take<E>(kCols)),
        divisor_(layout.Take<StoredDivisor>(1)),
        stage_(layout.Take<E>(Threads() * kPitch)),
        best_(layout.Take<V>(kMostWarps)),
        best_place_(layout.Take<int>(kMostWarps)),
        of_block_(layout.Take<int>(Threads() * kRows)),
        permutation_(layout.Take<int>(Threads() * kRows)) {}

  // A team of more than a warp is a whole block.
  int Threads() const {
    const int rows_of_warp = kWarp * kRows, rows = problem_.rows - first_;
    return std::max((rows + rows_of_warp - 1) / rows_of_warp, 2) * kWarp;
  }

  __device__ void Run(const Team& team, int64_t i, char* slice) const {
    Panel panel{.team = team, .slice = slice, .a = problem_.a + i * problem_.Size()};
    const int64_t row = i * problem_.rows + first_;
    int* const of_block = of_block_.In(slice);
    int* const permutation = permutation_.In(slice);
    LINALG_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const int place = FirstPlace(r) + Lane();
      const bool is_row = first_ + place < problem_.rows;
      panel.place[r] = is_row ? place : kNone;
      if (is_row) {  // read by this thread alone
        of_block[place] = begins_block_ ? first_ + place : problem_.of_block[row + place];
        permutation[place] = first_ == 0 ? place : problem_.permutation[row + place];
      }
      Load(panel, r);
    }
    const auto note = [&](int r, int place) {
      const int before = FirstPlace(r) + Lane();
      problem_.of_panel[row + place] = first_ + before;
      problem_.of_block[row + place] = of_block[before];
      problem_.permutation[row + place] = permutation[before];
    };
    const auto on_pivot = [&](int r, int k, int place) {
      problem_.pivots[i * problem_.Count() + first_ + k] = first_ + place;
      note(r, k);
    };
    Steps<kCols>(panel, on_pivot);
    LINALG_UNROLL
    for (int r = 0; r < kRows; ++r) {
      if (panel.place[r] != kNone) note(r, panel.place[r]);
      Store(panel, r);
    }
    const bool has_nan = team.Any([&](int) { return panel.has_nan; });
    team.Each([&](int thread) {
      if (thread != 0) return;
      const int before = first_ == 0 ? 0 : problem_.info[i];
      problem_.info[i] = has_nan ? kHoldsNaN : before != 0 ? before : panel.singular;
    });
  }

 private:
  static constexpr int kWarp = 32, kMostWarps = kMostThreads / kWarp;
  static constexpr unsigned kWholeWarp = 0xffffffffu;
  static constexpr int kPitch = kCols + 1;
  static constexpr int kChunk = kCols < 8 ? kCols : 8;
  static constexpr int kNone = -1;  // the place of a finished row, or of none

  // Elements of a row that shared memory gives at a time.
  static constexpr int kTogether = 16 / sizeof(E);
  struct alignas(16) Together {
    E x[kTogether];
  };

  // Divides as Divisor does. Shared memory takes it in one or two accesses.
  struct alignas(sizeof(E) < 8 ? 8 : 16) StoredDivisor {
    E inverse, scale;  // the scale is real

    __device__ __forceinline__ E Divide(E x) const { return Mul(inverse, Re(scale) * x); }
  };

  struct Panel {
    const Team& team;
    char* slice;
    E* a;
    E x[kRows][kCols];
    int place[kRows];
    int singular = 0;
    bool has_nan = false;
  };

  static __device__ __forceinline__ int Lane() { return static_cast<int>(threadIdx.x) % kWarp; }
  static __device__ __forceinline__ int Warp() { return static_cast<int>(threadIdx.x) / kWarp; }
  // The first of the 32 places from which a warp's threads have their rows.
  static __device__ __forceinline__ int FirstPlace(int r) { return (Warp() * kRows + r) * kWarp; }

  // The register that holds a column before step k.
  static __device__ __forceinline__ int RegisterOf(int col, int k) {
    if (col >= k) return col - k;
    const int chunk = k / kChunk * kChunk;
    if (col >= chunk) return kCols - k + col - chunk;
    return kCols - kChunk - col / kChunk * kChunk + col % kChunk;
  }

  __device__ __forceinline__ E* Stage(const Panel& panel) const {
    return stage_.In(panel.slice) + Warp() * kWarp * kPitch;
  }

  // Neighbouring threads read neighbouring elements, so rows pass through shared memory.
  __device__ __forceinline__ void Load(Panel& panel, int r) const {
    E* const stage = Stage(panel);
    const int left = problem_.rows - first_ - FirstPlace(r);
    const E* const from =
        panel.a + static_cast<int64_t>(first_ + FirstPlace(r)) * problem_.cols + first_;
#pragma unroll 1
    for (int e = Lane(); e < kWarp * kCols; e += kWarp) {
      const int row = e / kCols, col = e % kCols;
      if (row < left && col < cols_) {
        CopyGlobal(from + row * problem_.cols + col, stage + row * kPitch + col);
      } else {
        stage[row * kPitch + col] = E{};
      }
    }
    FinishCopies();
    __syncwarp(kWholeWarp);
    LINALG_UNROLL
    for (int c = 0; c < kCols; ++c) panel.x[r][c] = stage[Lane() * kPitch + c];
    if (r + 1 < kRows) __syncwarp(kWholeWarp);
  }

  // Writes the rows that have not been pivots.
  __device__ __forceinline__ void Store(Panel& panel, int r) const {
    E* const stage = Stage(panel);
    LINALG_UNROLL
    for (int c = 0; c < kCols; ++c) stage[Lane() * kPitch + c] = panel.x[r][c];
    __syncwarp(kWholeWarp);
#pragma unroll 1
    for (int e = Lane(); e < kWarp * kCols; e += kWarp) {
      const int row = e / kCols, col = e % kCols;
      const int place = __shfl_sync(kWholeWarp, panel.place[r], row);
      if (place == kNone || col >= cols_) continue;
      Put(panel, place, col, stage[row * kPitch + RegisterOf(col, cols_)]);
    }
    if (r + 1 < kRows) __syncwarp(kWholeWarp);
  }

  __device__ __forceinline__ void Put(Panel& panel, int place, int col, E x) const {
    panel.has_nan |= IsNaN(x);
    StoreGlobal<E>(x, panel.a + (first_ + place) * problem_.cols + first_ + col);
  }

  template <int kLive, class OnPivot>
  __device__ __forceinline__ void Steps(Panel& panel, OnPivot&& on_pivot) const {
    constexpr int kDone = kCols - kLive;
    const int end = kDone + kChunk < cols_ ? kDone + kChunk : cols_;
#pragma unroll 1
    for (int k = kDone; k < end; ++k) Step<kLive>(panel, k, on_pivot);
    if constexpr (kLive > kChunk) Steps<kLive - kChunk>(panel, on_pivot);
  }

  template <int kLive, class OnPivot>
  __device__ __forceinline__ void Step(Panel& panel, int k, OnPivot&& on_pivot) const {
    E* const row = row_.In(panel.slice);
    const Candidate pivot = FindPivot(panel, k);
    const bool is_zero = pivot.value == V(0);
    if (is_zero && panel.singular == 0) panel.singular = first_ + k + 1;
    panel.team.Phase([&](int) {
      E divisor{};
      bool is_mine = false;
      LINALG_UNROLL
      for (int r = 0; r < kRows; ++r) {
        if (panel.place[r] == pivot.index) {
          divisor = is_zero ? FromReal<E>(V(1)) : panel.x[r][0];
          is_mine = true;
          LINALG_UNROLL
          for (int c = 0; c < kCols; c += kTogether) {
            Together some;
            LINALG_UNROLL
            for (int t = 0; t < kTogether; ++t) some.x[t] = panel.x[r][c + t];
            *reinterpret_cast<Together*>(row + c) = some;
          }
          on_pivot(r, k, pivot.index);
          panel.place[r] = kNone;
        } else if (panel.place[r] == k) {
          panel.place[r] = pivot.index;
        }
      }
      if (is_mine) {
        const Divisor<E> found(divisor);
        *divisor_.In(panel.slice) = {found.inverse(), FromReal<E>(found.scale())};
      }
    });
    // One warp after another writes the finished row.
    if (k % (panel.team.size() / kWarp) == Warp()) {
      for (int col = Lane(); col < cols_; col += kWarp) {
        Put(panel, k, col, row[RegisterOf(col, k)]);
      }
    }
    const StoredDivisor divisor = *divisor_.In(panel.slice);
    E left[kRows];
    LINALG_UNROLL
    for (int r = 0; r < kRows; ++r) left[r] = divisor.Divide(panel.x[r][0]);
    LINALG_UNROLL
    for (int c = 0; c < kLive; c += kTogether) {
      const Together some = *reinterpret_cast<const Together*>(row + c);
      LINALG_UNROLL
      for (int t = 0; t < kTogether; ++t) {
        if (c + t == 0) continue;
        // The last registers may hold multipliers of this chunk.
        const bool is_left = c + t < kLive - kChunk + 1 || c + t < kCols - k;
        LINALG_UNROLL
        for (int r = 0; r < kRows; ++r) {
          const E x = panel.x[r][c + t];
          panel.x[r][c + t - 1] = is_left ? NegMulAdd(left[r], some.x[t], x) : x;
        }
      }
    }
    LINALG_UNROLL
    for (int r = 0; r < kRows; ++r) panel.x[r][kLive - 1] = left[r];
  }

  __device__ __forceinline__ Candidate FindPivot(const Panel& panel, int k) const {
    V* const values = best_.In(panel.slice);
    int* const places = best_place_.In(panel.slice);
    const int none = std::numeric_limits<int>::max();
    panel.team.Phase([&](int) {
      Candidate mine{V(-1), none};
      LINALG_UNROLL
      for (int r = 0; r < kRows; ++r) {
        if (panel.place[r] == kNone) continue;
        mine = mine.Better(team::PivotCandidate(panel.x[r][0], panel.place[r], k));
      }
      mine = BestOver(kWholeWarp, mine);
      if (Lane() == 0) values[Warp()] = mine.value, places[Warp()] = mine.index;
    });
    const bool is_warp = Lane() < panel.team.size() / kWarp;
    return BestOver(kWholeWarp,
                    is_warp ? Candidate{values[Lane()], places[Lane()]} : Candidate{V(-1), none});
  }

  PanelsProblem<E> problem_;
  int first_, cols_;
  bool begins_block_;
  Offset<E> row_;
  Offset<StoredDivisor> divisor_;
  Offset<E> stage_;
  Offset<V> best_;
  Offset<int> best_place_, of_block_, permutation_;
};

// Applies the exchanges of `count` finished columns, from `first` on, to the columns [begin, end)
// beside them. To the right of them it then solves for the rows of U. A team takes kColumnsOfTeam
// columns at most.
template <class E>
class ExchangeAndSolve {
 public:
  static constexpr int kMostThreads = kBlockThreads;

  ExchangeAndSolve(SharedLayout& layout, const PanelsProblem<E>& problem, const int32_t* order,
                   int first, int count, int begin, int end)
      : problem_(problem),
        order_(order),
        first_(first),
        count_(count),
        begin_(begin),
        end_(end),
        parts_left_(Parts(first - begin)),
        parts_(parts_left_ + Parts(end - first - count)),
        block_(layout.Take<E>(count * (count | 1))),
        tile_(layout.Take<E>(count * kPitch)),
        source_(layout.Take<int32_t>(count)),
        target_(layout.Take<int32_t>(count)) {}

  int parts() const { return parts_; }

  __device__ void Run(const Team& team, int64_t index, char* slice) const {
    const int64_t i = index / parts_;
    const int part = static_cast<int>(index % parts_);
    const bool right = part >= parts_left_;
    const int first_col =
        right ? first_ + count_ + (part - parts_left_) * kMost : begin_ + part * kMost;
    const int left = (right ? end_ : first_) - first_col, cols = left < kMost ? left : kMost;
    const int ld = problem_.cols;
    E* const a = problem_.a + i * problem_.Size();
    E* const columns = a + first_col;
    E* const tile = tile_.In(slice);
    E* const block = block_.In(slice);
    int32_t* const source = source_.In(slice);
    int32_t* const target = target_.In(slice);
    const int32_t* const order = order_ + i * problem_.rows;
    team.Phase([&](int thread) {
      for (int k = thread; k < count_; k += team.size()) target[k] = 0;
    });
    // A row below the block has either stayed or come from the block.
    team.Phase([&](int thread) {
      for (int place = first_ + thread; place < problem_.rows; place += team.size()) {
        const int row = order[place];
        if (place < first_ + count_) {
          source[place - first_] = row;
        } else if (row != place) {
          target[row - first_] = place;
        }
      }
    });
    team::Move<E>(
        team, count_, cols, [&](int k, int j) { return LoadGlobal(columns + source[k] * ld + j); },
        [&](int k, int j, E x) { tile[k * kPitch + j] = x; });
    team::Move<E>(
        team, count_, cols,
        [&](int k, int j) {
          return target[k] == 0 ? E{} : LoadGlobal(columns + (first_ + k) * ld + j);
        },
        [&](int k, int j, E x) {
          if (target[k] != 0) StoreGlobal<E>(x, columns + target[k] * ld + j);
        });
    if (right) {
      const int pitch = count_ | 1;
      const E* const corner = a + first_ * (ld + 1);
      team::Move<E>(
          team, count_, count_, [&](int k, int j) { return LoadGlobal(corner + k * ld + j); },
          [&](int k, int j, E x) { block[k * pitch + j] = x; });
      team::SubstitutePanels(
          team, count_, block, pitch, /*lower=*/true, /*unit_diagonal=*/true,
          [=](int) { return cols; }, tile, kPitch);
      const bool has_nan = team::HasNaN(team, count_, cols, tile, kPitch);
      team.Each([&](int thread) {
        if (thread == 0 && has_nan) problem_.info[i] = kHoldsNaN;
      });
    }
    team::Move<E>(
        team, count_, cols, [&](int k, int j) { return tile[k * kPitch + j]; },
        [&](int k, int j, E x) { StoreGlobal<E>(x, columns + (first_ + k) * ld + j); });
  }

 private:
  static constexpr int kMost = kColumnsOfTeam, kPitch = kMost | 1;

  static int Parts(int cols) { return (cols + kMost - 1) / kMost; }

  PanelsProblem<E> problem_;
  const int32_t* order_;
  int first_, count_, begin_, end_, parts_left_, parts_;
  Offset<E> block_, tile_;
  Offset<int32_t> source_, target_;
};

}  // namespace linalg::cuda
