// The QR iteration of kernels/team/schur.h for large complex matrices, with many shifts at a time.
//
// The matrix is in slow memory. A window on its diagonal is copied to fast memory and changed
// there. The unitary matrix of the changes is collected, and then multiplies the window's other
// rows and columns. So slow memory is read and written once for a window, not for each reflector.
//
// The first window holds the last rows of a block. Its eigenvalues that have converged are deflated
// (Braman, Byers and Mathias, The multishift QR algorithm, part II, 2002; LAPACK's laqr3). The
// others are the shifts of a chain of bulges, two rows apart, which the next windows move down the
// block (part I; LAPACK's laqr5). A small block is one window, and is finished in it.
#pragma once

#include "kernels/team/product.h"
#include "kernels/team/schur.h"

namespace linalg::team {

// Rows of a window. Two such matrices are in fast memory.
template <class E>
inline constexpr int kMultishiftWindow = sizeof(E) > 8 ? 48 : 64;
// After so many chains without deflation, LAPACK takes exceptional shifts.
inline constexpr int kExceptionalChain = 6;
// A window that deflates this part of its eigenvalues, in hundredths, may deflate more without a
// chain (LAPACK's nibble).
inline constexpr int kNibble = 14;

// The fast memory of MultishiftQr.
template <class E, int kRows = kMultishiftWindow<E>>
struct MultishiftWork {
  // Rows of a window, of the window where eigenvalues are deflated, and bulges of a chain.
  static constexpr int kWindow = kRows, kDeflation = kWindow / 2, kBulges = kWindow / 4;
  static constexpr int kLd = kWindow | 1, kMatrix = kWindow * kLd;

  E* memory;

  LINALG_INLINE static constexpr int Elements(int team_size) {
    return 2 * kMatrix + 3 * kBulges + kDeflation + team_size;
  }

  // Two matrices of kWindow rows, kLd apart.
  LINALG_INLINE E* Block() const { return memory; }
  LINALG_INLINE E* Vectors() const { return memory + kMatrix; }
  // One for each bulge. A reflector is the second element of its vector, and tau.
  LINALG_INLINE E* Shifts() const { return memory + 2 * kMatrix; }
  LINALG_INLINE E* Reflectors() const { return Shifts() + kBulges; }
  LINALG_INLINE E* Taus() const { return Reflectors() + 2 * kBulges; }
  // One for each thread.
  LINALG_INLINE E* Partial() const { return Taus() + kDeflation; }
};

// Has the interface of QrIteration.
template <bool kVectors, class Team, class E, int kRows>
class MultishiftQr {
  using V = RealElement<E>;
  using Work = MultishiftWork<E, kRows>;
  static constexpr int kWindow = Work::kWindow, kDeflation = Work::kDeflation;
  static constexpr int kBulges = Work::kBulges, kLd = Work::kLd;
  static_assert(kComplexElement<E>);
  // The window of deflation, with a row and a column more, is beside a copy of itself.
  static_assert(2 * kDeflation + 1 <= kLd && kDeflation + 1 <= kWindow);

 public:
  LINALG_TEAM MultishiftQr(const Team& team, int n, E* h, int ld, E* z, const Work& work)
      : team_(team), n_(n), ld_(ld), h_(h), z_(z), work_(work) {}

  // Returns 0, or the 1-based index of the last row of the block that did not converge.
  LINALG_TEAM int Run() const {
    const QrIteration<kVectors, Team, E> whole(team_, n_, h_, ld_, z_);
    Block block{.first = 0, .end = n_ - 1};
    Chain chain{.bulges = 0, .time = 0, .since = 0};
    for (int step = 0; block.end >= 0;) {
      Window window{};
      if (chain.bulges > 0) {
        window = Chase(block, chain);
      } else {
        block.first = whole.BlockBegin(block.end);
        if (step == SchurStepLimit(Again(n_))) break;
        ++step;
        if (!Deflate(block, chain, window)) break;
      }
      Multiply(block, window);
    }
    return block.end + 1;
  }

 private:
  // Rows [first, end] are a block without negligible elements below the diagonal.
  struct Block {
    int first, end;
  };

  // Bulge j of a chain is in row first + time - 2 j of its block. `since` counts chains since a
  // deflation.
  struct Chain {
    int bulges, time, since;
  };

  // Rows [begin, begin + count), and the unitary matrix by which they were multiplied.
  struct Window {
    int begin, count;
    const E* unitary;
  };

  LINALG_TEAM E& At(int i, int j) const { return h_[i * ld_ + j]; }

  // Copies a window to fast memory, and sets its unitary matrix to the identity.
  LINALG_TEAM void Load(int begin, int count) const {
    E* const block = work_.Block();
    E* const unitary = work_.Vectors();
    const E* const corner = &At(begin, begin);
    Move<E>(
        team_, count, count, [&](int i, int j) { return corner[i * ld_ + j]; },
        [&](int i, int j, E x) {
          block[i * kLd + j] = x;
          unitary[i * kLd + j] = FromReal<E>(V(i == j));
        });
  }

  template <class Get>
  LINALG_TEAM void Store(int begin, int count, Get&& get) const {
    E* const corner = &At(begin, begin);
    Move<E>(team_, count, count, get, [&](int i, int j, E x) { corner[i * ld_ + j] = x; });
  }

  // Multiplies what is beside and above the window, and Z.
  LINALG_TEAM void Multiply(const Block& block, const Window& window) const {
    const auto [begin, count, unitary] = window;
    if (count == 0) return;
    E* const tile = work_.Block();
    const int end_col = kVectors ? n_ : block.end + 1;
    for (int j0 = begin + count; j0 < end_col; j0 += kWindow) {
      const int cols = end_col - j0 < kWindow ? end_col - j0 : kWindow;
      E* const corner = &At(begin, j0);
      Move<E>(
          team_, count, cols, [&](int i, int j) { return corner[i * ld_ + j]; },
          [&](int i, int j, E x) { tile[i * kLd + j] = x; });
      Product<E>(
          team_, {.rows = count, .cols = cols, .depth = count},
          [&](int i, int k) { return Conj(unitary[k * kLd + i]); },
          [&](int k, int j) { return tile[k * kLd + j]; },
          [&](int i, int j, E x) { corner[i * ld_ + j] = x; });
    }
    for (int side = 0; side < (kVectors ? 2 : 1); ++side) {
      const bool is_z = side == 1;
      const int end_row = is_z ? n_ : begin;
      for (int i0 = kVectors ? 0 : block.first; i0 < end_row; i0 += kWindow) {
        const int rows = end_row - i0 < kWindow ? end_row - i0 : kWindow;
        E* const corner = (is_z ? z_ : h_) + (i0 * ld_ + begin);
        Move<E>(
            team_, rows, count, [&](int i, int j) { return corner[i * ld_ + j]; },
            [&](int i, int j, E x) { tile[i * kLd + j] = x; });
        Product<E>(
            team_, {.rows = rows, .cols = count, .depth = count},
            [&](int i, int k) { return tile[i * kLd + k]; },
            [&](int k, int j) { return unitary[k * kLd + j]; },
            [&](int i, int j, E x) { corner[i * ld_ + j] = x; });
      }
    }
  }

  // Finds the eigenvalues of the last rows of a block, and deflates those that have converged. The
  // others become the shifts of a new chain, unless enough were deflated. Returns false where the
  // iteration fails; the block then ends with the row that did not converge.
  LINALG_TEAM bool Deflate(Block& block, Chain& chain, Window& window) const {
    E* const t = work_.Block();
    E* const v = work_.Vectors();
    const int rows = block.end - block.first + 1;
    const bool is_all = rows <= kWindow;
    const int count = is_all ? rows : kDeflation, begin = block.end - count + 1;
    const E below = is_all ? E{} : At(begin, begin - 1);
    team_.Phase([&](int thread) {
      if (thread == 0 && block.first > 0) At(block.first, block.first - 1) = E{};
    });
    Load(begin, count);
    const int failed = QrIteration<true, Team, E>(team_, count, t, kLd, v).Run();
    if (is_all) {
      block.end = begin + failed - 1;
      chain.since = 0;
      Store(begin, count, [&](int i, int j) { return t[i * kLd + j]; });
      if (count > 1) window = {begin, count, v};
      return failed == 0;
    }
    const int kept = failed == 0 ? Separate(count, below) : count;
    block.end -= count - kept;
    ChooseShifts(block, count, kept, chain);
    if (kept < count) {
      Restore(begin, count, kept, below);
      window = {begin, count, v + count};
    }
    return true;
  }

  // Moves the eigenvalues that have not converged to the start of the window, and returns their
  // number. `below` is the element left of the window's first row. Multiplied by the adjoint of the
  // vectors, it becomes a column, and where that is negligible an eigenvalue has converged.
  LINALG_TEAM int Separate(int count, E below) const {
    const E* const t = work_.Block();
    const E* const v = work_.Vectors();
    const V eps = std::numeric_limits<V>::epsilon(), least = LeastBelowDiagonal<V>(n_);
    const V size_below = Magnitude(below);
    int kept = count;
    for (int moved = 0; moved < kept;) {
      const int last = kept - 1;
      const V own = Magnitude(t[last * kLd + last]), size = own == V(0) ? size_below : own;
      if (size_below * Magnitude(v[last]) <= Larger(least, eps * size)) {
        --kept;
        continue;
      }
      team_.Phase([&](int) {});  // every thread has read the element of V
      for (int k = last; k > moved; --k) Exchange(count, k - 1);
      ++moved;
    }
    return kept;
  }

  // Exchanges the eigenvalues k and k + 1 of the window (LAPACK's trexc).
  LINALG_TEAM void Exchange(int count, int k) const {
    E* const t = work_.Block();
    E* const v = work_.Vectors();
    E* const corner = t + k * kLd + k;
    const E first = corner[0], beside = corner[1], second = corner[kLd + 1];
    const GivensRotation<E> rotation(beside, second - first);
    const auto rotate_columns = [&](E* row) {
      E x = Conj(row[k]), y = Conj(row[k + 1]);
      rotation.Apply(x, y);
      row[k] = Conj(x), row[k + 1] = Conj(y);
    };
    team_.Phase([&](int thread) {
      thread = Again(thread);
      for (int j = k + 2 + thread; j < count; j += team_.size()) {
        rotation.Apply(t[k * kLd + j], t[(k + 1) * kLd + j]);
      }
      for (int i = thread; i < k; i += team_.size()) rotate_columns(t + i * kLd);
      for (int i = thread; i < count; i += team_.size()) rotate_columns(v + i * kLd);
    });
    team_.Phase([&](int thread) {
      if (thread == 0) corner[0] = second, corner[1] = Conj(beside), corner[kLd + 1] = first;
    });
  }

  LINALG_TEAM void ChooseShifts(const Block& block, int count, int kept, Chain& chain) const {
    const E* const t = work_.Block();
    if (kept < count) chain.since = 0;
    if (100 * (count - kept) > kNibble * count) return;
    const int bulges = kept < kBulges ? kept : kBulges;
    const bool is_exceptional = ++chain.since % kExceptionalChain == 0;
    chain.bulges = bulges;
    chain.time = 0;
    team_.Phase([&](int thread) {
      for (int j = thread; j < bulges; j += team_.size()) {
        const int i = block.end - j;
        work_.Shifts()[j] =
            is_exceptional ? ExceptionalShift(At(i, i), Magnitude(At(i, i - 1))) : t[j * kLd + j];
      }
    });
  }

  // Makes the window Hessenberg again, with the column left of it, after a deflation.
  LINALG_TEAM void Restore(int begin, int count, int kept, E below) const {
    const E* const t = work_.Block();
    const E* const v = work_.Vectors();
    E* const q = work_.Block() + count;  // one row and column more than the window
    const Grid grid = RowGrid(team_);
    team_.Phase([&](int thread) {
      ForEachElement(grid, Again(thread), 0, count + 1, 0, count + 1, [&](int i, int j) {
        E x{};
        if (i > 0 && j >= i) x = t[(i - 1) * kLd + j - 1];
        if (i > 0 && i <= kept && j == 0) x = Mul(below, Conj(v[i - 1]));
        q[i * kLd + j] = x;
      });
    });
    Hessenberg(team_, count + 1, q, kLd, work_.Taus(), work_.Partial());
    Store(begin, count, [&](int i, int j) { return i > j + 1 ? E{} : q[(i + 1) * kLd + j + 1]; });
    team_.Phase([&](int thread) {
      if (thread == 0) At(begin, begin - 1) = q[kLd];
    });
    HessenbergVectors(team_, count + 1, q, kLd, work_.Taus(), work_.Partial());
    E* const product = work_.Vectors() + count;
    Product<E>(
        team_, {.rows = count, .cols = count, .depth = count},
        [&](int i, int k) { return v[i * kLd + k]; },
        [&](int k, int j) { return q[(k + 1) * kLd + j]; },
        [&](int i, int j, E x) { product[i * kLd + j] = x; });
  }

  // Moves the chain as far as it stays in the next window.
  LINALG_TEAM Window Chase(const Block& block, Chain& chain) const {
    const int behind = 2 * (chain.bulges - 1), last_row = block.first + chain.time - behind;
    const int begin = last_row - 1 > block.first ? last_row - 1 : block.first;
    const int rows = block.end - begin + 1, count = rows < kWindow ? rows : kWindow;
    const bool is_last = rows <= kWindow;
    const int end_time =
        is_last ? block.end - block.first + behind : begin + count - 2 - block.first;
    Load(begin, count);
    for (int time = chain.time; time < end_time; ++time) {
      Step(block.first + time, chain.bulges, block, begin, count);
    }
    chain.time = end_time;
    const E* const h = work_.Block();
    Store(begin, count, [&](int i, int j) { return h[i * kLd + j]; });
    if (is_last) chain.bulges = 0;
    return {begin, count, work_.Vectors()};
  }

  // Moves all bulges by one row, from row `lead` and every second row before it on. They change
  // different rows, and then different columns.
  LINALG_TEAM void Step(int lead, int bulges, const Block& block, int begin, int count) const {
    E* const h = work_.Block();
    E* const unitary = work_.Vectors();
    E* const reflectors = work_.Reflectors();
    const Grid grid(team_.size(), kWindow);
    // body(j, k) for bulges first, first + step, ..., with their rows in the window
    const auto for_each_bulge = [&](int first, int step, auto&& body) {
      for (int j = first; j < bulges; j += step) {
        const int row = lead - 2 * j;
        if (row >= block.first && row < block.end) body(j, row - begin);
      }
    };
    team_.Phase([&](int thread) {
      thread = Again(thread);
      for_each_bulge(thread, team_.size(), [&](int j, int k) {
        E* const corner = h + k * kLd + k;
        E x[2], v[2];
        const bool starts = begin + k == block.first;
        if (starts) {
          Start(corner, work_.Shifts()[j], x);
        } else {
          x[0] = corner[-1], x[1] = corner[kLd - 1];
        }
        const E tau = linalg::MakeReflector(x, 1, 2, v);
        reflectors[2 * j] = v[1], reflectors[2 * j + 1] = tau;
        if (!starts) corner[-1] = x[0], corner[kLd - 1] = E{};
      });
    });
    team_.Phase([&](int thread) {
      thread = Again(thread);
      for_each_bulge(grid.Group(thread), grid.groups, [&](int j, int k) {
        const E v[2] = {E{}, reflectors[2 * j]};
        const Bulge<E> bulge(v, Conj(reflectors[2 * j + 1]));
        for (int i = grid.Across(thread); i < count; i += grid.width) {
          if (i >= k) bulge.Apply(2, h + k * kLd + i, kLd);
        }
      });
    });
    team_.Phase([&](int thread) {
      thread = Again(thread);
      for_each_bulge(grid.Group(thread), grid.groups, [&](int j, int k) {
        const E v[2] = {E{}, Conj(reflectors[2 * j])};
        const Bulge<E> bulge(v, reflectors[2 * j + 1]);
        for (int i = grid.Across(thread); i < count; i += grid.width) {
          if (i <= k + 2) bulge.Apply(2, h + i * kLd + k, 1);
          bulge.Apply(2, unitary + i * kLd + k, 1);
        }
      });
    });
  }

  // The first column of the shifted block, or e₁ where that is zero.
  LINALG_TEAM void Start(const E* corner, E shift, E* x) const {
    const V size = Magnitude(corner[0] - shift) + Magnitude(corner[kLd]);
    if (size > LeastBelowDiagonal<V>(n_)) {
      linalg::StartVector(corner[0], corner[1], corner[kLd], corner[kLd + 1], E{}, shift, x);
    } else {
      x[0] = FromReal<E>(V(1)), x[1] = E{};
    }
  }

  const Team& team_;
  int n_, ld_;
  E* h_;
  E* z_;
  Work work_;
};

// MultishiftQr as an argument of Schur.
template <class E, int kRows = kMultishiftWindow<E>>
struct MultishiftIteration {
  MultishiftWork<E, kRows> work;

  template <bool kVectors, class Team>
  LINALG_TEAM int Run(const Team& team, int n, E* h, int ld, E* z) const {
    return MultishiftQr<kVectors, Team, E, kRows>(team, n, h, ld, z, work).Run();
  }
};

}  // namespace linalg::team
