#include "kernels/blocked/qr.h"

#include <bit>
#include <complex>
#include <cstddef>

#include "kernels/arithmetic/reflector.h"
#include "kernels/blocked/strips.h"
#include "kernels/blocked/triangular.h"

namespace linalg::blocked {
namespace {

// Reflectors that are applied together: within a block, and to the right of a block if the matrix
// has more than kMostInNarrowBlocks of them. Measurements:
// benchmarks/crossovers/cpu_qr_blocks.json.
constexpr int64_t kNarrowBlock = 16, kWideBlock = 32, kMostInNarrowBlocks = 128;

// Columns of a panel that a reflector is applied to at once, as many as fit the registers.
template <class T>
inline constexpr int kReflectedColumns = kComplexElement<T> && kTileRows < 8 ? 2 : 4;

// A reflector whose vector lies in a column of a panel.
template <class T>
class Reflector {
  using R = RealElement<T>;
  using V = Register<T>;
  using S = Strip<T>;
  using One = Element<T>;
  static constexpr int64_t kNext = kNextStrip<T>;

 public:
  // Makes the reflector from element k and those below it in a panel's column. The last strip must
  // end in zeros. R's element replaces element k, the vector replaces those below.
  Reflector(S* column, int64_t k, int64_t rows)
      : column_(column),
        start_(k / kStrip<T>),
        strips_((rows + kStrip<T> - 1) / kStrip<T>),
        row_(RowNumbers<T>(start_)),
        diagonal_(Number<V>(k)) {
    // LAPACK's convention: the last reflector of a real matrix is I.
    if (!kComplexElement<T> && k + 1 == rows) return;
    const One alpha = StripElement<T>(column, k).Get();
    const R tail = TailSquares(), total = NormAdd(alpha, tail);
    if (SquareScale<R>::IsNeeded(total) || tail == 0) [[unlikely]] {
      MakeExtreme(k, rows);
    } else {
      const R beta = ReflectedHead(alpha, total);
      const ReflectorScale<One> made(alpha, beta);
      tau_ = made.tau;
      const S inverse = WidenElement<T>(made.inverse);
      S& first = column[start_ * kNext];
      first = Choose(row_ > diagonal_, Mul(inverse, first), first);
      for (int64_t s = start_ + 1; s < strips_; ++s) {
        column[s * kNext] = Mul(inverse, column[s * kNext]);
      }
      StripElement<T>(column, k).Set(FromReal<One>(beta));
    }
    const S one = FromReal<S>(Number<V>(1));
    top_ = Choose(row_ > diagonal_, column[start_ * kNext], Choose(row_ < diagonal_, S{}, one));
  }

  One tau() const { return tau_; }

  // Multiplies kCols columns by the adjoint.
  template <int kCols>
  LINALG_INLINE void ApplyAdjoint(S* columns) const {
    const auto from = row_ >= diagonal_;
    S* const first = columns + start_ * kNext;
    S sums[kCols], factors[kCols];
#pragma GCC unroll 4
    for (int c = 0; c < kCols; ++c) sums[c] = ConjMulAdd(top_, Choose(from, first[c], S{}), S{});
    for (int64_t s = start_ + 1; s < strips_; ++s) {
      const S left = column_[s * kNext];
#pragma GCC unroll 4
      for (int c = 0; c < kCols; ++c) sums[c] = ConjMulAdd(left, columns[s * kNext + c], sums[c]);
    }
#pragma GCC unroll 4
    for (int c = 0; c < kCols; ++c) {
      factors[c] = WidenElement<T>(Mul(Conj(tau_), SumOfLanes(sums[c])));
      first[c] = Choose(from, NegMulAdd(top_, factors[c], first[c]), first[c]);
    }
    for (int64_t s = start_ + 1; s < strips_; ++s) {
      const S left = column_[s * kNext];
#pragma GCC unroll 4
      for (int c = 0; c < kCols; ++c) {
        S& x = columns[s * kNext + c];
        x = NegMulAdd(left, factors[c], x);
      }
    }
  }

 private:
  R TailSquares() const {
    const S first = column_[start_ * kNext];
    V sums[2] = {NormAdd(Choose(row_ > diagonal_, first, S{}), V{}), V{}};
    int64_t s = start_ + 1;
    for (; s + 1 < strips_; s += 2) {
      sums[0] = NormAdd(column_[s * kNext], sums[0]);
      sums[1] = NormAdd(column_[(s + 1) * kNext], sums[1]);
    }
    if (s < strips_) sums[0] = NormAdd(column_[s * kNext], sums[0]);
    return SumOfLanes(sums[0] + sums[1]);
  }

  // Works element by element. It is for columns whose squares are out of range, or that may be zero
  // below the diagonal.
  __attribute__((noinline)) void MakeExtreme(int64_t k, int64_t rows) {
    const int64_t count = rows - k;
    const std::unique_ptr<One[]> x(new One[count]), v(new One[count]);
    for (int64_t i = 0; i < count; ++i) x[i] = StripElement<T>(column_, k + i).Get();
    tau_ = MakeReflector(x.get(), 1, static_cast<int>(count), v.get());
    StripElement<T>(column_, k).Set(x[0]);
    for (int64_t i = 1; i < count; ++i) StripElement<T>(column_, k + i).Set(v[i]);
  }

  S* column_;
  int64_t start_, strips_;
  V row_, diagonal_;
  S top_{};  // the first strip of the vector
  One tau_{};
};

}  // namespace

template <class T>
QrFactors<T>::QrFactors(int64_t rows, int64_t cols, int64_t q_cols)
    : rows_(rows),
      cols_(cols),
      q_cols_(q_cols),
      count_(std::min(rows, cols)),
      block_size_(count_ > kMostInNarrowBlocks ? kWideBlock : kNarrowBlock),
      workspace_(rows, std::max(cols, q_cols)),
      panel_(rows, kPanel<T>),
      vectors_{Workspace<T>(rows, block_size_), Workspace<T>(rows, block_size_)},
      triangles_(count_, block_size_),
      dots_(block_size_, kPanel<T>),
      taus_(new T[std::max<int64_t>(count_, 1)]) {
  // No two tasks write to one tile.
  static_assert(kTaskColumns<T> % (kTileRegisters * kWidth<T>) == 0);
  static_assert(kNarrowBlock % kPanel<T> == 0 && kWideBlock % kNarrowBlock == 0);
}

template <class T>
typename QrFactors<T>::Block QrFactors<T>::BlockAt(int64_t first, int64_t end) const {
  return {first, std::min(first + block_size_, end), vectors_[first / block_size_ % 2].rows()};
}

template <class T>
typename QrFactors<T>::Reflectors QrFactors<T>::Between(const Block& block, int64_t first,
                                                        int64_t last) const {
  const int64_t i = first - block.first;
  return {block.vectors.At(i, i), Triangle(block).At(i, i), std::min(last, count_) - first};
}

template <class T>
void QrFactors<T>::FactorPanel(int64_t first) {
  using V = Register<T>;
  using S = Strip<T>;
  constexpr int64_t kNext = kNextStrip<T>;
  const int64_t rows = rows_ - first, strips = (rows + kStrip<T> - 1) / kStrip<T>;
  const int64_t width = std::min<int64_t>(kPanel<T>, cols_ - first);
  S* const panel = reinterpret_cast<S*>(panel_.rows().data);
  for (int64_t s = 0; s < strips; ++s) {
    ReadStrip(matrix().At(first + s * kStrip<T>, first), panel + s * kNext);
  }
  // Counts within the strip, since a float cannot represent all row numbers.
  const auto exists = RowNumbers<T>(0) < Number<V>(rows - (strips - 1) * kStrip<T>);
  S* const last = panel + (strips - 1) * kNext;
  for (int j = 0; j < kPanel<T>; ++j) last[j] = Choose(exists, last[j], S{});
  for (int64_t k = 0; k < std::min(rows, width); ++k) {
    const Reflector<T> reflector(panel + k, k, rows);
    taus_[first + k] = std::bit_cast<T>(reflector.tau());
    if (taus_[first + k] == T(0)) continue;
    int64_t j = k + 1;
    for (; j + 4 <= width; j += kReflectedColumns<T>) {
      reflector.template ApplyAdjoint<kReflectedColumns<T>>(panel + j);
    }
    for (; j + 2 <= width; j += 2) reflector.template ApplyAdjoint<2>(panel + j);
    if (j < width) reflector.template ApplyAdjoint<1>(panel + j);
  }
  for (int64_t s = 0; s < strips; ++s) {
    WriteStrip<T>(panel + s * kNext, matrix().At(first + s * kStrip<T>, first));
  }
}

// Copies the reflectors of the panel at column `first` to its block's V.
template <class T>
void QrFactors<T>::ReadPanel(const Block& block, int64_t first) {
  const int64_t before = first - block.first;
  const Rows<T> target = block.vectors.At(0, before);
  for (int64_t i = 0; i < before; ++i) std::fill_n(target.At(i, 0).data, kPanel<T>, T(0));
  const Rows<T> vectors = target.At(before, 0), source = matrix().At(first, first);
  for (int64_t i = 0; i < rows_ - first; ++i) {
    T* const row = vectors.At(i, 0).data;
    if (i >= kPanel<T>) {
      for (int j = 0; j < kPanel<T>; j += kWidth<T>)
        Store<T>(Load<T>(source.At(i, j).data), row + j);
    } else {
      std::copy_n(source.At(i, 0).data, i, row);
      row[i] = T(1);
      std::fill(row + i + 1, row + kPanel<T>, T(0));
    }
  }
}

template <class T>
void QrFactors<T>::ReadBlock(const Block& block) {
  for (int64_t i = block.first; i < block.last; i += kPanel<T>) ReadPanel(block, i);
}

// Computes the panel's rows of the transposed T. Column i of T is tᵢ = τᵢ (eᵢ - Σ tⱼ (vⱼᴴ vᵢ)), j <
// i.
template <class T>
void QrFactors<T>::AddToTriangle(const Block& block, int64_t first) {
  using V = Register<T>;
  const int64_t before = first - block.first;
  const int64_t count = std::min<int64_t>(kPanel<T>, count_ - first);
  const Rows<T> dots = dots_.rows(), vectors = block.vectors.At(before, 0);
  // -VᴴV
  ForEachGroupOfColumns<T>(
      0, kPanel<T>, [&]<int kCols>(int64_t j, std::integral_constant<int, kCols>) {
        MulSubColumns<true, kCols, true>(before + count, rows_ - first, vectors.Transposed(),
                                         vectors.At(0, before + j), dots.At(0, j));
      });
  const Rows<T> triangle = Triangle(block);
  for (int64_t i = before; i < before + count; ++i) {
    T* const row = triangle.At(i, 0).data;
    std::fill_n(row, block_size_, T(0));
    const auto tau = WidenElement(taus_.get() + block.first + i);
    for (int64_t q = 0; q < i; q += kWidth<T>) {
      V sum{};
      for (int64_t j = q; j < i; ++j) {
        const V x = Load<T>(triangle.At(j, q).data);
        sum = AddProduct<T>(WidenElement(dots.At(j, i - before).data), x, Turn<T>(x), sum);
      }
      Store<T>(Product<T>(tau, sum), row + q);
    }
    row[i] = taus_[block.first + i];
  }
}

// c (rows, cols) = (I - V op(T) Vᴴ) c. Outside of rows `top` to `bottom`, c must be zero.
template <class T>
template <bool kAdjoint>
void QrFactors<T>::Reflect(const Reflectors& reflectors, int64_t rows, int64_t top, int64_t bottom,
                           int64_t cols, Rows<T> c) const {
  const auto [v, triangle, count] = reflectors;
  constexpr int64_t kCols = kTileRegisters * kWidth<T>, kRows = kWideBlock + kTileRows;
  alignas(kCacheLine) std::byte memory[2][kRows * kCols * sizeof(T)];
  const Rows<T> products{reinterpret_cast<T*>(memory[0]), kCols};
  const Rows<T> sums{reinterpret_cast<T*>(memory[1]), kCols};
  ForEachGroupOfColumns<T>(
      0, cols, [&]<int kGroup>(int64_t j, std::integral_constant<int, kGroup>) {
        const Rows<T> columns = c.At(0, j);
        // -Vᴴ c
        MulSubColumns<true, kGroup, true>(count, bottom - top, v.At(top, 0).Transposed(),
                                          columns.At(top, 0), products);
        // op(T) Vᴴ c
        for (int64_t i = 0; i < count; i += kTileRows) {
          if constexpr (kAdjoint) {
            const int64_t depth = std::min<int64_t>(i + kTileRows, count);
            MulSubColumns<true, kGroup, true>(1, depth, triangle.At(i, 0).AsStrided(), products,
                                              sums.At(i, 0));
          } else {
            MulSubColumns<false, kGroup, true>(1, count - i, triangle.At(i, i).Transposed(),
                                               products.At(i, 0), sums.At(i, 0));
          }
        }
        MulSubColumns<false, kGroup>(rows, count, v.AsStrided(), sums, columns);
      });
}

// Factors a block's columns: narrow blocks first, whose reflectors then update the rest of the
// block.
template <class T>
void QrFactors<T>::FactorBlock(const Block& block) {
  for (int64_t narrow = block.first; narrow < block.last; narrow += kNarrowBlock) {
    const int64_t last = std::min(narrow + kNarrowBlock, block.last);
    for (int64_t first = narrow; first < last; first += kPanel<T>) {
      FactorPanel(first);
      const int64_t next = first + kPanel<T>, rows = rows_ - first;
      if (q_cols_ == 0 && next >= cols_) return;
      ReadPanel(block, first);
      AddToTriangle(block, first);
      if (next < last) {
        Reflect<true>(Between(block, first, next), rows, 0, rows, last - next,
                      matrix().At(first, next));
      }
    }
    if (last < block.last) {
      const int64_t rows = rows_ - narrow;
      Reflect<true>(Between(block, narrow, last), rows, 0, rows, block.last - last,
                    matrix().At(narrow, last));
    }
  }
}

template <class T>
void QrFactors<T>::Factor(const T* a, const RunTasks& run_tasks) {
  CopyRows(rows_, cols_, a, matrix(), run_tasks);
  Factor(run_tasks);
}

template <class T>
void QrFactors<T>::Factor(const RunTasks& run_tasks) {
  count_ = std::min(rows_, cols_);
  if (count_ == 0) return;
  // A whole number of panels, or all columns, so that no tile begins inside a panel.
  const int64_t end = std::min<int64_t>(cols_, RoundUp(count_, kPanel<T>));
  Block block = BlockAt(0, end);
  FactorBlock(block);
  while (block.last < cols_) {
    const Block next = BlockAt(block.last, std::max(block.last, end));
    const auto apply = [&](int64_t begin, int64_t last) {
      const int64_t rows = rows_ - block.first;
      Reflect<true>(All(block), rows, 0, rows, last - begin, matrix().At(block.first, begin));
    };
    RunAheadOfPieces<T>(run_tasks, next.last, cols_, apply, [&] {
      if (next.first == next.last) return;
      apply(next.first, next.last);
      FactorBlock(next);
    });
    if (next.first == next.last) break;
    block = next;
  }
}

template <class T>
void QrFactors<T>::Set(const T* a, int64_t count, const T* taus, const RunTasks& run_tasks) {
  CopyRows(rows_, cols_, a, matrix(), run_tasks);
  Set(count, taus);
}

template <class T>
void QrFactors<T>::Set(int64_t count, const T* taus) {
  count_ = count;
  std::copy_n(taus, count, taus_.get());
  for (int64_t first = 0; first < count; first += block_size_) {
    const Block block = BlockAt(first, count);
    ReadBlock(block);
    for (int64_t i = block.first; i < block.last; i += kPanel<T>) AddToTriangle(block, i);
  }
}

// c = (I - V op(T) Vᴴ) c with the block of reflectors that begins in column `first`.
template <class T>
template <bool kAdjoint>
void QrFactors<T>::MultiplyByBlock(int64_t first, int64_t cols, Rows<T> c,
                                   const RunTasks& run_tasks) {
  const Block block = BlockAt(first, count_);
  ReadBlock(block);
  const int64_t rows = rows_ - first;
  ForEachPieceOfColumns<T>(run_tasks, 0, cols, [&](int64_t begin, int64_t end) {
    Reflect<kAdjoint>(All(block), rows, 0, rows, end - begin, c.At(first, begin));
  });
}

template <class T>
void QrFactors<T>::MultiplyByQ(int64_t cols, Rows<T> c, const RunTasks& run_tasks) {
  for (int64_t first = FirstOfLastBlock(); first >= 0; first -= block_size_) {
    MultiplyByBlock<false>(first, cols, c, run_tasks);
  }
}

template <class T>
void QrFactors<T>::MultiplyByAdjoint(int64_t cols, Rows<T> c, const RunTasks& run_tasks) {
  for (int64_t first = 0; first < count_; first += block_size_) {
    MultiplyByBlock<true>(first, cols, c, run_tasks);
  }
}

template <class T>
void QrFactors<T>::MakeQ(const RunTasks& run_tasks) {
  const Rows<T> q = matrix();
  const auto fill_identity = [&](int64_t i, int64_t first, int64_t last) {
    std::fill(q.At(i, first).data, q.At(i, last).data, T(0));
    if (first <= i && i < last) *q.At(i, i).data = T(1);
  };
  ForEachPieceOfRows(run_tasks, rows_, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) fill_identity(i, count_, q_cols_);
  });
  const int64_t start = FirstOfLastBlock();
  if (start >= 0) ReadBlock(BlockAt(start, count_));
  for (int64_t first = start; first >= 0; first -= block_size_) {
    const Block block = BlockAt(first, count_);
    const int64_t rows = rows_ - first, count = block.last - first;
    const int64_t own = std::min<int64_t>(RoundUp(count, kPanel<T>), q_cols_ - first);
    // Once the block's vectors are read, its rows and columns of Q are reset to the identity.
    const auto apply = [&](int64_t begin, int64_t end) {
      for (int64_t i = first; i < block.last; ++i) fill_identity(i, begin, end);
      Reflect<false>(All(block), rows, count, rows, end - begin, q.At(first, begin));
    };
    RunAheadOfPieces<T>(run_tasks, first + own, q_cols_, apply, [&] {
      for (int64_t i = first; i < rows_; ++i) {
        fill_identity(i, first, i < block.last ? first + own : block.last);
      }
      Reflect<false>(All(block), rows, 0, std::min(own, rows), own, q.At(first, first));
      if (first > 0) ReadBlock(BlockAt(first - block_size_, count_));
    });
  }
}

template class QrFactors<float>;
template class QrFactors<double>;
template class QrFactors<std::complex<float>>;
template class QrFactors<std::complex<double>>;

}  // namespace linalg::blocked
