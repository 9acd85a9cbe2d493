// Determinants from LU factors.
//
// In shared memory where the matrix fits: one per thread, or one per team. Beyond, the vendor's LU.
// A determinant is a product kept apart from its exponent, so that it overflows only if the result
// does.
#include "kernels/arithmetic/scaled_product.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/lu_factors.h"
#include "kernels/handlers.h"
#include "kernels/small/lu.h"
#include "kernels/team/lu.h"

namespace linalg::cuda {
namespace {

// Where a determinant goes: as one number, or as its sign and the logarithm of its magnitude.
template <class E>
struct DeterminantResults {
  using V = RealElement<E>;
  E* det;
  E* sign;
  V* logarithm;

  __device__ void Write(int64_t i, ScaledProduct<E> product) const {
    if (det != nullptr) {
      StoreGlobal<E>(product.Value(), det + i);
    } else {
      product.Normalise();
      StoreGlobal<E>(product.Sign(), sign + i);
      logarithm[i] = product.LogarithmOfMagnitude();
    }
  }
};

template <class E>
struct SmallDeterminant {
  using V = RealElement<E>;
  int n;
  const E* a;
  DeterminantResults<E> results;
  Staged matrix;
  int spare, result;

  __device__ void Load(int64_t first, int count, char* memory, int64_t bytes) const {
    matrix.Load(a, first, count, memory, bytes);
  }
  __device__ void Run(char* slice) const {
    V* const pivots = At<V>(slice, spare);
    const auto product = small::Determinant(n, At<E>(slice, matrix.offset), pivots, pivots + n);
    *At<E>(slice, result) = product.product;
    At<V>(slice, spare)[0] = product.exponent;
  }
  __device__ void Store(int64_t first, int count, char* memory, int64_t bytes) const {
    if (static_cast<int>(threadIdx.x) >= count) return;
    char* const slice = memory + threadIdx.x * bytes;
    ScaledProduct<E> product;
    product.product = *At<E>(slice, result);
    product.exponent = At<V>(slice, spare)[0];
    results.Write(first + threadIdx.x, product);
  }
};

template <class E>
struct TeamDeterminant {
  static constexpr int kMostThreads = kBlockThreads;
  int n, ld;
  const E* a;
  DeterminantResults<E> results;
  int pivots, permutation;

  __device__ void Run(const Team& team, int64_t i, char* slice) const {
    E* const factors = At<E>(slice, 0);
    int32_t* const steps = At<int32_t>(slice, pivots);
    LoadMatrix(team, a + i * n * n, n, n, factors, ld);
    team::Lu(team, n, n, factors, ld, steps, At<int32_t>(slice, permutation));
    team.Phase([&](int thread) {
      if (thread == 0) results.Write(i, team::Determinant(n, factors, ld, steps));
    });
  }
};

template <class E>
struct DeterminantOfFactors {
  int n;
  const E* factors;
  const int32_t* pivots;
  DeterminantResults<E> results;

  __device__ void operator()(int64_t i) const {
    const int64_t size = static_cast<int64_t>(n) * n;
    results.Write(i, team::Determinant(n, factors + i * size, n, pivots + i * n));
  }
};

template <class T>
void Determinants(cudaStream_t stream, ffi::ScratchAllocator& allocator, const BatchShape& shape,
                  const ffi::AnyBuffer& a, const DeterminantResults<Element<T>>& results) {
  using E = Element<T>;
  const int64_t batch = shape.batch, n = shape.rows, size = n * n;
  const T* const a_data = Elements<T>(a, batch * size, "a");
  if (batch == 0) return;
  Slice slice(sizeof(Real<T>));
  if (size * static_cast<int64_t>(sizeof(T)) <= kAloneBytes) {
    const Staged matrix(size, size, slice.Take<E>(size));
    const int spare = slice.Take<Real<T>>(2 * n + 1), result = slice.Take<E>(1);
    const SmallDeterminant<E> job{ToInt(n), AsElements(a_data), results, matrix, spare, result};
    return LaunchAlone(stream, job, batch, slice);
  }
  if (n <= kTeamLu) {
    const int ld = ToInt(n | 1);
    slice.Take<E>(n * ld);
    const int pivots = slice.Take<int32_t>(n), order = slice.Take<int32_t>(n);
    const TeamDeterminant<E> job{ToInt(n), ld, AsElements(a_data), results, pivots, order};
    return LaunchTeams(stream, job, batch, TeamSize(n), slice);
  }
  Scratch scratch(allocator);
  const auto problem = MakeProblem(scratch, batch, n, a_data, scratch.Take<int32_t>(batch), false);
  VendorLu(stream, scratch, problem);
  const E* const factors = AsElements(static_cast<const T*>(problem.packed));
  ForEach(stream, batch, DeterminantOfFactors<E>{ToInt(n), factors, problem.pivots, results});
}

ffi::Error Det(cudaStream_t stream, ffi::ScratchAllocator allocator, ffi::AnyBuffer a,
               ffi::Result<ffi::AnyBuffer> det) {
  return Guard("linalg_det", [&] {
    const BatchShape shape = SplitSquareBatch(a, "a");
    DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
      T* const det_data = Elements<T>(det, shape.batch, "det");
      Determinants<T>(stream, allocator, shape, a, {AsElements(det_data), nullptr, nullptr});
    });
  });
}

ffi::Error Slogdet(cudaStream_t stream, ffi::ScratchAllocator allocator, ffi::AnyBuffer a,
                   ffi::Result<ffi::AnyBuffer> sign, ffi::Result<ffi::AnyBuffer> logabsdet) {
  return Guard("linalg_slogdet", [&] {
    const BatchShape shape = SplitSquareBatch(a, "a");
    DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
      T* const sign_data = Elements<T>(sign, shape.batch, "sign");
      auto* const logarithm = Elements<Real<T>>(logabsdet, shape.batch, "logabsdet");
      Determinants<T>(stream, allocator, shape, a, {nullptr, AsElements(sign_data), logarithm});
    });
  });
}

}  // namespace
}  // namespace linalg::cuda

LINALG_HANDLER(linalg_det, linalg::cuda::Det);
LINALG_HANDLER(linalg_slogdet, linalg::cuda::Slogdet);
