#include "kernels/blocked/lu.h"

#include <complex>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/arithmetic/exchange.h"
#include "kernels/arithmetic/info.h"
#include "kernels/blocked/strips.h"
#include "kernels/blocked/triangular.h"

namespace linalg::blocked {
namespace {

// Columns of a block: a large matrix is factored block by block.
constexpr int64_t kBlockColumns = 128;

// The largest order whose inverse is computed in pieces as narrow as a tile. That skips most of the
// zeros above the diagonal of L⁻¹, and the factors stay in the cache for all pieces.
constexpr int64_t kInvertedByTiles = 512;

template <class V>
LINALG_INLINE Lane<V> LargestLane(V x) {
  return Reduce(x, [](auto low, auto high) { return Larger(low, high); });
}

// The first row with the largest magnitude shown so far.
template <class V>
struct PivotSearch {
  V size = Number<V>(-1), row = Number<V>(0);

  LINALG_INLINE void Show(V other, V its_row, Mask<V> counts) {
    const auto larger = counts & (other > size);
    size = larger ? other : size;
    row = larger ? its_row : row;
  }

  int64_t Row(int64_t if_none) const {
    const Lane<V> largest = LargestLane(size);
    if (largest < 0) return if_none;
    const V last = Broadcast<V>(-std::numeric_limits<Lane<V>>::infinity());
    return static_cast<int64_t>(-LargestLane(size == Broadcast<V>(largest) ? -row : last));
  }
};

template <class T>
bool HoldsNaN(int64_t rows, int64_t cols, Rows<T> a) {
  using V = Register<T>;
  Mask<V> any{};
  bool any_at_end = false;
  for (int64_t i = 0; i < rows; ++i) {
    const T* const row = a.At(i, 0).data;
    int64_t j = 0;
    for (; j + kWidth<T> <= cols; j += kWidth<T>) any |= IsNaN(Load<T>(row + j));
    for (; j < cols; ++j) any_at_end |= IsNaN(*reinterpret_cast<const Element<T>*>(row + j));
  }
  return Any(any) || any_at_end;
}

// Lanes hold row numbers as floating-point numbers, and pivots have 32 bits.
template <class T>
int64_t CountableRows(int64_t rows) {
  constexpr int64_t kMost =
      std::min<int64_t>(int64_t{1} << std::numeric_limits<RealElement<T>>::digits,
                        std::numeric_limits<int32_t>::max());
  if (rows > kMost) {
    throw std::length_error("LU of a matrix of " + std::to_string(rows) + " rows; it takes up to " +
                            std::to_string(kMost));
  }
  return rows;
}

}  // namespace

template <class T>
LuFactors<T>::LuFactors(int64_t rows, int64_t cols)
    : rows_(CountableRows<T>(rows)),
      cols_(cols),
      workspace_(rows, cols),
      panel_(rows, kPanel<T>),
      pivots_(new int32_t[std::max<int64_t>(pivot_count(), 1)]) {}

template <class T>
void LuFactors<T>::FactorPanel(int64_t first, int64_t width) {
  using V = Register<T>;
  using E = Strip<T>;
  constexpr int64_t kLanes = kStrip<T>;
  const int64_t rows = rows_ - first, strips = (rows + kLanes - 1) / kLanes;
  const int64_t count = std::min(rows, width);
  E* const panel = reinterpret_cast<E*>(panel_.rows().data);

  PivotSearch<V> search;
  for (int64_t s = 0; s < strips; ++s) {
    ReadStrip(workspace_.rows().At(first + s * kLanes, first), panel + s * kPanel<T>);
    const V row = RowNumbers<T>(s);
    search.Show(Magnitude(panel[s * kPanel<T>]), row, row < Number<V>(rows));
  }
  for (int64_t k = 0; k < count; ++k) {
    const int64_t pivot = search.Row(k);
    pivots_[first + k] = static_cast<int32_t>(first + pivot);
    E right[kPanel<T>];
    for (int64_t j = 0; j < width; ++j) {
      const StripElement<T> above(panel + j, k), below(panel + j, pivot);
      const Element<T> x = below.Get();
      below.Set(above.Get());
      above.Set(x);
      right[j] = WidenElement<T>(x);
    }
    const Element<T> x = StripElement<T>(panel + k, k).Get();
    if (Magnitude(x) == 0 && singular_ == 0) singular_ = static_cast<int>(first + k + 1);
    const Divisor<Element<T>> divisor(Magnitude(x) == 0 ? FromReal<Element<T>>(R(1)) : x);
    const E inverse = WidenElement<T>(divisor.inverse());
    const V scale = Widen<V>(divisor.scale());
    search = {};
    const auto eliminate = [&](int64_t s, auto is_edge) __attribute__((always_inline)) {
      E* const strip = panel + s * kPanel<T>;
      const V row = RowNumbers<T>(s);
      const auto below = row > Number<V>(k);
      const E left = Mul(inverse, scale * strip[k]);
      strip[k] = is_edge ? Choose(below, left, strip[k]) : left;
      const auto subtract = [&](int64_t j) {
        const E next = NegMulAdd(left, right[j], strip[j]);
        return strip[j] = is_edge ? Choose(below, next, strip[j]) : next;
      };
      if (k + 1 == width) return;
      const V size = Magnitude(subtract(k + 1));
      search.Show(size, row, is_edge ? below & (row < Number<V>(rows)) : row >= V{});
#pragma GCC unroll 4
      for (int64_t j = k + 2; j < width; ++j) subtract(j);
    };
    const int64_t start = k / kLanes;
    eliminate(start, std::true_type());
    for (int64_t s = start + 1; s < strips - 1; ++s) eliminate(s, std::false_type());
    if (strips - 1 > start) eliminate(strips - 1, std::true_type());
  }
  for (int64_t s = 0; s < strips; ++s) {
    WriteStrip<T>(panel + s * kPanel<T>, workspace_.rows().At(first + s * kLanes, first));
  }
}

// Exchanges rows in these columns for the pivots of the steps [first, last).
template <class T>
void LuFactors<T>::Exchange(int64_t first, int64_t last, Columns columns) {
  for (int64_t k = first; k < last; ++k) {
    if (pivots_[k] == k) continue;
    T *const above = lu().At(k, 0).data, *const below = lu().At(pivots_[k], 0).data;
    for (int64_t j = columns.first; j < columns.last; j += kWidth<T>) {
      const Register<T> x = Load<T>(above + j);
      Store<T>(Load<T>(below + j), above + j);
      Store<T>(x, below + j);
    }
  }
}

// Factors columns of a block by halving, and exchanges rows within the whole block.
template <class T>
void LuFactors<T>::FactorColumns(int64_t first, int64_t width, Columns block) {
  if (width <= kPanel<T>) {
    FactorPanel(first, width);
    const int64_t last = std::min(first + width, pivot_count());
    Exchange(first, last, {block.first, first});
    return Exchange(first, last, {first + kPanel<T>, block.last});
  }
  const int64_t half = RoundUp(width / 2, kPanel<T>), rest = width - half;
  const int64_t middle = first + half;
  FactorColumns(first, half, block);
  SolveUnitLower(half, rest, lu().At(first, first).AsStrided(), lu().At(first, middle));
  MulSub(rows_ - middle, rest, half, lu().At(middle, first).AsStrided(), lu().At(first, middle),
         lu().At(middle, middle));
  FactorColumns(middle, rest, block);
}

// Exchanges rows of the other columns by the block's pivots, and does the trailing update there.
template <class T>
void LuFactors<T>::Eliminate(Columns block, Columns others) {
  const int64_t first = block.first, last = std::min(block.last, pivot_count());
  const int64_t cols = others.last - others.first;
  Exchange(first, last, others);
  const Rows<T> rows = lu().At(first, others.first);
  SolveUnitLower(last - first, cols, lu().At(first, first).AsStrided(), rows);
  MulSub(rows_ - last, cols, last - first, lu().At(last, first).AsStrided(), rows,
         lu().At(last, others.first));
}

template <class T>
void LuFactors<T>::FactorBlocks(const RunTasks& run_tasks) {
  // No two tasks write to one tile.
  static_assert(kTaskColumns<T> % (kTileRegisters * kWidth<T>) == 0);
  static_assert(kBlockColumns % kPanel<T> == 0 && kBlockColumns % kWidth<T> == 0);
  // A smaller matrix is a single block.
  const int64_t width = std::min(cols_, RoundUp(pivot_count(), kPanel<T>));
  const int64_t step = width <= 2 * kBlockColumns ? width : kBlockColumns;
  Columns block{0, step};
  FactorColumns(0, step, block);
  while (block.first < width) {
    const Columns next{block.last, std::min(width, block.last + step)};
    const bool is_last = next.first >= width;
    RunAheadOfPieces<T>(
        run_tasks, next.last, cols_,
        [&](int64_t begin, int64_t end) { Eliminate(block, {begin, end}); },
        [&] {
          if (is_last) return;
          Eliminate(block, next);
          FactorColumns(next.first, next.last - next.first, next);
        });
    block = next;
  }
  Run(run_tasks, width / step, [&](int64_t i) {
    const int64_t last = (i + 1) * step;
    Exchange(last, pivot_count(), {i * step, last});
  });
}

template <class T>
bool LuFactors<T>::HoldsNaN(const RunTasks& run_tasks) const {
  std::vector<char> found(PiecesOfRows(rows_));
  ForEachPieceOfRows(run_tasks, rows_, [&](int64_t begin, int64_t end) {
    found[begin / kTaskRows] = blocked::HoldsNaN(end - begin, cols_, lu().At(begin, 0));
  });
  return std::find(found.begin(), found.end(), 1) != found.end();
}

template <class T>
int LuFactors<T>::Factor(const T* a, const RunTasks& run_tasks) {
  singular_ = 0;
  if (pivot_count() == 0) return 0;
  CopyRows(rows_, cols_, a, lu(), run_tasks);
  FactorBlocks(run_tasks);
  return HoldsNaN(run_tasks) ? kHoldsNaN : singular_;
}

// x = (L U)⁻¹ x for columns that are zero above row `first`, a tile's first row.
template <class T>
void LuFactors<T>::SolveColumns(int64_t first, int64_t cols, Rows<T> x) const {
  SolveUnitLower(rows_ - first, cols, lu().At(first, first).AsStrided(), x.At(first, 0));
  SolveGivenLower<false>(rows_, cols, Reversed(rows_, lu().AsStrided()), Reversed(rows_, x));
}

template <class T>
void LuFactors<T>::Solve(int64_t cols, Rows<T> x, const RunTasks& run_tasks) const {
  ForEachPieceOfColumns<T>(run_tasks, 0, cols, [&](int64_t begin, int64_t end) {
    ExchangeRows(rows_, pivots(), end - begin, x.At(0, begin).data, x.ld, /*back=*/false);
    SolveColumns(0, end - begin, x.At(0, begin));
  });
}

template <class T>
void LuFactors<T>::Invert(Rows<T> work, T* inverse, const RunTasks& run_tasks) const {
  const int64_t n = rows_;
  const int64_t cols = n <= kInvertedByTiles ? kTileRegisters * kWidth<T> : kTaskColumns<T>;
  RunPieces(run_tasks, (n + cols - 1) / cols, 0, n, cols, [&](int64_t begin, int64_t end) {
    const int64_t count = end == n ? work.ld - begin : end - begin;
    for (int64_t i = 0; i < n; ++i) std::fill_n(work.At(i, begin).data, count, T(0));
    for (int64_t i = begin; i < end; ++i) *work.At(i, i).data = T(1);
    // L⁻¹ is zero above its diagonal.
    SolveColumns(begin / kTileRows * kTileRows, end - begin, work.At(0, begin));
  });
  // A⁻¹ = (L U)⁻¹ P: exchanges the columns back.
  const std::unique_ptr<int32_t[]> column(new int32_t[n]);
  PivotsToPermutation(n, pivots(), n, column.get());
  ForEachPieceOfRows(run_tasks, n, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const T* const row = work.At(i, 0).data;
      for (int64_t j = 0; j < n; ++j) inverse[i * n + column[j]] = row[j];
    }
  });
}

template class LuFactors<float>;
template class LuFactors<double>;
template class LuFactors<std::complex<float>>;
template class LuFactors<std::complex<double>>;

}  // namespace linalg::blocked
