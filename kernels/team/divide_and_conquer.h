// Divide and conquer for the eigenvectors of a large symmetric tridiagonal matrix (Cuppen, Numer.
// Math. 36, 1981; Gu and Eisenstat, SIAM J. Matrix Anal. Appl. 16, 1995; LAPACK's laed1 to laed3).
//
// The matrix is cut into leaves of equal size. QL iteration solves these. Then neighbours are
// joined, level by level: the eigenvalues of two halves, joined by an element rho, are those of
// diag(d) + 2 rho z zᵀ. Eigenvectors of that matrix, one in each column, are a square matrix of the
// joined size. A product with the halves' vectors makes the new vectors.
//
// All numbers but the vectors are float64. Sizes do not depend on how many eigenvalues deflate, so
// the products of a batch have one shape.
#pragma once

#include "kernels/arithmetic/secular.h"
#include "kernels/team/eigh.h"

namespace linalg::team {

// How a matrix of order n is cut: into a power of two of leaves of equal size, at least two, with
// at most `most` rows each. Padding follows the last row. Its eigenvalues are larger than all
// others, and nothing joins it to the matrix.
struct DividedSizes {
  int n, leaf, leaves, padded;

  DividedSizes(int n, int most) : n(n), leaves(2) {
    while (leaves * most < n) leaves *= 2;
    leaf = (n + leaves - 1) / leaves;
    padded = leaf * leaves;
  }

  // The element that joins the rows before `row` to those from there on.
  LINALG_INLINE double Joint(const double* e, int row) const { return row < n ? e[row - 1] : 0; }
};

// The workspace of SolveLeaf.
template <class V>
struct LeafWork {
  V* vectors;  // leaf rows, `ld` apart
  int ld;
  V* rounded;     // leaf
  double *d, *e;  // leaf
  QlRecord<V> record;
  RotationPair<V>* rotations;  // 2 leaf
  int* order;                  // leaf
  QlProgress* progress;        // 1
};

// The eigenvalues and vectors of leaf number `index`, by QL iteration. d has the n diagonal
// elements of the matrix, and e the n - 1 beside them. Joints are subtracted from the diagonal
// elements on both of their sides. Value k is work.d[work.order[k]]. The result's info is the
// number of elements that did not vanish.
template <class Team, class V>
LINALG_TEAM OrderedEigenvectors<V> SolveLeaf(const Team& team, const DividedSizes& sizes, int index,
                                             const double* d, const double* e,
                                             const LeafWork<V>& work) {
  const int n = sizes.n, leaf = sizes.leaf, begin = index * leaf;
  // No eigenvalue is larger (Gershgorin).
  const double largest = team.template Best<double>([&](int thread) {
                               Candidate<double> best{0, 0};
                               for (int k = thread; k < n; k += team.size()) {
                                 const double before = k > 0 ? Abs(e[k - 1]) : 0;
                                 const double behind = k + 1 < n ? Abs(e[k]) : 0;
                                 best = best.Better({Abs(d[k]) + before + behind, 0});
                               }
                               return best;
                             })
                             .value;
  team.Phase([&](int thread) {
    for (int k = thread; k < leaf; k += team.size()) {
      const int at = begin + k;
      const bool first = k == 0 && at > 0, last = k + 1 == leaf;
      double x = 2 * largest + 1;
      if (at < n) {
        x = d[at];
        if (first) x -= Abs(sizes.Joint(e, at));
        if (last) x -= Abs(sizes.Joint(e, at + 1));
      }
      work.d[k] = x;
      work.e[k] = last ? 0 : sizes.Joint(e, at + 1);
      for (int row = 0; row < leaf; ++row) work.vectors[row * work.ld + k] = V(row == k);
    }
  });
  team.Phase([&](int thread) {
    if (thread == 0) *work.progress = RecordedQl<true>(work.d, work.e, leaf, work.record);
  });
  const QlProgress started = *work.progress;
  const RotationWork<V> rotation{.q = work.vectors,
                                 .ld = work.ld,
                                 .rotations = work.rotations,
                                 .order = work.order,
                                 .progress = work.progress};
  return FinishEigh(team, leaf, rotation, work.record, started, work.d, work.e, 0, V(1),
                    work.rounded);
}

// A rotation of the vectors of rows `first` and `second`.
struct MergeRotation {
  double cosine, sine;
  int first, second;
};

// The join of two halves to a matrix of order `size`. Poles are the eigenvalues before the update:
// the `kept` ones, ascending, that take part in it, and behind them the deflated ones.
struct Merge {
  struct Counts {
    int kept, rotations;
  };

  int size;
  double* poles;             // size
  double* z;                 // size: the weights of the kept ones
  double* exact;             // size: the weights for which the roots are exact
  int* row;                  // size: the column of both halves' vectors that a pole belongs to
  MergeRotation* rotations;  // size
  Counts* counts;            // 1
  SecularRoot* roots;        // size
  double* joined;            // size: the joined eigenvalues, in the order of the poles
  double* values;            // size: the same, ascending
  int* source;               // size: the poles that they belong to
};

// The workspace of Deflate, `size` each.
struct DeflationWork {
  double *d, *z;
  int* row;
};

// Sorts the eigenvalues `d` of both halves, which ascend in each (NaN last), and deflates those
// that the update does not change, or that are as good as equal (LAPACK's laed2). weight(r) is
// element r of z: the last row of the first half's vectors, and the first row of the second's, with
// the sign of rho.
template <class Team, class Weight>
LINALG_TEAM void Deflate(const Team& team, double rho, const double* d, Weight&& weight,
                         const Merge& merge, const DeflationWork& work) {
  const int size = merge.size, half = size / 2;
  team.Phase([&](int thread) {
    for (int r = thread; r < size; r += team.size()) {
      const bool second = r >= half;
      const double x = d[r];
      // How many of the other half come before.
      int low = 0, high = half;
      const int other = second ? 0 : half;
      while (low < high) {
        const int middle = (low + high) / 2;
        const bool before = ComesBefore(d[other + middle], other + middle, x, r);
        low = before ? middle + 1 : low;
        high = before ? high : middle;
      }
      const int place = low + (second ? r - half : r);
      work.d[place] = x;
      work.z[place] = 0.70710678118654752440 * weight(r);  // the norm of z is 1
      work.row[place] = r;
    }
  });
  team.Phase([&](int thread) {
    if (thread != 0) return;
    const double size_of_d = Abs(work.d[0]), size_of_last = Abs(work.d[size - 1]);
    const double largest = size_of_d < size_of_last ? size_of_last : size_of_d;
    // LAPACK's, whose eps is half of this. The matrix has a norm near 1, and squares of elements
    // below the constant are not accurate.
    constexpr double kEps = std::numeric_limits<double>::epsilon(), kLeast = 0x1p-459;
    const double tolerance = MulAdd(4 * kEps, largest + rho, kLeast);
    int kept = 0, end = size, rotations = 0, pending = -1;
    double d_pending = 0, z_pending = 0;
    const auto keep = [&] {
      if (pending < 0) return;
      merge.poles[kept] = d_pending;
      merge.z[kept] = z_pending;
      merge.row[kept] = pending;
      ++kept;
    };
    const auto deflate = [&](double pole, int row) {
      --end;
      merge.poles[end] = pole;
      merge.row[end] = row;
    };
    for (int j = 0; j < size; ++j) {
      double d_here = work.d[j], z_here = work.z[j];
      const int row = work.row[j];
      if (2 * rho * Abs(z_here) <= tolerance) {
        deflate(d_here, row);
        continue;
      }
      if (pending >= 0) {
        const double length = Sqrt(MulAdd(z_here, z_here, z_pending * z_pending));
        const double cosine = z_here / length, sine = -z_pending / length;
        const double gap = d_here - d_pending;
        if (Abs(gap * cosine * sine) <= tolerance) {
          merge.rotations[rotations] = {cosine, sine, pending, row};
          ++rotations;
          // Between both, so that the kept ones stay in order.
          deflate(MulAdd(gap * sine, sine, d_pending), pending);
          d_here = MulAdd(gap * cosine, cosine, d_pending);
          z_here = length;
        } else {
          keep();
        }
      }
      d_pending = d_here;
      z_pending = z_here;
      pending = row;
    }
    keep();
    *merge.counts = {kept, rotations};
  });
}

// Joined eigenvalue j: the work of one thread.
LINALG_INLINE void JoinEigenvalue(const Merge& merge, double rho, int j) {
  const int kept = merge.counts->kept;
  if (j >= kept) {
    merge.joined[j] = merge.poles[j];
    return;
  }
  const SecularRoot root = FindSecularRoot(kept, j, merge.poles, merge.z, 2 * rho);
  merge.roots[j] = root;
  merge.joined[j] = root.Value(merge.poles);
}

// The place of joined eigenvalue j, and the weight of its pole: the work of one thread.
LINALG_INLINE void PlaceEigenvalue(const Merge& merge, int j) {
  const int kept = merge.counts->kept;
  const double x = merge.joined[j];
  int place = 0;
  for (int i = 0; i < merge.size; ++i) place += ComesBefore(merge.joined[i], i, x, j);
  merge.values[place] = x;
  merge.source[place] = j;
  if (j >= kept) return;
  merge.exact[j] =
      ExactWeight(kept, j, merge.poles, merge.z[j], [&](int i) { return merge.roots[i]; });
}

// Column `col` of the eigenvectors of the update, in the basis of both halves' vectors: the work of
// one thread. The rows are `size` elements long.
template <class V>
LINALG_INLINE void MergeColumn(const Merge& merge, int col, V* vectors) {
  const int size = merge.size, kept = merge.counts->kept, j = merge.source[col];
  const bool deflated = j >= kept;
  const SecularRoot root = deflated ? SecularRoot{0, 0} : merge.roots[j];
  const auto element = [&](int i) { return merge.exact[i] / root.Minus(merge.poles, i); };
  double squares = 0;
  if (!deflated) {
    for (int i = 0; i < kept; ++i) {
      const double x = element(i);
      squares = MulAdd(x, x, squares);
    }
  }
  const double scale = deflated ? 1 : 1 / Sqrt(squares);
  for (int i = 0; i < size; ++i) {
    double x = i == j;
    if (!deflated) x = i < kept ? scale * element(i) : 0;
    vectors[static_cast<int64_t>(merge.row[i]) * size + col] = static_cast<V>(x);
  }
  for (int k = merge.counts->rotations - 1; k >= 0; --k) {
    const MergeRotation rotation = merge.rotations[k];
    V& first = vectors[static_cast<int64_t>(rotation.first) * size + col];
    V& second = vectors[static_cast<int64_t>(rotation.second) * size + col];
    const auto cosine = static_cast<V>(rotation.cosine), sine = static_cast<V>(rotation.sine);
    const V x = first, y = second;
    first = MulAdd(cosine, x, -sine * y);
    second = MulAdd(sine, x, cosine * y);
  }
}

}  // namespace linalg::team
