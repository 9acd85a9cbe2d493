// Determinants from LU factors, alone or with the cofactors or the transposed inverse from the same
// factors. The inverse is transposed because derivatives of determinants use its transpose.
#pragma once

#include "kernels/arithmetic/scaled_product.h"
#include "kernels/cuda/lu_factors.h"
#include "kernels/cuda/passes.h"
#include "kernels/cuda/substitution.h"
#include "kernels/team/cofactors.h"
#include "kernels/team/solve.h"

namespace linalg::cuda {

// The output of determinants: one number, or the sign and the logarithm of the magnitude.
template <class E>
struct GpuDeterminantResults {
  using V = RealElement<E>;
  E* det;
  E* sign;
  V* logarithm;

  __device__ void Write(int64_t i, const ScaledProduct<E>& product) const {
    if (det != nullptr) {
      StoreGlobal<E>(product.Value(), det + i);
    } else {
      const auto parts = product.InParts();
      StoreGlobal<E>(parts.sign, sign + i);
      logarithm[i] = parts.logarithm;
    }
  }
};

// The threads of a warp multiply pivots of their own, and one multiplies their products.
template <class E>
struct DeterminantOfFactors {
  static constexpr int kMostThreads = kBlockThreads;
  int n;
  const E* factors;
  const int32_t* pivots;
  GpuDeterminantResults<E> results;
  Offset<ScaledProduct<E>> products;
  ScaledProduct<E>* kept = nullptr;  // the determinants with their exponents, if wanted

  __device__ void Run(const Team& team, int64_t i, char* slice) const {
    const E* const diagonal = factors + i * n * n;
    const int32_t* const steps = pivots + i * n;
    ScaledProduct<E>* const parts = products.In(slice);
    team.Phase([&](int thread) {
      ScaledProduct<E> part;
      for (int64_t k = thread; k < n; k += team.size()) {
        const E pivot = LoadGlobal(diagonal + k * (n + 1));
        part.Multiply(steps[k] == k ? pivot : -pivot);
      }
      parts[thread] = part;
    });
    team.Phase([&](int thread) {
      if (thread != 0) return;
      ScaledProduct<E> det = parts[0];
      for (int k = 1; k < team.size(); ++k) {
        det.exponent += parts[k].exponent;
        det.Multiply(parts[k].product);
      }
      results.Write(i, det);
      if (kept != nullptr) kept[i] = det;
    });
  }
};

// Matrices are n by n. `inverse` gets the cofactors, or the transposed inverse: NaN of a singular
// matrix.
template <class E>
struct CofactorsProblem {
  int64_t batch;
  int n;
  const E* a;
  E* inverse;
  GpuDeterminantResults<E> results;
};

template <class E, bool kCofactors>
struct TeamCofactors {
  static constexpr int kMostThreads = kBlockThreads;
  CofactorsProblem<E> problem;
  LuOffsets<E> offsets;
  Offset<E> inverse;

  TeamCofactors(SharedLayout& layout, const CofactorsProblem<E>& problem)
      : problem(problem),
        offsets(layout, problem.n, problem.n),
        inverse(layout.Take<E>(int64_t{problem.n} * offsets.ld)) {}

  __device__ void Run(const Team& team, int64_t i, char* slice) const {
    const int n = problem.n, ld = offsets.ld;
    const E* const given = problem.a + i * n * n;
    E *const target = problem.inverse + i * n * n, *const a = offsets.matrix.In(slice);
    int *const steps = offsets.pivots.In(slice), *const order = offsets.permutation.In(slice);
    LoadMatrix(team, given, n, n, a, ld);
    const int info = team::Lu(team, n, n, a, ld, steps, order);
    ScaledProduct<E> det = ProductOfPivots(n, a, ld, steps);
    team.Phase([&](int thread) {
      if (thread == 0) problem.results.Write(i, det);
    });
    if constexpr (kCofactors) {
      if (info > 0) {
        LoadMatrix(team, given, n, n, a, ld);
        // The vectors take the place of the inverse, which has at least four rows.
        const auto cofactors =
            team::CofactorsOfSingular(team, n, a, ld, steps, order, inverse.In(slice));
        return StoreMatrix(team, n, n, target, cofactors);
      }
    }
    const E scale = kCofactors ? TakePower(det) : FromReal<E>(RealElement<E>(1));
    const auto x =
        team::InverseOfFactors(team, n, a, ld, info, steps, order, scale, inverse.In(slice), ld);
    StoreMatrix(team, n, n, target, [=](int row, int col) {
      E value = x(col, row);
      if constexpr (kCofactors) MultiplyByPower(1, det, &value);
      return value;
    });
  }
};

// Identity matrices, times the determinants as far as these are in range.
template <class E, bool kCofactors>
struct WriteScaledIdentity {
  MatrixElements elements;
  const ScaledProduct<E>* dets;
  E* x;

  __device__ void operator()(int64_t place) const {
    const auto [matrix, i, j] = elements(place);
    E value = FromReal<E>(RealElement<E>(i == j));
    if constexpr (kCofactors) {
      ScaledProduct<E> det = dets[matrix];
      if (i == j) value = TakePower(det);
    }
    StoreGlobal<E>(value, x + place);
  }
};

// Brings the rows of U⁻ᵀ L⁻ᵀ to their places, and multiplies by the rest of the determinants.
template <class E, bool kCofactors>
struct FinishCofactors {
  MatrixElements elements;
  int64_t n;
  const ScaledProduct<E>* dets;
  const int32_t* permutation;
  const int32_t* info;
  const E* x;
  E* target;

  __device__ void operator()(int64_t place) const {
    const auto [matrix, i, j] = elements(place);
    E value = info[matrix] != 0 ? NaN<E>() : LoadGlobal(x + place);
    if constexpr (kCofactors) {
      ScaledProduct<E> det = dets[matrix];
      TakePower(det);
      MultiplyByPower(1, det, &value);
    }
    StoreGlobal<E>(value, target + (matrix * n + permutation[matrix * n + i]) * n + j);
  }
};

// The cofactors of the singular matrices of a batch, in the memory of their factors.
template <class E>
struct SingularOfBatch {
  static constexpr int kMostThreads = kGlobalThreads;
  CofactorsProblem<E> problem;
  const int32_t* info;
  E *matrices, *vectors;
  int32_t *rows, *cols;

  __device__ void Run(const Team& team, int64_t i, char*) const {
    if (info[i] <= 0) return;
    const int n = problem.n;
    const int64_t first = i * n * n;
    LoadMatrix(team, problem.a + first, n, n, matrices + first, n);
    StoreMatrix(team, n, n, problem.inverse + first,
                team::CofactorsOfSingular(team, n, matrices + first, n, rows + i * n, cols + i * n,
                                          vectors + first));
  }
};

// One factorisation in its own launches, then the determinants, and substitution.
template <bool kCofactors, class T>
void CofactorsInSteps(cudaStream_t stream, DeviceScratch& scratch,
                      const CofactorsProblem<Element<T>>& problem) {
  using E = Element<T>;
  const int64_t batch = problem.batch, n = problem.n, count = batch * n * n;
  int32_t* const info = scratch.Take<int32_t>(batch);
  const GpuPath path = ChooseFactors<E>(n, n);
  const bool is_vendors = path == GpuPath::kVendor, in_panels = path == GpuPath::kPanels;
  const auto factored = MakeProblem(scratch, batch, n, problem.a, info, /*substitutes=*/false);
  if (is_vendors) {
    VendorLu<T>(stream, scratch, factored);
  } else {
    in_panels ? PanelsLu<T>(stream, scratch, factored) : FactorLu(stream, factored);
  }
  ScaledProduct<E>* const dets = kCofactors ? scratch.Take<ScaledProduct<E>>(batch) : nullptr;
  E* const x = AsElements(scratch.Take<T>(count));
  // A team multiplies its pivots one by one. So does this, for the bits of a determinant alone.
  const int threads = is_vendors || in_panels ? kDiagonalThreads : 1;
  SharedLayout layout(sizeof(RealElement<E>));
  const DeterminantOfFactors<E> determinants{.n = problem.n,
                                             .factors = factored.packed,
                                             .pivots = factored.pivots,
                                             .results = problem.results,
                                             .products = layout.Take<ScaledProduct<E>>(threads),
                                             .kept = dets};
  LaunchTeams(stream, determinants, batch, threads, layout);
  const MatrixElements elements(n, n);
  ForEach(stream, count,
          WriteScaledIdentity<E, kCofactors>{.elements = elements, .dets = dets, .x = x});
  T* const solution = reinterpret_cast<T*>(x);
  const Systems<T> systems{.a = reinterpret_cast<const T*>(factored.packed),
                           .b = solution,
                           .x = solution,
                           .batch = batch,
                           .n = n,
                           .rows = n,
                           .cols = n,
                           .a_stride = n * n};
  Substitute(stream, scratch,
             GivenFactors{.with = GivenFactors::With::kLu,
                          .triangle = {.transpose = true},
                          .column_major = is_vendors,
                          .any_pivots = in_panels},
             systems);
  ForEach(stream, count,
          FinishCofactors<E, kCofactors>{.elements = elements,
                                         .n = n,
                                         .dets = dets,
                                         .permutation = factored.permutation,
                                         .info = info,
                                         .x = x,
                                         .target = problem.inverse});
  if constexpr (kCofactors) {
    const SingularOfBatch<E> job{.problem = problem,
                                 .info = info,
                                 .matrices = x,
                                 .vectors = factored.packed,
                                 .rows = factored.pivots,
                                 .cols = factored.permutation};
    LaunchTeams(stream, job, batch, LargeTeamSize(n), SharedLayout(sizeof(RealElement<E>)));
  }
}

// thread(): launches the kernel of one thread per matrix.
template <bool kCofactors, class T, class Thread>
void LaunchCofactors(cudaStream_t stream, DeviceScratch& scratch,
                     const CofactorsProblem<Element<T>>& problem, Thread&& thread) {
  using E = Element<T>;
  using V = RealElement<E>;
  if (problem.batch == 0) return;
  const auto team = [&] {
    SharedLayout layout(sizeof(V));
    const TeamCofactors<E, kCofactors> job(layout, problem);
    LaunchTeams(stream, job, problem.batch, PanelTeamSize(problem.n, layout.bytes()), layout);
  };
  const auto fits = [&](int64_t) {
    return FitsInShared<TeamCofactors<E, kCofactors>>(sizeof(V), problem);
  };
  LaunchOnPath(
      CofactorsPath<T>(problem.n, fits), On{GpuPath::kThread, thread}, On{GpuPath::kTeam, team},
      On{GpuPath::kSteps, [&] { CofactorsInSteps<kCofactors, T>(stream, scratch, problem); }});
}

}  // namespace linalg::cuda
