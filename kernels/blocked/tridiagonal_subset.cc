#include "kernels/blocked/tridiagonal_subset.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/arithmetic/info.h"
#include "kernels/arithmetic/scale.h"
#include "kernels/blocked/strips.h"
#include "kernels/small/tridiagonal_solve.h"

namespace linalg::blocked {
namespace {

// At most one of so many values is found one by one. This limit was not measured.
inline constexpr int64_t kIteratedShare = 16;

inline constexpr double kEps = std::numeric_limits<double>::epsilon();
inline constexpr int kOwnRows = 7;

// Sums of products of rows that are padded with zeros to whole registers.
double Dot(int64_t n, const double* x, const double* y) {
  Register<double> sum{};
  for (int64_t i = 0; i < n; i += kWidth<double>) sum = MulAdd(Load(x + i), Load(y + i), sum);
  return SumOfLanes(sum);
}
void AddMultiple(int64_t n, double factor, const double* x, double* y) {
  const auto wide = Widen<Register<double>>(factor);
  for (int64_t i = 0; i < n; i += kWidth<double>) {
    Store(MulAdd(wide, Load(x + i), Load(y + i)), y + i);
  }
}
void Multiply(int64_t n, double factor, double* x) {
  for (int64_t i = 0; i < n; ++i) x[i] *= factor;
}

// Writes numbers between -1 and 1 that differ from row to row (the generator is SplitMix64).
void WriteStart(int64_t n, uint64_t row, double* x) {
  uint64_t state = (row + 1) * 0xd1342543de82ef95;
  for (int64_t i = 0; i < n; ++i) {
    uint64_t bits = state += 0x9e3779b97f4a7c15;
    bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9;
    bits = (bits ^ (bits >> 27)) * 0x94d049bb133111eb;
    x[i] = static_cast<double>(static_cast<int64_t>(bits ^ (bits >> 31))) * 0x1p-63;
  }
}

}  // namespace

TridiagonalSubset::TridiagonalSubset(int64_t n, Chosen chosen, bool vectors)
    : n_(n),
      chosen_(chosen),
      excluded_(chosen.count),
      vectors_(vectors),
      iterates_(IsFew(chosen.count, n)),
      memory_(kOwnRows + RowArena<R>::RowCount(vectors && iterates_ ? chosen.count : 0),
              RoundUp(n, kWidth<R>)),
      values_(new R[RoundUp(chosen.count + 4, kWidth<R>)]) {
  RowArena<R> rows(memory_.rows());
  R** const own[kOwnRows] = {&diagonal_, &beside_, &lower_,   &pivots_,
                             &upper_,    &second_, &residual_};
  for (R** const row : own) {
    *row = rows.TakeOne();
    std::fill_n(*row, RoundUp(n, kWidth<R>), R(0));
  }
  iterated_ = z_ = rows.Take(vectors && iterates_ ? chosen.count : 0);
}

bool TridiagonalSubset::IsFew(int64_t count, int64_t n) { return count * kIteratedShare <= n; }

bool TridiagonalSubset::ReadScaled(const R* d, const R* e) {
  RowExtent<V> extent;
  extent.Add(d, n_);
  extent.Add(e, n_ - 1);
  if (!extent.Finite()) return false;
  const R scale = extent.Scale(unscale_);
  for (int64_t i = 0; i < n_; ++i) diagonal_[i] = scale * d[i];
  for (int64_t i = 0; i + 1 < n_; ++i) beside_[i] = scale * e[i];
  whole_.reset();
  return true;
}

int TridiagonalSubset::Solve(const R* d, const R* e, const RunTasks& run_tasks) {
  if (iterates_ && SolveOneByOne(d, e, run_tasks)) return 0;
  return ReadScaled(d, e) ? Divide(run_tasks) : kNotFinite;
}

bool TridiagonalSubset::SolveOneByOne(const R* d, const R* e, const RunTasks& run_tasks) {
  if (!ReadScaled(d, e)) return false;
  Bisect(run_tasks);
  z_ = iterated_;
  return !vectors_ || Iterate();
}

Outside TridiagonalSubset::outside() const {
  constexpr R kInfinity = std::numeric_limits<R>::infinity();
  const R* const others = values_.get() + chosen_.count;
  return {.below = chosen_.start > 0 ? unscale_ * others[0] : -kInfinity,
          .above = chosen_.start + chosen_.count < n_ ? unscale_ * others[1] : kInfinity,
          .norm = unscale_ * std::max(std::abs(others[2]), std::abs(others[3]))};
}

// Finds a register of values at a time, each by its own bisection (see small/bisection.h).
void TridiagonalSubset::Bisect(const RunTasks& run_tasks) {
  constexpr int kSteps = std::numeric_limits<R>::digits + 6;
  constexpr R kLeastPivot = 8 * std::numeric_limits<R>::min();
  const int64_t count = chosen_.count;
  const auto index = [&](int64_t i) {
    if (i < count) return chosen_.start + i;
    const int64_t others[] = {chosen_.start - 1, chosen_.start + count, 0, n_ - 1};
    return std::clamp<int64_t>(i < count + 4 ? others[i - count] : 0, 0, n_ - 1);
  };
  for (int64_t i = 1; i < n_; ++i) second_[i] = beside_[i - 1] * beside_[i - 1];
  second_[0] = 0;
  const int64_t registers = RoundUp(count + 4, kWidth<R>) / kWidth<R>;
  Run(run_tasks, registers, [&](int64_t k) {
    V wanted{}, low = Number<V>(-8), high = Number<V>(8);
    for (int lane = 0; lane < kWidth<R>; ++lane) {
      wanted[lane] = static_cast<R>(index(k * kWidth<R> + lane));
    }
    for (int step = 0; step < kSteps; ++step) {
      const V middle = Number<V>(0.5) * (low + high);
      V pivot = Number<V>(1), below{};
      for (int64_t i = 0; i < n_; ++i) {
        pivot = Widen<V>(diagonal_[i]) - Widen<V>(second_[i]) / pivot - middle;
        pivot = Abs(pivot) < Widen<V>(kLeastPivot) ? Widen<V>(-kLeastPivot) : pivot;
        below = below + (pivot < V{} ? Number<V>(1) : V{});
      }
      const auto is_above = below > wanted;
      high = is_above ? middle : high;
      low = is_above ? low : middle;
    }
    StoreUnaligned(high, values_.get() + k * kWidth<R>);
  });
}

// Sets the elements behind a row to zero. Adding a multiple that is not finite leaves NaN there.
void TridiagonalSubset::ClearPadding(R* x) const {
  std::fill(x + n_, x + RoundUp(n_, kWidth<R>), R(0));
}

// x = (T - shift)⁻¹ x, whose small pivots are raised.
void TridiagonalSubset::SolveShifted(R shift, R* x) {
  for (int64_t i = 0; i < n_; ++i) pivots_[i] = diagonal_[i] - shift;
  std::copy_n(beside_, n_ - 1, upper_);
  std::copy_n(beside_, n_ - 1, lower_ + 1);
  small::SolveTridiagonal<R>(static_cast<int>(n_), {lower_, pivots_, upper_, second_},
                             /*perturb=*/true, 1, x);
}

// target -= (T - shift) x
void TridiagonalSubset::Subtract(R shift, const R* x, R* target) const {
  for (int64_t i = 0; i < n_; ++i) {
    R sum = (diagonal_[i] - shift) * x[i];
    if (i > 0) sum += beside_[i - 1] * x[i - 1];
    if (i + 1 < n_) sum += beside_[i] * x[i + 1];
    target[i] -= sum;
  }
}

// Removes the components of x along the first `count` vectors.
void TridiagonalSubset::Project(R* x, int64_t count) const {
  for (int64_t i = 0; i < count; ++i) {
    const R* const vector = z_.At(i, 0).data;
    AddMultiple(n_, -Dot(n_, vector, x), vector, x);
  }
}

// Returns false where little more than rounding errors is left of the vector.
bool TridiagonalSubset::Orthonormalise(int64_t j) const {
  constexpr int kPasses = 3;
  R* const x = z_.At(j, 0).data;
  R largest = 0;
  for (int64_t i = 0; i < n_; ++i) largest = std::max(largest, std::abs(x[i]));
  if (!(largest > 0 && largest <= std::numeric_limits<R>::max())) return false;
  Multiply(n_, 1 / largest, x);
  R before = std::sqrt(Dot(n_, x, x));
  Multiply(n_, 1 / before, x);
  for (int pass = 0; pass < kPasses; ++pass) {
    Project(x, j);
    const R size = std::sqrt(Dot(n_, x, x));
    if (size < R(1e-6)) return false;
    Multiply(n_, 1 / size, x);
    // A vector that kept most of its length is orthogonal to rounding.
    if (size > R(0.7)) return true;
  }
  return true;
}

// Returns false where a vector does not converge.
bool TridiagonalSubset::Iterate() {
  constexpr int kMostSteps = 8;
  const R tolerance = 2 * kEps * std::sqrt(static_cast<R>(n_));
  ClearPadding(residual_);
  for (int64_t j = 0; j < chosen_.count; ++j) {
    R* const x = z_.At(j, 0).data;
    ClearPadding(x);
    WriteStart(n_, static_cast<uint64_t>(j), x);
    for (int step = 0;; ++step) {
      if (step == kMostSteps) return false;
      SolveShifted(values_[j], x);
      if (!Orthonormalise(j)) {
        WriteStart(n_, static_cast<uint64_t>(chosen_.count * (step + 1) + j), x);
        continue;
      }
      std::fill_n(residual_, n_, R(0));
      Subtract(values_[j], x, residual_);
      if (step > 0 && Dot(n_, residual_, residual_) <= tolerance * tolerance) break;
    }
  }
  return true;
}

int TridiagonalSubset::Divide(const RunTasks& run_tasks) {
  if (!divide_) {
    divide_.emplace(n_, vectors_, chosen_);
    if (!all_) all_.reset(new R[n_]);
    all_beside_.reset(new R[n_]);
  }
  std::copy_n(diagonal_, n_, all_.get());
  std::copy_n(beside_, n_ - 1, all_beside_.get());
  const int failed = divide_->Solve(all_.get(), all_beside_.get(), run_tasks);
  const int64_t stop = chosen_.start + chosen_.count;
  R* const others = std::copy_n(all_.get() + chosen_.start, chosen_.count, values_.get());
  others[0] = all_[std::max<int64_t>(chosen_.start - 1, 0)];
  others[1] = all_[std::min(stop, n_ - 1)];
  others[2] = all_[0];
  others[3] = all_[n_ - 1];
  if (vectors_) {
    z_ = divide_->vectors().At(chosen_.start, 0);
    for (int64_t i = 0; i < chosen_.count; ++i) {
      ClearPadding(z_.At(i, 0).data);
    }
  }
  return failed;
}

void TridiagonalSubset::SolveInComplement(int64_t j, R gap, R* x, const RunTasks& run_tasks) {
  const int64_t count = chosen_.count;
  const R shift = values_[j];
  const R* const others = values_.get() + count;
  const R equal = gap * std::max(std::abs(others[2]), std::abs(others[3]));
  const bool cuts_below = chosen_.start > 0 && values_[0] - others[0] <= equal;
  const bool cuts_above = chosen_.start + count < n_ && others[1] - values_[count - 1] <= equal;
  ClearPadding(x);
  ClearPadding(residual_);
  Project(x, excluded_);
  if (cuts_below || cuts_above) {
    // The chosen vectors do not span a cluster, so the others of the cluster must be known too.
    if (!whole_) {
      whole_.emplace(n_, true);
      if (!all_) all_.reset(new R[n_]);
      if (!all_beside_) all_beside_.reset(new R[n_]);
      std::copy_n(diagonal_, n_, all_.get());
      std::copy_n(beside_, n_ - 1, all_beside_.get());
      if (whole_->Solve(all_.get(), all_beside_.get(), run_tasks) != 0) {
        std::fill_n(all_.get(), n_, std::numeric_limits<R>::quiet_NaN());
      }
    }
    std::fill_n(residual_, n_, R(0));
    for (int64_t i = 0; i < n_; ++i) {
      R* const vector = whole_->vectors().At(i, 0).data;
      const R difference = shift - all_[i];
      if (std::abs(difference) <= equal) continue;
      ClearPadding(vector);
      AddMultiple(n_, Dot(n_, vector, x) / difference, vector, residual_);
    }
    std::copy_n(residual_, n_, x);
    Project(x, excluded_);
    return Multiply(n_, 1 / unscale_, x);
  }
  // T - λ is singular to rounding, but only along chosen vectors. One step of refinement removes
  // the errors that come from their components.
  std::copy_n(x, n_, residual_);
  SolveShifted(shift, x);
  Project(x, excluded_);
  Subtract(shift, x, residual_);
  Project(residual_, excluded_);
  SolveShifted(shift, residual_);
  Project(residual_, excluded_);
  AddMultiple(n_, 1, residual_, x);
  Multiply(n_, -1 / unscale_, x);
}

}  // namespace linalg::blocked
