// Determinants and cofactors from LU factors.
//
// A matrix that fits in shared memory is factored by a thread, a part of a warp or a team. Larger
// ones take LU by panels, or the vendor's. A determinant is a product kept apart from its exponent,
// so it overflows only if the result does.
#include "kernels/cuda/determinant.h"
#include "kernels/handlers.h"
#include "kernels/small/cofactors.h"
#include "kernels/small/lu.h"
#include "kernels/team/by_rows.h"
#include "kernels/team/lu.h"

namespace linalg::cuda {
namespace {

template <class E>
struct SmallDeterminant {
  using V = RealElement<E>;
  int n;
  const E* a;
  GpuDeterminantResults<E> results;
  SharedArray<E> matrix;
  Offset<V> pivots;
  Offset<E> product;
  Offset<V> exponent;

  __device__ void Load(const Block& block) const { matrix.Load(a, block); }
  __device__ void Run(char* slice) const {
    const auto det = small::Determinant(n, matrix.In(slice), pivots.In(slice));
    *product.In(slice) = det.product;
    *exponent.In(slice) = det.exponent;
  }
  __device__ void Store(const Block& block) const {
    if (static_cast<int>(threadIdx.x) >= block.count) return;
    char* const slice = block.Slice(threadIdx.x);
    ScaledProduct<E> det;
    det.product = *product.In(slice);
    det.exponent = *exponent.In(slice);
    results.Write(block.first + threadIdx.x, det);
  }
};

template <class E, int kSize>
struct WarpDeterminant {
  using Shape = WarpShape<E, kSize>;
  int n;
  const E* a;
  GpuDeterminantResults<E> results;
  WarpLuOffsets<E> offsets;

  template <class Team>
  __device__ void Run(const Team& team, int64_t i, char* slice) const {
    E* const matrix = offsets.matrix.In(slice);
    offsets.rows.Load(team, a + i * n * n, matrix);
    const auto det = team::DeterminantByRows<Shape::kRows, kSize>(team, n, matrix, offsets.rows.ld,
                                                                  offsets.permutation.In(slice));
    team.Phase([&](int thread) {
      if (thread == 0) results.Write(i, det);
    });
  }
};

template <class E>
struct TeamDeterminant {
  static constexpr int kMostThreads = kBlockThreads;
  int n;
  const E* a;
  GpuDeterminantResults<E> results;
  LuOffsets<E> offsets;

  __device__ void Run(const Team& team, int64_t i, char* slice) const {
    E* const matrix = offsets.matrix.In(slice);
    LoadMatrix(team, a + i * n * n, n, n, matrix, offsets.ld);
    const auto det = team::Determinant(team, n, matrix, offsets.ld, offsets.pivots.In(slice),
                                       offsets.permutation.In(slice));
    team.Phase([&](int thread) {
      if (thread == 0) results.Write(i, det);
    });
  }
};

template <class T>
void Determinants(cudaStream_t stream, DeviceScratch& scratch, const BatchShape& shape,
                  const ffi::AnyBuffer& a, const GpuDeterminantResults<Element<T>>& results) {
  using E = Element<T>;
  using V = RealElement<E>;
  const int64_t batch = shape.batch, n = shape.rows, size = n * n;
  const E* const elements = AsElements(Elements<T>(a, batch, {n, n}, "a"));
  if (batch == 0) return;
  SharedLayout layout(sizeof(V));
  const auto thread = [&] {
    const SmallDeterminant<E> job{.n = ToInt(n),
                                  .a = elements,
                                  .results = results,
                                  .matrix = {size, layout.Take<E>(size)},
                                  .pivots = layout.Take<V>(n),
                                  .product = layout.Take<E>(1),
                                  .exponent = layout.Take<V>(1)};
    LaunchThreads(stream, job, batch, layout);
  };
  const auto warp = [&](auto size) {
    const WarpDeterminant<E, size> job{
        .n = ToInt(n), .a = elements, .results = results, .offsets = {layout, ToInt(n), ToInt(n)}};
    LaunchWarps(stream, job, batch, layout);
  };
  const auto team = [&] {
    const TeamDeterminant<E> job{
        .n = ToInt(n), .a = elements, .results = results, .offsets = {layout, ToInt(n), ToInt(n)}};
    LaunchTeams(stream, job, batch, PanelTeamSize(n, layout.bytes()), layout);
  };
  const auto in_steps = [&](auto&& factor) {
    int32_t* const info = scratch.Take<int32_t>(batch);
    const auto problem = MakeProblem(scratch, batch, n, elements, info, false);
    factor(stream, scratch, problem);
    const DeterminantOfFactors<E> job{.n = ToInt(n),
                                      .factors = problem.packed,
                                      .pivots = problem.pivots,
                                      .results = results,
                                      .products = layout.Take<ScaledProduct<E>>(kDiagonalThreads)};
    LaunchTeams(stream, job, batch, kDiagonalThreads, layout);
  };
  const auto fits = [&](int64_t) {
    return FitsInShared<LuOffsets<E>>(sizeof(V), ToInt(n), ToInt(n));
  };
  LaunchOnPath(PanelsOrVendor(DeterminantPath<T>(n, fits)), On{GpuPath::kThread, thread},
               On{GpuPath::kWarp, [&] { WithWarpShape<kWarpLu<E>>(n, warp); }},
               On{GpuPath::kTeam, team}, On{GpuPath::kPanels, [&] { in_steps(PanelsLu<T>); }},
               On{GpuPath::kVendor, [&] { in_steps(VendorLu<T>); }});
}

// A thread reads a singular matrix again.
template <class E>
struct SmallCofactors {
  using V = RealElement<E>;
  int n;
  const E* a;
  E* det;
  E* cofactors;
  SharedArray<E> matrix, result;
  Offset<V> pivots, permutation;
  Offset<E> vectors;
  Offset<int> places;

  __device__ void Load(const Block& block) const { matrix.Load(a, block); }
  __device__ void Run(const Block& block) const {
    if (static_cast<int>(threadIdx.x) >= block.count) return;
    char* const slice = block.Slice(threadIdx.x);
    E* const factors = matrix.In(slice);
    ScaledProduct<E> product;
    const V singular = small::Cofactors(n, factors, pivots.In(slice), permutation.In(slice),
                                        result.In(slice), product);
    StoreGlobal<E>(product.Value(), det + block.first + threadIdx.x);
    if (!(singular > V(0))) return;
    const E* const given = a + (block.first + threadIdx.x) * matrix.stride;
    for (int i = 0; i < matrix.size; ++i) factors[i] = LoadGlobal(given + i);
    small::CofactorsOfSingular(n, factors, places.In(slice), vectors.In(slice), result.In(slice));
  }
  __device__ void Store(const Block& block) const { result.Store(cofactors, block); }
};

void DetCofactors(cudaStream_t stream, DeviceScratch scratch, ffi::AnyBuffer a, Result det,
                  Result cofactors) {
  const BatchShape shape = SplitSquareBatch(a, "a");
  const int64_t batch = shape.batch, n = shape.rows, size = shape.size();
  DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
    using E = Element<T>;
    using V = RealElement<E>;
    const CofactorsProblem<E> problem{
        .batch = batch,
        .n = ToInt(n),
        .a = AsElements(static_cast<const T*>(Elements<T>(a, batch, {n, n}, "a"))),
        .inverse = AsElements(Elements<T>(cofactors, batch, {n, n}, "the cofactors")),
        .results = {.det = AsElements(Elements<T>(det, batch, {}, "det")),
                    .sign = nullptr,
                    .logarithm = nullptr}};
    const auto thread = [&] {
      SharedLayout layout(sizeof(V));
      const SmallCofactors<E> job{.n = problem.n,
                                  .a = problem.a,
                                  .det = problem.results.det,
                                  .cofactors = problem.inverse,
                                  .matrix = {size, layout.Take<E>(size)},
                                  .result = {size, layout.Take<E>(size)},
                                  .pivots = layout.Take<V>(n),
                                  .permutation = layout.Take<V>(n),
                                  .vectors = layout.Take<E>(2 * n),
                                  .places = layout.Take<int>(2 * n)};
      LaunchThreads(stream, job, batch, layout);
    };
    LaunchCofactors<true, T>(stream, scratch, problem, thread);
  });
}

void Det(cudaStream_t stream, DeviceScratch scratch, ffi::AnyBuffer a, Result det) {
  const BatchShape shape = SplitSquareBatch(a, "a");
  DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
    T* const det_data = Elements<T>(det, shape.batch, {}, "det");
    Determinants<T>(stream, scratch, shape, a,
                    {.det = AsElements(det_data), .sign = nullptr, .logarithm = nullptr});
  });
}

void Slogdet(cudaStream_t stream, DeviceScratch scratch, ffi::AnyBuffer a, Result sign,
             Result logabsdet) {
  const BatchShape shape = SplitSquareBatch(a, "a");
  DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
    T* const sign_data = Elements<T>(sign, shape.batch, {}, "sign");
    auto* const logarithm = Elements<Real<T>>(logabsdet, shape.batch, {}, "logabsdet");
    Determinants<T>(stream, scratch, shape, a,
                    {.det = nullptr, .sign = AsElements(sign_data), .logarithm = logarithm});
  });
}

}  // namespace
}  // namespace linalg::cuda

LINALG_HANDLER_AND_CAPTURED(linalg_det, linalg::cuda::Det);
LINALG_HANDLER_AND_CAPTURED(linalg_det_cofactors, linalg::cuda::DetCofactors);
LINALG_HANDLER_AND_CAPTURED(linalg_slogdet, linalg::cuda::Slogdet);
