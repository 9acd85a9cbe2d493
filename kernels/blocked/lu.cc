#include "kernels/blocked/lu.h"

#include <complex>
#include <limits>

#include "kernels/arithmetic/exchange.h"
#include "kernels/blocked/strips.h"
#include "kernels/blocked/triangular.h"

namespace linalg::blocked {
namespace {

template <class V>
LINALG_INLINE Lane<V> LargestLane(V x) {
  return Reduce(x, [](auto low, auto high) { return Larger(low, high); });
}

// The place of the largest magnitude that it was shown, the first of several.
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

}  // namespace

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

template <class T>
LuFactors<T>::LuFactors(int64_t rows, int64_t cols)
    : rows_(rows),
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
      right[j] = SpreadElement<T>(x);
    }
    const Element<T> x = StripElement<T>(panel + k, k).Get();
    if (Magnitude(x) == 0 && singular_ == 0) singular_ = static_cast<int>(first + k + 1);
    const Divisor<Element<T>> divisor(Magnitude(x) == 0 ? FromReal<Element<T>>(R(1)) : x);
    const E inverse = SpreadElement<T>(divisor.inverse());
    const V scale = Spread<V>(divisor.scale());
    search = {};
    const auto eliminate = [&](int64_t s, auto is_edge) {
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

// Exchanges the rest of the rows that a panel has exchanged.
template <class T>
void LuFactors<T>::ExchangeOutside(int64_t first, int64_t width) {
  const int64_t last = std::min(first + width, pivot_count());
  for (int64_t k = first; k < last; ++k) {
    if (pivots_[k] == k) continue;
    T *const above = lu().At(k, 0).data, *const below = lu().At(pivots_[k], 0).data;
    const auto exchange = [&](int64_t j) {
      const Register<T> x = Load<T>(above + j);
      Store<T>(Load<T>(below + j), above + j);
      Store<T>(x, below + j);
    };
    for (int64_t j = 0; j < first; j += kWidth<T>) exchange(j);
    for (int64_t j = first + kPanel<T>; j < cols_; j += kWidth<T>) exchange(j);
  }
}

template <class T>
void LuFactors<T>::FactorColumns(int64_t first, int64_t width) {
  if (width <= kPanel<T>) {
    FactorPanel(first, width);
    return ExchangeOutside(first, width);
  }
  const int64_t half = RoundUp(width / 2, kPanel<T>), rest = width - half;
  const int64_t middle = first + half;
  FactorColumns(first, half);
  SolveUnitLower(half, rest, lu().At(first, first).Read(), lu().At(first, middle));
  MulSub(rows_ - middle, rest, half, lu().At(middle, first).Read(), lu().At(first, middle),
         lu().At(middle, middle));
  FactorColumns(middle, rest);
}

template <class T>
int LuFactors<T>::Factor(const T* a) {
  singular_ = 0;
  if (pivot_count() == 0) return 0;
  for (int64_t i = 0; i < rows_; ++i) std::copy_n(a + i * cols_, cols_, lu().At(i, 0).data);
  const int64_t width = std::min(cols_, RoundUp(pivot_count(), kPanel<T>));
  FactorColumns(0, width);
  SolveUnitLower(rows_, cols_ - width, lu().Read(), lu().At(0, width));
  return HoldsNaN(rows_, cols_, lu()) ? kHoldsNaN : singular_;
}

// x = (L U)⁻¹ x for some columns, which are zero above row `first`, one of a tile's first.
template <class T>
template <int kCols>
void LuFactors<T>::SolveColumns(int64_t first, Rows<T> x) const {
  SolveUnitLowerColumns<kCols>(rows_ - first, lu().At(first, first).Read(), x.At(first, 0));
  const Strided<T> u = FromTheLast(rows_, lu().Read());
  const auto divide = [&](int64_t i, Register<T> row) {
    const auto* const pivot = reinterpret_cast<const Element<T>*>(&u(i, i));
    return Divide<T>(row, Divisor<Element<T>>(*pivot));
  };
  SolveLowerColumns<false, kCols>(rows_, u, divide, FromTheLast(rows_, x));
}

template <class T>
void LuFactors<T>::Solve(int64_t cols, Rows<T> x) const {
  ExchangeRows(rows_, pivots(), cols, x.data, x.ld, /*back=*/false);
  ForEachGroupOfColumns<T>(0, cols, [&]<int kCols>(int64_t j, std::integral_constant<int, kCols>) {
    SolveColumns<kCols>(0, x.At(0, j));
  });
}

template <class T>
void LuFactors<T>::Invert(Rows<T> work, T* inverse) const {
  const int64_t n = rows_;
  for (int64_t i = 0; i < n; ++i) {
    std::fill_n(work.At(i, 0).data, work.ld, T(0));
    *work.At(i, i).data = T(1);
  }
  ForEachGroupOfColumns<T>(0, n, [&]<int kCols>(int64_t j, std::integral_constant<int, kCols>) {
    // Above its diagonal the inverse of L is zero.
    SolveColumns<kCols>(j / kTileRows * kTileRows, work.At(0, j));
  });
  // A⁻¹ = (L U)⁻¹ P: columns are exchanged back.
  const std::unique_ptr<int32_t[]> column(new int32_t[n]);
  PivotsToPermutation(n, pivots(), n, column.get());
  for (int64_t i = 0; i < n; ++i) {
    const T* const row = work.At(i, 0).data;
    for (int64_t j = 0; j < n; ++j) inverse[i * n + column[j]] = row[j];
  }
}

template bool HoldsNaN(int64_t, int64_t, Rows<float>);
template bool HoldsNaN(int64_t, int64_t, Rows<double>);
template bool HoldsNaN(int64_t, int64_t, Rows<std::complex<float>>);
template bool HoldsNaN(int64_t, int64_t, Rows<std::complex<double>>);

template class LuFactors<float>;
template class LuFactors<double>;
template class LuFactors<std::complex<float>>;
template class LuFactors<std::complex<double>>;

}  // namespace linalg::blocked
